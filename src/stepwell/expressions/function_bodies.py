"""What the functions over texts, numbers and lists do; dates are in `dates`.

Each takes the frame first and pays for its work by length before doing it. Texts count in code points.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from .dates import duration, format_date, timestamp
from .errors import Absent, Fault
from .limits import CHARS_PER_UNIT
from .patterns import matches
from .values import (
    Frame,
    as_json,
    as_text,
    bounded,
    contains,
    equal,
    kind_of,
    peek,
    spend,
    spend_text,
    weigh_tree,
)

__all__ = [
    "absolute",
    "base64",
    "base64_decode",
    "boolean",
    "bullets",
    "ceil",
    "contains_item",
    "duration",
    "ends_with",
    "first",
    "flatten",
    "floating",
    "floor",
    "format_date",
    "greatest",
    "join",
    "json",
    "keys",
    "last",
    "least",
    "lines",
    "lower",
    "matches",
    "parse_json",
    "replace",
    "reverse",
    "rounded",
    "size",
    "slice_of",
    "sort",
    "split",
    "starts_with",
    "string",
    "substring",
    "timestamp",
    "total",
    "trim",
    "truncate",
    "type_name",
    "unique",
    "upper",
    "values",
    "whole",
]

_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,310}\s*", re.ASCII)
_DECIMAL = re.compile(r"\s*[+-]?[0-9]{1,310}(?:\.[0-9]{1,310})?(?:[eE][+-]?[0-9]{1,5})?\s*", re.ASCII)


def whole_number(value: Any, what: str) -> int:
    """An argument that counts something. Raises Fault (type) for 1.5; 2.0 is 2."""
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise Fault("type", f"{what} is a whole number, got {value if type(value) is float else kind_of(value)}")


def size(_frame: Frame, value: Any) -> int:
    return len(value)


def contains_item(frame: Frame, value: Any, item: Any) -> bool:
    return contains(value, item, frame)


def starts_with(frame: Frame, text: str, prefix: str) -> bool:
    spend(frame, 1 + len(prefix) // CHARS_PER_UNIT)
    return text.startswith(prefix)


def ends_with(frame: Frame, text: str, suffix: str) -> bool:
    spend(frame, 1 + len(suffix) // CHARS_PER_UNIT)
    return text.endswith(suffix)


def lower(frame: Frame, text: str) -> str:
    spend_text(frame, len(text))
    return text.lower()


def upper(frame: Frame, text: str) -> str:
    spend_text(frame, len(text))
    return text.upper()


def trim(frame: Frame, text: str) -> str:
    spend_text(frame, len(text))
    return text.strip()


def replace(frame: Frame, text: str, old: str, new: str) -> str:
    if not old:
        raise Fault("eval", "replace() needs a text to look for, got an empty one")
    spend_text(frame, len(text))
    spend_text(frame, len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def split(frame: Frame, text: str, separator: str, limit: Any = -1) -> list[str]:
    """Parts of a text; an empty separator gives its characters; at most `limit` parts when it is not negative."""
    most = whole_number(limit, "a limit")
    spend_text(frame, len(text))
    if most == 0:
        return []
    if not separator:
        spend(frame, len(text))
        chars = list(text)
        return chars if most < 0 or most >= len(chars) else [*chars[: most - 1], "".join(chars[most - 1 :])]
    spend(frame, text.count(separator))
    return text.split(separator, most - 1 if most > 0 else -1)


def join(frame: Frame, items: list[Any], separator: str = "") -> str:
    parts = [_joinable(item, index) for index, item in _paid(frame, items)]
    spend_text(frame, sum(map(len, parts)) + len(separator) * max(len(parts) - 1, 0))
    return separator.join(parts)


def bullets(frame: Frame, items: list[Any]) -> str:
    parts = [_joinable(item, index) for index, item in _paid(frame, items)]
    spend_text(frame, sum(map(len, parts)) + 3 * len(parts))
    return "\n".join(f"- {part}" for part in parts)


def _paid(frame: Frame, items: list[Any]) -> enumerate[Any]:
    spend(frame, len(items))
    return enumerate(items)


def _joinable(item: Any, index: int) -> str:
    kind = kind_of(item)
    if kind in ("array", "object", "null"):
        raise Fault("type", f"element {index} is {kind}, not a text", hint="convert with  .map(x, string(x))")
    return as_text(item)


def substring(frame: Frame, text: str, start: Any, end: Any = None) -> str:
    """From `start` up to but not including `end`, both cut to the text. Raises Fault (eval) when negative."""
    low = whole_number(start, "a position")
    high = len(text) if end is None else whole_number(end, "a position")
    if low < 0 or high < 0:
        raise Fault("eval", "substring() counts from 0; a position is negative", hint="slice() counts from the end")
    spend_text(frame, max(0, min(high, len(text)) - low))
    return text[low:high]


def truncate(frame: Frame, text: str, length: Any, ending: str = "") -> str:
    """At most `length` characters, the last of them `ending` when something was cut."""
    most = whole_number(length, "a length")
    if most < 0:
        raise Fault("eval", "a length is not negative")
    if len(text) <= most:
        return text
    spend_text(frame, most)
    return text[: max(0, most - len(ending))] + ending[:most]


def lines(frame: Frame, text: str) -> list[str]:
    spend_text(frame, len(text))
    found = text.splitlines()
    spend(frame, len(found))
    return found


def string(frame: Frame, value: Any) -> str:
    text = as_text(value)
    if text is not value:
        spend_text(frame, len(text))
    return text


def json(frame: Frame, value: Any, indent: Any = None) -> str:
    step = None if indent is None else whole_number(indent, "an indent")
    if step is not None and not 0 <= step <= 8:
        raise Fault("eval", "an indent is 0 to 8 spaces")
    text = as_json(value, step)
    spend_text(frame, len(text))
    return text


def parse_json(frame: Frame, text: str) -> Any:
    from json import loads

    spend_text(frame, len(text) * 2)
    try:
        value = loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise Fault("limit", "the JSON is nested too deep") from None
    except ValueError as error:
        raise Fault("eval", f"not JSON: {str(error)[:80]}") from None
    weigh_tree(value)
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def base64(frame: Frame, text: str) -> str:
    from base64 import b64encode

    spend_text(frame, len(text) * 4)
    return b64encode(_encoded(text)).decode("ascii")


def base64_decode(frame: Frame, text: str) -> str:
    from base64 import b64decode

    spend_text(frame, len(text))
    try:
        return b64decode(_encoded(text), validate=True).decode("utf-8")
    except ValueError:
        raise Fault("eval", "not base64 of a UTF-8 text") from None


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise Fault("eval", "the text holds a lone surrogate") from None


def whole(_frame: Frame, value: Any) -> int:
    """Towards zero; a text must be a decimal integer; a timestamp gives seconds since 1970."""
    kind = kind_of(value)
    if kind == "timestamp":
        return math.floor(value.timestamp())
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
    for index, item in _paid(frame, items):
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
    for _, item in _paid(frame, items):
        if kind_of(item) in ("array", "object"):
            if not any(equal(item, other, frame) for other in nested):
                nested.append(item)
                found.append(item)
            continue
        mark = (isinstance(item, bool), item)
        if mark not in seen:
            seen.add(mark)
            found.append(item)
    return found


def sort(frame: Frame, items: list[Any], field: str | None = None) -> list[Any]:
    """Ascending and stable, by the elements or by one of their fields; all numbers or all texts."""
    if not items:
        return []
    if field is None:
        marks = list(items)
    else:
        marks = [_field_of(item, field, index) for index, item in enumerate(items)]
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
    for _, item in _paid(frame, items):
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

