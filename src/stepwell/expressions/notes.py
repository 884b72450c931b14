"""Judges braces that stayed text: which of them were probably meant as references."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .functions import FUNCTIONS
from .limits import NOTES
from .vocabulary import MAIN_ROOTS, ROOTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_WINDOW = 300
_JUDGED = 2_000
_RUN = re.compile(r"\{{2,}")
_EMPTY = re.compile(r"\s*\}\}")
_PATH = re.compile(r"[ \t]*[^\W\d][\w-]*(?:[ \t]*(?:\.|\?\.)[ \t]*[\w`-]+|\[[^\[\]{}]{0,60}\])*[ \t]*(?:\}\}|\|(?!\|))")
_WORD = re.compile(r"[^\W\d]\w*")

NoteKind = Literal["empty", "unclosed", "unknown_root", "foreign"]


@dataclass(frozen=True, slots=True)
class Note:
    """
    Braces kept as text. `offset` counts from 0; `line` and `column` from 1.

    `kind`: empty (`{{ }}`), unclosed (no `}}` follows), unknown_root (a path that starts with no known name), foreign
    (something else that mentions a known name).
    """

    code: str
    message: str
    hint: str
    offset: int
    line: int
    column: int
    kind: NoteKind


def notes_of(text: str, spans: tuple[tuple[int, int], ...], names: Collection[str]) -> tuple[Note, ...]:
    """
    The notes for the braces outside the references at `spans`; those plainly of another language give none.

    At most 100 notes, from the first 2,000 places.
    """
    last_close = text.rfind("}}")
    found: list[Note] = []
    for place, inside in _foreign(text, spans):
        kind = _judge(text, (place, inside), last_close, names)
        if kind is not None:
            found.append(_note(text, place, kind, names))
            if len(found) == NOTES:
                break
    return tuple(found)


def _foreign(text: str, spans: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int]]:
    """Where two or more braces stand that neither open a reference nor are escaped, and where those braces end."""
    starts = dict(spans)
    position = 0
    for _ in range(_JUDGED):
        run = _RUN.search(text, position)
        if run is None:
            return
        start, end = run.span()
        position = end
        if end - 2 in starts:
            position = starts[end - 2]
            end -= 2
        slashes = start
        while slashes > 0 and text[slashes - 1] == "\\":
            slashes -= 1
        start += 2 * ((run.start() - slashes) % 2)
        if end - start >= 2:
            yield start, end


def _judge(text: str, braces: tuple[int, int], last_close: int, names: Collection[str]) -> NoteKind | None:
    place, start = braces
    if place > last_close:
        return "unclosed"
    if _EMPTY.match(text, start, start + _WINDOW) is not None:
        return "empty"
    if _PATH.match(text, start, start + _WINDOW) is not None:
        return "unknown_root"
    close = text.find("}}", start, start + _WINDOW)
    inner = text[start : close if close >= 0 else start + _WINDOW]
    known = (*ROOTS, *names)
    mentions = any(
        word[0] in known and inner[word.end() : word.end() + 1] in (".", "[", "?") for word in _WORD.finditer(inner)
    )
    calls = any(word[0] in FUNCTIONS and inner.startswith("(", word.end()) for word in _WORD.finditer(inner))
    return "foreign" if mentions or calls else None


def _note(text: str, place: int, kind: NoteKind, names: Collection[str]) -> Note:
    line = text.count("\n", 0, place) + 1
    column = place - text.rfind("\n", 0, place)
    if kind == "empty":
        message, hint = "nothing stands between {{ and }}", "name a value, or escape it as \\{{"
    elif kind == "unclosed":
        message, hint = "'{{' has no '}}'", "close the reference or escape it as \\{{"
    else:
        message = '"{{" here is kept as text: it does not start with a known name'
        hint = f"known: {', '.join((*MAIN_ROOTS, *sorted(names)))}"
    return Note("syntax", message, hint, place, line, column, kind)
