"""Settling incidents on the command line: one by its id, or all that a filter means.

The law of the file: what is acted on is shown first; each incident is settled by itself, and one that refuses holds up
no other. The exit code speaks of the action alone, whatever becomes of the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.opening import database_tail, find_incident, find_run, opened, run_async
from stepwell.cli.program import program

if TYPE_CHECKING:
    from stepwell.engine.engine import Engine
    from stepwell.errors import StepwellError
    from stepwell.people.actor import Actor
    from stepwell.ports import Wait

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for on the command line. `output` is what --output says, read once."""

    word: str
    incident: str
    run: str
    workflow: str
    kind: str
    step: str
    everything: bool
    comment: str
    acting: str
    no_resume: bool
    database: str
    as_json: bool
    fields: tuple[str, ...] = ()
    output: Json = None

    @property
    def filtered(self) -> bool:
        return bool(self.run or self.workflow or self.kind or self.step)


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of one incident: it was settled, or why not."""

    wait: Wait
    edits: dict[str, Json] | None = None
    refused: StepwellError | None = None


def _settling(function: Callable[..., None]) -> Callable[..., None]:
    """The options of all actions."""
    for decorate in (
        options.as_json,
        options.database,
        click.option("--no-resume", is_flag=True, help="Only settle; do not carry the runs on."),
        options.acting,
        click.option("--comment", default="", metavar="TEXT", help="Why; kept with the action."),
        click.option("--all", "everything", is_flag=True, help="On every incident that is meant, not only on one."),
        options.incident_filters,
        click.argument("incident", required=False, default=""),
    ):
        function = decorate(function)
    return function


_EPILOG = "Exit codes: 0 done, 1 refused, with the reason; 2 wrong use. They speak of the action alone."


def _leave(word: str, given: Mapping[str, Any]) -> None:
    click.get_current_context().exit(run_async(_work(Order(word=word, **given))))


_EDIT = "Another value for an argument of the step; NAME:=JSON is JSON."


@click.command(
    cls=Command,
    epilog=_EPILOG,
    example="stepwell incidents retry a1b2c3\nstepwell incidents retry a1b2c3 -i to=ben -i amount:=40\n"
    "stepwell incidents retry --workflow refund --kind timeout --all",
)
@click.option("-i", "fields", multiple=True, metavar="NAME=VALUE", help=_EDIT)
@_settling
def retry(**given: Any) -> None:
    """Try the step again, with the same arguments or with others."""
    _leave("retry", given)


@click.command(
    cls=Command,
    epilog=_EPILOG,
    example='stepwell incidents provide a1b2c3 --output \'{"receipt": "R-7"}\'\n'
    "stepwell incidents provide a1b2c3 --output @receipt.json",
)
@click.option(
    "--output", "text", required=True, metavar="JSON|@FILE", help="What the step gives; @- is standard input."
)
@_settling
def provide(*, text: str, **given: Any) -> None:
    """Give the step's output yourself; the run goes on as if the step had."""
    from stepwell.cli.inputs import read_json_or_file

    _leave("provide", given | {"output": read_json_or_file(text, "--output")})


@click.command(cls=Command, epilog=_EPILOG, example='stepwell incidents skip a1b2c3 --comment "done by hand"')
@_settling
def skip(**given: Any) -> None:
    """Go on without the step; steps after it see that it was skipped."""
    _leave("skip", given)


@click.command(cls=Command, epilog=_EPILOG, example="stepwell incidents fallback a1b2c3")
@_settling
def fallback(**given: Any) -> None:
    """Run the fallback that the step's on_error names."""
    _leave("fallback", given)


@click.command(cls=Command, epilog=_EPILOG, example='stepwell incidents compensate a1b2c3 --comment "order withdrawn"')
@_settling
def compensate(**given: Any) -> None:
    """Undo what the run has done, the last first; the run then ends compensated."""
    _leave("compensate", given)


@click.command(cls=Command, epilog=_EPILOG, example='stepwell incidents fail a1b2c3 --comment "cannot be mended"')
@_settling
def fail(**given: Any) -> None:
    """Let the step fail, as if nobody had been asked."""
    _leave("fail", given)


async def _work(order: Order) -> int:
    from stepwell.cli.acting import actor
    from stepwell.cli.onward import go_on

    async with opened(order.database) as engine:
        where = order.database or engine.settings.database
        tail = database_tail(order.database, engine.settings)
        meant = await _meant(engine, order)
        by = await actor(engine, order.acting)
        results = [await _settle(engine, wait, order, by) for wait in meant]
        runs = dict.fromkeys(one.wait.run_id for one in results if one.refused is None)
        left = {} if order.no_resume else await taken_care_of(engine, runs)
    _tell(results, order)
    if order.no_resume or left:
        _tell_left(runs, left, tail, as_json=order.as_json)
    for run in runs:
        if not order.no_resume and run not in left and not await go_on(run, where, tail, as_json=order.as_json):
            break
    return exits.FAILED if any(one.refused is not None for one in results) else exits.OK


async def _meant(engine: Engine, order: Order) -> list[Wait]:
    """The incidents that are meant, shown where a filter found them. Raises Refusal."""
    if order.incident:
        if order.filtered or order.everything:
            raise exits.Refusal("an id means one incident; filters mean others", hint="leave out one of them")
        return [await find_incident(engine, order.incident)]
    if not order.filtered and not order.everything:
        hint = f"give its id, or --run, --workflow, --kind, --step; `{program()} incidents list` shows what there is"
        raise exits.Refusal("it is not said which incident is meant", hint=hint)
    from stepwell.engine.incidents import Filter

    run = (await find_run(engine, order.run)).id if order.run else ""
    found = await engine.incidents.open(Filter(run, order.workflow, order.kind, order.step))
    if not found:
        hint = f"`{program()} incidents list` shows what is open"
        raise exits.Refusal("no open incident is meant by that", hint=hint, code=exits.FAILED, kind="not_found")
    if not order.as_json or (len(found) > 1 and not order.everything):
        _show(found, err=order.as_json)
    if len(found) > 1 and not order.everything:
        hint = f"add --all to {order.word} all of them, or say which one"
        raise exits.Refusal(f"{len(found)} incidents are meant by that", hint=hint)
    return found


def _show(found: Sequence[Wait], *, err: bool) -> None:
    import contextlib
    import sys
    import time

    from stepwell.cli.incident_view import print_list

    with contextlib.redirect_stdout(sys.stderr if err else sys.stdout):
        print_list(found, time.time())
        click.echo()


async def _settle(engine: Engine, wait: Wait, order: Order, by: Actor) -> Settled:
    from stepwell.engine.incidents import Action
    from stepwell.errors import StepwellError

    edits = _edits(wait, order.fields)
    action = Action(order.word, edits, order.output, order.comment)
    try:
        return Settled(await engine.incidents.settle(wait.id, action, by=by), edits)
    except StepwellError as refused:
        return Settled(wait, edits, refused)


def _edits(wait: Wait, fields: tuple[str, ...]) -> dict[str, Json] | None:
    """The arguments that are given anew."""
    from stepwell.cli.inputs import read_pairs_like

    return read_pairs_like(fields, wait.request.get("arguments")) if fields else None


async def taken_care_of(engine: Engine, runs: Sequence[str] | Mapping[str, None]) -> dict[str, str]:
    """The runs that another process carries on, each with what is to be said of it."""
    if await engine.served():
        return dict.fromkeys(runs, "another process carries it on")
    return {run: "another process carries it on" for run in runs if (await engine.run(run)).owner}


# ── telling ──


def _tell(results: Sequence[Settled], order: Order) -> None:
    from stepwell.cli.text import json_text

    if order.as_json:
        click.echo(json_text([_as_json(one) for one in results]))
        for one in results:
            if one.refused is not None:
                exits.explain(one.refused)
        return
    for one in results:
        _tell_one(one, order)


def _as_json(one: Settled) -> dict[str, Json]:
    from stepwell.cli.exits import as_object
    from stepwell.cli.incident_view import row_of

    row = row_of(one.wait)
    told = {"taken": one.refused is None, "id": row["id"], "run": row["run"], "path": row["path"]}
    if one.refused is not None:
        detail = getattr(one.refused, "detail", None)
        return told | {"error": as_object(one.refused, event="refused")["error"], "decision": detail}
    return told | {"decision": one.wait.decision, "arguments": one.wait.request.get("arguments"), "edits": one.edits}


def _tell_one(one: Settled, order: Order) -> None:
    from stepwell.cli.incident_view import settled_text
    from stepwell.cli.text import visible
    from stepwell.errors import AlreadyDecided

    title = visible(one.wait.request["title"])
    if one.refused is None:
        click.echo(f"{click.style(order.word, fg='green', bold=True)}  {title}")
        _tell_edits(one)
        return
    click.echo(f"{click.style('refused', fg='red', bold=True)}  {title}")
    exits.explain(one.refused)
    if isinstance(one.refused, AlreadyDecided) and isinstance(one.refused.detail, dict):
        click.echo(f"  the action that counts: {visible(settled_text(one.refused.detail))}", err=True)


def _tell_edits(one: Settled) -> None:
    """What is given anew, beside what it was."""
    from stepwell.cli.text import json_text

    old = one.wait.request.get("arguments") or {}
    for name, value in (one.edits or {}).items():
        was = json_text(old[name]) if name in old else "nothing"
        click.echo(f"  {name}: {was} → {json_text(value)}")


def _tell_left(runs: Mapping[str, None], left: Mapping[str, str], tail: str, *, as_json: bool) -> None:
    """Who carries the runs on that this command does not."""
    if as_json:
        return
    for run in runs:
        if (said := left.get(run)) or not left:
            click.echo(f"run {run}: {said or f'go on with: {program()} runs resume {run}{tail}'}")
