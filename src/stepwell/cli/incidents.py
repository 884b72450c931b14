"""`stepwell incidents`: steps that failed and wait for a person to say what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepwell.cli import options
from stepwell.cli.command import Group
from stepwell.cli.opening import (
    NoDatabase,
    database_file,
    database_tail,
    find_incident,
    find_run,
    opened,
    run_async,
    tell_no_database,
)
from stepwell.cli.settling import compensate, fail, fallback, provide, retry, skip

if TYPE_CHECKING:
    from pathlib import Path

    from stepwell.ports import Wait


@click.group(
    cls=Group,
    default="list",
    example="stepwell incidents list\nstepwell incidents retry a1b2c3\nstepwell incidents retry --kind timeout --all",
)
def incidents() -> None:
    """See steps that failed and wait for an operator, and settle them. Ids may be shortened."""


for command in (retry, provide, skip, fallback, compensate, fail):
    incidents.add_command(command)


@incidents.command("list", example="stepwell incidents list --kind timeout\nstepwell incidents list --all --json")
@click.option("--all", "everything", is_flag=True, help="Settled and withdrawn ones too.")
@options.incident_filters
@options.database
@options.as_json
def list_incidents(*, everything: bool, database: str, as_json: bool, run: str, **words: str) -> None:
    """List incidents, the oldest first."""

    async def work() -> tuple[list[Wait], Path]:
        from stepwell.engine.incidents import Filter

        async with opened(database) as engine:
            run_id = (await find_run(engine, run)).id if run else ""
            found = await engine.incidents.open(Filter(run_id, **words), settled=everything)
            return found, database_file(database, engine.settings)

    try:
        found, file = run_async(work())
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)
        return
    import time

    from stepwell.cli.incident_view import print_list, row_of
    from stepwell.cli.text import json_text

    if as_json:
        click.echo(json_text([row_of(wait) for wait in found], indent=2))
    elif found:
        print_list(found, time.time())
    else:
        such = "such " if run or any(words.values()) else ""
        click.echo(f"no {such}{'' if everything else 'open '}incidents in {file}")


@incidents.command("show", example="stepwell incidents show a1b2c3")
@click.argument("incident")
@options.database
@options.as_json
def show(incident: str, *, database: str, as_json: bool) -> None:
    """Show what failed, with what arguments, and what can be done about it."""

    async def work() -> tuple[Wait, str]:
        async with opened(database) as engine:
            return await find_incident(engine, incident), database_tail(database, engine.settings)

    wait, tail = run_async(work())
    from stepwell.cli.incident_view import incident_object, print_incident
    from stepwell.cli.text import json_text

    if as_json:
        click.echo(json_text(incident_object(wait), indent=2))
    else:
        print_incident(wait, tail)
