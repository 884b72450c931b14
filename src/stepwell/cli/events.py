"""`stepwell events`: telling waiting runs that something happened."""

from __future__ import annotations

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Group
from stepwell.cli.opening import opened, run_async
from stepwell.cli.program import program


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

    from stepwell.cli.text import json_text

    try:
        carried = json.loads(data)
    except ValueError as error:
        raise exits.Refusal(f"--data is not JSON: {error}", hint="quote text twice: --data '\"text\"'") from None

    async def work() -> int:
        async with opened(database, missing="make") as engine:
            return await engine.send_event(name, carried, event_id=event_id)

    told = run_async(work())
    if as_json:
        click.echo(json_text({"event": name, "told": told}))
    else:
        runs = "1 waiting step was told" if told == 1 else f"{told} waiting steps were told"
        click.echo(f"sent {name}: {runs}; a run that nobody carries on goes on with `{program()} runs resume RUN`")
