"""Reads files of documents: text and Markdown by itself, HTML, PDF and DOCX with `kreuzberg` (extra `docs`).

The law of the file: a file gives its text or a problem that says what is wrong with it and what helps; nothing of a
file is executed, fetched or guessed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

from stepwell.adapters.document_text import decoded
from stepwell.errors import InputError, Problem
from stepwell.extras import installing

TEXT = (".txt", ".text", ".md", ".markdown")
MARKUP = {
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "text/html",
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
}
SUFFIXES = (*TEXT, *MARKUP)
LARGEST = 50_000_000
"""Bytes of a file."""

_HEAD = re.compile(r"<title\b[^>]*>(?P<title>.*?)</title\s*>|<(?:meta|link|base)\b[^>]*>", re.IGNORECASE | re.DOTALL)
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([A-Za-z0-9_-]{1,40})", re.IGNORECASE)
_JOINT = "\n\n"


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A file's text. `pages` says where in it each page begins, for files that have pages."""

    text: str
    title: str = ""
    pages: tuple[int, ...] = ()
    note: str = ""
    """What was left out of it."""


def read_document(file: Path, *, encoding: str = "") -> ReadDocument:
    """The text of a file; `encoding` is that of text, Markdown and HTML (default: what the file says, else UTF-8).

    Blocks; raises InputError.
    """
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise refusal(
            file, f"files of this kind cannot be read ({suffix or 'no suffix'})", f"these can: {', '.join(SUFFIXES)}"
        )
    data = _bytes_of(file)
    if not data.strip():
        raise refusal(file, "the file is empty", "")
    if suffix in TEXT:
        return ReadDocument(_decoded(file, data, encoding))
    if find_spec("kreuzberg") is None:
        message = f"reading {suffix} files needs the package kreuzberg, which is not installed"
        raise refusal(file, message, f"install the extra: {installing('docs')}")
    if MARKUP[suffix] == "text/html":
        return _html(file, data, encoding)
    read = _extracted(file, data, MARKUP[suffix])
    return _pdf(file, read) if suffix == ".pdf" else _with_text(file, ReadDocument(_plain(read.content), _title(read)))


def refusal(file: Path, message: str, hint: str) -> InputError:
    return InputError([Problem("error", "document", message, hint, file=str(file))])


def _bytes_of(file: Path) -> bytes:
    try:
        if file.stat().st_size > LARGEST:
            raise refusal(file, f"the file is larger than {LARGEST:,} bytes", "split it")
        return file.read_bytes()
    except OSError as error:
        raise refusal(file, f"the file cannot be read: {error.strerror}", "") from error


def _decoded(file: Path, data: bytes, encoding: str) -> str:
    try:
        return decoded(data, encoding)
    except ValueError as error:
        said, _, hint = str(error).partition("\n")
        raise refusal(file, said, hint) from None


def _html(file: Path, data: bytes, encoding: str) -> ReadDocument:
    """The content of a page as Markdown, without scripts, styles and navigation."""
    told = _CHARSET.search(data[:4096])
    text = _decoded(file, data, encoding or (told[1].decode("ascii") if told else ""))
    named = next((match["title"] for match in _HEAD.finditer(text) if match["title"]), "")
    read = _extracted(file, _HEAD.sub("", text).encode(), MARKUP[".html"])
    return _with_text(file, ReadDocument(_plain(read.content), " ".join(html.unescape(named).split())))


def _pdf(file: Path, read: Any) -> ReadDocument:
    pages = [_plain(page["content"]).strip() for page in read.pages or ()] or [_plain(read.content)]
    empty = sum(not page for page in pages)
    if empty == len(pages):
        message = f"there is no text in it, only {_counted(len(pages), 'page')} of pictures or nothing"
        raise refusal(
            file, message, "if it is a scan, let a program for text recognition (OCR) make a PDF with text of it"
        )
    starts = accumulate((len(page) + len(_JOINT) for page in pages[:-1]), initial=0)
    note = f"{_counted(empty, 'page')} of {len(pages)} without text" if empty else ""
    return ReadDocument(_JOINT.join(pages), _title(read), tuple(starts), note)


def _with_text(file: Path, read: ReadDocument) -> ReadDocument:
    if not read.text.strip():
        raise refusal(file, "there is no text in it", "")
    return read


def _title(read: Any) -> str:
    metadata = dict(read.metadata)
    core = metadata.get("core_properties")
    found = metadata.get("title") or (core.get("title") if isinstance(core, dict) else "") or ""
    return " ".join(str(found).split())


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _extracted(file: Path, data: bytes, mime: str) -> Any:
    import kreuzberg

    pages = kreuzberg.PageConfig(extract_pages=True) if mime == MARKUP[".pdf"] else None
    config = kreuzberg.ExtractionConfig(
        output_format="markdown", use_cache=False, enable_quality_processing=False, pages=pages
    )
    try:
        return kreuzberg.extract_bytes_sync(data, mime, config=config)
    except kreuzberg.KreuzbergError as error:
        raise _unreadable(file, str(error)) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # how faults of the library's own reach Python
            raise
        raise _unreadable(file, "the library that reads it failed") from None


def _unreadable(file: Path, said: str) -> InputError:
    if "password" in said.lower() or "encrypt" in said.lower():
        return refusal(file, "the file is protected by a password", "save it without one, and add that")
    kind = file.suffix.lower().removeprefix(".").upper()
    hint = f"open it in the program that it is from and save it anew as {kind}"
    return refusal(file, f"the file is damaged, or is no {kind}: {_short(said)}", hint)


def _short(said: str) -> str:
    return said.removeprefix("ParsingError: ").partition("\n")[0][:120]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def files_below(paths: Iterable[Path]) -> list[tuple[Path, Path]]:
    """The files to be read, each with the folder under which it was found: folders give what can be read below them.

    Hidden files and folders are passed over, and files reached twice are read once. Raises InputError for a path that
    is not there.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
                if file.is_file() and not hidden and file.suffix.lower() in SUFFIXES:
                    found.setdefault(file, path)
        elif path.exists():
            found.setdefault(path, path.parent)
        else:
            raise refusal(path, "there is no such file", "")
    return list(found.items())
