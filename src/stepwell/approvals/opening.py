"""Opening an approval, and handing it on: who is meant becomes a list of people.

The law of the file: who may decide is fixed when the approval opens; a role that somebody gets later changes nothing
that is open already. Handing on and escalation are the two ways in which the list changes, and both are recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from stepwell.approvals import notices
from stepwell.approvals.may_decide import check_state, is_among
from stepwell.approvals.rules import ANYONE, Escalation, Group, Rules, is_called, rules_of
from stepwell.approvals.timers import next_instant
from stepwell.errors import Forbidden, InputError, Problem
from stepwell.ports import Outgoing, Person, Wait


def opened(wait: Wait, people: Sequence[Person], requester: str) -> tuple[Wait, tuple[Outgoing, ...]]:
    """The wait as it is to be stored, and whom to tell of it. Without `people`, nothing is fixed yet."""
    rules = freeze(msgspec.structs.replace(rules_of(wait), requester=requester), people)
    wait = replace(wait, rules=rules.as_json(), next_at=next_instant(rules, wait.opened))
    return wait, tuple(notices.asked(wait, rules, (), wait.opened))


def freeze(rules: Rules, people: Sequence[Person]) -> Rules:
    """The rules with the people whom they mean now. Whoever started the run is left out where they may not decide."""
    if rules.frozen or not people:
        return rules
    left_out = "" if rules.allow_requester else rules.requester

    def filled(group: Group) -> Group:
        members = [person.name for person in people if group.means(person) and not is_called(person, left_out)]
        known = any(group.means(person) for person in people)
        if group.kind == "user" and not known and group.name and group.name != left_out:
            members = [group.name]  # somebody who is not in the directory yet
        return msgspec.structs.replace(group, members=tuple(members))

    approvers = rules.approvers or tuple(Group("role", role) for role in ANYONE)
    return msgspec.structs.replace(
        rules,
        approvers=tuple(map(filled, approvers)),
        escalate=tuple(_filled(escalation, tuple(map(filled, escalation.to))) for escalation in rules.escalate),
        frozen=True,
    )


def _filled(escalation: Escalation, groups: tuple[Group, ...]) -> Escalation:
    return msgspec.structs.replace(escalation, to=groups)


def reassigned(wait: Wait, by: Person, old: str, new: Person, now: float) -> Rules:
    """The rules once `new` takes the place of `old`. Raises Forbidden, AlreadyDecided, Gone and InputError."""
    rules = rules_of(wait)
    admin = "admin" in by.roles
    if not admin and not is_among(rules, by):
        raise Forbidden(f"{by.name} may not hand on {wait.id}: that is for those who decide it, and for admins")
    check_state(wait, now)
    if not rules.frozen:
        raise _wrong(f"{wait.id} opened before there were people: whoever may decide it now can do so")
    if not rules.allow_requester and is_called(new, rules.requester):
        raise Forbidden(f"{new.name} started the run, and may not decide {wait.id}")
    if not admin and not any(group.kind != "user" and group.means(new) for group in rules.approvers):
        wanted = ", ".join(str(group) for group in rules.approvers if group.kind != "user") or "an admin's word"
        raise Forbidden(f"{new.name} may not decide {wait.id} in place of {old}: it takes {wanted}")
    if any(is_called(new, name) for name in (*rules.members(), *rules.escalated)):
        raise _wrong(f"{new.name} may decide {wait.id} already")
    if any(vote["by"] == old for vote in wait.votes):
        raise _wrong(f"{old} has decided {wait.id} already")
    if old not in (*rules.members(), *rules.escalated):
        if not admin or rules.members():
            raise _wrong(f"{old} is not among those who decide {wait.id}: {', '.join(rules.members())}")
        return msgspec.structs.replace(rules, approvers=(*rules.approvers, Group("user", new.name, (new.name,))))

    def swapped(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(new.name if name == old else name for name in names)

    return msgspec.structs.replace(
        rules,
        approvers=tuple(
            msgspec.structs.replace(group, members=swapped(group.members or ())) for group in rules.approvers
        ),
        escalated=swapped(rules.escalated),
    )


def _wrong(message: str) -> InputError:
    return InputError([Problem("error", "reassign", message, "see who decides with: stepwell approvals show")])
