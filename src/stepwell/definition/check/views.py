"""
What the texts of each place see: steps, the loop's item and names, and the roots that exist there.

The law of the file: a step that is kept aside sees what those see that name it, wherever they lie; everything is made
once and without recursion into the definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stepwell.definition.check.visible import Common, Frame, Shapes, Visible, frames
from stepwell.definition.fields import Expression
from stepwell.definition.graph import named_aside, named_fallbacks, sorted_order
from stepwell.definition.visibility import refs_of
from stepwell.expressions import CheckEnv, StepShape

if TYPE_CHECKING:
    from stepwell.definition.check.survey import BlockSite, StepSite, Survey
    from stepwell.definition.step import Recipes, Schema
    from stepwell.definition.texts import Text

_AFTERWARDS = (("on_error",), ("retry",), ("verify",))
"""Fields whose conditions are tested when the step has run."""


@dataclass(frozen=True, slots=True)
class _Sight:
    """What is the same for all texts of a step."""

    visible: Mapping[str, StepShape]
    item: Schema | None
    names: Mapping[str, Schema | None]
    guarded: frozenset[str]
    roots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """What is the same for all steps of a block that are in its flow."""

    frame: Frame
    outer: Mapping[str, StepShape] | None = None
    item: Schema | None = None
    names: Mapping[str, Schema | None] = field(default_factory=dict)
    guarded: frozenset[str] = frozenset()
    roots: tuple[str, ...] = ()


class Views:
    """The environments of all places."""

    def __init__(self, survey: Survey, recipes: Recipes) -> None:
        self.workflow = survey.workflow
        self.lenient = survey.workflow.templates == "lenient"
        self.known = dict.fromkeys(site.step.id for site in survey.steps).keys()
        self._aside = survey.aside
        self._shapes = Shapes(survey.workflow, recipes, survey.parsed.suspects)
        self._frames = frames(survey)
        self._places: dict[int, _Place] = {}
        self._sights: dict[int, _Sight] = {}
        self._top = survey.blocks[0]
        self._see_from_aside(survey)

    # places

    def _place(self, block: BlockSite) -> _Place:
        inner: BlockSite | None = block
        pending: list[BlockSite] = []
        while inner is not None and id(inner) not in self._places:
            pending.append(inner)
            inner = None if inner.holder is None or id(inner.holder) in self._sights else inner.holder.home
        for one in reversed(pending):
            self._places[id(one)] = self._made(one)
        return self._places[id(block)]

    def _made(self, block: BlockSite) -> _Place:
        frame, holder = self._frames[id(block)], block.holder
        if holder is None or block.block is None:
            failing = block.failure or block.block is not None
            return _Place(frame, self._before_failure(block), roots=("error",) if failing else ())
        around = self._sight(holder, done=block.block.purpose == "undo")
        item = block.block.item if block.block.item is not None else around.item
        names = {**around.names, **dict.fromkeys(block.block.binds, block.block.item)}
        return _Place(frame, around.visible, item, names, around.guarded, (*around.roots, *block.block.roots))

    def _before_failure(self, block: BlockSite) -> Visible | None:
        """`on_failure` sees every step of the workflow, each of which may not have run."""
        if not block.failure:
            return None
        top = self._frames[id(self._top)]
        everything = Frame(top.site, top.owned, top.before, top.sure, [True] * len(top.maybe))
        return Visible(everything, self._shapes, None, None, frozenset())

    # steps

    def _sight(self, site: StepSite, *, done: bool = False) -> _Sight:
        """What a step sees; once it is `done`, itself too."""
        found = self._sights.get(id(site))
        if found is None or (done and site.step.id not in self._aside):
            place = self._place(site.home)
            guarded = place.guarded | _asked_for(site)
            visible = Visible(place.frame, self._shapes, place.outer, site, guarded, done=done)
            found = _Sight(visible, place.item, place.names, guarded, place.roots)
            if not done:
                self._sights[id(site)] = found
            return found
        if done:
            own = {site.step.id: StepShape(self._shapes.of(site))}
            return replace(found, visible=Common([found.visible], found.guarded, own))
        return found

    def _see_from_aside(self, survey: Survey) -> None:
        """Find out what the steps see that are kept aside, after those that name them."""
        namers = _namers(survey)
        sites = [site for site in survey.steps if id(site) in namers]
        index_of = {id(site): index for index, site in enumerate(sites)}
        deps = [
            sorted({index_of[id(one)] for namer, _ in namers[id(site)] for one in (namer, *namer.holders())
                    if id(one) in index_of})
            for site in sites
        ]  # fmt: skip
        dependents: list[list[int]] = [[] for _ in sites]
        for index, needed in enumerate(deps):
            for dep in needed:
                dependents[dep].append(index)
        order = sorted_order(deps, dependents)
        circling = set(range(len(sites))) - set(order)
        for index in sorted(circling):  # told elsewhere; they see everything, so that nothing else is told
            site = sites[index]
            place = self._place(site.home)
            visible = self._end_of(place)
            self._sights[id(site)] = _Sight(visible, place.item, place.names, place.guarded, (*place.roots, "error"))
        for index in order:
            site = sites[index]
            self._sights[id(site)] = _together(
                [self._sight(namer, done=undoes) for namer, undoes in namers[id(site)]], _asked_for(site)
            )

    def _end_of(self, place: _Place) -> Visible:
        """What is seen once all steps of a block have ended."""
        return Visible(place.frame, self._shapes, place.outer, None, place.guarded)

    # environments

    def env(self, site: StepSite, text: Text) -> CheckEnv:
        """What a text of a step sees."""
        sight = self._sight(site)
        item, names, visible = sight.item, sight.names, sight.visible
        if (text.inner or text.item) and site.blocks:
            inner = self._place(site.blocks[0])
            item, names = inner.item, inner.names
            if text.inner:
                visible = self._end_of(inner)
        if text.within is not None:
            block = next((one for one in site.blocks if one.block and one.block.where == text.within), None)
            visible = self._end_of(self._place(block)) if block else visible
        roots: dict[str, Schema | None] = dict.fromkeys((*text.roots, *sight.roots))
        return CheckEnv(visible, self.known, self.workflow.input or None, item, names, roots)

    def start(self, roots: tuple[str, ...] = ()) -> CheckEnv:
        """What is seen without any step."""
        return CheckEnv(known=self.known, input=self.workflow.input or None, roots=dict.fromkeys(roots))

    def end(self) -> CheckEnv:
        """What the output of the workflow sees."""
        visible = self._end_of(self._place(self._top))
        return CheckEnv(visible, self.known, self.workflow.input or None)


def _namers(survey: Survey) -> dict[int, list[tuple[StepSite, bool]]]:
    """For each step that is kept aside the steps that name it, and whether for undoing them."""
    found: dict[int, list[tuple[StepSite, bool]]] = {}
    for site in survey.steps if survey.aside else ():
        fallbacks = named_fallbacks(site.step)
        for at, name in enumerate(named_aside(site.step)):
            target = site.around(name)
            if target is not None:
                found.setdefault(id(target), []).append((site, at >= len(fallbacks)))
    return found


def _together(sights: list[_Sight], asked: frozenset[str]) -> _Sight:
    """What is seen from all of several places."""
    first = sights[0]
    item = first.item if all(sight.item is not None for sight in sights) else None
    names = {name: schema for name, schema in first.names.items() if all(name in sight.names for sight in sights)}
    guarded = frozenset.intersection(*(sight.guarded for sight in sights)) | asked
    roots = tuple(root for root in first.roots if all(root in sight.roots for sight in sights))
    seen = (view for sight in sights for view in _flat(sight.visible))
    views = list({id(view): view for view in seen}.values())
    visible = Common(views, guarded) if len(views) > 1 or asked else views[0]
    return _Sight(visible, item, names, guarded, tuple(dict.fromkeys((*roots, "error"))))


def _flat(visible: Mapping[str, StepShape]) -> Sequence[Mapping[str, StepShape]]:
    return visible.flat() if isinstance(visible, Common) else [visible]


def _asked_for(site: StepSite) -> frozenset[str]:
    """Steps whose status or presence a condition of the step itself asks for before anything in it runs."""
    found: set[str] = set()
    for text in site.texts:
        before = not text.inner and text.where[:1] not in _AFTERWARDS
        if text.boolean and before and isinstance(text.value, Expression):
            for ref in refs_of(text.value):
                if ref.step_id is not None and (ref.guarded or (ref.root == "steps" and ref.segs[1:2] == ("status",))):
                    found.add(ref.step_id)
    return frozenset(found)
