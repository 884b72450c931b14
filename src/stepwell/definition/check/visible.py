"""
What a step sees (LANGUAGE, Step lists): the steps that surely ran before it, and whether they may be skipped.

The law of the file: sets of steps are bits of integers and frames are shared, so that a block of n steps costs no more
than n integers of n bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepwell.definition.graph import Order, named_fallbacks, returns, sorted_order, upstream
from stepwell.definition.retrieval import shape_within
from stepwell.expressions import StepShape

if TYPE_CHECKING:
    from stepwell.definition.check.survey import BlockSite, StepSite, Survey
    from stepwell.definition.step import Recipes, Schema, Step
    from stepwell.definition.workflow import Workflow


@dataclass(frozen=True, slots=True)
class Owned:
    """
    A step as the block sees it that holds it, or holds the container it lies in.

    `index` is that of the step or container; `optional` says that it may be skipped although the container runs.
    """

    site: StepSite
    index: int
    optional: bool


@dataclass(slots=True, eq=False)
class Frame:
    """
    One block, for everything that looks into it.

    `before[i]` are the steps before step i; `sure[i]` those that have surely completed if step i runs; `maybe[i]`
    whether step i may be skipped; `again[i]`, where step i may return to an earlier one, that one and those between:
    they may read its last record.
    """

    site: BlockSite
    owned: dict[str, Owned] = field(default_factory=dict)
    before: list[int] = field(default_factory=list)
    sure: list[int] = field(default_factory=list)
    maybe: list[bool] = field(default_factory=list)
    again: dict[int, int] = field(default_factory=dict)

    @property
    def all(self) -> int:
        """Every step of the flow, as bits."""
        return sum(1 << index for index, inside in enumerate(self.site.order.in_flow) if inside)


class Visible(Mapping[str, StepShape]):
    """
    The steps that are visible from one place; looked up frame by frame, innermost first.

    `guarded` are steps that a condition on the way has asked for; with `done` the step itself has completed.
    """

    __slots__ = ("_before", "_condition", "_frame", "_guarded", "_outer", "_own", "_shapes", "_sure")

    def __init__(
        self,
        frame: Frame,
        shapes: Shapes,
        outer: Mapping[str, StepShape] | None,
        step: StepSite | None,
        guarded: frozenset[str],
        *,
        done: bool = False,
    ) -> None:
        self._frame = frame
        self._shapes = shapes
        self._outer = outer
        own = 1 << step.index if step and done else 0
        self._before = frame.before[step.index] | own if step else frame.all
        self._sure = frame.sure[step.index] | own if step else 0
        self._own = 1 << step.index if step else 0
        condition = step.step.condition if step else None
        self._condition = condition.source if condition else None
        self._guarded = guarded

    def __getitem__(self, name: str) -> StepShape:
        found = self._frame.owned.get(name)
        if (
            found is not None
            and found.site.home is self._frame.site
            and self._own & self._frame.again.get(found.index, 0)
        ):
            return StepShape(self._shapes.of(found.site), name not in self._guarded)
        if found is None or not self._before >> found.index & 1:
            if name in self._shapes.suspects:
                return StepShape()
            if self._outer is None:
                raise KeyError(name)
            return self._outer[name]
        return StepShape(self._shapes.of(found.site), self._may_be_skipped(name, found))

    def _may_be_skipped(self, name: str, found: Owned) -> bool:
        if name in self._guarded:
            return False
        if found.optional:
            return True
        if not self._frame.maybe[found.index] or self._sure >> found.index & 1:
            return False
        condition = self._frame.site.steps[found.index].step.condition
        return condition is None or condition.source != self._condition

    def __iter__(self) -> Iterator[str]:
        for name, found in self._frame.owned.items():
            if self._before >> found.index & 1:
                yield name
        if self._outer is not None:
            yield from self._outer

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Common(Mapping[str, StepShape]):
    """
    The steps that are visible from all of several places: what is kept aside may run for any of them.

    `own` are seen besides; `guarded` are steps that a condition has asked for.
    """

    __slots__ = ("_guarded", "_own", "_views")

    def __init__(
        self,
        views: Sequence[Mapping[str, StepShape]],
        guarded: frozenset[str],
        own: Mapping[str, StepShape] | None = None,
    ) -> None:
        self._views = views
        self._guarded = guarded
        self._own = own or {}

    def flat(self) -> Sequence[Mapping[str, StepShape]]:
        """The places, so that those who see what others see do not look through one another."""
        return [self] if self._own else self._views

    def __getitem__(self, name: str) -> StepShape:
        if name in self._own:
            return self._own[name]
        found = [view[name] for view in self._views]
        maybe = any(shape.maybe_skipped for shape in found) and name not in self._guarded
        return StepShape(found[0].output, maybe)

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        first, *others = self._views
        yield from (name for name in first if name not in self._own and all(name in view for view in others))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Shapes:
    """The schemas of the outputs of steps, each worked out when it is first asked for."""

    def __init__(self, workflow: Workflow, recipes: Recipes, suspects: frozenset[str]) -> None:
        self._workflow = workflow
        self._recipes = recipes
        self._known: dict[int, Schema | None] = {}
        self.suspects = suspects

    def of(self, site: StepSite) -> Schema | None:
        key = id(site)
        if key not in self._known:
            self._known[key] = self._recovered(site)
        return self._known[key]

    def _recovered(self, site: StepSite) -> Schema | None:
        """The schema of the output, which may be that of a fallback instead, or of a fallback of that one."""
        reached, waiting = {id(site): site}, [site]
        while waiting:
            fresh = {id(one): one for one in _fallbacks(waiting.pop()) if id(one) not in reached}
            reached |= fresh
            waiting += fresh.values()
        known: list[Schema] = []
        for one in reached.values():
            shape = None if one.broken else _tolerant(one.step, self._shape(one.step))
            if shape is None or (len(reached) > 1 and "$ref" in str(shape)):
                return None
            if shape not in known:
                known.append(shape)
        return {"anyOf": known} if len(known) > 1 else known[0]

    def _shape(self, step: Step) -> Schema | None:
        return shape_within(step, step.shape(self._recipes), self._workflow)


def _fallbacks(site: StepSite) -> Iterator[StepSite]:
    """The steps whose output may take the place of the step's."""
    for name in named_fallbacks(site.step):
        if (target := site.around(name)) is not None:
            yield target
    for block in site.blocks:
        if block.block is not None and block.block.purpose == "fallback":
            yield from (inner for inner in block.steps if block.order.in_flow[inner.index])


def _tolerant(step: Step, shape: Schema | None) -> Schema | None:
    """The schema of the output, which a step that fails under `continue` replaces by its default or null."""
    rules = [rule for rule in step.on_error or () if rule.strategy == "continue"]
    if not rules or not shape:
        return shape
    return None if any(rule.default for rule in rules) or "$ref" in str(shape) else {"anyOf": [shape, {"type": "null"}]}


def frames(survey: Survey) -> dict[int, Frame]:
    """The frame of every block, by the identity of its site; inner blocks are made first."""
    found: dict[int, Frame] = {}
    for site in reversed(survey.blocks):
        frame = Frame(site)
        frame.before = upstream(site.order)
        frame.maybe = _maybe(site)
        frame.sure = _sure(site)
        frame.again = _seen_again(frame)
        for step in site.steps:
            frame.owned.setdefault(step.step.id, Owned(step, step.index, optional=False))
            for block in step.blocks:
                if block.block is not None and block.block.exports:
                    for name, inner in found[id(block)].owned.items():
                        optional = not block.certain or inner.optional or found[id(block)].maybe[inner.index]
                        frame.owned.setdefault(name, Owned(inner.site, step.index, optional))
        found[id(site)] = frame
    return found


def _seen_again(frame: Frame) -> dict[int, int]:
    """For each step that may return to an earlier one that one and the steps between, as bits."""
    found: dict[int, int] = {}
    after: dict[int, int] = {}
    for step in frame.site.steps:
        for _, target in returns(step.step):
            start = frame.site.indexes.get(target)
            if start is not None and frame.before[step.index] >> start & 1:
                if start not in after:
                    after[start] = _after(frame, start)
                found[step.index] = found.get(step.index, 0) | frame.before[step.index] & after[start]
    return found


def _after(frame: Frame, start: int) -> int:
    """A step and all that come after it, as bits."""
    if frame.site.order.sequence:
        return frame.all >> start << start
    return sum(1 << index for index, before in enumerate(frame.before) if index == start or before >> start & 1)


def _maybe(site: BlockSite) -> list[bool]:
    maybe = [step.step.condition is not None for step in site.steps]
    if site.order.sequence:
        return maybe
    for index in sorted_order(site.order.deps, site.order.dependents):
        maybe[index] = maybe[index] or _dead_end(site, index, maybe)
    return maybe


def _dead_end(site: BlockSite, index: int, maybe: list[bool]) -> bool:
    """Whether a step may be skipped because of what it depends on."""
    deps = site.order.deps[index]
    match site.steps[index].step.join:
        case "any_completed":
            return bool(deps) and all(maybe[dep] for dep in deps)
        case "all_completed":
            return any(maybe[dep] or site.steps[dep].step.on_error for dep in deps)
        case "all_settled":
            return False


def _sure(site: BlockSite) -> list[int]:
    """For each step what has surely completed if it runs: by its `join`, what all the ways to it have in common."""
    order: Order = site.order
    sure = [0] * len(order.deps)
    if order.sequence:
        return sure
    for index in sorted_order(order.deps, order.dependents):
        ways = [sure[dep] | 1 << dep for dep in order.deps[index]]
        join = site.steps[index].step.join
        if join == "all_settled" or not ways:
            continue
        mask = ways[0]
        for way in ways[1:]:
            mask = mask & way if join == "any_completed" else mask | way
        sure[index] = mask
    return sure
