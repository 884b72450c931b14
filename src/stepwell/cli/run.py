"""`stepwell run`: start a workflow and carry it on until it ends or waits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.sources import WorkflowArgument

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.engine.engine import Engine
    from stepwell.errors import Problem
    from stepwell.testing.mocking import Mocks

Json: TypeAlias = Any

_PATH: Any = click.Path(path_type=Path)
_PAIR = "One value of the input, as text unless the schema says otherwise; NAME:=JSON is JSON."
_MOCK = "What steps answer, by id or path, instead of being performed; see docs/guides/testing.md."
_KEY = "The same key with the same workflow and input gives the same run."


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for on the command line."""

    file: Path
    input_file: Path | None
    pairs: tuple[str, ...]
    database: str
    tools: tuple[Path, ...]
    key: str
    as_json: bool
    watch: bool
    acting: str
    dry_run: bool
    mock: Path | None
    tokens: bool


@click.command(
    cls=Command,
    example="""
        stepwell run workflow.yaml --input ticket.json
        stepwell run workflow.yaml -i name=Ana -i count:=3
        stepwell run workflow.yaml --input ticket.json --json | tail -n 1
        stepwell run refund@3 -i order=A-17
        stepwell run workflow.yaml --json --tokens
    """,
    epilog="Exit codes: 0 completed, 1 failed, timed out, compensated or cancelled, 2 wrong use, definition or input, "
    "3 waits for a person, 4 suspended, 5 waits for a time, 130 interrupted. Ctrl-C parks the run.",
)
@click.argument("file", type=WorkflowArgument(), metavar="FILE|ID[@VERSION]")
@click.option("--input", "input_file", type=_PATH, metavar="FILE.json", help="The input; - is standard input.")
@click.option("-i", "pairs", multiple=True, metavar="NAME=VALUE", help=_PAIR)
@options.tools
@options.database
@click.option("--idempotency-key", "key", default="", metavar="KEY", help=_KEY)
@options.acting
@click.option("--watch", is_flag=True, help="Stay until the run has ended, also while it waits.")
@click.option("--tokens", is_flag=True, help="With --json: also what models say, as it comes (model_text).")
@click.option("--mock", type=options.FILE, metavar="FILE.yaml", help=_MOCK)
@click.option("--dry-run", is_flag=True, help="Check everything and show what would be done; execute nothing.")
@options.as_json
def run(**given: Any) -> None:
    """Run the workflow in FILE here and now, and show its steps as they go.

    Where there is no such file, a published workflow is meant: ID is its newest version, ID@VERSION that one.
    """
    from stepwell.cli.opening import NoDatabase, run_async

    order = Order(**given)
    if order.tokens and not order.as_json:
        raise click.UsageError("--tokens belongs to --json; a terminal shows what models say by itself")
    try:
        code = run_async(_run(order))
    except NoDatabase as none:  # a file makes its database
        hint = "name a file that exists, or the database in which the workflow is published"
        raise exits.Refusal(f"there is no file {order.file}, and {none}", hint=hint, kind="not_found") from None
    click.get_current_context().exit(code)


async def _run(order: Order) -> int:
    from stepwell.cli.inputs import hinted, pair_hints, read_input
    from stepwell.cli.opening import opened
    from stepwell.cli.sources import workflow_named
    from stepwell.testing.mocking import Mocks, load_mock

    missing: Any = "refuse" if not order.file.exists() else "aside" if order.dry_run else "make"
    start = order.file.resolve().parent
    mocks = Mocks(load_mock(order.mock)) if order.mock else Mocks()
    async with opened(order.database, start=start, tools=order.tools, missing=missing, mocks=mocks) as engine:
        loaded = await workflow_named(engine, order.file)
        value = read_input(order.input_file, order.pairs, loaded.workflow.input)
        found = hinted(await engine.preflight(loaded, value), pair_hints(order.pairs, loaded.workflow.input))
        problems = [*loaded.warnings, *found]
        if any(problem.severity == "error" for problem in problems):
            return _refuse(problems, as_json=order.as_json)
        exits.tell_problems(problem for problem in problems if problem.severity == "warning")
        if order.dry_run:
            from stepwell.cli.walk import dry_run

            return dry_run(engine, loaded, value, mocks.scripts, as_json=order.as_json)
        return await _carry(engine, order, mocks, loaded, value)


def _refuse(problems: list[Problem], *, as_json: bool) -> int:
    """Say why the run does not start; nothing was executed."""
    exits.tell_problems(problems)
    count = sum(problem.severity == "error" for problem in problems)
    click.echo(f"not started: {count} {'error' if count == 1 else 'errors'}", err=True)
    if as_json:
        from dataclasses import asdict

        from stepwell.cli.text import json_text

        message = "; ".join(problem.message for problem in problems if problem.severity == "error")
        error = {"kind": "preflight", "message": message, "problems": [asdict(problem) for problem in problems]}
        click.echo(json_text({"run": None, "event": "run_refused", "status": "refused", "error": error}))
    return exits.USAGE


async def _carry(engine: Engine, order: Order, mocks: Mocks, loaded: LoadedWorkflow, value: Json) -> int:
    import asyncio

    from stepwell.cli.acting import actor
    from stepwell.cli.follow import follow, tell_ending
    from stepwell.cli.opening import database_tail
    from stepwell.cli.progress import Progress
    from stepwell.cli.screen import screen_for
    from stepwell.errors import Conflict

    try:
        asks = await actor(engine, order.acting)
        handle = await engine.start(loaded, value, idempotency_key=order.key, requester=asks)
    except Conflict as conflict:
        full = isinstance(conflict.detail, dict) and "lane" in conflict.detail
        hint = "try again when one has ended" if full else "use another key, or the same workflow and input"
        raise exits.Refusal(str(conflict), hint=hint, kind="conflict") from None
    workflow = loaded.workflow
    screen = screen_for(Progress(workflow), as_json=order.as_json, tokens=order.tokens)
    screen.begin(handle.run_id, workflow.name or workflow.workflow)
    queued = asyncio.create_task(_tell_queued(engine, handle.run_id))  # beside `follow`, or first events go unseen
    ending = await follow(engine, handle, screen, watch=order.watch, mocks=mocks)
    await queued
    tell_ending(ending, screen, database_tail(order.database, engine.settings))
    return ending.code


async def _tell_queued(engine: Engine, run_id: str) -> None:
    run = await engine.run(run_id)
    if run.status == "queued" and run.lane and not run.started:
        click.echo("queued: runs with the same concurrency key are active; it begins when one has ended", err=True)
