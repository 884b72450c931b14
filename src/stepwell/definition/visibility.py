"""Which steps a text refers to, and which steps of a block are referred to from outside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from stepwell.definition.fields import Expression, Template, Value
from stepwell.definition.step import Location, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.texts import Text
    from stepwell.definition.workflow import Workflow
    from stepwell.expressions import Ref

BlockKey: TypeAlias = tuple[str, Location]
"""A container's id, and where the block lies in it."""
Chain: TypeAlias = tuple[BlockKey, ...]
"""The blocks that a step lies in, outermost first; () at the top."""


def refs_of(value: Expression | Template | Value) -> list[Ref]:
    """Every reference of an expression, template or nested value."""
    if isinstance(value, Expression):
        return list(value.program.refs())
    if isinstance(value, Template):
        return list(value.compiled.refs())
    return [ref for _, ref in value.tree.refs()]


def step_ids_of(value: Expression | Template | Value) -> set[str]:
    """The ids of the steps that a text refers to."""
    return {ref.step_id for ref in refs_of(value) if ref.step_id is not None}


def references(workflow: Workflow) -> dict[str, frozenset[str]]:
    """For every step, the ids of the steps that its own texts refer to (not those of steps nested in it)."""
    found: dict[str, frozenset[str]] = {}
    for step, _ in _located(workflow):
        ids = frozenset(name for text in step.texts() for name in step_ids_of(text.value))
        found[step.id] = found.get(step.id, frozenset()) | ids
    return found


def exports(workflow: Workflow) -> dict[BlockKey, tuple[str, ...]]:
    """
    For every nested block, the ids inside it that texts outside it refer to, in written order.

    Steps below a loop of the block are not among them: they are visible in their iteration only.
    """
    homes: dict[str, Chain] = {}
    closed: set[BlockKey] = set()
    found: dict[BlockKey, set[str]] = {}
    for step, chain in _located(workflow):
        homes.setdefault(step.id, chain)
        for block in step.all_blocks():
            found[step.id, block.where] = set()
            if not block.exports:
                closed.add((step.id, block.where))
    for chain, name in _uses(workflow):
        home = homes.get(name, ())
        inside = set(chain)
        for key in reversed(home):
            if key in inside or key in closed:
                break
            found[key].add(name)
    written = {name: index for index, name in enumerate(homes)}
    return {key: tuple(sorted(names, key=written.__getitem__)) for key, names in found.items()}


def _uses(workflow: Workflow) -> Iterator[tuple[Chain, str]]:
    """Each id that is referred to, with the blocks that the text sees from inside."""
    for step, chain in _located(workflow):
        for text in step.texts():
            for name in step_ids_of(text.value):
                yield _seen_from(step, text, chain), name
    if workflow.output is not None:
        for name in step_ids_of(workflow.output):
            yield (), name


def _seen_from(step: Step, text: Text, chain: Chain) -> Chain:
    return (*chain, *((step.id, block.where) for block in step.blocks())) if text.inner else chain


def _located(workflow: Workflow) -> Iterator[tuple[Step, Chain]]:
    """Every step with the blocks it lies in."""
    waiting: list[tuple[Step, Chain]] = [
        (step, ()) for _, steps in reversed(workflow.lists()) for step in reversed(steps)
    ]
    while waiting:
        step, chain = waiting.pop()
        yield step, chain
        for block in reversed(step.all_blocks()):
            inner = (*chain, (step.id, block.where))
            waiting += [(nested, inner) for nested in reversed(block.steps)]
