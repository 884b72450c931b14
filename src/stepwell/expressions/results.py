"""
What leaves an expression: text, JSON text, and plain values within the bounds on results.

Every walk counts as it goes, as if the value were written on paper: cyclic, deep and shared data end in a limit error.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from json import dumps
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from .errors import Fault
from .limits import CHARS_PER_UNIT, INTEGER_BITS, JSON_CHARS, RESULT_DEPTH, RESULT_VALUES
from .values import KINDS, PLAIN, Frame, bounded, kind_of, spend

if TYPE_CHECKING:
    from collections.abc import Mapping

_FLAT = 64
_CONTAINERS = ("array", "object")
_SCALARS = frozenset((type(None), bool, int, float, str))


def as_text(value: Any, frame: Frame) -> str:
    """How a value stands in a text: strings as they are, timestamps in ISO 8601, everything else as JSON."""
    kind = kind_of(value)
    if kind == "string":
        return str.__str__(value)
    return as_json(value, frame) if kind in ("array", "object") else scalar_text(value, kind)


def scalar_text(value: Any, kind: str) -> str:
    """The text of a value that holds no others."""
    if kind == "timestamp":
        return str(value.isoformat())
    if kind == "duration":
        return duration_text(value)
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


def as_json(value: Any, frame: Frame, indent: int | None = None) -> str:
    """JSON text with the characters as they are. Raises Fault (limit, eval, type)."""
    weight = weigh_tree(value, indent=indent or 0)
    spend(frame, weight.values + weight.chars // CHARS_PER_UNIT + (weight.nesting if indent is not None else 0))
    text = dumps(value, ensure_ascii=False, indent=indent, default=_plain, allow_nan=False)
    if len(text) > JSON_CHARS:
        raise Fault("limit", f"JSON of more than {JSON_CHARS} characters")
    return text


def _plain(value: Any) -> Any:
    kind = kind_of(value)
    return dict(value) if kind == "object" else scalar_text(value, kind)


_Level: TypeAlias = dict[int, list[Any]]
"""The containers of one level by identity, each with how often the level holds it."""


class Weight(NamedTuple):
    """A value counted as the tree it would be on paper; `nesting` is the sum of the levels of all its values."""

    timed: bool
    values: int
    chars: int
    nesting: int


def weigh_tree(value: Any, *, indent: int = 0) -> Weight:
    """
    Counts a value, whether a timestamp or duration is in it, and bounds it.

    `indent` is the white space a level costs before each value. The walk goes level by level and takes a container
    that is shared once a level with its multiplicity, so that a doubling graph costs no more than it is large.
    Raises Fault: limit when there are too many values, levels or characters; type or eval when it is not JSON.
    """
    timed = False
    room, chars, nesting, depth = RESULT_VALUES, JSON_CHARS, 0, 0
    level: _Level = {0: [(value,), 1]}
    while level:
        below: _Level = {}
        for holder, times in level.values():
            size = len(holder)
            room -= size * times
            nesting += size * depth * times
            if room < 0:
                raise _too_big()
            is_array = isinstance(holder, (list, tuple))
            inside, has_time = _weigh_parts(holder if is_array else holder.values(), size, times, below)
            chars -= (inside if is_array else inside + _key_chars(holder)) * times
            timed = timed or has_time
        depth += 1
        if chars - nesting * indent < 0 or depth > RESULT_DEPTH + 1:
            raise _too_big()
        level = below
    return Weight(timed, RESULT_VALUES - room, JSON_CHARS - chars, nesting)


def _weigh_parts(items: Any, size: int, times: int, below: _Level) -> tuple[int, bool]:
    """The characters and the presence of times among the scalars; containers go to the level below."""
    flat = _flat_chars(items) if size > _FLAT else None
    if flat is not None:
        return flat, False
    chars, timed, known = 0, False, KINDS.get
    for item in items:
        kind = known(type(item)) or kind_of(item)
        if kind == "string":
            chars += len(item)
        elif kind in _CONTAINERS:
            entry = below.get(id(item))
            if entry is None:
                below[id(item)] = [item, times]
            else:
                entry[1] += times
        elif kind in ("timestamp", "duration"):
            timed = True
        else:
            _require_json(item, kind)
    return chars, timed


def _flat_chars(items: Any) -> int | None:
    """The characters in a long run of scalars, which is counted without a step of the walk for each; else None."""
    kinds = set(map(type, items))
    if not kinds <= _SCALARS:
        return None
    if float in kinds and not all(isfinite(item) for item in items if type(item) is float):
        raise Fault("eval", "a number has no JSON form")
    if int in kinds:
        whole = [item for item in items if type(item) is int]
        bounded(max(whole))
        bounded(min(whole))
    return sum(len(item) for item in items if type(item) is str) if str in kinds else 0


def _too_big() -> Fault:
    parts = f"{RESULT_VALUES} parts, {RESULT_DEPTH} levels or {JSON_CHARS} characters"
    return Fault("limit", f"the value has more than {parts}")


def _key_chars(item: Mapping[Any, Any]) -> int:
    try:
        return len("".join(item))
    except TypeError:
        raise Fault("type", "a field name is a string") from None


def _require_json(item: Any, kind: str) -> None:
    if kind == "number":
        if item.bit_length() > INTEGER_BITS if type(item) is int else item - item != 0:
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
            return scalar_text(value, kind_of(value))
        if type(value) is float and not isfinite(value):
            raise Fault("eval", "the result is not a finite number")
        return value
    return _rewritten(value) if weigh_tree(value).timed else value


def passed(value: Any) -> Any:
    """
    A value that is the caller's own: kept as the same object, if it is one of the data model's types at all.

    Raises Fault (type).
    """
    kind = kind_of(value)
    if kind in ("timestamp", "duration"):
        return scalar_text(value, kind)
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
    return scalar_text(value, kind) if kind in ("timestamp", "duration") else value
