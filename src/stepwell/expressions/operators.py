"""Arithmetic and ordering over the language's numbers, texts, arrays, timestamps and durations."""

from __future__ import annotations

import math
import operator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .errors import Fault
from .limits import INTEGER_BITS
from .values import Frame, bounded, kind_of, spend, spend_compared, spend_text

if TYPE_CHECKING:
    from collections.abc import Callable

_BITS = INTEGER_BITS
NUMBER_TYPES = frozenset((int, float))
ORDERED_KINDS = frozenset(("number", "string", "timestamp", "duration"))


def add(left: Any, right: Any, frame: Frame) -> Any:
    left_type, right_type = type(left), type(right)
    if left_type in NUMBER_TYPES and right_type in NUMBER_TYPES:
        return _sum(left, right)
    kinds = (kind_of(left), kind_of(right))
    if kinds == ("string", "string"):
        spend_text(frame, len(left) + len(right))
        return left + right
    if kinds == ("array", "array"):
        spend(frame, len(left) + len(right))
        return [*left, *right]
    if kinds in (("timestamp", "duration"), ("duration", "timestamp"), ("duration", "duration")):
        return _timed(operator.add, left, right)
    if kinds == ("number", "number"):
        return _sum(left, right)
    raise mismatch("+", *kinds)


def _sum(left: Any, right: Any) -> Any:
    try:
        return bounded(left + right)
    except OverflowError:
        raise _too_large() from None


def subtract(left: Any, right: Any, _frame: Frame) -> Any:
    kinds = (kind_of(left), kind_of(right))
    if kinds == ("number", "number"):
        try:
            return bounded(left - right)
        except OverflowError:
            raise _too_large() from None
    if kinds in (("timestamp", "timestamp"), ("timestamp", "duration"), ("duration", "duration")):
        return _timed(operator.sub, left, right)
    raise mismatch("-", *kinds)


def multiply(left: Any, right: Any, _frame: Frame) -> Any:
    kinds = (kind_of(left), kind_of(right))
    if kinds == ("number", "number"):
        try:
            return bounded(bounded(left) * bounded(right))
        except OverflowError:
            raise _too_large() from None
    if kinds in (("duration", "number"), ("number", "duration")):
        return _timed(operator.mul, left, right)
    raise mismatch("*", *kinds)


def divide(left: Any, right: Any, _frame: Frame) -> Any:
    """Exact where it can be: two integers that divide give an integer, everything else a float."""
    kinds = (kind_of(left), kind_of(right))
    if kinds in (("number", "number"), ("duration", "number"), ("duration", "duration")):
        if not right:
            raise Fault("eval", "division by zero")
        if kinds[0] == "duration":
            return _timed(operator.truediv, left, right)
        if type(left) is int and type(right) is int and left % right == 0:
            return bounded(left // right)
        try:
            return bounded(left / right)
        except OverflowError:
            raise _too_large() from None
    raise mismatch("/", *kinds)


def remainder(left: Any, right: Any, _frame: Frame) -> Any:
    """With the sign of the left side, as CEL and C have it: `-7 % 3 == -1`."""
    kinds = (kind_of(left), kind_of(right))
    if kinds != ("number", "number"):
        raise mismatch("%", *kinds)
    if not right:
        raise Fault("eval", "division by zero")
    if type(left) is int and type(right) is int:
        rest = abs(bounded(left)) % abs(bounded(right))
        return -rest if left < 0 else rest
    try:
        return bounded(math.fmod(left, right))
    except (OverflowError, ValueError):
        raise _too_large() from None


ARITHMETIC: dict[str, Callable[[Any, Any, Frame], Any]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": remainder,
}
ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def negate(value: Any) -> Any:
    kind = kind_of(value)
    if kind == "number":
        return bounded(-value)
    if kind == "duration":
        return -value
    raise Fault("type", f"- needs a number, got {kind}")


def order(op: str, left: Any, right: Any, frame: Frame) -> bool:
    """`left op right` for what the fast path leaves: long, huge and unequal things. Raises Fault (type, limit)."""
    one, other = kind_of(left), kind_of(right)
    if one == other:
        spend_compared(left, right, frame)
    if one != other or one not in ORDERED_KINDS:
        raise Fault("type", f"cannot compare ({op}) {one} and {other}", hint=comparison_hint(one, other))
    try:
        return ORDERINGS[op](left, right)
    except TypeError:
        raise Fault("eval", "a timestamp without an offset cannot be compared") from None


def comparison_hint(one: str, other: str) -> str:
    kinds = {one, other}
    if "null" in kinds:
        return "guard with  ?? default  or  x != null && ..."
    if kinds == {"string", "number"}:
        return "convert with int(...), float(...) or string(...)"
    if "string" in kinds and kinds & {"timestamp", "duration"}:
        return "convert with timestamp(...) or duration(...)"
    return ""


def mismatch(op: str, one: str, other: str) -> Fault:
    hint = ""
    if {one, other} == {"string", "number"}:
        hint = "convert with string(...) / float(...)"
    elif "null" in (one, other):
        hint = "guard with  ?? default"
    return Fault("type", f"cannot apply {op} to {one} and {other}", hint=hint)


def _timed(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    try:
        result = operation(left, right)
    except (OverflowError, ValueError):
        raise Fault("eval", "the timestamp or duration is out of range") from None
    except TypeError:
        raise Fault("eval", "a timestamp without an offset cannot be subtracted") from None
    return result if not isinstance(result, timedelta) else timedelta(microseconds=result // timedelta(microseconds=1))


def _too_large() -> Fault:
    return Fault("eval", "the number is too large")
