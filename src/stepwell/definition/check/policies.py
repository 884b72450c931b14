"""Retry policies: kinds of errors that exist, delays that make sense, and steps that may be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.definition.policy import ERROR_KINDS, RetryPolicy
from stepwell.definition.report import Finding
from stepwell.definition.suggest import close

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.check.survey import StepSite, Survey
    from stepwell.definition.step import Location


def check_policies(survey: Survey) -> Iterator[Finding]:
    """Retry policies of all steps and of the workflow's defaults."""
    defaults = survey.workflow.defaults
    if defaults.retry is not None:
        yield from _retry(defaults.retry, ("defaults", "retry"))
    for site in survey.steps:
        retry = getattr(site.step, "retry", None)
        if isinstance(retry, RetryPolicy):
            yield from _retry(retry, (*site.where, "retry"))
            yield from _repeated(site, retry)


def _retry(retry: RetryPolicy, where: Location) -> Iterator[Finding]:
    yield from unknown_kinds(retry.on or (), (*where, "on"))
    yield from unknown_kinds(retry.unless, (*where, "unless"))
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


def unknown_kinds(kinds: tuple[str, ...], where: Location) -> Iterator[Finding]:
    """Tools may have kinds of their own, so an unknown one is only a note, and a warning if it looks misspelt."""
    for index, kind in enumerate(kinds):
        if kind not in ERROR_KINDS:
            near = close(kind, sorted(ERROR_KINDS))
            hint = f"did you mean '{near}'?" if near else "kinds of your own tools are fine"
            yield Finding(
                "policy", f"'{kind}' is no error kind of Stepwell", (*where, index), hint, "warning" if near else "note"
            )


def _repeated(site: StepSite, retry: RetryPolicy) -> Iterator[Finding]:
    careful = getattr(site.step, "idempotent", None) is False and site.step.verification() is None
    if careful and retry.max_attempts > 1:
        message = "this step is not idempotent: it is retried only when its request was surely never sent"
        yield Finding("idempotent", message, (*site.where, "retry"), "", "note")
