"""Cuts a text into passages of a few hundred characters, where a reader would, and knows where each of them lies.

The law of the file: a passage is a slice of the text, `text[start : start + len(passage.text)]`; the same text always
gives the same passages; the time taken grows with the length of the text alone.

A Markdown section that fits is one passage. Longer ones are cut by `semantic-text-splitter` at the highest boundary of
Markdown or of sentences that fits. It takes time in the square of a paragraph's length, so it is given one window of
a long text after the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ENOUGH = 500
"""A passage of this many characters takes nothing more."""
LONGEST = 900
"""Characters of a passage at most."""
WINDOW = 16_000
"""Characters that are cut at a time."""
_LONELY = 120
"""Characters of a first passage that is put to the second one."""
DEEPEST_PATH = 200
"""Characters of a heading path at most."""

_LINE = re.compile(r"^[^\S\n]{0,3}(?:(#{1,6})[ \t]+(\S.*?)[ \t]*#*|(`{3,}|~{3,})[^\n]*)\r?$", re.MULTILINE)
_BREAK = re.compile(r"\n[ \t\r]*\n|\n|[.!?;。！？；…]|\s")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage. `heading` is the path of Markdown headings that it stands under, its own last: "Refunds > Abroad"."""

    text: str
    start: int = 0
    heading: str = ""


def chunks(text: str) -> list[Chunk]:
    """The passages of a plain or Markdown text; none if it is blank."""
    found: list[Chunk] = []
    for begin, end, heading in _sections(text):
        passages = list(_fitting(text, begin, end))
        if len(passages) > 1 and len(passages[0][1]) <= _LONELY:  # a heading goes with what follows it
            start, (after, passage) = passages[0][0], passages[1]
            if after + len(passage) - start <= LONGEST:
                passages[:2] = [(start, text[start : after + len(passage)])]
        found += [Chunk(passage, start, heading) for start, passage in passages]
    return found


def _sections(text: str) -> Iterator[tuple[int, int, str]]:
    """Where each section begins and ends, and its heading path; headings with nothing below go with the next one."""
    path: list[tuple[int, str]] = []
    begin, body = 0, 0
    for start, end, level, title in _headings(text):
        if text[body:start].strip():
            yield begin, start, _joined(path)
            begin = start
        path = [*(above for above in path if above[0] < level), (level, title)]
        body = end
    if text[begin:].strip():
        yield begin, len(text), _joined(path)


def _headings(text: str) -> Iterator[tuple[int, int, int, str]]:
    """Start, end, level and title of every heading that is not inside fenced code."""
    if "#" not in text:
        return
    fence = ""
    for match in _LINE.finditer(text):
        if mark := match[3]:
            if not fence:
                fence = mark
            elif mark[0] == fence[0] and len(mark) >= len(fence):
                fence = ""
        elif not fence:
            yield match.start(), match.end(), len(match[1]), match[2]


def _joined(path: list[tuple[int, str]]) -> str:
    return " > ".join(title for _, title in path)[:DEEPEST_PATH]


def _fitting(text: str, begin: int, end: int) -> Iterator[tuple[int, str]]:
    """The passages of a section and where they start."""
    begin, end = _trimmed(text, begin, end)
    while begin < end:
        stop = end if end - begin <= WINDOW else _window(text, begin)
        if stop - begin <= LONGEST:
            start, until = _trimmed(text, begin, stop)
            if start < until:
                yield start, text[start:until]
        else:
            # With carriage returns left in, offsets would still be right; they count as white space.
            for offset, passage in _splitter().chunk_indices(text[begin:stop]):
                if passage.strip():
                    yield from _bare(begin + offset, passage)
        begin = stop


def _bare(start: int, passage: str) -> Iterator[tuple[int, str]]:
    """A passage without white space around it, which the splitter leaves where it is a part of Markdown."""
    kept = passage.lstrip()
    yield start + len(passage) - len(kept), kept.rstrip()


def _window(text: str, begin: int) -> int:
    """Where a window that begins here ends: after the last blank line in its second half, else a line, a sentence."""
    best, rank = begin + WINDOW, 9
    for match in _BREAK.finditer(text, begin + WINDOW // 2, begin + WINDOW):
        found = match[0]
        kind = 0 if found.count("\n") > 1 else 1 if found == "\n" else 3 if found.isspace() else 2
        if kind <= rank:
            best, rank = match.end(), kind
    return best


def _trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    while begin < end and text[begin].isspace():
        begin += 1
    while end > begin and text[end - 1].isspace():
        end -= 1
    return begin, end


@cache
def _splitter() -> Any:
    from semantic_text_splitter import MarkdownSplitter

    return MarkdownSplitter((ENOUGH, LONGEST))
