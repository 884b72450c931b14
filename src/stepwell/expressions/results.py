"""
What leaves an expression: text, JSON text, and plain values within the bounds on results.

Every walk counts as it goes, as if the value were written on paper: cyclic, deep and shared data end in a limit error.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from json import dumps
from typing import TYPE_CHECKING, Any

from .errors import Fault
from .limits import JSON_CHARS, RESULT_DEPTH, RESULT_VALUES
from .values import KINDS, PLAIN, bounded, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def as_text(value: Any) -> str:
    """How a value stands in a text: strings as they are, timestamps in ISO 8601, everything else as JSON."""
    kind = kind_of(value)
    if kind == "string":
        return str.__str__(value)
    if kind == "timestamp":
        return str(value.isoformat())
    if kind == "duration":
        return duration_text(value)
    if kind in ("array", "object"):
        return as_json(value)
    return _scalar_text(value, kind)


def _scalar_text(value: Any, kind: str) -> str:
    if value is None:
        return "null"
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "number":
        return repr(_finite(value))
    raise _foreign(kind)


def duration_text(value: timedelta) -> str:
    """Seconds with a unit, as CEL writes a duration: `5400s`, `1.5s`."""
    whole, rest = divmod(value // timedelta(microseconds=1), 1_000_000)
    if rest and whole < 0:
        whole, rest = whole + 1, 1_000_000 - rest
        return f"-{-whole}.{rest:06d}".rstrip("0") + "s"
    return (f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)) + "s"


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON text with the characters as they are. Raises Fault (limit, eval, type)."""
    weigh_tree(value, text_limit=JSON_CHARS)
    text = dumps(value, ensure_ascii=False, indent=indent, default=_plain, allow_nan=False)
    if len(text) > JSON_CHARS:
        raise Fault("limit", f"JSON of more than {JSON_CHARS} characters")
    return text


def _plain(value: Any) -> Any:
    kind = kind_of(value)
    return dict(value) if kind == "object" else as_text(value)


def weigh_tree(value: Any, *, text_limit: int = JSON_CHARS) -> bool:
    """
    Counts a result as the tree it would be on paper, and says whether a timestamp or duration is in it.

    Raises Fault: limit when there are too many values, levels or characters; type or eval when it is not JSON.
    """
    timed = False
    room, chars = RESULT_VALUES, text_limit
    stack: list[Iterator[Any]] = [iter((value,))]
    known = KINDS.get
    while stack:
        for item in stack[-1]:
            room -= 1
            kind = known(type(item)) or kind_of(item)
            if kind == "string":
                chars -= len(item)
            elif kind in ("array", "object"):
                if len(item) > room:
                    raise _too_big(text_limit)
                chars -= _key_chars(item) if kind == "object" else 0
                stack.append(iter(item if kind == "array" else item.values()))
                break
            elif kind in ("timestamp", "duration"):
                timed = True
            else:
                _require_json(item, kind)
        else:
            stack.pop()
        if chars < 0 or len(stack) > RESULT_DEPTH + 1:
            raise _too_big(text_limit)
    return timed


def _too_big(text_limit: int) -> Fault:
    parts = f"{RESULT_VALUES} parts, {RESULT_DEPTH} levels or {text_limit} characters"
    return Fault("limit", f"the value has more than {parts}")


def _key_chars(item: Mapping[Any, Any]) -> int:
    total = 0
    for key in item:
        if not isinstance(key, str):
            raise Fault("type", f"a field name is a string, got {kind_of(key)}")
        total += len(key)
    return total


def _require_json(item: Any, kind: str) -> None:
    if kind == "number":
        _finite(item)
    elif kind not in ("null", "boolean"):
        raise _foreign(kind)


def _finite(number: float) -> int | float:
    if type(number) is float and number - number != 0:
        raise Fault("eval", f"{number} has no JSON form")
    return bounded(number)


def _foreign(kind: str) -> Fault:
    return Fault("type", f"a value of type {kind} is not JSON")


def settled(value: Any) -> Any:
    """A result made by an expression, bounded, with timestamps and durations as text. Raises Fault (limit, type)."""
    if type(value) in PLAIN:
        if type(value) is datetime or type(value) is timedelta:
            return as_text(value)
        if type(value) is float and not math.isfinite(value):
            raise Fault("eval", "the result is not a finite number")
        return value
    return _rewritten(value) if weigh_tree(value) else value


def passed(value: Any) -> Any:
    """
    A value that is the caller's own: kept as the same object, if it is one of the data model's types at all.

    Raises Fault (type).
    """
    kind = kind_of(value)
    if kind in ("timestamp", "duration"):
        return as_text(value)
    if kind.startswith("Python"):
        raise _foreign(kind)
    return value


def _rewritten(value: Any) -> Any:
    """A copy with every timestamp and duration as text; the depth is bounded by `weigh_tree` before."""
    kind = kind_of(value)
    if kind == "array":
        return [_rewritten(item) for item in value]
    if kind == "object":
        return {key: _rewritten(item) for key, item in value.items()}
    return as_text(value) if kind in ("timestamp", "duration") else value
