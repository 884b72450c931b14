"""Text of others on a terminal: made visible, measured, cut and aligned.

The law of the file: whatever did not come from Stepwell's own source passes `visible()` or `visible_lines()` before it
is printed, so that no byte of it can steer the terminal or reorder what is read.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = Any

_UNSAFE = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # directions
    "\u00ad\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible, separators, annotations
    "\U000e0000-\U000e007f"  # tags
    "\ud800-\udfff"  # lone surrogates
)
_CHARACTER = re.compile(f"[{_UNSAFE}]")
_NARROWEST = 24
"""Characters that a column has which is wrapped."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _shown(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible(text: object) -> str:
    """One line of text in which control, bidirectional and invisible characters are written out."""
    return _CHARACTER.sub(_shown, str(text))


def visible_lines(text: object) -> list[str]:
    """The lines of a text, each made visible; tabs become spaces."""
    return [visible(line.expandtabs(4)) for line in str(text).replace("\r\n", "\n").split("\n")]


def json_text(value: Json, *, indent: int | None = None) -> str:
    """JSON as text for a terminal or a pipe: readable in any script, with unsafe characters escaped as JSON does."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return _CHARACTER.sub(_json_escape, text) if _CHARACTER.search(text) else text


def _json_escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character == "\n":  # between the lines of indented JSON; inside texts it is escaped already
        return character
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def width(text: str) -> int:
    """Columns that a visible text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.category(character) in {"Mn", "Me", "Cf"} else 1


def cut(text: str, columns: int) -> str:
    """`text` in at most `columns` columns, with an ellipsis where something was left out."""
    if columns <= 0:
        return ""
    if len(text) <= columns // 2 or width(text) <= columns:
        return text
    taken, used = [], 0
    for character in text:
        used += _columns(character)
        if used > columns - 1:
            break
        taken.append(character)
    return "".join(taken) + "…"


def pad(text: str, columns: int) -> str:
    """`text` followed by spaces up to `columns` columns."""
    return text + " " * (columns - width(text))


def table(rows: Iterable[Sequence[object]], heads: Sequence[str], *, columns: int = 0) -> list[str]:
    """Lines of a table whose cells are texts of anybody; the last column is cut to fit `columns` (0: never)."""
    cells = [[visible(cell) for cell in row] for row in rows]
    widths = [max(width(row[at]) for row in [list(heads), *cells]) for at in range(len(heads))]
    lines = []
    for row in [list(heads), *cells]:
        front = "  ".join(pad(cell, widths[at]) for at, cell in enumerate(row[:-1]))
        room = columns - width(front) - 2
        last = cut(row[-1], max(room, 10)) if columns else row[-1]
        lines.append(f"{front}  {last}".rstrip() if front else last)
    return lines


def wrapped(rows: Iterable[Sequence[object]], heads: Sequence[str], *, columns: int = 0) -> list[str]:
    """A table whose last column goes on below itself where the terminal ends, at `columns` (0: at none)."""
    cells = [[*heads], *([visible(cell) for cell in row] for row in rows)]
    if not columns:
        return table(cells[1:], heads)
    front = sum(max(width(row[at]) for row in cells) + 2 for at in range(len(heads) - 1))
    broken: list[list[str]] = []
    for row in cells:
        first, *more = textwrap.wrap(row[-1], max(columns - front, _NARROWEST), break_on_hyphens=False) or [""]
        broken += [[*row[:-1], first], *([""] * (len(heads) - 1) + [part] for part in more)]
    return table(broken[1:], broken[0])


def terminal_columns() -> int:
    """How wide the terminal is; 0 where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def duration(seconds: float) -> str:
    """A duration for people: 0.4 s, 12.0 s, 3 m 20 s, 2 h 5 m, 3 d 4 h."""
    if seconds < 60:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    for size, unit, smaller, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {small_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"
