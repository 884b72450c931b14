"""`stepwell events`: telling waiting runs that something happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Group
from stepwell.cli.opening import database_file, database_tail, opened, run_async
from stepwell.cli.program import program

if TYPE_CHECKING:
    from pathlib import Path


@click.group(cls=Group, example="stepwell events send order-paid --data '{\"order\": 17}'")
def events() -> None:
    """Tell runs that wait for an event that it has happened."""


@events.command("send", example="stepwell events send order-paid --data '{\"order\": 17}' --id PAY-4711")
@click.argument("name")
@click.option("--data", default="null", metavar="JSON", help="What the event carries; `event.data` in `match`.")
@click.option("--id", "event_id", default="", metavar="ID", help="The same id again tells nobody a second time.")
@options.database
@options.as_json
def send(*, name: str, data: str, event_id: str, database: str, as_json: bool) -> None:
    """Send the event NAME. It is kept for 24 hours for runs that come to wait for it."""
    import json

    from stepwell.cli.text import json_text, visible

    try:
        carried = json.loads(data)
    except ValueError as error:
        raise exits.Refusal(f"--data is not JSON: {error}", hint="quote text twice: --data '\"text\"'") from None

    async def work() -> tuple[int, str, Path]:
        async with opened(database, missing="make") as engine:
            told = await engine.send_event(name, carried, event_id=event_id)
            return told, database_tail(database, engine.settings), database_file(database, engine.settings)

    told, tail, file = run_async(work())
    if as_json:
        click.echo(json_text({"event": name, "told": told}))
        return
    click.echo(f"sent {visible(name)}: {'1 waiting step was' if told == 1 else f'{told} waiting steps were'} told")
    if told:
        click.echo("  a step goes on only if its `match` holds, and only while some process carries its run on:")
        click.echo(f"  which wait: {program()} runs list --status waiting{tail}")
        click.echo(f"  why:        {program()} explain RUN{tail}")
        click.echo(f"  go on:      {program()} runs resume RUN{tail}")
    else:
        click.echo(f"  no step waits for it in {visible(file)}, or its id was sent before; kept for 24 hours")
