"""`stepwell approvals`: what waits for people, and deciding it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Group
from stepwell.cli.opening import (
    NoDatabase,
    database_file,
    database_tail,
    find_wait,
    opened,
    run_async,
    tell_no_database,
)
from stepwell.cli.program import program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepwell.engine.engine import Engine
    from stepwell.ports import Wait

Json: TypeAlias = Any


@click.group(
    cls=Group,
    default="list",
    example='stepwell approvals list\nstepwell approvals approve a1b2c3 --comment "fine"',
)
def approvals() -> None:
    """See and decide what waits for people. Ids may be shortened."""


@approvals.command("list", example="stepwell approvals list --run 019c\nstepwell approvals list --all --json")
@click.option("--all", "everything", is_flag=True, help="Decided, expired and withdrawn ones too.")
@click.option("--run", default="", metavar="RUN", help="Only those of this run.")
@options.database
@options.as_json
def list_approvals(*, everything: bool, run: str, database: str, as_json: bool) -> None:
    """List what waits for people, the oldest first."""

    async def work() -> tuple[list[Wait], Path]:
        from stepwell.cli.opening import find_run

        async with opened(database) as engine:
            run_id = (await find_run(engine, run)).id if run else ""
            found = await engine.waits(run_id=run_id, pending_only=not everything)
            return found, database_file(database, engine.settings)

    try:
        found, file = run_async(work())
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)
        return
    if as_json:
        from stepwell.cli.text import json_text

        click.echo(json_text([wait_object(wait) for wait in found], indent=2))
    elif found:
        _print_list(found)
    else:
        click.echo(f"{'no approvals' if everything else 'nothing waits for a person'} in {file}")


def _print_list(found: list[Wait]) -> None:
    import time

    from stepwell.cli.text import duration, table

    now = time.time()
    rows = []
    for wait in found:
        age = duration(max(0.0, now - wait.opened))
        rows.append((wait.id, wait.workflow, wait.run_id, wait.status, age, _due(wait, now), _title(wait)))
    click.echo("\n".join(table(rows, ["APPROVAL", "WORKFLOW", "RUN", "STATUS", "AGE", "EXPIRES", "TITLE"])))
    late = dict.fromkeys(wait.run_id for wait in found if _due(wait, now) == "expired")
    if late:
        click.echo(f"\nwhat has expired is settled when its run goes on: {program()} runs resume {next(iter(late))}")


def _due(wait: Wait, now: float) -> str:
    from stepwell.cli.text import duration

    if not wait.deadline or wait.status != "pending":
        return "-"
    return f"in {duration(wait.deadline - now)}" if wait.deadline > now else "expired"


def _title(wait: Wait) -> str:
    request = wait.request if isinstance(wait.request, dict) else {}
    return str(request.get("title") or wait.path)


def wait_object(wait: Wait) -> dict[str, Json]:
    """An approval as programs see it."""
    from stepwell.journal.view import instant
    from stepwell.journal.wording import approvers

    request = wait.request if isinstance(wait.request, dict) else {}
    return {
        "id": wait.id,
        "run": wait.run_id,
        "workflow": wait.workflow,
        "path": wait.path,
        "title": _title(wait),
        "status": wait.status,
        "show": request.get("show"),
        "form": request.get("form"),
        "approvers": approvers(wait),
        "opened_at": instant(wait.opened),
        "expires_at": instant(wait.deadline),
        "decision": wait.decision,
        "digest": wait.digest,
    }


@approvals.command("show", example="stepwell approvals show a1b2c3")
@click.argument("approval")
@options.database
@options.as_json
def show(approval: str, *, database: str, as_json: bool) -> None:
    """Show what is to be decided."""

    async def work() -> tuple[Wait, str]:
        async with opened(database) as engine:
            return await find_wait(engine, approval), database_tail(database, engine.settings)

    wait, tail = run_async(work())
    from stepwell.cli.text import json_text

    if as_json:
        click.echo(json_text(wait_object(wait), indent=2))
        return
    told = wait_object(wait)
    _print_head(told)
    for name in ("show", "form", "decision"):
        _print_value(name, told[name])
    if wait.status == "pending":
        fields = " -d NAME=VALUE" if told["form"] else ""
        click.echo(f"\n  approve: {program()} approvals approve {wait.id}{fields}{tail}")
        click.echo(f"  reject:  {program()} approvals reject {wait.id} --comment WHY{tail}")


def _print_head(told: dict[str, Json]) -> None:
    from stepwell.cli.text import visible

    click.echo(click.style(visible(told["title"]), bold=True))
    facts = f"  {told['status']}  {visible(told['workflow'])}  run {told['run']}  {visible(told['path'])}"
    expires = f"  expires {told['expires_at']}" if told["expires_at"] else ""
    click.echo(f"{facts}  since {told['opened_at']}{expires}")


def _print_value(name: str, value: Json) -> None:
    from stepwell.cli.text import json_text, visible, visible_lines

    if value is None:
        return
    click.echo(f"\n{click.style(name, bold=True)}")
    parts = value.items() if isinstance(value, dict) and name == "show" else [("", value)]
    for key, part in parts:
        lines = visible_lines(part if isinstance(part, str) else json_text(part, indent=2))
        if key and len(lines) == 1:
            click.echo(f"  {visible(key)}: {lines[0]}")
            continue
        if key:
            click.echo(f"  {visible(key)}:")
        click.echo("\n".join(f"    {line}" for line in lines))


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided on the command line."""

    approval: str
    word: str
    comment: str
    data: str
    fields: tuple[str, ...]
    by: str
    no_resume: bool
    database: str
    as_json: bool


_FIELD = "One field of the form; NAME:=JSON is JSON."


def _deciding(function: Callable[..., None]) -> Callable[..., None]:
    """The options of both decisions."""
    for decorate in (
        options.as_json,
        options.database,
        click.option("--no-resume", is_flag=True, help="Only decide; do not carry the run on."),
        click.option("--by", default="", metavar="NAME", help="Who decides; default: the local operator."),
        click.option("-d", "fields", multiple=True, metavar="NAME=VALUE", help=_FIELD),
        click.option("--data", default="", metavar="JSON", help="All fields of the form."),
        click.option("--comment", default="", metavar="TEXT", help="Why; kept with the decision."),
        click.argument("approval"),
    ):
        function = decorate(function)
    return function


_EPILOG = "Exit codes: 0 taken, 1 refused, with the reason; 2 wrong use. They speak of the decision alone."


@approvals.command("approve", epilog=_EPILOG, example='stepwell approvals approve a1b2c3 --comment "fine" -d amount=40')
@_deciding
def approve(**given: Any) -> None:
    """Approve, and carry the run on if no other process does."""
    click.get_current_context().exit(run_async(_decide(Decision(word="approved", **given))))


@approvals.command("reject", epilog=_EPILOG, example='stepwell approvals reject a1b2c3 --comment "over the limit"')
@_deciding
def reject(**given: Any) -> None:
    """Reject, and carry the run on if no other process does."""
    click.get_current_context().exit(run_async(_decide(Decision(word="rejected", **given))))


async def _decide(decision: Decision) -> int:
    """Decide, then carry the run on where nobody else does; the exit code is the decision's."""
    from stepwell.errors import StepwellError

    async with opened(decision.database) as engine:
        where = decision.database or engine.settings.database
        wait = await find_wait(engine, decision.approval)
        try:
            wait = await _taken(engine, wait, decision)
        except StepwellError as refused:
            code = _refused(refused, as_json=decision.as_json)
            await _tell_way_on(engine, wait, database_tail(decision.database, engine.settings))
            return code
        served = await engine.served()
        tail = database_tail(decision.database, engine.settings)
        run = await engine.run(wait.run_id)
    _tell_taken(wait, decision)
    if decision.no_resume or served or run.owner:
        if not decision.as_json:
            who = (
                "another process carries it on"
                if served or run.owner
                else f"go on with: {program()} runs resume {run.id}{tail}"
            )
            click.echo(f"run {run.id}: {who}")
        return exits.OK
    await _carry_on(run.id, where, tail, as_json=decision.as_json)
    return exits.OK


async def _tell_way_on(engine: Engine, wait: Wait, tail: str) -> None:
    """What moves the run of an approval that has been settled without this decision."""
    from stepwell.cli.standing import left_alone
    from stepwell.ports import FINAL

    run = await engine.run(wait.run_id)
    if run.status not in FINAL and left_alone(run, await engine.waits(run_id=run.id)):
        click.echo(f"  the run can go on: {program()} runs resume {run.id}{tail}", err=True)


async def _carry_on(run_id: str, database: str, tail: str, *, as_json: bool) -> None:
    """What goes wrong now is the run's: it is told, and the decision stands."""
    from stepwell.cli.runs import carry_on

    try:
        await carry_on(run_id, database=database, as_json=as_json)
    except Exception as problem:  # noqa: BLE001 -- told in full; the decision was taken all the same
        exits.explain(problem)
        click.echo(f"the decision is taken; go on with: {program()} runs resume {run_id}{tail}", err=True)


async def _taken(engine: Engine, wait: Wait, decision: Decision) -> Wait:
    by = decision.by or "local operator"
    data = _form_data(wait, decision)
    return await engine.decide(wait.id, decision.word, comment=decision.comment, data=data, by=by)


def _form_data(wait: Wait, decision: Decision) -> Json:
    from stepwell.cli.inputs import read_json, read_pairs, unknown_fields

    form = wait.request.get("form") if isinstance(wait.request, dict) else None
    data = read_json(decision.data, "--data") if decision.data else None
    fields = read_pairs(decision.fields, form or {}, option="-d")
    if fields and data is not None and not isinstance(data, dict):
        raise exits.Refusal("-d sets a field, but --data holds no object", hint="leave one of them out")
    if fields:
        data = (data or {}) | fields
    exits.tell_problems(unknown_fields(data, form or {}, "form"))
    return data


def _refused(error: Exception, *, as_json: bool) -> int:
    """The decision was not taken: say why, and what counts instead."""
    from stepwell.errors import AlreadyDecided, Conflict

    if as_json:
        from stepwell.cli.text import json_text

        detail = error.detail if isinstance(error, Conflict) else None
        told = {"taken": False, "error": {"kind": type(error).__name__, "message": str(error)}, "detail": detail}
        click.echo(json_text(told))
    exits.explain(error)
    if isinstance(error, AlreadyDecided) and isinstance(error.detail, dict):
        from stepwell.cli.text import visible

        first = error.detail
        comment = f": {first['comment']}" if first.get("comment") else ""
        said = f"{first.get('decision')} by {first.get('by')} at {first.get('at')}{comment}"
        click.echo(f"  the decision that counts: {visible(said)}", err=True)
    return exits.FAILED


def _tell_taken(wait: Wait, decision: Decision) -> None:
    from stepwell.cli.text import json_text, visible

    if decision.as_json:
        told = {"taken": True, "id": wait.id, "run": wait.run_id, "path": wait.path, "decision": wait.decision}
        click.echo(json_text(told))
    else:
        colour = "green" if decision.word == "approved" else "red"
        click.echo(f"{click.style(decision.word, fg=colour, bold=True)}  {visible(_title(wait))}")
