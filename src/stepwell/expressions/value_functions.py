"""The functions over numbers, arrays and objects; those that copy or compare elements pay for each."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from .errors import Absent, Fault
from .limits import CHARS_PER_UNIT
from .values import Frame, bounded, contains, equal, kind_of, paid, peek, spend, spend_text, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,310}\s*", re.ASCII)
_DECIMAL = re.compile(r"\s*[+-]?[0-9]{1,310}(?:\.[0-9]{1,310})?(?:[eE][+-]?[0-9]{1,5})?\s*", re.ASCII)


def size(_frame: Frame, value: Any) -> int:
    count: int = len(value)
    return count


def contains_item(frame: Frame, value: Any, item: Any) -> bool:
    return contains(value, item, frame)


def whole(_frame: Frame, value: Any) -> int:
    """Towards zero; a text must be a decimal integer; a timestamp gives seconds since 1970."""
    kind = kind_of(value)
    if kind == "timestamp":
        return math.floor(float(value.timestamp()))
    if kind == "string":
        if not _WHOLE.fullmatch(value):
            raise Fault("eval", "the text is not a whole number")
        return int(bounded(int(value)))
    return int(bounded(int(bounded(value))))


def floating(_frame: Frame, value: Any) -> float:
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        raise Fault("eval", "the text is not a number")
    try:
        return float(bounded(float(value)))
    except OverflowError:
        raise Fault("eval", "the number is too large") from None


def boolean(_frame: Frame, value: Any) -> bool:
    if value is True or value == "true":
        return True
    if value is False or value == "false":
        return False
    raise Fault("eval", "the text is neither 'true' nor 'false'")


def type_name(_frame: Frame, value: Any) -> str:
    return kind_of(value)


def absolute(_frame: Frame, number: Any) -> Any:
    return abs(number)


def rounded(_frame: Frame, number: Any, digits: Any = 0) -> Any:
    """To the nearest, halves away from zero; `digits` after the point, 0 gives a whole number."""
    places = whole_number(digits, "a number of digits")
    if not -15 <= places <= 15:
        raise Fault("eval", "round() takes -15 to 15 digits")
    bounded(number)
    if type(number) is int and places >= 0:
        return number
    from decimal import ROUND_HALF_UP, Context, Decimal

    exact = Decimal(repr(number))
    result = exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, Context(prec=700))
    return float(result) if places > 0 else int(result)


def floor(_frame: Frame, number: Any) -> int:
    return math.floor(bounded(number))


def ceil(_frame: Frame, number: Any) -> int:
    return math.ceil(bounded(number))


def total(frame: Frame, items: list[Any]) -> Any:
    result: Any = 0
    for index, item in paid(frame, items):
        if kind_of(item) != "number":
            raise Fault("type", f"sum() needs numbers, element {index} is {kind_of(item)}")
        try:
            result = bounded(result + bounded(item))
        except OverflowError:
            raise Fault("eval", "the sum is too large") from None
    return result


def least(frame: Frame, *args: Any) -> Any:
    return _extreme(frame, "min", args, lambda one, other: one < other)


def greatest(frame: Frame, *args: Any) -> Any:
    return _extreme(frame, "max", args, lambda one, other: one > other)


def _extreme(frame: Frame, name: str, args: tuple[Any, ...], better: Callable[[Any, Any], bool]) -> Any:
    items = args[0] if len(args) == 1 and kind_of(args[0]) == "array" else args
    if not items:
        raise Absent([], 0, -1)
    _require_ordered(frame, name, items)
    best = items[0]
    for item in items:
        if better(item, best):
            best = item
    return best


def _require_ordered(frame: Frame, name: str, items: Any) -> None:
    spend(frame, len(items))
    kind = kind_of(items[0])
    for item in items:
        found = kind_of(item)
        if found != kind or found not in ("number", "string", "timestamp", "duration"):
            raise Fault("type", f"{name}() cannot compare {kind} and {found}")
        if found == "string":
            spend(frame, len(item) // CHARS_PER_UNIT)


def keys(frame: Frame, value: Any) -> list[str]:
    spend(frame, len(value))
    return list(value)


def values(frame: Frame, value: Any) -> list[Any]:
    spend(frame, len(value))
    return list(value.values())


def first(_frame: Frame, value: Any) -> Any:
    if not value:
        raise Absent([], 0, -1)
    return value[0]


def last(_frame: Frame, value: Any) -> Any:
    if not value:
        raise Absent([], -1, -1)
    return value[-1]


def unique(frame: Frame, items: list[Any]) -> list[Any]:
    """The first of each group of equal elements, in order."""
    found: list[Any] = []
    seen: set[tuple[bool, Any]] = set()
    nested: list[Any] = []
    spend(frame, len(items))
    for _, item in paid(frame, items):
        if kind_of(item) in ("array", "object"):
            if not any(equal(item, other, frame) for other in nested):
                nested.append(item)
                found.append(item)
            continue
        if isinstance(item, str):
            spend(frame, len(item) // CHARS_PER_UNIT)
        mark = (isinstance(item, bool), item)
        if mark not in seen:
            seen.add(mark)
            found.append(item)
    return found


def sort(frame: Frame, items: list[Any], field: str | None = None) -> list[Any]:
    """Ascending and stable, by the elements or by one of their fields; all numbers or all texts."""
    if not items:
        return []
    marks = items if field is None else [_field_of(item, field, index) for index, item in enumerate(items)]
    _require_ordered(frame, "sort", marks)
    spend(frame, len(items))
    order = sorted(range(len(items)), key=marks.__getitem__)
    return [items[index] for index in order]


def _field_of(item: Any, field: str, index: int) -> Any:
    try:
        return peek(item, field)
    except KeyError:
        raise Absent(item, field, -1) from None
    except (TypeError, IndexError):
        raise Fault("type", f"element {index} is {kind_of(item)}, it has no fields") from None


def reverse(frame: Frame, items: list[Any]) -> list[Any]:
    spend(frame, len(items))
    return list(items)[::-1]


def flatten(frame: Frame, items: list[Any]) -> list[Any]:
    """One level: the elements of the elements that are arrays, the others as they are."""
    found: list[Any] = []
    for _, item in paid(frame, items):
        if kind_of(item) == "array":
            spend(frame, len(item))
            found.extend(item)
        else:
            found.append(item)
    return found


def slice_of(frame: Frame, value: Any, start: Any, end: Any = None) -> Any:
    """From `start` up to `end`; negative positions count from the end; both are cut to what is there."""
    low = whole_number(start, "a position")
    high = len(value) if end is None else whole_number(end, "a position")
    part = value[low:high]
    if isinstance(value, str):
        spend_text(frame, len(part))
        return part
    spend(frame, len(part))
    return list(part)
