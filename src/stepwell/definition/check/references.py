"""Every expression and template of a definition, against what it sees from its place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stepwell.definition.check.order_hints import OrderHints
from stepwell.definition.check.visible import Frame, Shapes, Visible, frames
from stepwell.definition.fields import Expression, Template, Value
from stepwell.definition.report import Finding
from stepwell.definition.step import Location, Recipes, Schema, Step
from stepwell.definition.texts import Text, further_roots, texts_in
from stepwell.definition.visibility import refs_of
from stepwell.expressions import CheckEnv, ExpressionError, check_expression, check_template
from stepwell.expressions import Template as CompiledTemplate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepwell.definition.check.survey import BlockSite, StepSite, Survey
    from stepwell.definition.recipe import RecipeDefinition
    from stepwell.errors import Severity

_QUOTED = re.compile(r"'([^']+)'")
_ROOTS: dict[str, Schema | None] = {"secret": None}
_AFTERWARDS = (("on_error",), ("retry",), ("verify",))
"""Fields whose conditions are tested when the step has run."""
_WRONG_BRACES = frozenset({"empty", "unclosed", "unknown_root"})


def check_references(survey: Survey, recipes: Recipes) -> Iterator[Finding]:
    """References exist, are visible and fit the schemas; conditions are booleans; braces are meant."""
    views = _Views(survey, recipes)
    hints = OrderHints(survey)
    for site in survey.steps:
        for text in site.texts:
            for found in _text(text, site.where, views.env(site, text), lenient=views.lenient):
                yield _explained(found, hints, site)
    yield from _defaults(survey, views, hints)
    workflow = survey.workflow
    if isinstance(workflow.output, Value):
        for found in _text(Text(("output",), workflow.output), (), views.end(), lenient=views.lenient):
            yield _explained(found, hints, None)
    if workflow.concurrency is not None and isinstance(workflow.concurrency.key, Template):
        key = Text(("concurrency", "key"), workflow.concurrency.key)
        yield from _text(key, (), views.start(), lenient=views.lenient)


def _defaults(survey: Survey, views: _Views, hints: OrderHints) -> Iterator[Finding]:
    """Rules for every step see what every step sees: the input, and the error."""
    for name in ("on_error", "retry"):
        for where, value in texts_in(getattr(survey.workflow.defaults, name), (name,), Step):
            word = next((part for part in reversed(where) if isinstance(part, str)), "")
            text = Text(where, value, roots=further_roots(name, word), boolean=word == "when")
            for found in _text(text, ("defaults",), views.start(text.roots), lenient=views.lenient):
                yield _explained(found, hints, None)


def _explained(found: Finding, hints: OrderHints, site: StepSite | None) -> Finding:
    """An error of order or scope with the reason why the name is not visible."""
    name = _QUOTED.search(found.message)
    if found.hint or name is None or found.code not in {"order", "scope"}:
        return found
    return replace(found, hint=hints.hint(name[1], site) if found.code == "order" else hints.item(name[1]))


def check_recipe_texts(recipe: RecipeDefinition) -> Iterator[Finding]:
    """A recipe sees its own input and nothing else."""
    env = CheckEnv(input=recipe.input or None, names={"input": recipe.input or None})
    for name, template in (("system", recipe.system), ("prompt", recipe.prompt)):
        if template is not None:
            yield from _text(Text((name,), template, prose=True), (), env, lenient=False)


@dataclass(frozen=True, slots=True)
class _Place:
    """
    What is the same for all texts of the steps of one block: the frame, the item, the names, what is outside, and the
    roots (`error`, `call`).
    """

    frame: Frame
    outer: Visible | None = None
    item: Schema | None = None
    names: Mapping[str, Schema | None] = field(default_factory=dict)
    guarded: frozenset[str] = frozenset()
    roots: tuple[str, ...] = ()


class _Views:
    """The environments of all places; a block's place is made once."""

    def __init__(self, survey: Survey, recipes: Recipes) -> None:
        self.workflow = survey.workflow
        self.lenient = survey.workflow.templates == "lenient"
        self.known = dict.fromkeys(site.step.id for site in survey.steps).keys()
        self._shapes = Shapes(recipes, survey.parsed.suspects)
        self._frames = frames(survey)
        self._places: dict[int, _Place] = {}
        self._seen: dict[int, Visible] = {}
        self._top = survey.blocks[0]
        for block in survey.blocks:
            self._places[id(block)] = self._place(block)

    def _place(self, block: BlockSite) -> _Place:
        frame = self._frames[id(block)]
        holder = block.holder
        if holder is None or block.block is None:
            failing = block.failure or block.block is not None
            return _Place(frame, self._before_failure(block), roots=("error",) if failing else ())
        around = self._places[id(holder.home)]
        item = block.block.item if block.block.item is not None else around.item
        names = {**around.names, **dict.fromkeys(block.block.binds, block.block.item)}
        guarded = around.guarded | _asked_for(holder)
        roots = (*around.roots, *_roots_of(holder), *block.block.roots)
        outer = self._visible(holder, done=block.block.purpose == "undo")
        return _Place(frame, outer, item, names, guarded, roots)

    def _before_failure(self, block: BlockSite) -> Visible | None:
        """`on_failure` sees every step of the workflow, each of which may not have run."""
        if not block.failure:
            return None
        top = self._frames[id(self._top)]
        everything = Frame(top.site, top.owned, top.before, top.sure, [True] * len(top.maybe))
        return Visible(everything, self._shapes, None, None, frozenset())

    def _visible(self, site: StepSite, *, done: bool = False) -> Visible:
        """What a step sees; once it is `done`, itself too."""
        found = None if done else self._seen.get(id(site))
        if found is None:
            place = self._places[id(site.home)]
            guarded = place.guarded | _asked_for(site)
            found = Visible(place.frame, self._shapes, place.outer, site, guarded, done=done)
            if not done:
                self._seen[id(site)] = found
        return found

    def env(self, site: StepSite, text: Text) -> CheckEnv:
        """What a text of a step sees."""
        place = self._places[id(site.home)]
        item, names, visible = place.item, place.names, self._visible(site)
        if (text.inner or text.item) and site.blocks:
            inner = self._places[id(site.blocks[0])]
            item, names = inner.item, inner.names
            if text.inner:
                visible = self._end_of(inner)
        if text.within is not None:
            block = next((one for one in site.blocks if one.block and one.block.where == text.within), None)
            visible = self._end_of(self._places[id(block)]) if block else visible
        roots = {**_ROOTS, **dict.fromkeys((*text.roots, *place.roots, *_roots_of(site)))}
        return CheckEnv(visible, self.known, self.workflow.input or None, item, names, roots)

    def _end_of(self, place: _Place) -> Visible:
        """What is seen once all steps of a block have ended."""
        return Visible(place.frame, self._shapes, place.outer, None, place.guarded)

    def start(self, roots: tuple[str, ...] = ()) -> CheckEnv:
        """What is seen without any step."""
        return CheckEnv(known=self.known, input=self.workflow.input or None, roots=dict.fromkeys(roots))

    def end(self) -> CheckEnv:
        """What the output of the workflow sees."""
        return CheckEnv(
            self._end_of(self._places[id(self._top)]), self.known, self.workflow.input or None, roots=_ROOTS
        )


def _roots_of(site: StepSite) -> tuple[str, ...]:
    """A step that is kept aside runs because another one failed or the run did."""
    return () if site.home.order.in_flow[site.index] else ("error",)


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


def _text(text: Text, where: Location, env: CheckEnv, *, lenient: bool) -> Iterator[Finding]:
    value, place = text.value, (*where, *text.where)
    if isinstance(value, Expression):
        program = value.program
        if not program.refs():
            yield from _constant(value, place, boolean=text.boolean)
        strict = check_expression(program, _strict(env), boolean=text.boolean)
        real = check_expression(program, env, boolean=text.boolean) if strict else []
        yield from _said(strict, real, place)
        return
    parts = [((), value.compiled)] if isinstance(value, Template) else value.tree.templates()
    for path, template in parts:
        here = (*place, *path)
        if not template.is_constant:
            strict = check_template(template, _strict(env))
            yield from _said(strict, check_template(template, env) if strict else [], here)
        yield from _braces(template, here, lenient=lenient or text.prose)


def _strict(env: CheckEnv) -> CheckEnv:
    return CheckEnv(env.visible, env.known, env.input, env.loop_item, env.names, env.roots, strict=True)


def _said(strict: list[ExpressionError], real: list[ExpressionError], where: Location) -> Iterator[Finding]:
    """The errors, and as warnings what looks like a misspelt field although its schema leaves room for it."""
    certain = {(error.offset, error.message) for error in real}
    for error in strict:
        is_real = (error.offset, error.message) in certain
        if not is_real and not error.hint.startswith("did you mean"):
            continue
        severity: Severity = "error" if is_real and error.severity == "error" else "warning"
        yield Finding(error.code, error.message, where, error.hint, severity, error.offset)


def _constant(value: Expression, where: Location, *, boolean: bool) -> Iterator[Finding]:
    """An expression without references has one value, which is known now."""
    try:
        found = value.program.evaluate({})
    except ExpressionError as error:
        yield Finding(error.code, error.message, where, error.hint, "error", error.offset)
        return
    if boolean and isinstance(found, bool):
        message = f"this condition is always {'true' if found else 'false'}"
        yield Finding("constant", message, where, "", "warning")


def _braces(template: CompiledTemplate, where: Location, *, lenient: bool) -> Iterator[Finding]:
    for note in template.notes():
        severe = note.kind in _WRONG_BRACES and not lenient
        yield Finding(note.code, note.message, where, note.hint, "error" if severe else "warning", note.offset)
