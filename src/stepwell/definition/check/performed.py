"""What is understood but not carried out by this version: refused before a run rather than ignored in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.definition.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.check.survey import Survey
    from stepwell.definition.step import Location
    from stepwell.definition.workflow import Workflow


def check_performed(survey: Survey) -> Iterator[Finding]:
    """An error for every part of the definition that would not be carried out."""
    yield from _workflow(survey.workflow)
    for site in survey.steps:
        if site.broken:
            continue
        for where, what in site.step.unperformed():
            yield _refusal((*site.where, *where), what)


def _refusal(where: Location, what: str, hint: str = "") -> Finding:
    return Finding("not_performed", f"not performed by this version: {what}", where, hint)


def _workflow(workflow: Workflow) -> Iterator[Finding]:
    if workflow.deliver:
        yield _refusal(("deliver",), "`deliver`")
