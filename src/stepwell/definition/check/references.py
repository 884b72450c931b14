"""Every expression and template of a definition, against what it sees from its place."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from stepwell.definition.check.order_hints import OrderHints
from stepwell.definition.check.views import Views
from stepwell.definition.fields import Expression, Template, Value
from stepwell.definition.report import Finding
from stepwell.definition.step import Location, Recipes, Step
from stepwell.definition.texts import Text, further_roots, texts_in
from stepwell.expressions import CheckEnv, ExpressionError, check_expression, check_template
from stepwell.expressions import Template as CompiledTemplate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.check.survey import StepSite, Survey
    from stepwell.definition.recipe import RecipeDefinition
    from stepwell.errors import Severity

_QUOTED = re.compile(r"'([^']+)'")
_WRONG_BRACES = frozenset({"empty", "unclosed", "unknown_root"})


def check_references(survey: Survey, recipes: Recipes) -> Iterator[Finding]:
    """References exist, are visible and fit the schemas; conditions are booleans; braces are meant."""
    views = Views(survey, recipes)
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


def _defaults(survey: Survey, views: Views, hints: OrderHints) -> Iterator[Finding]:
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
