"""
The loops of the language: map, filter, exists, all and exists_one over an array, or over an object's keys.

Every round pays for the size of its body before it runs, so nested loops cannot outrun the fuel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import Fault
from .values import Frame, kind_of, spend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .paths import Closure


class Loop(NamedTuple):
    """The body of a macro; `cost` is the fuel of one round, `pos` the place an error about the body points at."""

    body: Closure
    slot: int
    cost: int
    kind: str
    pos: int


def elements(value: Any, kind: str, frame: Frame, pos: int) -> Any:
    """What a macro goes over. Raises Fault (type) for anything but an array or an object."""
    found = kind_of(value)
    if found == "array":
        return value
    if found == "object":
        spend(frame, len(value))
        return list(value)
    hint = "guard with  ?? []" if value is None else ""
    raise Fault("type", f"{kind}() needs array or object, got {found}", pos, hint)


def _verdict(value: Any, loop: Loop) -> bool:
    if value is True or value is False:
        return bool(value)
    raise Fault("type", f"{loop.kind}() needs a boolean for each element, got {kind_of(value)}", loop.pos)


def _pay(frame: Frame, cost: int, pos: int) -> None:
    frame[0] -= cost
    if frame[0] < 0:
        raise Fault("limit", "the expression does too much work", pos)


def _mapped(source: Closure, loop: Loop, pos: int) -> Closure:
    body, slot, cost = loop.body, loop.slot, loop.cost

    def run(context: Mapping[str, Any], frame: Frame) -> list[Any]:
        found = []
        for item in elements(source(context, frame), "map", frame, pos):
            _pay(frame, cost, pos)
            frame[slot] = item
            found.append(body(context, frame))
        return found

    return run


def _filtered(source: Closure, loop: Loop, pos: int) -> Closure:
    body, slot, cost = loop.body, loop.slot, loop.cost

    def run(context: Mapping[str, Any], frame: Frame) -> list[Any]:
        found = []
        for item in elements(source(context, frame), "filter", frame, pos):
            _pay(frame, cost, pos)
            frame[slot] = item
            if _verdict(body(context, frame), loop):
                found.append(item)
        return found

    return run


def _quantified(source: Closure, loop: Loop, pos: int) -> Closure:
    body, slot, cost, kind = loop.body, loop.slot, loop.cost, loop.kind
    stop = kind == "exists"

    def run(context: Mapping[str, Any], frame: Frame) -> bool:
        for item in elements(source(context, frame), kind, frame, pos):
            _pay(frame, cost, pos)
            frame[slot] = item
            if _verdict(body(context, frame), loop) is stop:
                return stop
        return not stop

    return run


def _single(source: Closure, loop: Loop, pos: int) -> Closure:
    body, slot, cost = loop.body, loop.slot, loop.cost

    def run(context: Mapping[str, Any], frame: Frame) -> bool:
        count = 0
        for item in elements(source(context, frame), "exists_one", frame, pos):
            _pay(frame, cost, pos)
            frame[slot] = item
            count += _verdict(body(context, frame), loop)
        return count == 1

    return run


MACRO_LOOPS: dict[str, Callable[[Closure, Loop, int], Closure]] = {
    "map": _mapped,
    "filter": _filtered,
    "exists": _quantified,
    "all": _quantified,
    "exists_one": _single,
}
