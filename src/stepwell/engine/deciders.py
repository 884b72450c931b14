"""Approvals that nobody in the directory could decide: found before a run, not when it waits.

The law of the file: a directory without people is no reason to refuse; then the local operator decides everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from stepwell.approvals.opening import freeze
from stepwell.approvals.policy import could_be_approved
from stepwell.approvals.rules import Rules
from stepwell.kinds.approval import Approval

if TYPE_CHECKING:
    from stepwell.definition.fields import Template
    from stepwell.definition.step import Step
    from stepwell.ports import Person


def undecidable(step: Step, people: Sequence[Person], requester: str) -> Iterator[tuple[str, str, str]]:
    """Why an approval could not be decided by these people: code, message, hint."""
    if not isinstance(step, Approval) or not people or not step.names_all():
        return
    said = msgspec.convert(step.rules(_source), Rules)
    rules = freeze(msgspec.structs.replace(said, requester=requester), people)
    known = {person.name for person in people}
    groups = ", ".join(map(str, rules.approvers))
    able = {*rules.members(), *rules.later()} & known
    if not able:
        but = "" if rules.allow_requester or not requester else f", {requester} apart, who starts the run"
        hint = "give somebody that role with: stepwell users add NAME --role ROLE"
        yield "approvers", f"nobody can decide this: nobody is meant by {groups}{but}", hint
    elif not could_be_approved(rules, able):
        message = f"this can never be approved: of {groups} only {', '.join(sorted(able))} may decide"
        yield "require", message, "name more approvers, or ask for fewer decisions"


def _source(template: Template) -> str:
    return template.source
