"""Adds text files to the knowledge base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.errors import InputError, Problem
from stepwell.ports import DocumentWrite, KnowledgeStore, Written

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = (".txt", ".md", ".markdown")
LARGEST = 20_000_000
"""Bytes of a file."""


async def add_file(
    store: KnowledgeStore, account: str, file: Path, *, document: str = "", collection: str = "default"
) -> Written:
    """Make the file's text the newest version of a document, which is named as the file (without suffix) by default.

    Raises InputError for a file that is missing, too large, of another kind, or not UTF-8.
    """
    text = read_text(file)
    write = DocumentWrite(document or file.stem, text, collection, "replace", metadata={"file": file.name})
    return await store.write(account, write)


def read_text(file: Path) -> str:
    """The text of a .txt or Markdown file, without byte order mark. Raises InputError."""
    if file.suffix.lower() not in SUFFIXES:
        raise _refusal(file, "only text and Markdown can be added", f"its name ends in {', '.join(SUFFIXES)}")
    try:
        if file.stat().st_size > LARGEST:
            raise _refusal(file, f"the file is larger than {LARGEST:,} bytes", "split it")
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise _refusal(file, f"the file cannot be read: {error.strerror}", "") from error
    except UnicodeDecodeError as error:
        raise _refusal(file, f"the file is not UTF-8 text: byte {error.start} is wrong", "convert it") from error


def _refusal(file: Path, message: str, hint: str) -> InputError:
    return InputError([Problem("error", "knowledge", message, hint, file=str(file))])
