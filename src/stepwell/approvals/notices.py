"""What is told to those who may decide, as notifications to be stored in the transaction that causes them.

The law of the file: a notification's key says what it is about, so that it is stored once however often that is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from stepwell.approvals.policy import Votes, may_still_act
from stepwell.approvals.rules import Group, Rules
from stepwell.ports import Outgoing, Wait

Json: TypeAlias = Any


def asked(wait: Wait, rules: Rules, votes: Votes, now: float, *, mark: str = "opened") -> Iterator[Outgoing]:
    """To those who may act now: they are asked."""
    yield from _notice(wait, recipients(rules, votes), mark, f"Decide: {title(wait)}", now)


def reminder(wait: Wait, rules: Rules, number: int, now: float) -> Iterator[Outgoing]:
    """To those who have not acted yet."""
    subject = f"Still to be decided: {title(wait)}"
    yield from _notice(wait, recipients(rules, wait.votes), f"reminder/{number}", subject, now)


def escalation(wait: Wait, groups: Sequence[Group], number: int, now: float) -> Iterator[Outgoing]:
    """To those who may decide from now on as well."""
    subject = f"Nobody has decided: {title(wait)}"
    yield from _notice(wait, _groups(groups), f"escalation/{number}", subject, now)


def expired(wait: Wait, rules: Rules, now: float) -> Iterator[Outgoing]:
    """To those who could have decided."""
    yield from _notice(wait, recipients(rules, wait.votes), "expired", f"Expired: {title(wait)}", now)


def reassigned(wait: Wait, person: str, by: str, now: float) -> Outgoing:
    """To the person who is asked instead."""
    [notice] = _notice(wait, {"users": [person]}, f"reassigned/{person}/{now:.3f}", f"Decide: {title(wait)}", now)
    body = dict(notice.body) | {"message": f"{by} hands this to you."}
    return Outgoing(notice.key, notice.channel, notice.to, notice.subject, body, at=now, path=notice.path)


def recipients(rules: Rules, votes: Votes) -> Json:
    """Who is told: people where they are known, else the groups as they are written; None for nobody."""
    if rules.frozen:
        people = may_still_act(rules, votes)
        return {"users": people} if people else None
    return _groups(rules.approvers)


def title(wait: Wait) -> str:
    """What the approval is about."""
    request = wait.request if isinstance(wait.request, dict) else {}
    return str(request.get("title") or wait.path)


def _groups(groups: Iterable[Group]) -> Json:
    found: dict[str, list[str]] = {}
    for group in groups:
        if group.members is not None:
            found.setdefault("users", []).extend(group.members)
        else:
            found.setdefault(f"{group.kind}s", []).append(group.name)
    return {word: list(dict.fromkeys(names)) for word, names in found.items() if names} or None


def _notice(wait: Wait, to: Json, mark: str, subject: str, now: float) -> Iterator[Outgoing]:
    if to is None:
        return
    body: dict[str, Json] = {"wait": wait.id, "about": mark.partition("/")[0], "title": title(wait)}
    if wait.deadline:
        until = datetime.fromtimestamp(wait.deadline, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        body["expires_at"] = until
    yield Outgoing(
        key=f"{wait.id}/{mark}",
        channel="app",
        to=to,
        subject=subject,
        body=body,
        at=now,
        run_id=wait.run_id,
        path=wait.path,
    )
