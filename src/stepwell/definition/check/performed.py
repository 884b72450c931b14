"""What is understood but not carried out by this version: refused before a run rather than ignored in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.definition.report import Finding
from stepwell.definition.visibility import refs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.check.survey import StepSite, Survey
    from stepwell.definition.policy import ErrorRule
    from stepwell.definition.step import Location
    from stepwell.definition.workflow import Workflow

_STRATEGIES = {
    "fallback": "the strategy `fallback`",
    "compensate": "the strategy `compensate`",
    "suspend": "the strategy `suspend`",
    "goto": "the strategy `goto`",
}


def check_performed(survey: Survey) -> Iterator[Finding]:
    """An error for every part of the definition that would not be carried out."""
    yield from _workflow(survey.workflow)
    for site in survey.steps:
        if site.broken:
            continue
        for where, what in site.step.unperformed():
            yield _refusal((*site.where, *where), what)
        yield from _step(site)


def _refusal(where: Location, what: str, hint: str = "") -> Finding:
    return Finding("not_performed", f"not performed by this version: {what}", where, hint)


def _step(site: StepSite) -> Iterator[Finding]:
    step, where = site.step, site.where
    yield from _rules(step.on_error, (*where, "on_error"))
    if step.compensate is not None:
        yield _refusal((*where, "compensate"), "`compensate`")
    if getattr(step, "knowledge", None):
        yield _refusal((*where, "knowledge"), "automatic `knowledge`", "use a kb_search step and its passages")
    for text in site.texts:
        if any(ref.root == "secret" for ref in refs_of(text.value)):
            yield _refusal((*where, *text.where), "`secret`")


def _workflow(workflow: Workflow) -> Iterator[Finding]:
    if workflow.budget is not None:
        yield _refusal(("budget",), "`budget`")
    if workflow.deliver:
        yield _refusal(("deliver",), "`deliver`")
    if workflow.knowledge:
        yield _refusal(("knowledge",), "automatic `knowledge`", "use a kb_search step and its passages")
    hint = "write defaults: {on_error: fail}, or default_error_strategy: fail beside workflow_id"
    yield from _rules(workflow.defaults.on_error, ("defaults", "on_error"), hint)


def _rules(
    rules: tuple[ErrorRule, ...] | None, where: Location, hint: str = "fail and continue are performed"
) -> Iterator[Finding]:
    for index, rule in enumerate(rules or ()):
        if what := _STRATEGIES.get(rule.strategy):
            yield _refusal((*where, index), what, hint)
