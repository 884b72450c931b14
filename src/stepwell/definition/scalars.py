"""
Which character of the file each character of a scalar's value comes from.

Block scalars follow the scanner of YAML 1.2 (chapters 7 and 8: flow folding, block chomping and folding).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HEADER = re.compile(r"[|>][0-9+-]*[ \t]*(?:#[^\r\n]*)?(\r\n|\r|\n|$)")
_BREAK = re.compile(r"\r\n|\r|\n")
_FOLD = re.compile(r"[ \t]*(?:\r\n|\r|\n)[ \t]*")
_BREAKS = re.compile(r"(?:[ \t]*(?:\r\n|\r|\n))+[ \t]*")
_ESCAPES = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
    " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_WIDTHS = {"x": 2, "u": 4, "U": 8}


@dataclass(slots=True)
class Characters:
    """The text of a scalar, and for each of its characters the index in the file."""

    end: int
    text: list[str] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)

    def add(self, text: str, index: int) -> None:
        """Characters that stand in the file as they are."""
        self.text += text
        self.indexes += range(index, index + len(text))

    def made(self, text: str, index: int) -> None:
        """Characters that come of something else at `index`: an escape, a folded line break."""
        self.text += text
        self.indexes += [index] * len(text)


def characters(source: str, start: int, end: int, style: str) -> Characters:
    """The characters of the scalar at `source[start:end]`, as far as they can be told; never raises."""
    if style in {"literal", "folded"}:
        return _block(source, start, end, folded=style == "folded")
    if style == "plain":
        return _plain(source, start, end)
    return _quoted(source, start + 1, end - 1, style)


def _fold(found: Characters, source: str, index: int) -> int:
    """A run of line breaks inside a flow scalar: one is a space, further ones are line feeds."""
    match = _BREAKS.match(source, index)
    if match is None:
        return index
    breaks = len(_BREAK.findall(match[0]))
    found.made("\n" * (breaks - 1) or " ", index)
    return match.end()


def _plain(source: str, start: int, end: int) -> Characters:
    found = Characters(end)
    index = start
    while index < end:
        match = _FOLD.search(source, index, end)
        stop = match.start() if match else end
        found.add(source[index:stop], index)
        index = _fold(found, source, stop) if match else end
    return found


def _quoted(source: str, start: int, end: int, style: str) -> Characters:
    found = Characters(end)
    index = start
    stop = re.compile(r"''" if style == "single" else r"\\")
    while index < end:
        fold = _FOLD.search(source, index, end) if style != "json" else None
        mark = stop.search(source, index, end)
        if mark and (fold is None or mark.start() < fold.start()):
            found.add(source[index : mark.start()], index)
            index = _quote(found, mark.start()) if style == "single" else _escape(found, source, mark.start(), end)
        elif fold:
            found.add(source[index : fold.start()], index)
            index = _fold(found, source, fold.start())
        else:
            found.add(source[index:end], index)
            index = end
    return found


def _quote(found: Characters, index: int) -> int:
    found.made("'", index)
    return index + 2


def _escape(found: Characters, source: str, index: int, end: int) -> int:
    letter = source[index + 1 : index + 2]
    if letter in _WIDTHS:
        stop = index + 2 + _WIDTHS[letter]
        code = _code_point(source[index + 2 : stop])
        if 0xD800 <= code < 0xDC00 and source[stop : stop + 2] == "\\u":
            code = 0x10000 + ((code & 0x3FF) << 10) + (_code_point(source[stop + 2 : stop + 6]) & 0x3FF)
            stop += 6
        found.made(chr(code), index)
        return stop
    if match := re.compile(r"\\(?:\r\n|\r|\n)[ \t]*").match(source, index):
        return match.end()
    found.made(_ESCAPES.get(letter, letter), index)
    return min(index + 2, end)


def _code_point(digits: str) -> int:
    try:
        code = int(digits, 16)
    except ValueError:
        return 0xFFFD
    return code if code <= 0x10FFFF else 0xFFFD


def _block(source: str, start: int, end: int, *, folded: bool) -> Characters:
    found = Characters(end)
    header = _HEADER.match(source, start)
    if header is None:
        return found
    lines = _lines(source, header.end(), end)
    indent = _indent(source, start, lines)
    leading, leading_blank = -1, False
    trailing: list[int] = []
    for first, stop in lines:
        begin = min(first + indent, stop)
        if begin == stop and not source[first:stop].strip(" "):
            trailing.append(stop)
            continue
        blank = source[begin] in " \t"
        if folded and leading >= 0 and not leading_blank and not blank:
            if not trailing:
                found.made(" ", leading)
        elif leading >= 0:
            found.made("\n", leading)
        for place in trailing:
            found.made("\n", place)
        trailing.clear()
        found.add(source[begin:stop], begin)
        leading, leading_blank = stop, blank
    for place in [*([leading] if leading >= 0 else []), *trailing]:
        found.made("\n", place)
    return found


def _lines(source: str, start: int, end: int) -> list[tuple[int, int]]:
    """Start and end (without the break) of each line."""
    lines: list[tuple[int, int]] = []
    index = start
    while index < end:
        match = _BREAK.search(source, index, end)
        lines.append((index, match.start() if match else end))
        index = match.end() if match else end
    return lines


def _indent(source: str, start: int, lines: list[tuple[int, int]]) -> int:
    """The indentation of a block scalar: its first line's, or by its indicator from the line that opens it."""
    digit = re.compile(r"[|>][+-]?([1-9])").match(source, start)
    if digit:
        least = min((_spaces(source, *line) for line in lines if source[line[0] : line[1]].strip(" ")), default=0)
        opened = source.rfind("\n", 0, start) + 1
        return min(least, _spaces(source, opened, start) + int(digit[1]))
    for first, stop in lines:
        if source[first:stop].strip(" "):
            return _spaces(source, first, stop)
    return max((stop - first for first, stop in lines), default=0)


def _spaces(source: str, start: int, stop: int) -> int:
    return len(source[start:stop]) - len(source[start:stop].lstrip(" "))
