"""Approvals that nobody could decide, and steps that name people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepwell.definition.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.check.survey import StepSite, Survey


def check_approvals(survey: Survey) -> Iterator[Finding]:
    """`approvers` name somebody; rejection leads somewhere; what expires has a time."""
    for site in survey.steps:
        if site.step.type == "approval" and not site.broken:
            yield from _approval(site)


def _approval(site: StepSite) -> Iterator[Finding]:
    step: Any = site.step
    approvers = getattr(step, "approvers", None)
    if approvers is not None and not (approvers.roles or approvers.departments or approvers.users):
        hint = "name roles, departments or users, or leave `approvers` out"
        yield Finding("approval", "nobody can decide this: `approvers` names nobody", (*site.where, "approvers"), hint)
    if "on_expire" in step.model_fields_set and getattr(step, "expires_in", None) is None:
        message = "`on_expire` never applies: the approval does not expire"
        yield Finding("approval", message, (*site.where, "on_expire"), "add expires_in: 7d", "warning")
    if getattr(step, "allow_requester", False) and approvers is None:
        message = "`allow_requester` changes nothing without `approvers`: the requester may decide anyway"
        yield Finding("approval", message, (*site.where, "allow_requester"), "", "note")
