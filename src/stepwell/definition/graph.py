"""
The order of a block: a sequence, or a graph of dependencies.

The law of the file: an order exists for every list of steps, also for a wrong one (what is unknown is left out), and
nothing here recurses, so that a block of any length and shape takes linear time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.definition.step import Location, Step


@dataclass(frozen=True, slots=True)
class Order:
    """
    How the steps of a block follow one another; all indexes are into the block as it was written.

    In a sequence each step that is in the flow depends on the one before it. What is kept aside for fallback or
    compensation is not in the flow and has no dependencies.
    """

    sequence: bool
    in_flow: tuple[bool, ...]
    deps: tuple[tuple[int, ...], ...]
    dependents: tuple[tuple[int, ...], ...]


def order_block(steps: Sequence[Step], aside: Collection[str] | None = None) -> Order:
    """
    The order of a block. Unknown dependencies, and those on steps outside the flow, are left out.

    `aside` are ids that are kept out of the flow; without it, those that steps of this very block name.
    """
    aside = kept_aside(steps) if aside is None else aside
    in_flow = tuple(step.id not in aside for step in steps)
    sequence = all(step.depends_on is None for step in steps)
    if sequence:
        deps = _chain(in_flow)
    else:
        index_of = {step.id: index for index, step in reversed([*enumerate(steps)]) if in_flow[index]}
        deps = [
            tuple(dict.fromkeys(index_of[name] for name in step.depends_on or () if name in index_of))
            if in_flow[index]
            else ()
            for index, step in enumerate(steps)
        ]
    dependents: list[list[int]] = [[] for _ in steps]
    for index, needed in enumerate(deps):
        for dep in needed:
            dependents[dep].append(index)
    return Order(sequence, in_flow, tuple(deps), tuple(map(tuple, dependents)))


def _chain(in_flow: Sequence[bool]) -> list[tuple[int, ...]]:
    deps: list[tuple[int, ...]] = []
    before: tuple[int, ...] = ()
    for index, inside in enumerate(in_flow):
        deps.append(before if inside else ())
        before = (index,) if inside else before
    return deps


def kept_aside(steps: Iterable[Step]) -> dict[str, str]:
    """
    Ids of the steps that leave the flow because one of these steps names them for fallback or compensation.

    The value is the id of the step that names them first.
    """
    aside: dict[str, str] = {}
    for step in steps:
        for name in named_aside(step):
            aside.setdefault(name, step.id)
    return aside


def named_aside(step: Step) -> list[str]:
    """The ids that a step names as its fallback or compensation."""
    undoing = step.compensate.step if step.compensate is not None else None
    return [*named_fallbacks(step), *([undoing] if undoing else [])]


def named_fallbacks(step: Step) -> list[str]:
    """The ids that a step names as its fallback."""
    return [rule.step for rule in step.on_error or () if rule.strategy == "fallback" and rule.step]


def returns(step: Step) -> Iterator[tuple[Location, str]]:
    """The earlier steps of the block that a step may return to, with where it says so."""
    for index, rule in enumerate(step.on_error or ()):
        if rule.strategy == "goto" and rule.goto:
            yield ("on_error", index, "goto"), rule.goto
    for word in ("on_reject", "on_changes"):
        held = vars(step).get(word)
        target = held.get("goto") if isinstance(held, Mapping) else getattr(held, "goto", None)
        if isinstance(target, str):
            yield (word, "goto"), target


def sorted_order(deps: Sequence[Sequence[int]], dependents: Sequence[Sequence[int]]) -> list[int]:
    """
    The indexes so that each comes after what it depends on; what lies on or behind a cycle is missing.

    Kahn's algorithm (1962), in time linear in steps and dependencies.
    """
    missing = [len(needed) for needed in deps]
    ready = deque(index for index, count in enumerate(missing) if not count)
    done: list[int] = []
    while ready:
        index = ready.popleft()
        done.append(index)
        for dependent in dependents[index]:
            missing[dependent] -= 1
            if not missing[dependent]:
                ready.append(dependent)
    return done


def cycles(order: Order) -> list[list[int]]:
    """Cycles of a block, each as indexes in the order of dependence, no step in two of them."""
    settled = set(sorted_order(order.deps, order.dependents))
    found: list[list[int]] = []
    seen: dict[int, int] = {}
    for start in range(len(order.deps)):
        index, walk = start, []
        while index not in settled and index not in seen:
            seen[index] = start
            walk.append(index)
            index = next(dep for dep in order.deps[index] if dep not in settled)
        if walk and index not in settled and seen[index] == start:
            found.append(walk[walk.index(index) :])
    return found


def upstream(order: Order) -> list[int]:
    """For each step the set of all steps before it, as the bits of an integer."""
    masks = [0] * len(order.deps)
    for index in sorted_order(order.deps, order.dependents):
        mask = 0
        for dep in order.deps[index]:
            mask |= masks[dep] | 1 << dep
        masks[index] = mask
    return masks
