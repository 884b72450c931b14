"""`stepwell runs`: what has run, how it stands, and going on with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Group
from stepwell.cli.opening import (
    NoDatabase,
    database_file,
    database_tail,
    find_run,
    opened,
    run_async,
    tell_no_database,
)
from stepwell.cli.program import program

if TYPE_CHECKING:
    from stepwell.cli.follow import Ending
    from stepwell.cli.screen import Screen
    from stepwell.engine.engine import Engine
    from stepwell.ports import Run

Json: TypeAlias = Any

_STATUS = click.Choice(
    [
        "queued", "running", "pending_approval", "waiting", "suspended", "stuck", "completed", "failed", "compensated",
        "cancelled", "timed_out",
    ]
)  # fmt: skip


@click.group(
    cls=Group,
    default="list",
    lazy={
        "redrive": ("stepwell.cli.again:redrive", "Go on with a run that failed, after a plan."),
        "rerun": ("stepwell.cli.again:rerun", "Do a step and all that follows again, after a plan."),
        "migrate": ("stepwell.cli.migrate:migrate", "Move parked runs to another version, after a plan."),
        "export": ("stepwell.cli.export:export", "Write a run as JSON, or as a test with its recorded answers."),
    },
    example="stepwell runs list --status failed\nstepwell runs show 019c\nstepwell runs resume 019c\n"
    "stepwell runs redrive 019c",
)
def runs() -> None:
    """List, show, follow, resume, cancel, redrive and rerun runs. Ids may be shortened."""


@runs.command("list", example="stepwell runs list --status pending_approval --limit 10")
@click.option("--status", "statuses", multiple=True, type=_STATUS, help="Only in this state; may be repeated.")
@click.option("--workflow", default="", metavar="ID", help="Only runs of this workflow.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="How many.")
@click.option("--before", default="", metavar="RUN", help="Runs older than this one, for the next page.")
@options.database
@options.as_json
def list_runs(
    *, statuses: tuple[str, ...], workflow: str, limit: int, before: str, database: str, as_json: bool
) -> None:
    """List runs, newest first."""

    async def work() -> None:
        from stepwell.cli.text import json_text

        async with opened(database) as engine:
            last = (await find_run(engine, before)).id if before else ""
            found = await engine.runs(statuses=statuses, workflow=workflow, limit=limit, before=last)
            if as_json:
                click.echo(json_text([_summary(run) for run in found], indent=2))
            elif not found:
                which = "no such runs" if statuses or workflow or before else "no runs yet"
                made = f"`{program()} run FILE` makes one, or name another database with --database"
                click.echo(f"{which} in {database_file(database, engine.settings)}; {made}")
            else:
                alone = {run.id: left for run in found if (left := await _left_alone(engine, run))}
                _print_runs(found, alone, limit, database_tail(database, engine.settings))

    try:
        run_async(work())
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)


async def _left_alone(engine: Engine, run: Run) -> str:
    from stepwell.cli.follow import ending_of
    from stepwell.cli.standing import left_alone

    parked = run.status in {"pending_approval", "waiting", "suspended"}
    # Of a run that waits for something else the engine tells no waits; when it is due says `wake_at`.
    return left_alone(run, (await ending_of(engine, run.id)).waits if parked else ())


def _print_runs(found: list[Run], alone: dict[str, str], limit: int, tail: str) -> None:
    from stepwell.cli.standing import resuming
    from stepwell.cli.text import duration, table
    from stepwell.journal.view import instant

    rows = []
    for run in found:
        when = (instant(run.created) or "")[:19].replace("T", " ")
        rows.append((run.id, run.workflow, run.status, when, duration(run.active), alone.get(run.id) or _why(run)))
    click.echo("\n".join(table(rows, ["RUN", "WORKFLOW", "STATUS", "STARTED (UTC)", "ACTIVE", ""], columns=_columns())))
    if alone:
        click.echo("\nnobody carries these on; do it with:")
        click.echo("\n".join(f"  {resuming(run_id, tail)}" for run_id in [*alone][:5]))
    if len(found) == limit:
        click.echo(f"\nolder ones: {program()} runs list --before {found[-1].id}{tail}")


def _columns() -> int:
    import shutil
    import sys

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def _why(run: Run) -> str:
    from stepwell.cli.lines import ended_why

    return ended_why(run)


def _summary(run: Run) -> dict[str, Json]:
    from stepwell.journal.view import instant

    return {
        "id": run.id,
        "workflow": {"id": run.workflow, "version": run.version, "digest": run.definition},
        "status": run.status,
        "error": run.error,
        "created_at": instant(run.created),
        "started_at": instant(run.started),
        "ended_at": instant(run.ended),
        "active_ms": round(run.active * 1000),
        "requester": run.requester,
    }


@runs.command("show", example="stepwell runs show 019c\nstepwell runs show 019c --json | jq .steps[].status")
@click.argument("run")
@click.option("--step", default="", metavar="STEP", help="Show a step's input, output and attempts (its id or path).")
@click.option("--all", "whole", is_flag=True, help="Every iteration of long loops too.")
@options.database
@options.as_json
def show(run: str, *, step: str, whole: bool, database: str, as_json: bool) -> None:
    """Show a run with all of its steps."""

    async def work() -> int:
        async with opened(database) as engine:
            found = await find_run(engine, run)
            tree = await engine.tree(found.id)
            if as_json:
                from stepwell.cli.text import json_text

                click.echo(json_text(tree.as_json(), indent=2))
                return exits.OK
            from stepwell.cli.showing import print_run, print_steps

            if step:
                return print_steps(tree, step)
            tail = database_tail(database, engine.settings)
            return print_run(tree, columns=_columns(), tail=tail, whole=whole)

    click.get_current_context().exit(run_async(work()))


@runs.command("history", example="stepwell runs history 019c --json")
@click.argument("run")
@options.database
@options.as_json
def history(run: str, *, database: str, as_json: bool) -> None:
    """Show a run's journal, entry by entry."""

    async def work() -> None:
        from stepwell.cli.showing import print_journal

        async with opened(database) as engine:
            found = await find_run(engine, run)
            print_journal(await engine.history(found.id), as_json=as_json)

    run_async(work())


@runs.command("tail", example="stepwell runs tail 019c --follow")
@click.argument("run")
@click.option("--follow", is_flag=True, help="Stay until the run has ended, also while it waits.")
@options.database
@options.as_json
def tail_run(run: str, *, follow: bool, database: str, as_json: bool) -> None:
    """Follow a run, whoever carries it on, until it ends or parks."""

    async def work() -> Ending:
        async with opened(database) as engine:
            found = await find_run(engine, run)
            return await _watch(engine, found, as_json=as_json, follow=follow, database=database)

    click.get_current_context().exit(run_async(work()).code)


async def _watch(engine: Engine, run: Run, *, as_json: bool, follow: bool, database: str, again: bool = True) -> Ending:
    """Follow a run that this process does not carry on; ctrl-C ends the following, not the run."""
    import asyncio

    from stepwell.cli.follow import ending_of, stopping, tell_ending
    from stepwell.cli.tail import tail

    screen = await _screen(engine, run, as_json=as_json)
    with stopping() as stop:
        reading = asyncio.create_task(tail(engine, run.id, screen, follow=follow, again=again))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({reading, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for task in (reading, stopped):
            task.cancel()
        results = await asyncio.gather(reading, stopped, return_exceptions=True)
    await screen.end()
    if isinstance(results[0], Exception):
        raise results[0]
    ending = await ending_of(engine, run.id, interrupted=stop.is_set())
    tell_ending(ending, screen, database_tail(database, engine.settings))
    return ending


async def _screen(engine: Engine, run: Run, *, as_json: bool, full: bool = False) -> Screen:
    from stepwell.cli.progress import Progress
    from stepwell.cli.screen import screen_for

    tree = await engine.tree(run.id)
    progress = Progress.of(tree, whole=False) if full else Progress(tree.workflow)
    screen = screen_for(progress, as_json=as_json)
    screen.begin(run.id, (tree.workflow.name if tree.workflow is not None else "") or run.workflow)
    return screen


@runs.command(
    "resume",
    example="stepwell runs resume 019c\nstepwell runs resume 019c --wait",
    epilog="Exit codes as those of `stepwell run`.",
)
@click.argument("run")
@click.option("--wait", "stay", is_flag=True, help="Stay until the run has ended, also while it waits.")
@options.tools
@options.database
@options.as_json
def resume(run: str, *, stay: bool, tools: tuple[Path, ...], database: str, as_json: bool) -> None:
    """Carry a run on here: one that was parked, interrupted, or whose process died."""
    ending = run_async(carry_on(run, stay=stay, tools=tools, database=database, as_json=as_json))
    click.get_current_context().exit(ending.code)


async def carry_on(
    run: str, *, stay: bool = False, tools: tuple[Path, ...] = (), database: str, as_json: bool
) -> Ending:
    """Resume a run with the project and tools that it was started with."""
    from stepwell.cli.follow import ending_of, follow, tell_ending
    from stepwell.errors import Conflict
    from stepwell.ports import FINAL
    from stepwell.testing.mocking import Mocks

    async with opened(database) as engine:
        found = await find_run(engine, run)
        where = database or engine.settings.database
        if found.status in FINAL:
            ending = await ending_of(engine, found.id)
            click.echo(f"run {found.id} has ended", err=True)
            tell_ending(ending, await _quiet(as_json=as_json), database_tail(database, engine.settings))
            return ending
    start, files = _project(found)
    mocks = Mocks(found.project["mock"]) if "mock" in found.project else None
    async with opened(where, start=start, tools=[*files, *tools], mocks=mocks) as engine:
        screen = await _screen(engine, found, as_json=as_json, full=True)
        try:
            handle = await engine.resume(found.id)
        except Conflict:
            screen.say("another process carries this run on; following it")
            await screen.end()
            return await _watch(engine, found, as_json=as_json, follow=stay, database=where, again=False)
        ending = await follow(engine, handle, screen, watch=stay, mocks=mocks)
        tell_ending(ending, screen, database_tail(where, engine.settings))
        return ending


async def _quiet(*, as_json: bool) -> Screen:
    from stepwell.cli.progress import Progress
    from stepwell.cli.screen import JsonScreen, PlainScreen

    return JsonScreen(Progress(None)) if as_json else PlainScreen(Progress(None))


def _project(run: Run) -> tuple[Path, list[Path]]:
    """Where the settings and tools are that a run was started with, as far as they are still there."""
    root = Path(str(run.project.get("root") or "."))
    files = [Path(str(file)) for file in run.project.get("tools") or ()]
    for file in files:
        if not file.exists():
            raise exits.Refusal(
                f"run {run.id} was started with the tools in {file}, which is not there",
                hint="put the file back, or name its new place in the project's stepwell.toml",
            )
    return (root if root.exists() else Path.cwd()), files


@runs.command("cancel", example='stepwell runs cancel 019c --reason "wrong customer"')
@click.argument("run")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with the run.")
@options.acting
@options.database
@options.as_json
def cancel(run: str, *, reason: str, acting: str, database: str, as_json: bool) -> None:
    """Cancel a run for good."""

    async def work() -> Run:
        from stepwell.cli.acting import actor

        async with opened(database) as engine:
            found = await find_run(engine, run)
            return await engine.cancel(found.id, reason=reason, by=await actor(engine, acting))

    found = run_async(work())
    if as_json:
        from stepwell.cli.text import json_text

        click.echo(json_text(_summary(found), indent=2))
    else:
        later = f"will be cancelled by the process that has it ({found.status})"
        click.echo(f"run {found.id} {'is cancelled' if found.status == 'cancelled' else later}")
