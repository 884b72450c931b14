"""Ids, depth and emptiness: what a list of steps must be before anything else is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.definition.limits import DEEPEST_STEPS
from stepwell.definition.report import Finding
from stepwell.expressions import FUNCTIONS, MACROS, ROOTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.check.survey import BlockSite, StepSite, Survey


def check_structure(survey: Survey) -> Iterator[Finding]:
    """Ids are unique, also across blocks; names are not reserved; nesting is bounded; no race is ended from inside."""
    yield from _ids(survey)
    yield from _ends_in_races(survey)
    for block in survey.blocks:
        if block.depth == DEEPEST_STEPS + 1 and block.steps:
            yield Finding("depth", f"steps are nested more than {DEEPEST_STEPS} deep", block.where)
        yield from _emptiness(block)
        yield from _names(block)
        yield from _after_end(block)


def _ids(survey: Survey) -> Iterator[Finding]:
    seen: dict[str, StepSite] = {}
    lowered: dict[str, StepSite] = {}
    for site in survey.steps:
        name = site.step.id
        if not name:
            continue
        if name == "on_failure":
            yield Finding("name", "no step may be called 'on_failure'", (*site.where, "id"), "give it another id")
        if first := seen.get(name):
            message = f"the step id '{name}' is used twice; first at {{place}}"
            yield _second(site, first, "duplicate_id", message)
            continue
        seen[name] = site
        twin = lowered.setdefault(name.lower(), site)
        if twin is not site:
            message = f"'{name}' differs only by case from '{twin.step.id}' at {{place}}"
            yield _second(site, twin, "similar_id", message, severe=False)


def _second(site: StepSite, first: StepSite, code: str, message: str, *, severe: bool = True) -> Finding:
    hint = "ids are unique in the whole workflow, nested steps included" if severe else "give it a name of its own"
    return Finding(
        code, message, (*site.where, "id"), hint, "error" if severe else "warning", other=(*first.where, "id")
    )


def _emptiness(block: BlockSite) -> Iterator[Finding]:
    if block.steps or block.block is None or block.block.purpose or block.holder is None or block.holder.broken:
        return
    if block.block.where == ("else",) or (block.block.where == ("then",) and block.holder.step.type == "condition"):
        return
    yield Finding("empty", "this branch has no steps", block.where, "it completes with null", "warning")


def _ends_in_races(survey: Survey) -> Iterator[Finding]:
    """A race is decided by how its branches settle, which a branch that ends the run never does."""
    for site in survey.steps:
        if site.step.type != "end":
            continue
        for holder in site.holders():
            if getattr(holder.step, "mode", "all_settled") != "all_settled":
                message = f"'end' cannot stand in a branch of '{holder.step.id}', whose branches race"
                hint = "let the branch set a value, and end the run after the parallel step"
                yield Finding("end_in_race", message, (*site.where, "type"), hint)
                break


def _names(block: BlockSite) -> Iterator[Finding]:
    for name in block.block.binds if block.block else ():
        if name in ROOTS or name in FUNCTIONS or name in MACROS or name in {"true", "false", "null", "input"}:
            where = (*(block.holder.where if block.holder else ()), "as")
            yield Finding("name", f"'{name}' is a word of the language", where, f"write as: {name}_item")


def _after_end(block: BlockSite) -> Iterator[Finding]:
    """Steps that nothing can reach because the run has ended before."""
    if not block.order.sequence:
        return
    ends = next((site for site in block.steps if site.step.type == "end" and site.step.condition is None), None)
    if ends is None:
        return
    for site in block.steps[ends.index + 1 :]:
        if block.order.in_flow[site.index]:
            message = f"this step is never reached: '{ends.step.id}' ends the run before it"
            yield Finding("unreachable", message, site.where, "", "warning")
