"""What happens to an approval while nobody decides it: reminders and escalations.

The law of the file: every instant counts from the opening, so that a pause of the machine changes no rhythm; what was
missed meanwhile is made up for once, not as often as it was missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from stepwell.approvals import notices
from stepwell.approvals.rules import Rules, rules_of
from stepwell.ports import Outgoing, Wait


@dataclass(frozen=True, slots=True)
class Tick:
    """What an instant makes of a wait: its rules from now on, when to look again (0: never), and what is told."""

    rules: Rules
    next_at: float
    notices: tuple[Outgoing, ...]


def next_instant(rules: Rules, opened: float) -> float:
    """When the next reminder or escalation of an approval is due; 0 for never."""
    due = [opened + escalation.after for escalation in rules.escalate if not escalation.done]
    if rules.remind_every > 0:
        due.append(opened + (rules.reminded + 1) * rules.remind_every)
    return min(due, default=0.0)


def tick(wait: Wait, now: float) -> Tick:
    """What is due by now: at most one reminder, and every escalation whose time has come."""
    rules = rules_of(wait)
    told: list[Outgoing] = []
    passed = int((now - wait.opened) // rules.remind_every) if rules.remind_every > 0 else 0
    if passed > rules.reminded:
        told += notices.reminder(wait, rules, passed, now)
        rules = msgspec.structs.replace(rules, reminded=passed)
    for index, escalation in enumerate(rules.escalate):
        if escalation.done or wait.opened + escalation.after > now:
            continue
        told += notices.escalation(wait, escalation.to, index, now)
        added = [name for group in escalation.to for name in group.members or ()]
        done = msgspec.structs.replace(escalation, done=True)
        rules = msgspec.structs.replace(
            rules,
            escalate=(*rules.escalate[:index], done, *rules.escalate[index + 1 :]),
            escalated=tuple(dict.fromkeys((*rules.escalated, *added))),
            approvers=rules.approvers if rules.frozen or not rules.approvers else (*rules.approvers, *escalation.to),
        )
    return Tick(rules, next_instant(rules, wait.opened), tuple(told))
