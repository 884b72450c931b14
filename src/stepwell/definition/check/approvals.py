"""Approvals that nobody could decide, and steps that name people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepwell.definition.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.check.survey import StepSite, Survey
    from stepwell.definition.step import Location


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
    yield from _many(step, site.where, approvers)
    if getattr(step, "allow_requester", False) and approvers is None:
        message = "`allow_requester` changes nothing without `approvers`: the requester may decide anyway"
        yield Finding("approval", message, (*site.where, "allow_requester"), "", "note")


def _many(step: Any, where: Location, approvers: Any) -> Iterator[Finding]:
    """What is asked of several people can be met by those who are named, and while the approval is open."""
    require, ends = getattr(step, "require", "any"), getattr(step, "expires_in", None)
    if require == "sequence" and approvers is None:
        message = "a sequence asks the approvers one after the other, and none are named"
        yield Finding("approval", message, (*where, "require"), "add approvers: [role:finance, ana@example.org]")
    quorum = getattr(require, "quorum", None)
    later = getattr(step, "escalate", ())
    if quorum and approvers is not None and not (approvers.roles or approvers.departments or later):
        named = len(set(map(repr, approvers.users)))
        if 0 < named < quorum:
            message = f"nobody can decide this: {quorum} approvals are wanted, and {named} users are named"
            yield Finding("approval", message, (*where, "require"), "name more users, or ask for fewer approvals")
    for index, one in enumerate(later):
        if not (one.to.roles or one.to.departments or one.to.users):
            hint = "name roles, departments or users"
            yield Finding("approval", "this escalation asks nobody", (*where, "escalate", index, "to"), hint)
        if ends is not None and one.after >= ends:
            message = "this escalation never comes: the approval has expired by then"
            place = (*where, "escalate", index, "after")
            yield Finding("approval", message, place, "let it come before `expires_in`", "warning")
