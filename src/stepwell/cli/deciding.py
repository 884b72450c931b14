"""Deciding on the command line: approve, reject, ask for changes, hand on.

The law of the file: a decision is bound to the digest of what was read here; its exit code speaks of it alone, whatever
becomes of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.opening import database_tail, find_wait, opened, run_async
from stepwell.cli.program import program

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepwell.engine.engine import Engine
    from stepwell.ports import Wait

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided on the command line."""

    approval: str
    word: str
    comment: str
    data: str
    fields: tuple[str, ...]
    acting: str
    digest: str
    no_resume: bool
    database: str
    as_json: bool


_FIELD = "One field of the form; NAME:=JSON is JSON."


def _deciding(function: Callable[..., None]) -> Callable[..., None]:
    """The options of all decisions."""
    for decorate in (
        options.as_json,
        options.database,
        click.option("--no-resume", is_flag=True, help="Only decide; do not carry the run on."),
        options.acting,
        click.option("--digest", default="", metavar="DIGEST", help="Only if this is still what is shown."),
        click.option("-d", "-i", "fields", multiple=True, metavar="NAME=VALUE", help=_FIELD),
        click.option("--data", default="", metavar="JSON|@FILE", help="All fields of the form."),
        click.option("--comment", default="", metavar="TEXT", help="Why; kept with the decision."),
        click.argument("approval"),
    ):
        function = decorate(function)
    return function


_EPILOG = "Exit codes: 0 taken, 1 refused, with the reason; 2 wrong use. They speak of the decision alone."


@click.command(
    cls=Command, epilog=_EPILOG, example='stepwell approvals approve a1b2c3 --as ana --comment "fine" -d amount=40'
)
@_deciding
def approve(**given: Any) -> None:
    """Approve, and carry the run on if no other process does."""
    click.get_current_context().exit(run_async(_decide(Decision(word="approved", **given))))


@click.command(cls=Command, epilog=_EPILOG, example='stepwell approvals reject a1b2c3 --comment "over the limit"')
@_deciding
def reject(**given: Any) -> None:
    """Reject, and carry the run on if no other process does."""
    click.get_current_context().exit(run_async(_decide(Decision(word="rejected", **given))))


@click.command(cls=Command, epilog=_EPILOG, example='stepwell approvals changes a1b2c3 --comment "name the sources"')
@_deciding
def changes(**given: Any) -> None:
    """Ask for changes: the run goes back to the step that the approval names for that."""
    click.get_current_context().exit(run_async(_decide(Decision(word="changes_requested", **given))))


@click.command(cls=Command, example="stepwell approvals reassign a1b2c3 --to ben --as ana")
@click.argument("approval")
@click.option("--to", required=True, metavar="NAME", help="Who is to decide.")
@click.option("--from", "old", default="", metavar="NAME", help="In whose place; default: yours.")
@options.acting
@options.database
@options.as_json
def reassign(approval: str, *, to: str, old: str, acting: str, database: str, as_json: bool) -> None:
    """Let another person decide in your place, or, as an admin, in anybody's."""

    async def work() -> Wait:
        from stepwell.cli.acting import actor

        async with opened(database) as engine:
            wait = await find_wait(engine, approval)
            return await engine.approvals.reassign(wait.id, to, old=old, by=await actor(engine, acting))

    wait = run_async(work())
    from stepwell.cli.approval_view import wait_object
    from stepwell.cli.text import json_text, visible

    told = wait_object(wait)
    if as_json:
        click.echo(json_text(told, indent=2))
    else:
        click.echo(f"{visible(told['title'])}  may decide: {visible(', '.join(told['waiting_for'] or ()))}")


async def _decide(decision: Decision) -> int:
    """Decide, then carry the run on where nobody else does; the exit code is the decision's."""
    from stepwell.cli.onward import go_on
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
    if wait.status == "pending":  # more decisions are wanted: nothing in the run can move
        return exits.OK
    if decision.no_resume or served or run.owner:
        if not decision.as_json:
            who = (
                "another process carries it on"
                if served or run.owner
                else f"go on with: {program()} runs resume {run.id}{tail}"
            )
            click.echo(f"run {run.id}: {who}")
        return exits.OK
    await go_on(run.id, where, tail, as_json=decision.as_json)
    return exits.OK


async def _tell_way_on(engine: Engine, wait: Wait, tail: str) -> None:
    """What moves the run of an approval that has been settled without this decision."""
    from stepwell.cli.standing import left_alone
    from stepwell.ports import FINAL

    run = await engine.run(wait.run_id)
    if run.status not in FINAL and left_alone(run, await engine.waits(run_id=run.id)):
        click.echo(f"  the run can go on: {program()} runs resume {run.id}{tail}", err=True)


async def _taken(engine: Engine, wait: Wait, decision: Decision) -> Wait:
    from stepwell.cli.acting import actor

    by = await actor(engine, decision.acting)
    data, digest = _form_data(wait, decision), decision.digest or wait.digest
    return await engine.decide(wait.id, decision.word, comment=decision.comment, data=data, by=by, digest=digest)


def _form_data(wait: Wait, decision: Decision) -> Json:
    from stepwell.cli.inputs import read_json_or_file, read_pairs, unknown_fields

    form = wait.request.get("form") if isinstance(wait.request, dict) else None
    data = read_json_or_file(decision.data, "--data") if decision.data else None
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
        from stepwell.cli.approval_view import decision_line
        from stepwell.cli.text import visible

        click.echo(f"  the decision that counts: {visible(decision_line(error.detail))}", err=True)
    return exits.FAILED


_COLOURS = {"approved": "green", "rejected": "red"}


def _tell_taken(wait: Wait, decision: Decision) -> None:
    from stepwell.cli.approval_view import title, wait_object
    from stepwell.cli.text import json_text, visible

    told = wait_object(wait)
    if decision.as_json:
        taken = {"taken": True, "id": wait.id, "run": wait.run_id, "path": wait.path, "status": wait.status}
        said = {"decision": wait.decision, "votes": told["votes"], "waiting_for": told["waiting_for"]}
        click.echo(json_text(taken | said))
        return
    word = decision.word.replace("_", " ")
    click.echo(f"{click.style(word, fg=_COLOURS.get(decision.word), bold=True)}  {visible(title(wait))}")
    if wait.status == "pending":
        missing = f"; may still decide: {', '.join(told['waiting_for'])}" if told["waiting_for"] else ""
        click.echo(f"  {visible(told['progress'])}{visible(missing)}")
    elif isinstance(wait.decision, dict) and wait.decision["decision"] != decision.word:
        click.echo(f"  with that it is {wait.decision['decision']}")
