"""Cuts a text into passages of a few hundred characters, where a reader would.

The law of the file: passages are pieces of the text in its order, and only white space between and around them changes.
The time taken grows with the length of the text alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ENOUGH = 500
"""A passage of this many characters takes no further paragraph."""
LONGEST = 900
"""Characters of a passage at most."""

_BLANK = re.compile(r"\n[ \t\r\f\v]*(?:\n[ \t\r\f\v]*)+")
_HEADING = re.compile(r"^#{1,6}[ \t]+(\S.*)$")
_SENTENCE = re.compile(r"(?<=[.!?…;])[ \t\n\r]+|(?<=[。！？；…])|\n")
_SPACE = re.compile(r"\s")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage; `heading` is the Markdown heading it stands under, if that is not in it."""

    text: str
    heading: str = ""


def chunks(text: str) -> list[Chunk]:
    """The passages of a plain or Markdown text; none if it is blank."""
    found: list[Chunk] = []
    for heading, paragraphs in _sections(text):
        for number, passage in enumerate(_packed(paragraphs)):
            found.append(Chunk(passage, heading if number else ""))
    return found


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each heading with the paragraphs from it to the next one, its own line among the first."""
    heading, only_headings = "", True
    paragraphs: list[str] = []
    for block in _BLANK.split(text.replace("\r\n", "\n")):
        for part in _split_at_headings(block):
            match = _HEADING.match(part.partition("\n")[0])
            if match and not only_headings:
                yield heading, paragraphs
                paragraphs, only_headings = [], True
            if match:
                heading = match[1].strip()
            only_headings = only_headings and match is not None and "\n" not in part.strip()
            paragraphs.append(part)
    yield heading, paragraphs


def _split_at_headings(block: str) -> Iterator[str]:
    """A block without blank lines, cut before each line that is a heading."""
    block = block.strip("\n")
    if "\n#" not in block:
        if block.strip():
            yield block
        return
    lines: list[str] = []
    for line in block.split("\n"):
        if lines and _HEADING.match(line):
            yield "\n".join(lines)
            lines = []
        lines.append(line)
    yield "\n".join(lines)


def _packed(parts: Iterable[str]) -> Iterator[str]:
    """The paragraphs joined to passages by blank lines, too long ones cut first."""
    current = ""
    for part in parts:
        for piece in _fitting(part):
            if not current:
                current = piece
            elif len(current) < ENOUGH and len(current) + 2 + len(piece) <= LONGEST:
                current = f"{current}\n\n{piece}"
            else:
                yield current
                current = piece
    if current.strip():
        yield current


def _fitting(part: str) -> Iterator[str]:
    if len(part) <= LONGEST:
        yield part
        return
    current = ""
    for sentence in _sentences(part):
        for piece in _cut(sentence):
            if len(current) + len(piece) > LONGEST and current.strip():
                yield current.strip()
                current = ""
            current += piece
    if current.strip():
        yield current.strip()


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for match in _SENTENCE.finditer(text):
        yield text[start : match.end()]
        start = match.end()
    yield text[start:]


def _cut(sentence: str) -> Iterator[str]:
    """A sentence in pieces that fit, cut at the last white space where there is one."""
    start = 0
    while len(sentence) - start > LONGEST:
        end = start + LONGEST
        spaces = [match.end() for match in _SPACE.finditer(sentence, start + LONGEST // 2, end)]
        end = spaces[-1] if spaces else end
        yield sentence[start:end]
        start = end
    yield sentence[start:]
