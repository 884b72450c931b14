"""
What can be wrong with an expression, and how it is shown: code, place, caret and hint.

Inside the package closures raise `Fault` and `Absent`, which are cheap and know no source text; the public calls turn
them into `ExpressionError`, the only exception that leaves the package.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_CARET_ROOM = 60
_AFTER_CARET = 40
_CANDIDATES = 200
_LISTED = 8
_NAME_CHARS = 40
_HUGE = 10**18


class ExpressionError(Exception):
    """
    An expression or template is wrong, or cannot be evaluated over the given data.

    `code` is one of syntax, step, order, scope, path, enum, type, missing, eval, limit. `offset` counts characters
    from 0 in `source`; `line` and `column` count from 1. `hint` is "" when there is none.
    """

    severity = "error"

    def __init__(self, code: str, message: str, source: str = "", offset: int = 0, hint: str = "") -> None:
        super().__init__(code, message, source, offset, hint)
        self.code = code
        self.message = _encodable(message)
        self.source = source
        self.offset = offset
        self.hint = _encodable(hint)

    @property
    def line(self) -> int:
        return self.source.count("\n", 0, self.offset) + 1

    @property
    def column(self) -> int:
        return self.offset - self.source.rfind("\n", 0, self.offset)

    def __str__(self) -> str:
        tail = f" ({self.hint})" if self.hint else ""
        return f"{self.code} at {self.line}:{self.column}: {self.message}{tail}"

    def render(self) -> str:
        """The error over several lines, with the source line and a caret (East Asian wide characters count two)."""
        shown, caret = _excerpt(self.source, self.offset)
        lines = [f"[{self.code}] {self.line}:{self.column}: {self.message}", f"  | {shown}", f"  | {' ' * caret}^"]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return _encodable("\n".join(lines))


class ExpressionWarning(ExpressionError):  # a warning is what it is
    """A finding of the static check that need not be wrong: a step that may be skipped is read without a guard."""

    severity = "warning"


class Fault(Exception):  # internal; the public name is ExpressionError
    """An error at an offset, not yet tied to its source text. An offset of -1 is filled in by the caller."""

    def __init__(self, code: str, message: str, offset: int = -1, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.offset = offset
        self.hint = hint

    def at(self, offset: int) -> Fault:
        """The same fault, placed unless it already is."""
        if self.offset < 0:
            self.offset = offset
        return self

    def within(self, source: str) -> ExpressionError:
        return ExpressionError(self.code, self.message, source, max(self.offset, 0), self.hint)


class Absent(Exception):  # internal; the public name is ExpressionError
    """A key, index or root that is not there; the text is only made when nobody guards against it."""

    def __init__(self, container: Any, key: str | int, offset: int, root: str = "") -> None:
        super().__init__()
        self.container = container
        self.key = key
        self.offset = offset
        self.root = root

    def at(self, offset: int) -> Absent:
        """The same, placed unless it already is."""
        if self.offset < 0:
            self.offset = offset
        return self

    def within(self, source: str) -> ExpressionError:
        message, hint = self._explained()
        return ExpressionError("missing", message, source, max(self.offset, 0), hint)

    def _explained(self) -> tuple[str, str]:
        container, key = self.container, self.key
        if container is None:
            return f"null has no {described(key)}", "guard with  ?? default  or  x?.y"
        if isinstance(container, (list, tuple)):
            return f"index {shown_integer(key)} is outside the array of {len(container)}", ""
        names = [name for name in islice(container, _CANDIDATES) if isinstance(name, str)]
        if self.root == "context":
            return f"'{key}' is not available here", suggestion(str(key), names) or listing("available", names)
        if self.root in ("step", "steps"):
            noun = "output" if self.root == "step" else "record"
            hint = suggestion(str(key), names) or "the step has not run here; guard with  ?? default"
            return f"no {noun} of step '{shortened(str(key))}'", hint
        return f"no {described(key)}", suggestion(str(key), names) or listing("fields", names)


def shortened(text: str) -> str:
    """At most 40 characters of a name, so that data never floods a message."""
    return text if len(text) <= _NAME_CHARS else text[: _NAME_CHARS - 1] + "…"


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """A "did you mean" hint for a misspelt name, or ""."""
    from difflib import get_close_matches

    close = get_close_matches(name[:64], [item for item in islice(candidates, _CANDIDATES) if len(item) <= 64], 1, 0.7)
    return f"did you mean '{close[0]}'?" if close else ""


def listing(title: str, names: Iterable[str]) -> str:
    """The hint that lists what there is, or "" when there is nothing."""
    some = [shortened(name) for name in islice(names, _LISTED + 1)]
    if not some:
        return ""
    more = ", ..." if len(some) > _LISTED else ""
    return f"{title}: {', '.join(some[:_LISTED])}{more}"


def described(key: str | int) -> str:
    """A segment of a path in words, bounded in length."""
    return f"field '{shortened(key)}'" if isinstance(key, str) else f"index {shown_integer(key)}"


def shown_integer(number: Any) -> str:
    """An integer of the data in a message: very long ones are not written out."""
    return str(number) if abs(number) < _HUGE else "of many digits"


def _encodable(text: str) -> str:
    """Lone surrogates, which no log and no answer could carry, become U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _excerpt(source: str, offset: int) -> tuple[str, int]:
    start = source.rfind("\n", 0, offset) + 1
    end = source.find("\n", offset)
    line_end = len(source) if end < 0 else end
    start = max(start, offset - _CARET_ROOM)
    shown = source[start : min(line_end, offset + _AFTER_CARET)].replace("\t", " ").replace("\r", " ")
    return shown, _width(source[start:offset])


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)
