"""What a document is: parts, each of which came with one version and may have gone with another.

    text at version v = the parts with since <= v < until, by position, joined by blank lines

The law of the file: no write changes a part that is there, it only says with which version the part ends. So every
version stays readable, and appending costs what is appended, however long the document is.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepwell.errors import StepFailed
from stepwell.interpreter.normalise import clean_text
from stepwell.knowledge.bigrams import words
from stepwell.knowledge.chunking import chunks

if TYPE_CHECKING:
    from stepwell.ports import DocumentWrite

JOINT = "\n\n"
LONGEST_NAME = 500
LONGEST_CONTENT = 20_000_000
"""Characters of one write."""
DEFAULT = "default"
"""The collection of a write that names none; it leaves a document in the collection that it is in."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """A passage with the words under which it is found, separated by spaces."""

    text: str
    words: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A write that was checked and cut into passages, before any lock is taken."""

    write: DocumentWrite
    passages: tuple[Indexed, ...]


def prepared(write: DocumentWrite) -> Prepared:
    """The write with its names cleaned and its content cut into passages.

    Raises StepFailed("validation_error") for names that are empty or too long, a mode that does not exist, an upsert
    without a section, or more than 20 million characters.
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
        raise StepFailed("validation_error", f"content has {len(write.content):,} characters; at most 20,000,000")
    passages = (Indexed(chunk.text, _words_of(chunk.heading, chunk.text)) for chunk in chunks(write.content))
    return Prepared(write, tuple(passages))


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


def _words_of(heading: str, text: str) -> str:
    return " ".join(words(f"{heading}\n{text}" if heading else text))
