"""The sentences of an explanation: what is waited for, what values were seen, what went wrong and when."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from stepwell.journal.rows import WaitRow
from stepwell.journal.view import instant

Json: TypeAlias = Any

_JOINS = {
    "any_completed": "at least one of them must have completed",
    "all_completed": "all of them must have completed",
}
_SHORT = 160


def waiting(wait: WaitRow) -> tuple[str, dict[str, Json]]:
    """What a step waits for: a sentence, and the facts in it."""
    request = wait.request if isinstance(wait.request, Mapping) else {}
    since, until = f" since {time_text(wait.opened)}", f", until {time_text(wait.deadline)}" if wait.deadline else ""
    facts: dict[str, Json] = {
        "wait": wait.id, "kind": wait.kind, "since": instant(wait.opened), "until": instant(wait.deadline)
    }  # fmt: skip
    match wait.kind:
        case "approval":
            said, more = _approval(wait, request)
            facts |= more
            then = {"approve": "approved", "reject": "rejected", "fail": "failed", "suspend": "an incident"}
            late = then.get(str(getattr(wait, "on_expire", "")), "")
            until += f" (then it counts as {late})" if until and late else ""
            coming = reminders(wait, facts)
            return f"It waits for a decision on {said}{since}{until}{f', {coming}' if coming else ''}.", facts
        case "event":
            topic = str(getattr(wait, "topic", "") or "")
            facts["event"] = topic
            return f"It waits for the event {topic!r}{since}{until}.", facts
        case "incident":
            return incident(request, since, facts), facts
        case _:
            return f"It waits for a time{since}{until}.", facts


def incident(request: Mapping[str, Json], since: str, facts: dict[str, Json]) -> str:
    """What failed and what an operator can do about it; `facts` takes it up."""
    error = request.get("error")
    facts |= {"error": error, "actions": request.get("actions"), "undoes": request.get("undoes")}
    what = f": {error_text(error)}" if error else ""
    ways = ", ".join(request.get("actions") or ())
    undone = f" to say what becomes of {request['undoes']}, which was to be undone" if request.get("undoes") else ""
    return f"It wants an operator{undone}{since}{what}." + (f" Actions: {ways}." if ways else "")


def _approval(wait: WaitRow, request: Mapping[str, Json]) -> tuple[str, dict[str, Json]]:
    """What an approval asks, of whom, and what was said so far."""
    named, rules = approvers(wait), _rules(wait)
    votes = list(getattr(wait, "votes", ()))
    facts = {"title": request.get("title"), "approvers": named, "votes": votes}
    so_far = listed(f"{vote.get('by')}: {vote.get('decision')}" for vote in votes)
    title = json.dumps(request.get("title"), ensure_ascii=False)
    who = people(named, requester=bool(rules.get("allow_requester", True)))
    return f"{title} by " + (f"{who.removesuffix(',')} ({so_far})" if votes else who), facts


def reminders(wait: WaitRow, facts: dict[str, Json] | None = None) -> str:
    """When somebody is reminded next, and who is asked as well and when; `facts` takes them up."""
    rules, told = _rules(wait), []
    facts = {} if facts is None else facts
    if rules.get("remind_every"):
        reminder = wait.opened + (int(rules.get("reminded", 0)) + 1) * float(rules["remind_every"])
        facts["next_reminder"] = instant(reminder)
        told.append(f"next reminder {time_text(reminder)}")
    for escalation in rules.get("escalate") or ():
        if not escalation.get("done"):
            asked, at = _named(escalation["to"]), wait.opened + escalation["after"]
            facts.setdefault("escalations", []).append({"at": instant(at), "to": asked})
            told.append(f"from {time_text(at)} also by {people(asked)}")
    return ", ".join(told)


def approvers(wait: WaitRow) -> dict[str, list[str]] | None:
    """The roles, departments and users who may decide; None where nobody is named."""
    return _named(_rules(wait).get("approvers") or ())


def _named(groups: Iterable[Mapping[str, Json]]) -> dict[str, list[str]] | None:
    named: dict[str, list[str]] = {}
    for group in groups:
        named.setdefault(f"{group['kind']}s", []).append(str(group["name"]))
    return named or None


def _rules(wait: WaitRow) -> Mapping[str, Json]:
    found = getattr(wait, "rules", None)
    return found if isinstance(found, Mapping) else {}


def people(named: Mapping[str, Json] | None, *, requester: bool = True) -> str:
    """Who may decide."""
    parts = []
    for word, one, many in (
        ("roles", "role", "roles"),
        ("departments", "department", "departments"),
        ("users", "", ""),
    ):
        names = [str(name) for name in (named or {}).get(word) or ()]
        if names:
            parts.append(f"{one if len(names) == 1 else many} {' or '.join(names)}".strip())
    but = "" if requester else ", but not who started the run,"
    return (" or ".join(parts) or "anyone who may approve") + but


def dead(reason: Mapping[str, Json]) -> str:
    """Why a step was skipped on account of what it depends on."""
    join = str(reason.get("join") or "any_completed")
    states = reason.get("values")
    told = [f"{name} ({state})" for name, state in states.items()] if isinstance(states, Mapping) else []
    rule = "which must have completed" if len(told) == 1 else f"and {_JOINS.get(join, join)}"
    return f"It depends on {listed(told) or 'steps that were skipped'}, {rule} (join: {join})."


def values(reason: Mapping[str, Json]) -> str:
    """The values that an expression saw."""
    values = reason.get("values")
    expression = reason.get("expression")
    seen = (
        [(name, value) for name, value in values.items() if name != expression] if isinstance(values, Mapping) else []
    )
    return f": {listed([f'{name} is {shown(value)}' for name, value in seen])}" if seen else ""


def shown(value: Json) -> str:
    """A value, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def lowered(text: str) -> str:
    """A sentence inside another."""
    return text[:1].lower() + text[1:]


def listed(names: Iterable[str]) -> str:
    """Names in a sentence; of many only the first."""
    found = [*names]
    shown = found if len(found) <= 8 else [*found[:7], f"{len(found) - 7} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def error_text(error: Mapping[str, Json] | None) -> str:
    """An error's kind and message."""
    if not error:
        return ""
    return f"{error.get('kind', 'error')}: {error.get('message', '')}".rstrip(" .")


def time_text(seconds: float) -> str:
    """UTC seconds since 1970 for people."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if seconds else "an unknown time"


def stamp_text(text: str) -> str:
    """An instant in ISO 8601 for people."""
    return f"{text[:19].replace('T', ' ')} UTC"
