"""An approval as it is shown: to programs as an object, to people as a page of the terminal.

The law of the file: it shows what is stored; who may act and what is missing is worked out by `approvals/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.approvals.policy import may_still_act, progress
from stepwell.approvals.rules import rules_of
from stepwell.cli.program import program
from stepwell.cli.text import duration, json_text, table, visible, visible_lines
from stepwell.journal.path import bare, round_number
from stepwell.journal.view import instant
from stepwell.journal.wording import approvers, reminders

if TYPE_CHECKING:
    from stepwell.ports import Wait

Json: TypeAlias = Any


def title(wait: Wait) -> str:
    """What is to be decided."""
    return str(_request(wait).get("title") or wait.path)


def _request(wait: Wait) -> dict[str, Json]:
    return wait.request if isinstance(wait.request, dict) else {}


def wait_object(wait: Wait) -> dict[str, Json]:
    """An approval as programs see it."""
    request, rules = _request(wait), rules_of(wait)
    pending = wait.status == "pending"
    return {
        "id": wait.id,
        "run": wait.run_id,
        "workflow": wait.workflow,
        "path": wait.path,
        "title": title(wait),
        "status": wait.status,
        "show": request.get("show"),
        "form": request.get("form"),
        "decisions": request.get("decisions") or ["approved", "rejected"],
        "round": request.get("round", 1),
        "approvers": approvers(wait),
        "require": rules.require.mode,
        "waiting_for": may_still_act(rules, wait.votes) if pending and rules.frozen else None,
        "progress": progress(rules, wait.votes) if pending else "",
        "votes": list(wait.votes),
        "opened_at": instant(wait.opened),
        "expires_at": instant(wait.deadline),
        "next_notice_at": instant(wait.next_at) if pending else None,
        "decision": wait.decision,
        "digest": wait.digest,
    }


def rounds_of(wait: Wait, others: Iterable[Wait]) -> list[Wait]:
    """The same approval in earlier rounds, oldest first."""
    number = round_number(wait.path)
    found = [one for one in others if bare(one.path) == bare(wait.path) and round_number(one.path) < number]
    return sorted(found, key=lambda one: round_number(one.path))


def decision_line(said: dict[str, Json]) -> str:
    """A decision in one line."""
    comment = f": {said['comment']}" if said.get("comment") else ""
    return f"{said.get('decision')} by {said.get('by')} at {said.get('at')}{comment}"


# ── lists ──


def print_list(found: Sequence[Wait], now: float) -> None:
    """One line for each."""
    rows = []
    for wait in found:
        age = duration(max(0.0, now - wait.opened))
        rows.append((wait.id, wait.workflow, wait.run_id, wait.status, age, _due(wait, now), _told(wait)))
    click.echo("\n".join(table(rows, ["APPROVAL", "WORKFLOW", "RUN", "STATUS", "AGE", "EXPIRES", "TITLE"])))
    late = dict.fromkeys(wait.run_id for wait in found if _due(wait, now) == "expired")
    if late:
        click.echo(f"\nwhat has expired is settled when its run goes on: {program()} runs resume {next(iter(late))}")


def _told(wait: Wait) -> str:
    said = progress(rules_of(wait), wait.votes) if wait.status == "pending" and wait.votes else ""
    return f"{title(wait)} ({said})" if said else title(wait)


def _due(wait: Wait, now: float) -> str:
    if not wait.deadline or wait.status != "pending":
        return "-"
    return f"in {duration(wait.deadline - now)}" if wait.deadline > now else "expired"


# ── one ──


def print_wait(wait: Wait, earlier: Sequence[Wait], tail: str) -> None:
    """All that somebody who decides should see."""
    told = wait_object(wait)
    _print_head(wait, told)
    _print_shown(wait, earlier)
    if told["form"] is not None:
        _heading("form")
        _print_part("", told["form"])
    _print_rounds(earlier)
    _print_votes(wait)
    if told["decision"] is not None:
        _heading("decision")
        _print_part("", told["decision"])
    if wait.status == "pending":
        _print_ways(wait, told, tail)


def _print_head(wait: Wait, told: dict[str, Json]) -> None:
    click.echo(click.style(visible(told["title"]), bold=True))
    facts = f"  {told['status']}  {visible(told['workflow'])}  run {told['run']}  {visible(told['path'])}"
    expires = f"  expires {told['expires_at']}" if told["expires_at"] else ""
    number = f"  round {told['round']}" if told["round"] > 1 else ""
    click.echo(f"{facts}  since {told['opened_at']}{expires}{number}")
    if wait.status != "pending":
        return
    for line in _standing(wait, told):
        click.echo(f"  {visible(line)}")


def _standing(wait: Wait, told: dict[str, Json]) -> Iterator[str]:
    if told["progress"]:
        yield told["progress"]
    if told["waiting_for"]:
        yield f"may decide: {', '.join(told['waiting_for'])}"
    elif told["waiting_for"] is not None:
        yield f"nobody may decide this; an admin can hand it on: {program()} approvals reassign {wait.id} --to NAME"
    if coming := reminders(wait):
        yield coming


def _print_shown(wait: Wait, earlier: Sequence[Wait]) -> None:
    """What is shown; a part that was another in the round before stands beside what it was."""
    shown = _request(wait).get("show")
    if shown is None:
        return
    _heading("show")
    before = [(round_number(one.path), _request(one).get("show")) for one in earlier]
    for key, part in shown.items() if isinstance(shown, dict) else [("", shown)]:
        _print_part(key, part)
        for number, old in reversed(before):
            was = old.get(key) if isinstance(old, dict) and key else old
            if was is not None and was != part:
                _print_part(f"{key} in round {number}".strip(), was)


def _print_rounds(earlier: Sequence[Wait]) -> None:
    for one in earlier:
        said = one.decision if isinstance(one.decision, dict) else {}
        _heading(f"round {round_number(one.path)}")
        click.echo(f"  {visible(decision_line(said))}")
        if said.get("data") is not None:
            _print_part("data", said["data"])


def _print_votes(wait: Wait) -> None:
    """What each of several has said, with what they filled in beside what was shown."""
    if not wait.votes or (len(wait.votes) == 1 and wait.status != "pending"):
        votes: Sequence[dict[str, Json]] = ()
    else:
        votes = wait.votes
    if votes:
        _heading("votes")
    shown = _request(wait).get("show")
    for vote in votes:
        click.echo(f"  {visible(decision_line(vote))}")
        said, beside = vote.get("data"), shown if isinstance(shown, dict) else {}
        given = {key: value for key, value in said.items() if key not in beside} if isinstance(said, dict) else said
        if given:
            click.echo(f"    data: {visible(json_text(given))}")
    for vote in wait.votes:
        data = vote.get("data")
        if isinstance(data, dict) and isinstance(shown, dict):
            changed = {key: value for key, value in data.items() if key in shown and shown[key] != value}
            for key, value in changed.items():
                _heading(f"{key}, by {vote['by']}")
                _print_part("shown", shown[key])
                _print_part("edited", value)


def _print_ways(wait: Wait, told: dict[str, Json], tail: str) -> None:
    fields = " -d NAME=VALUE" if told["form"] else ""
    click.echo(f"\n  approve: {program()} approvals approve {wait.id}{fields}{tail}")
    click.echo(f"  reject:  {program()} approvals reject {wait.id} --comment WHY{tail}")
    if "changes_requested" in told["decisions"]:
        click.echo(f"  changes: {program()} approvals changes {wait.id} --comment WHAT{tail}")
    click.echo(f"  digest:  {wait.digest}")


def _heading(name: str) -> None:
    click.echo(f"\n{click.style(visible(name), bold=True)}")


def _print_part(key: str, part: Json) -> None:
    lines = visible_lines(part if isinstance(part, str) else json_text(part, indent=2))
    if key and len(lines) == 1:
        click.echo(f"  {visible(key)}: {lines[0]}")
        return
    if key:
        click.echo(f"  {visible(key)}:")
    click.echo("\n".join(f"    {line}" for line in lines))
