"""`stepwell approvals`: what waits for people, and deciding it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepwell.cli import options
from stepwell.cli.command import Group
from stepwell.cli.deciding import approve, changes, reassign, reject
from stepwell.cli.opening import (
    NoDatabase,
    database_file,
    database_tail,
    find_run,
    find_wait,
    opened,
    run_async,
    tell_no_database,
)

if TYPE_CHECKING:
    from pathlib import Path

    from stepwell.ports import Wait


@click.group(
    cls=Group,
    default="list",
    example='stepwell approvals list --mine\nstepwell approvals approve a1b2c3 --comment "fine"',
)
def approvals() -> None:
    """See and decide what waits for people. Ids may be shortened."""


for command in (approve, reject, changes, reassign):
    approvals.add_command(command)


@approvals.command("list", example="stepwell approvals list --mine --as ana\nstepwell approvals list --all --json")
@click.option("--all", "everything", is_flag=True, help="Decided, expired and withdrawn ones too.")
@click.option("--mine", is_flag=True, help="Only what you may decide now.")
@click.option("--run", default="", metavar="RUN", help="Only those of this run.")
@options.acting
@options.database
@options.as_json
def list_approvals(*, everything: bool, mine: bool, run: str, acting: str, database: str, as_json: bool) -> None:
    """List what waits for people, the oldest first."""

    async def work() -> tuple[list[Wait], Path]:
        from stepwell.cli.acting import actor

        async with opened(database) as engine:
            run_id = (await find_run(engine, run)).id if run else ""
            found = await engine.waits(run_id=run_id, pending_only=not everything)
            if mine:
                found = engine.approvals.for_actor(found, await actor(engine, acting))
            return found, database_file(database, engine.settings)

    try:
        found, file = run_async(work())
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)
        return
    import time

    from stepwell.cli.approval_view import print_list, wait_object
    from stepwell.cli.text import json_text

    if as_json:
        click.echo(json_text([wait_object(wait) for wait in found], indent=2))
    elif found:
        print_list(found, time.time())
    else:
        whom = "you" if mine else "a person"
        click.echo(f"{'no approvals' if everything else f'nothing waits for {whom}'} in {file}")


@approvals.command("show", example="stepwell approvals show a1b2c3")
@click.argument("approval")
@options.database
@options.as_json
def show(approval: str, *, database: str, as_json: bool) -> None:
    """Show what is to be decided, earlier rounds beside it, and who is still missing."""

    async def work() -> tuple[Wait, list[Wait], str]:
        async with opened(database) as engine:
            wait = await find_wait(engine, approval)
            others = await engine.waits(run_id=wait.run_id, pending_only=False)
            return wait, others, database_tail(database, engine.settings)

    wait, others, tail = run_async(work())
    from stepwell.cli.approval_view import print_wait, rounds_of, wait_object
    from stepwell.cli.text import json_text

    earlier = rounds_of(wait, others)
    if as_json:
        told = wait_object(wait) | {"rounds": [wait_object(one) for one in earlier]}
        click.echo(json_text(told, indent=2))
    else:
        print_wait(wait, earlier, tail)
