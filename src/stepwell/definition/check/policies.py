"""Retry and error rules: kinds of errors that exist, rules that can be reached, steps that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.definition.graph import upstream
from stepwell.definition.policy import ERROR_KINDS, ErrorRule, RetryPolicy
from stepwell.definition.report import Finding
from stepwell.definition.suggest import close, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.check.survey import BlockSite, StepSite, Survey
    from stepwell.definition.step import Location


def check_policies(survey: Survey) -> Iterator[Finding]:
    """Retry policies, error rules and compensation of all steps and of the workflow's defaults."""
    defaults = survey.workflow.defaults
    if defaults.retry is not None:
        yield from _retry(defaults.retry, ("defaults", "retry"))
    for index, rule in enumerate(defaults.on_error or ()):
        yield from _kinds(rule.errors, ("defaults", "on_error", index, "errors"))
    for block in survey.blocks:
        yield from _fallback_cycles(block)
    for site in survey.steps:
        retry = getattr(site.step, "retry", None)
        if isinstance(retry, RetryPolicy):
            yield from _retry(retry, (*site.where, "retry"))
            yield from _repeated(site, retry)
        yield from _rules(site, survey)
        yield from _compensation(site, survey)


def _retry(retry: RetryPolicy, where: Location) -> Iterator[Finding]:
    yield from _kinds(retry.on or (), (*where, "on"))
    yield from _kinds(retry.unless, (*where, "unless"))
    if retry.on == ():
        hint = "name kinds, or leave it out"
        yield Finding("policy", "nothing is retried: `on` is empty", (*where, "on"), hint, "warning")
    both = sorted(set(retry.on or ()) & set(retry.unless))
    if both:
        message = f"'{both[0]}' is both in `on` and in `unless`; it is not retried"
        yield Finding("policy", message, (*where, "unless"), "", "warning")
    if retry.initial_delay > retry.max_delay:
        message = f"`initial_delay` is longer than `max_delay`; every delay is {retry.max_delay:g} s"
        yield Finding("policy", message, (*where, "initial_delay"), "", "warning")


def _kinds(kinds: tuple[str, ...], where: Location) -> Iterator[Finding]:
    """Tools may have kinds of their own, so an unknown one is only a note, and a warning if it looks misspelt."""
    for index, kind in enumerate(kinds):
        if kind not in ERROR_KINDS:
            near = close(kind, sorted(ERROR_KINDS))
            hint = f"did you mean '{near}'?" if near else "kinds of your own tools are fine"
            yield Finding(
                "policy", f"'{kind}' is no error kind of Stepwell", (*where, index), hint, "warning" if near else "note"
            )


def _repeated(site: StepSite, retry: RetryPolicy) -> Iterator[Finding]:
    if getattr(site.step, "idempotent", None) is False and retry.max_attempts > 1:
        message = "this step is not idempotent: it is retried only when its request was surely never sent"
        yield Finding("idempotent", message, (*site.where, "retry"), "", "note")


def _rules(site: StepSite, survey: Survey) -> Iterator[Finding]:
    rules = site.step.on_error or ()
    where = (*site.where, "on_error")
    for index, rule in enumerate(rules):
        here = (*where, index) if len(rules) > 1 else where
        yield from _kinds(rule.errors, (*here, "errors"))
        yield from _rule(rule, site, survey, here)
        if not rule.errors and rule.when is None and index < len(rules) - 1:
            message = "the rules after this one are never reached: it takes every error"
            yield Finding("policy", message, here, "put it last", "warning")


def _rule(rule: ErrorRule, site: StepSite, survey: Survey, where: Location) -> Iterator[Finding]:
    match rule.strategy:
        case "fallback":
            if rule.step is None and not rule.steps:
                yield Finding("policy", "a fallback names `step`, or holds `steps`", where, "add step: its-id")
            elif rule.step is not None:
                yield from _target(rule.step, site, survey, (*where, "step"))
        case "goto":
            if rule.goto is None:
                yield Finding("policy", "`goto` names the step to return to", where, "write {goto: its-id}")
            else:
                yield from _goto(rule.goto, site, survey, (*where, "goto"))
        case _:
            pass


def _fallback_cycles(block: BlockSite) -> Iterator[Finding]:
    """Chains of fallbacks that come back to a step in them."""
    sites = {site.step.id: site for site in block.steps}
    next_of = {
        name: [rule.step for rule in site.step.on_error or () if rule.strategy == "fallback" and rule.step in sites]
        for name, site in sites.items()
    }
    settled: set[str] = set()
    for start in sites:
        chain: dict[str, Iterator[str | None]] = {start: iter(next_of[start])} if start not in settled else {}
        while chain:
            name, following = next(reversed(chain.items()))
            target = next(following, None)
            if target is None:
                settled.add(name)
                del chain[name]
            elif target in chain and target != name:
                names = [*list(chain)[list(chain).index(target) :], target]
                message = f"these steps are each other's fallback: {' -> '.join(names)}"
                yield Finding("policy", message, (*sites[name].where, "on_error"), "a fallback chain ends somewhere")
            elif target not in settled and target not in chain:
                chain[target] = iter(next_of[target])


def _target(name: str, site: StepSite, survey: Survey, where: Location) -> Iterator[Finding]:
    """A step kept for another one lies in the same block, and is not the step itself."""
    if name == site.step.id:
        yield Finding("policy", f"'{name}' cannot stand in for itself", where)
    elif name not in {other.step.id for other in site.home.steps} and name not in survey.parsed.suspects:
        hint = did_you_mean(name, [other.step.id for other in site.home.steps], "steps of this block")
        yield Finding("policy", f"there is no step '{name}' in this block", where, hint)


def _goto(name: str, site: StepSite, survey: Survey, where: Location) -> Iterator[Finding]:
    index = {other.step.id: other.index for other in site.home.steps}.get(name)
    if index is None:
        yield from _target(name, site, survey, where)
    elif not upstream(site.home.order)[site.index] >> index & 1:
        yield Finding("policy", f"'{name}' does not run before this step; `goto` goes back", where)


def _compensation(site: StepSite, survey: Survey) -> Iterator[Finding]:
    compensate = site.step.compensate
    where = (*site.where, "compensate")
    if compensate is None:
        return
    if not isinstance(compensate, dict) or not compensate.keys() <= {"step", "steps"} or len(compensate) != 1:
        hint = "write compensate: {step: its-id}"
        yield Finding("policy", "`compensate` is {steps: [...]} or {step: its-id}", where, hint)
    elif isinstance(name := compensate.get("step"), str):
        yield from _target(name, site, survey, (*where, "step"))
