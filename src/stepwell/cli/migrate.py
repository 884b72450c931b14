"""`stepwell runs migrate`: move parked runs to another version, after a plan that says what that means."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.program import program
from stepwell.cli.text import json_text, table, visible

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.engine.engine import Engine
    from stepwell.engine.migration import Clash, Migration
    from stepwell.people.actor import Actor
    from stepwell.ports import Run

Json: TypeAlias = Any
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for on the command line."""

    run: str | None
    to: str
    workflow: str
    everything: bool
    dry_run: bool
    yes: bool
    tools: tuple[Path, ...]
    acting: str
    database: str
    as_json: bool


@click.command(
    cls=Command,
    example="""
        stepwell runs migrate 019c --to refund@4 --dry-run
        stepwell runs migrate 019c --to refund@4
        stepwell runs migrate --workflow refund --to 4 --all --yes
    """,
    epilog="Exit codes: 0 moved, or could be; 1 something conflicts, or is not parked; 2 wrong use or definition.",
)
@click.argument("run", required=False)
@click.option("--to", required=True, metavar="VERSION", help="A published ID@VERSION, its version alone, or a file.")
@click.option("--workflow", default="", metavar="ID", help="With --all: parked runs of this workflow.")
@click.option("--all", "everything", is_flag=True, help="All parked runs of the workflow, after showing a plan.")
@click.option("--dry-run", is_flag=True, help="Only say what it would mean.")
@click.option("--yes", is_flag=True, help="Do not ask before moving several runs.")
@options.tools
@options.acting
@options.database
@options.as_json
def migrate(**given: Any) -> None:
    """Move a parked RUN to another version of its workflow, if nothing that it has done or waits for conflicts.

    All conflicts are told at once, and then nothing is changed. A run that is stuck may find its way out like this.
    """
    from stepwell.cli.opening import run_async

    order = Order(**given)
    if (order.run is None) != bool(order.everything and order.workflow):
        hint = f"`{program()} runs migrate RUN --to VERSION`, or `--workflow ID --all --to VERSION`"
        raise exits.Refusal("name one run, or --workflow ID with --all", hint=hint)
    click.get_current_context().exit(run_async(_migrate(order)))


async def _migrate(order: Order) -> int:
    from stepwell.cli.acting import actor
    from stepwell.cli.opening import find_run, opened
    from stepwell.cli.sources import folder_of

    async with opened(order.database, start=folder_of(order.to), tools=order.tools) as engine:
        by = await actor(engine, order.acting)
        found = [await find_run(engine, order.run)] if order.run else await _parked(engine, order.workflow)
        if not found:
            click.echo("[]" if order.as_json else f"no parked runs of {visible(order.workflow)}")
            return exits.OK
        target = await _target(engine, order.to, found[0].workflow)
        plans = [await _asked(engine, one, target, None) for one in found]
        if order.run is None and not order.as_json:
            _table(plans)
        if not order.dry_run and _agreed(order, plans):
            plans = [await _move(engine, plan, target, by) for plan in plans]
    _tell(plans, as_json=order.as_json)
    return exits.FAILED if any(plan.conflicts for plan in plans) else exits.OK


def _agreed(order: Order, plans: list[Migration]) -> bool:
    """Whether several runs are to be moved; one that was named is."""
    if order.run is not None or order.yes:
        return True
    free = sum(not plan.conflicts and not plan.same for plan in plans)
    return bool(free) and click.confirm(f"move {free} run(s)?", err=True)


async def _target(engine: Engine, to: str, workflow: str) -> LoadedWorkflow:
    """The definition that a version means: a file, a published one, or the version alone of the runs' workflow."""
    from stepwell.cli.sources import are_files, workflow_named
    from stepwell.errors import NotFound

    if are_files(to) or "@" in to:
        return await workflow_named(engine, to)
    try:
        return await engine.versions.get(f"{workflow}@{to}")
    except NotFound as missing:
        hint = f"`{program()} workflows versions {workflow}` lists them"
        raise exits.Refusal(str(missing), hint=hint, kind="not_found") from None


async def _parked(engine: Engine, workflow: str) -> list[Run]:
    from stepwell.ports import PARKED

    found: list[Run] = []
    while page := await engine.runs(
        statuses=PARKED, workflow=workflow, limit=_PAGE, before=found[-1].id if found else ""
    ):
        found += page
    return found


async def _move(engine: Engine, plan: Migration, target: LoadedWorkflow, by: Actor) -> Migration:
    return plan if plan.conflicts or plan.same else await _asked(engine, plan.run, target, by)


async def _asked(engine: Engine, run: Run, target: LoadedWorkflow, by: Actor | None) -> Migration:
    """What becomes of one run; that it is not parked, or is not any more, is one of its conflicts."""
    from stepwell.engine.migration import Clash, Migration
    from stepwell.errors import Conflict

    try:
        return await engine.versions.migrate(run.id, target, by=by or "", dry_run=by is None)
    except Conflict as moved:
        clash = Clash("", str(moved), run.status, "", "try again once it is parked")
        return Migration(run, run.definition, "", target.workflow.version, conflicts=(clash,))


def _tell(plans: list[Migration], *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text([_object(plan) for plan in plans], indent=2))
    else:
        for plan in plans:
            _print(plan)


def _table(plans: list[Migration]) -> None:
    rows = [(plan.run.id, plan.run.status, plan.before[:12], _word(plan)) for plan in plans]
    click.echo("\n".join(table(rows, ["RUN", "STATUS", "PINNED", "PLAN"])))


def _word(plan: Migration) -> str:
    if plan.conflicts:
        return f"{len(plan.conflicts)} conflict{'' if len(plan.conflicts) == 1 else 's'}"
    if plan.same:
        return "has it already"
    return "moved" if plan.done else "can be moved"


def _print(plan: Migration) -> None:
    colour = "red" if plan.conflicts else "green"
    label = f" (version {visible(plan.version)})" if plan.version else ""
    click.echo(f"run {plan.run.id}  {click.style(_word(plan), fg=colour, bold=True)}{label}")
    for clash in plan.conflicts:
        _print_clash(clash, click.style("conflict", fg="red"))
    for change in plan.changes:
        _print_clash(change, click.style("note", fg="cyan"))
    if plan.done and plan.wake:
        click.echo(f"  it has something to do: `{program()} runs resume {plan.run.id}`, or a worker carries it on")


def _print_clash(clash: Clash, word: str) -> None:
    click.echo(f"  {word} {visible(clash.path or 'the run')}: {visible(clash.message)}")
    if clash.recorded or clash.now:
        click.echo(f"    recorded: {visible(clash.recorded or '-')}   now: {visible(clash.now or '-')}")
    if clash.hint:
        click.echo(f"    {click.style('hint:', fg='cyan')} {visible(clash.hint)}")


def _object(plan: Migration) -> dict[str, Json]:
    return {
        "run": plan.run.id,
        "status": plan.run.status,
        "from": plan.before,
        "to": plan.after,
        "version": plan.version,
        "same": plan.same,
        "migrated": plan.done,
        "wakes": plan.wake,
        "conflicts": [asdict(clash) for clash in plan.conflicts],
        "changes": [asdict(clash) for clash in plan.changes],
    }
