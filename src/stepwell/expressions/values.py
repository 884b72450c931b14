"""
The JSON data model over the caller's own objects: kinds, lookup, equality, text, and the bounds on results.

Nothing here recurses, and nothing reads an attribute of a value: dict, list, tuple and Mapping are the only containers,
and every walk over them is charged or counted, so cyclic, deep and shared data end in a limit error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from .errors import Absent, Fault, described, shortened, shown_integer
from .limits import (
    CHARS_PER_UNIT,
    INTEGER_BITS,
    KEY_CHARS,
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


def whole_number(value: Any, what: str) -> int:
    """An argument that counts something. Raises Fault (type) for 1.5; 2.0 is 2."""
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise Fault("type", f"{what} is a whole number, got {value if type(value) is float else kind_of(value)}")


def paid(frame: Frame, items: list[Any]) -> enumerate[Any]:
    """The elements with their indexes, one unit each."""
    spend(frame, len(items))
    return enumerate(items)


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
                raise Fault(
                    "type", "an object has no index, its fields have names", pos, f'write  ["{shown_integer(key)}"]'
                )
            key = str(key)
        try:
            return value[key]
        except KeyError:
            raise Absent(value, key, pos) from None
    if isinstance(value, (list, tuple)):
        if isinstance(key, str):
            hint = f"use an index [0] or  .map(x, x.{shortened(key)})"
            raise Fault("type", f"an array has no field '{shortened(key)}'", pos, hint)
        try:
            return value[key]
        except IndexError:
            raise Absent(value, key, pos) from None
    if value is None:
        raise Absent(value, key, pos)
    raise Fault("type", f"{_article(kind_of(value))} has no {described(key)}", pos)


def _article(kind: str) -> str:
    return f"an {kind}" if kind in ("array", "object") else f"a {kind}"


def index_into(value: Any, index: Any, pos: int) -> Any:
    """`value[index]` with a computed index: a whole number or a text."""
    if type(index) is float and index.is_integer():
        index = int(index)
    if isinstance(index, str) and len(index) > KEY_CHARS:
        raise Fault("limit", f"a field name of more than {KEY_CHARS} characters", pos)
    if type(index) is int or isinstance(index, str):
        return step_into(value, index, pos, dotted=False)
    raise Fault("type", f"an index is a whole number or a string, got {kind_of(index)}", pos)


PLAIN = frozenset((type(None), bool, int, float, str, datetime, timedelta))
_NUMBERS = frozenset((int, float))
LONG_TEXT = 1_000
HUGE = 1 << INTEGER_BITS
JSON_TYPES = frozenset((type(None), bool, int, float, str, list, dict))


def spend_compared(left: Any, right: Any, frame: Frame) -> None:
    """Take the fuel that comparing two long texts or two huge integers costs; anything else is free."""
    if isinstance(left, str) and isinstance(right, str):
        shorter = min(len(left), len(right))
        if shorter >= LONG_TEXT:
            spend(frame, shorter // CHARS_PER_UNIT)
    elif type(left) is int and not -HUGE < left < HUGE:
        spend(frame, left.bit_length() // INTEGER_BITS)


def equal(left: Any, right: Any, frame: Frame) -> bool:
    """JSON equality: never an error, false across types, `1 == 1.0`, `true != 1`; deep for arrays and objects."""
    left_type, right_type = type(left), type(right)
    if left_type in PLAIN and right_type in PLAIN:
        if left_type is not right_type and not (left_type in _NUMBERS and right_type in _NUMBERS):
            return False
        if left_type is str or left_type is int:
            spend_compared(left, right, frame)
        return bool(left == right)
    return _equal_deep(left, right, frame)


def _equal_deep(left: Any, right: Any, frame: Frame) -> bool:
    pending: list[tuple[Any, Any]] = [(left, right)]
    while pending:
        spend(frame, 4)
        one, other = pending.pop()
        kind = kind_of(one)
        if kind != kind_of(other):
            return False
        if kind in ("array", "object"):
            if len(one) != len(other):
                return False
            spend(frame, 2 * len(one))
            pairs = zip(one, other, strict=True) if kind == "array" else _field_pairs(one, other)
            if not _equal_parts(pairs, pending, frame):
                return False
        elif one != other:
            return False
    return True


def _equal_parts(pairs: Iterable[tuple[Any, Any]], pending: list[tuple[Any, Any]], frame: Frame) -> bool:
    """Compares the scalars of two containers at once and puts off what is nested."""
    for one, other in pairs:
        one_type, other_type = type(one), type(other)
        if one_type not in PLAIN or other_type not in PLAIN:
            pending.append((one, other))
        elif one_type is other_type or (one_type in _NUMBERS and other_type in _NUMBERS):
            if one_type is str or one_type is int:
                spend_compared(one, other, frame)
            if one != other:
                return False
        else:
            return False
    return True


def _field_pairs(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    for key in one:
        try:
            yield one[key], other[key]
        except KeyError:
            yield True, False


def contains(container: Any, item: Any, frame: Frame) -> bool:
    """`item in container`: element of an array, key of an object, part of a text. Raises Fault (type, limit)."""
    kind = kind_of(container)
    if kind == "array":
        spend(frame, len(container))
        return any(equal(element, item, frame) for element in container)
    if kind == "object":
        if not isinstance(item, str) or len(item) > KEY_CHARS:
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


def bounded(number: float) -> int | float:
    """A number that JSON and the next operation can bear. Raises Fault (limit, eval)."""
    if type(number) is int:
        if number.bit_length() > INTEGER_BITS:
            raise Fault("limit", f"an integer of more than {INTEGER_BITS} bits")
    elif number - number != 0:
        raise Fault("eval", "the result is not a finite number")
    return number
