"""A definition laid out once for all checks: every step with its place, every block with its order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepwell.definition.graph import Order, kept_aside, order_block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.parse import Parsed
    from stepwell.definition.step import Block, Location, Step
    from stepwell.definition.texts import Text
    from stepwell.definition.workflow import Workflow


@dataclass(slots=True, eq=False)
class BlockSite:
    """
    A list of steps, where it is written, and the step it lies in (None: the workflow's own, or `on_failure`).

    `steps` are sites in written order, `indexes` says where which id is; `failure` is true in `on_failure`.
    """

    where: Location
    order: Order = field(init=False)
    holder: StepSite | None = None
    block: Block | None = None
    steps: list[StepSite] = field(default_factory=list)
    indexes: dict[str, int] = field(default_factory=dict)
    depth: int = 1
    failure: bool = False

    @property
    def certain(self) -> bool:
        """Whether it runs whenever its holder does."""
        return self.block is None or self.block.certain


@dataclass(slots=True, eq=False)
class StepSite:
    """A step, where it is written, and its index in its block. `broken`: only part of it could be read."""

    step: Step
    where: Location
    home: BlockSite
    index: int
    broken: bool = False
    blocks: list[BlockSite] = field(default_factory=list)
    texts: tuple[Text, ...] = ()

    def holders(self) -> Iterator[StepSite]:
        """The containers it lies in, innermost first."""
        home = self.home
        while home.holder is not None:
            yield home.holder
            home = home.holder.home

    def around(self, name: str) -> StepSite | None:
        """The other step of this id in its block, or in the innermost block around it that has one."""
        for site in (self, *self.holders()):
            if name in site.home.indexes:
                found = site.home.steps[site.home.indexes[name]]
                return None if found is self else found
        return None


@dataclass(slots=True)
class Survey:
    """
    All steps in written order, nested ones after their container, and all blocks, outer ones first.

    `aside` are the ids of the steps that are kept out of the flow, with those of the steps that name them first.
    """

    parsed: Parsed[Workflow]
    steps: list[StepSite]
    blocks: list[BlockSite]
    aside: dict[str, str] = field(default_factory=dict)

    @property
    def workflow(self) -> Workflow:
        return self.parsed.model


def survey(parsed: Parsed[Workflow]) -> Survey:
    """Lay a definition out. Takes time and memory linear in its steps."""
    found = Survey(parsed, [], [])
    workflow = parsed.model
    waiting: list[StepSite | BlockSite] = [_block(("steps",), workflow.steps)]
    if workflow.on_failure is not None:
        waiting.insert(0, _block(("on_failure", "steps"), workflow.on_failure.steps, failure=True))
    for fallback in workflow.fallbacks().values():
        waiting.insert(0, _default(fallback))
    while waiting:
        site = waiting.pop()
        if isinstance(site, BlockSite):
            found.blocks.append(site)
            waiting += reversed(site.steps)
            _mark_broken(site, parsed.broken)
        else:
            found.steps.append(site)
            site.texts = tuple(site.step.texts())
            site.blocks = [_nested(site, block) for block in _blocks_of(site)]
            waiting += reversed(site.blocks)
    found.aside = kept_aside(site.step for site in found.steps)
    for block in found.blocks:
        block.order = order_block([site.step for site in block.steps], found.aside)
    return found


def _block(where: Location, steps: tuple[Step, ...], *, failure: bool = False) -> BlockSite:
    site = BlockSite(where, failure=failure)
    site.steps = [StepSite(step, (*where, index), site, index) for index, step in enumerate(steps)]
    for inner in site.steps:
        site.indexes.setdefault(inner.step.id, inner.index)
    return site


def _default(block: Block) -> BlockSite:
    """The steps of a workflow-wide fallback, which lie in no step."""
    site = _block(block.where, block.steps)
    site.block = block
    return site


def _nested(holder: StepSite, block: Block) -> BlockSite:
    site = _block((*holder.where, *block.where), block.steps)
    site.holder, site.block = holder, block
    site.depth, site.failure = holder.home.depth + 1, holder.home.failure
    return site


def _mark_broken(site: BlockSite, broken: frozenset[int]) -> None:
    if broken:
        for inner in site.steps:
            inner.broken = id(inner.step) in broken


def _blocks_of(site: StepSite) -> list[Block]:
    try:
        return site.step.all_blocks()
    except (AttributeError, TypeError, KeyError, IndexError):
        if site.broken:
            return []
        raise
