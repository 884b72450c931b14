"""What a document is: parts, each of which came with one version and may have gone with another.

    text at version v = the parts with since <= v < until, by position, joined by blank lines

The law of the file: no write changes a part that is there, it only says with which version the part ends. So every
version stays readable, and appending costs what is appended, however long the document is.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from stepwell.errors import StepFailed
from stepwell.interpreter.normalise import clean_text
from stepwell.knowledge.bigrams import words
from stepwell.knowledge.chunking import chunks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepwell.knowledge.chunking import Chunk
    from stepwell.ports import DocumentWrite

JOINT = "\n\n"
LONGEST_NAME = 500
LONGEST_CONTENT = 20_000_000
"""Characters of one write."""
LARGEST_METADATA = 64_000
"""Bytes of a write's metadata as JSON."""
DEFAULT = "default"
"""The collection of a write that names none; it leaves a document in the collection that it is in."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """A passage with the words under which it is found, separated by spaces; `start` is its place in the write."""

    text: str
    words: str
    start: int = 0
    heading: str = ""
    page: int = 0

    def told(self) -> str:
        """What is embedded: the passage with the headings above it."""
        return told(self.heading, self.text)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A write that was checked and cut into passages, before any lock is taken."""

    write: DocumentWrite
    passages: tuple[Indexed, ...]


def prepared(write: DocumentWrite) -> Prepared:
    """The write with its names cleaned and its content cut into passages.

    Raises StepFailed("validation_error") for names that are empty or too long, a mode that does not exist, an upsert
    without a section, more than 20 million characters, or metadata over 64 KB.
    """
    write = replace(
        write,
        document=named("document", write.document),
        collection=named("collection", write.collection),
        section=named("key", write.section) if write.mode == "upsert" else "",
        content=clean_text(write.content),
        idempotency_key=clean_text(write.idempotency_key),
    )
    if write.mode not in {"append", "replace", "upsert"}:
        raise StepFailed("validation_error", f"mode is append, replace or upsert, this is {write.mode!r}")
    if len(write.content) > LONGEST_CONTENT:
        message = f"content has {len(write.content):,} characters; at most 20,000,000 can be written at once"
        raise StepFailed("validation_error", f"{message}: write it in parts, or as several documents")
    if (size := len(msgspec.json.encode(write.metadata))) > LARGEST_METADATA:
        message = f"metadata is {size:,} bytes of JSON; at most {LARGEST_METADATA:,}"
        raise StepFailed("validation_error", f"{message}: put what is long into the content")
    return Prepared(write, tuple(_indexed(chunk, write.pages) for chunk in chunks(write.content)))


def named(what: str, name: str) -> str:
    """A name as it is kept: NFC, one line, no white space around it. Raises StepFailed("validation_error")."""
    kept = as_kept(name)
    if not kept:
        raise StepFailed("validation_error", f"{what} is empty")
    if len(kept) > LONGEST_NAME:
        raise StepFailed("validation_error", f"{what} has {len(kept)} characters; at most {LONGEST_NAME}")
    return kept


def as_kept(name: str) -> str:
    """A name as it would be kept, to look for it."""
    return unicodedata.normalize("NFC", " ".join(clean_text(name).replace("\x00", " ").split()))


def told(heading: str, text: str) -> str:
    """A passage with those headings above it that it does not hold itself."""
    above = " > ".join(title for title in heading.split(" > ") if title and title not in text)
    return f"{above}\n{text}" if above else text


def _indexed(chunk: Chunk, pages: Sequence[int]) -> Indexed:
    spoken = " ".join(words(told(chunk.heading, chunk.text)))
    return Indexed(chunk.text, spoken, chunk.start, chunk.heading, bisect_right(pages, chunk.start))
