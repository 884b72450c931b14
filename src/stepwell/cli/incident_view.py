"""An incident as it is shown: to programs as an object, to people as a page of the terminal.

The law of the file: it shows what was stored when the step failed; what may be done is what the incident offers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli.program import program
from stepwell.cli.text import duration, json_text, terminal_columns, visible, visible_lines, wrapped
from stepwell.journal.explain import raising_of
from stepwell.journal.told import owner
from stepwell.journal.view import instant
from stepwell.journal.wording import error_text

if TYPE_CHECKING:
    from stepwell.ports import Wait

Json: TypeAlias = Any

WAYS = {
    "retry": "try the step again; -i NAME=VALUE gives it other arguments",
    "provide": "give the step's output yourself: --output JSON or @FILE",
    "skip": "go on without it",
    "fallback": "run the fallback that the step names",
    "compensate": "undo what the run has done",
    "fail": "let the step fail",
}


_UNDOING = {
    "retry": "try to undo it again",
    "skip": "leave it as it is, and undo the rest",
    "fail": "give up: what is not undone yet stays as it is",
}


def place_of(wait: Wait) -> str:
    """The step that an incident is about: the one that was to be undone, while a run is."""
    return str(wait.request.get("undoes") or owner(wait.path))


def row_of(wait: Wait) -> dict[str, Json]:
    """An incident in a list for programs (SURFACES, Exact answers)."""
    error = wait.request["error"]
    return {
        "id": wait.id,
        "run": wait.run_id,
        "path": owner(wait.path),
        "kind": error["kind"],
        "message": error["message"],
        "actions": wait.request["actions"],
    }


def incident_object(wait: Wait) -> dict[str, Json]:
    """All of an incident, for programs."""
    request = wait.request
    return row_of(wait) | {
        "workflow": wait.workflow,
        "status": wait.status,
        "title": request["title"],
        "error": request["error"],
        "step": request.get("step"),
        "type": request.get("type"),
        "arguments": request.get("arguments"),
        "output_schema": request.get("output_schema"),
        "undoes": request.get("undoes"),
        "verify": request.get("verify"),
        "key": key_of(wait),
        "opened_at": instant(wait.opened),
        "decision": wait.decision,
    }


def is_in_doubt(wait: Wait) -> bool:
    """Whether nobody knows if the call took effect."""
    return bool(wait.request["error"]["kind"] == "in_doubt")


def key_of(wait: Wait) -> str | None:
    """The idempotency key that the call was made with, by which the other side may know it."""
    place = wait.request["error"].get("path") or owner(wait.path)  # of an agent step it is one of its calls
    return f"{wait.run_id}{place}" if is_in_doubt(wait) else None


def settled_text(said: dict[str, Json]) -> str:
    """Who settled an incident, and how."""
    if said.get("action") is None:
        return "retry by itself, when the next period of the budget began"
    comment = f": {said['comment']}" if said.get("comment") else ""
    return f"{said.get('action')} by {said.get('by')} at {said.get('at')}{comment}"


# ── lists ──


def print_list(found: Sequence[Wait], now: float) -> None:
    """One line for each."""
    rows = []
    for wait in found:
        age = duration(max(0.0, now - wait.opened))
        error = error_text(wait.request["error"])
        rows.append((wait.id, wait.workflow, wait.run_id, wait.status, age, place_of(wait), error))
    heads = ["INCIDENT", "WORKFLOW", "RUN", "STATUS", "AGE", "STEP", "ERROR"]
    click.echo("\n".join(wrapped(rows, heads, columns=terminal_columns())))


# ── one ──


def print_incident(wait: Wait, tail: str) -> None:
    """All that somebody who settles it should see."""
    request = wait.request
    click.echo(click.style(visible(request["title"]), bold=True))
    facts = f"  {wait.status}  {visible(wait.workflow)}  run {wait.run_id}  {visible(owner(wait.path))}"
    click.echo(f"{facts}  since {instant(wait.opened)}")
    for line in doubt_lines(wait):
        click.echo(f"  {line}")
    if request.get("undoes"):
        undone = visible(request["undoes"])
        click.echo(f"  the run is being undone; {undone} could not be, and what is left to undo waits")
    for name in ("arguments", "error", "verify", "output_schema"):
        if request.get(name) is not None:
            _print_part(name, request[name])
    if wait.status == "pending":
        click.echo()
        for line in way_lines(wait, tail):
            click.echo(f"  {line}")
    elif isinstance(wait.decision, dict):
        click.echo(f"\n  settled: {visible(settled_text(wait.decision))}")


def _print_part(name: str, value: Json) -> None:
    click.echo(f"\n{click.style(name, bold=True)}")
    click.echo("\n".join(f"  {line}" for line in visible_lines(json_text(value, indent=2))))


def doubt_lines(wait: Wait) -> Iterator[str]:
    """What somebody needs who finds out whether a call took effect."""
    if is_in_doubt(wait):
        yield "the call was made, and nobody knows whether it took effect; look there before it is made again"
        yield f"its key: {visible(key_of(wait))}"
        detail = wait.request["error"].get("detail")
        arguments = detail.get("arguments") if isinstance(detail, dict) else None
        if (given := arguments or wait.request.get("arguments")) is not None:
            yield f"its arguments: {visible(json_text(given))}"


def way_lines(wait: Wait, tail: str, *, told: bool = True) -> Iterable[str]:
    """The commands that settle an incident; `told`: with what each does."""
    actions = wait.request["actions"]
    room = max((len(word) for word in WAYS), default=0) + 1
    if raising := raising_of(wait):
        yield f"{'raise:':<{room}} {visible(raising)}" + (
            "  # let the budget be so much; it then goes on" if told else ""
        )
    for word in actions:
        more = " --output JSON" if word == "provide" else ""
        said = (_UNDOING if wait.request.get("undoes") else WAYS).get(word, "")
        if word == "retry" and is_in_doubt(wait):
            said = "make the call again: it may then have been made twice"
        command = f"{program()} incidents {word} {wait.id}{more}{tail}"
        yield f"{word + ':':<{room}} {command}" + (f"  # {said}" if said and told else "")
