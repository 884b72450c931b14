"""The JSON data model over the caller's own objects: kinds, lookup, equality, text, and the bounds on results.

Nothing here recurses, and nothing reads an attribute of a value: dict, list, tuple and Mapping are the only containers,
and every walk over them is charged or counted, so cyclic, deep and shared data end in a limit error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from json import dumps
from typing import Any, TypeAlias

from .errors import Absent, Fault
from .limits import (
    CHARS_PER_UNIT,
    INTEGER_BITS,
    JSON_CHARS,
    RESULT_DEPTH,
    RESULT_VALUES,
    STRING_CHARS,
)

Frame: TypeAlias = list[Any]
"""One evaluation: the fuel left at 0, then the macros' variables."""

KINDS: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    tuple: "array",
    dict: "object",
    datetime: "timestamp",
    timedelta: "duration",
}
_FALLBACKS: tuple[tuple[type, str], ...] = (
    (str, "string"),
    (Mapping, "object"),
    (list, "array"),
    (tuple, "array"),
    (datetime, "timestamp"),
    (timedelta, "duration"),
)


def kind_of(value: Any) -> str:
    """The type name the language uses; a Python type outside the data model is named as such and fits nowhere."""
    kind = KINDS.get(type(value))
    if kind is not None:
        return kind
    for base, name in _FALLBACKS:
        if isinstance(value, base):
            return name
    return f"Python {type(value).__name__}"


def spend(frame: Frame, units: int) -> None:
    """Take fuel. Raises Fault (limit) when there is none left."""
    frame[0] -= units
    if frame[0] < 0:
        raise Fault("limit", "the expression does too much work")


def spend_text(frame: Frame, length: int) -> None:
    """Take the fuel that making or reading a text of `length` characters costs, and bound its length."""
    if length > STRING_CHARS:
        raise Fault("limit", f"a text of more than {STRING_CHARS} characters")
    spend(frame, 1 + length // CHARS_PER_UNIT)


def peek(value: Any, key: Any) -> Any:
    """The fast path's step into what is neither a plain dict nor a plain list; raises LookupError or TypeError."""
    if isinstance(value, (dict, Mapping)):
        if isinstance(key, str):
            return value[key]
    elif isinstance(value, (list, tuple)) and type(key) is int:
        return value[key]
    raise TypeError


def step_into(value: Any, key: str | int, pos: int, *, dotted: bool) -> Any:
    """`value.key` or `value[key]`. Raises Absent, or Fault (type)."""
    if isinstance(value, (dict, Mapping)):
        if type(key) is int:
            if not dotted:
                raise Fault("type", "an object has no index, its fields have names", pos, f'write  ["{key}"]')
            key = str(key)
        try:
            return value[key]
        except KeyError:
            raise Absent(value, key, pos) from None
    if isinstance(value, (list, tuple)):
        if isinstance(key, str):
            hint = f"use an index [0] or  .map(x, x.{key})"
            raise Fault("type", f"an array has no field '{key[:40]}'", pos, hint)
        try:
            return value[key]
        except IndexError:
            raise Absent(value, key, pos) from None
    if value is None:
        raise Absent(value, key, pos)
    what = f"field '{key[:40]}'" if isinstance(key, str) else f"index {key}"
    raise Fault("type", f"a {kind_of(value)} has no {what}", pos)


def index_into(value: Any, index: Any, pos: int) -> Any:
    """`value[index]` with a computed index: a whole number or a text."""
    if type(index) is float and index.is_integer():
        index = int(index)
    if type(index) is int or isinstance(index, str):
        return step_into(value, index, pos, dotted=False)
    raise Fault("type", f"an index is a whole number or a string, got {kind_of(index)}", pos)


_PLAIN = frozenset((type(None), bool, int, float, str, datetime, timedelta))
_NUMBERS = frozenset((int, float))


def equal(left: Any, right: Any, frame: Frame) -> bool:
    """JSON equality: never an error, false across types, `1 == 1.0`, `true != 1`; deep for arrays and objects."""
    left_type, right_type = type(left), type(right)
    if left_type in _PLAIN and right_type in _PLAIN:
        if left_type is right_type or (left_type in _NUMBERS and right_type in _NUMBERS):
            return bool(left == right)
        return False
    pending: list[tuple[Any, Any]] = [(left, right)]
    while pending:
        spend(frame, 1)
        one, other = pending.pop()
        kind = kind_of(one)
        if kind != kind_of(other):
            return False
        if kind == "array":
            if len(one) != len(other):
                return False
            spend(frame, len(one))
            pending.extend(zip(one, other, strict=True))
        elif kind == "object":
            if len(one) != len(other) or not _pair_fields(one, other, pending, frame):
                return False
        elif one != other:
            return False
    return True


def _pair_fields(
    one: Mapping[str, Any], other: Mapping[str, Any], pending: list[tuple[Any, Any]], frame: Frame
) -> bool:
    spend(frame, len(one))
    for key in one:
        try:
            pending.append((one[key], other[key]))
        except KeyError:
            return False
    return True


def contains(container: Any, item: Any, frame: Frame) -> bool:
    """`item in container`: element of an array, key of an object, part of a text. Raises Fault (type, limit)."""
    kind = kind_of(container)
    if kind == "array":
        spend(frame, len(container))
        return any(equal(element, item, frame) for element in container)
    if kind == "object":
        if not isinstance(item, str):
            return False
        try:
            container[item]
        except KeyError:
            return False
        return True
    if kind == "string":
        if not isinstance(item, str):
            raise Fault("type", f"only a string is in a string, got {kind_of(item)}")
        spend(frame, 1 + len(container) // CHARS_PER_UNIT)
        return item in container
    raise Fault("type", f"'in' needs an array, object or string, got {kind}")


def bounded(number: int | float) -> int | float:
    """A number that JSON and the next operation can bear. Raises Fault (limit, eval)."""
    if type(number) is int:
        if number.bit_length() > INTEGER_BITS:
            raise Fault("limit", f"an integer of more than {INTEGER_BITS} bits")
    elif number - number != 0:
        raise Fault("eval", "the result is not a finite number")
    return number


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
    """Counts a result as the tree it would be on paper, and says whether a timestamp or duration is in it.

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


def _finite(number: int | float) -> int | float:
    if type(number) is float and number - number != 0:
        raise Fault("eval", f"{number} has no JSON form")
    return bounded(number)


def _foreign(kind: str) -> Fault:
    return Fault("type", f"a value of type {kind} is not JSON")


def settled(value: Any) -> Any:
    """A result made by an expression, bounded, with timestamps and durations as text. Raises Fault (limit, type)."""
    if type(value) in _PLAIN:
        if type(value) is datetime or type(value) is timedelta:
            return as_text(value)
        if type(value) is float and not math.isfinite(value):
            raise Fault("eval", "the result is not a finite number")
        return value
    return _rewritten(value) if weigh_tree(value) else value


def _rewritten(value: Any) -> Any:
    """A copy with every timestamp and duration as text; the depth is bounded by `weigh_tree` before."""
    kind = kind_of(value)
    if kind == "array":
        return [_rewritten(item) for item in value]
    if kind == "object":
        return {key: _rewritten(item) for key, item in value.items()}
    return as_text(value) if kind in ("timestamp", "duration") else value
