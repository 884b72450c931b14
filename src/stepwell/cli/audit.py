"""`stepwell audit`: what people did, newest first."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import options
from stepwell.cli.command import Command
from stepwell.cli.opening import NoDatabase, database_tail, opened, run_async, tell_no_database
from stepwell.cli.program import program
from stepwell.cli.text import json_text, table

if TYPE_CHECKING:
    from stepwell.ports import AuditRecord

Json: TypeAlias = Any


@click.command(
    cls=Command,
    example="stepwell audit\nstepwell audit --object 019c2f3b7a5d1f0e4c9b2a --json\nstepwell audit --by ana -n 10",
)
@click.option("--object", "thing", default="", metavar="ID", help="Only what was done to this run, approval or person.")
@click.option("--by", default="", metavar="NAME", help="Only what this person did.")
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="How many.")
@click.option("--before", default=0, metavar="NUMBER", help="Older than this one, for the next page.")
@options.database
@options.as_json
def audit(*, thing: str, by: str, limit: int, before: int, database: str, as_json: bool) -> None:
    """Show what people did: starts, cancels, decisions, changes of who is known. Nothing in it can be changed."""

    async def work() -> tuple[list[AuditRecord], str]:
        async with opened(database) as engine:
            found = await engine.people.trail(limit=limit, before=before, object=thing, by=by)
            return found, database_tail(database, engine.settings)

    try:
        found, tail = run_async(work())
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)
        return
    if as_json:
        click.echo(json_text([_object(one) for one in found], indent=2))
    elif not found:
        click.echo("nothing like that was done" if thing or by or before else "nothing was done yet")
    else:
        rows = [_row(one) for one in found]
        click.echo("\n".join(table(rows, ["NO", "TIME (UTC)", "WHO", "WHAT", "OBJECT", "FROM", ""])))
        if len(found) == limit:
            click.echo(f"\nolder ones: {program()} audit --before {found[-1].order}{tail}")


def _row(one: AuditRecord) -> tuple[object, ...]:
    from stepwell.journal.view import instant

    when = (instant(one.at) or "")[:19].replace("T", " ")
    detail = "" if one.detail is None else json_text(one.detail)
    came = f"{one.channel} {one.origin}".strip()
    return (one.order, when, one.by, one.action, one.object or "-", came or "-", detail)


def _object(one: AuditRecord) -> dict[str, Json]:
    from stepwell.journal.view import instant

    return {**asdict(one), "at": instant(one.at)}
