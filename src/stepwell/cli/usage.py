"""`stepwell usage`: what requests to models took."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import click

from stepwell.cli import options
from stepwell.cli.command import Command
from stepwell.cli.exits import Refusal
from stepwell.cli.opening import NoDatabase, find_run, opened, run_async, tell_no_database
from stepwell.cli.text import json_text, table

if TYPE_CHECKING:
    from stepwell.ports import Usage, UsageKey

Json: TypeAlias = Any
_BY = ("workflow", "model", "day", "run", "step", "attempt")
_AGO = re.compile(r"(\d+)([hd])")


@click.command(
    cls=Command,
    example="stepwell usage\nstepwell usage --by model --since 7d\nstepwell usage --by step --run 019c2f3b --json",
)
@click.option(
    "--by",
    default="workflow",
    show_default=True,
    type=click.Choice(_BY),
    help="What is added up; equal paths of steps go together, see --workflow.",
)
@click.option("--since", default="", metavar="WHEN", help="From when on: 24h, 7d, 2026-03-01 or an instant (UTC).")
@click.option("--before", default="", metavar="WHEN", help="Up to when.")
@click.option("--workflow", default="", metavar="ID", help="Only runs of this workflow.")
@click.option("--run", default="", metavar="RUN", help="Only this run.")
@options.database
@options.as_json
def usage(*, by: str, since: str, before: str, database: str, as_json: bool, **only: str) -> None:
    """Show the tokens and the money that requests to models took, failed ones included."""
    begin, end = _instant(since, "--since"), _instant(before, "--before")

    async def work() -> list[Usage]:
        from stepwell.ports import UsageFilter

        async with opened(database) as engine:
            runs = ((await find_run(engine, only["run"])).id,) if only["run"] else ()
            which = UsageFilter(runs, only["workflow"], begin, end)
            return await engine.budgets.usage(cast("UsageKey", by), which)

    try:
        found = run_async(work())
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)
        return
    if as_json:
        from stepwell.engine.budgets import as_json as shown

        click.echo(json_text([{by: one.key, **shown(one)} for one in found], indent=2))
    elif not found:
        click.echo("no model was asked" + (" in that" if since or before or any(only.values()) else " yet"))
    else:
        heads = [by.upper(), "REQUESTS", "TOKENS IN", "TOKENS OUT", "MONEY", ""]
        click.echo("\n".join(table([_row(one) for one in [*found, *_total(found)]], heads)))


def _row(one: Usage) -> tuple[object, ...]:
    return (one.key or "(no run)", one.requests, one.input_tokens, one.output_tokens, _money(one), _doubts(one))


def _money(one: Usage) -> str:
    from stepwell.engine.budget_words import dollars

    return "unknown" if one.unpriced and not one.nano_usd else dollars(one.nano_usd)


def _doubts(one: Usage) -> str:
    said = [f"the most is counted for {one.lost}, whose usage nobody knows"] if one.lost else []
    if one.unpriced and one.nano_usd:
        said.append(f"without {one.unpriced} tokens whose price is not known")
    return "; ".join(said)


def _total(found: list[Usage]) -> list[Usage]:
    from stepwell.ports import Usage

    if len(found) < 2:
        return []
    names = ("requests", "input_tokens", "output_tokens", "nano_usd", "lost", "unpriced")
    return [Usage("total", **{name: sum(getattr(one, name) for one in found) for name in names})]


def _instant(text: str, option: str) -> float:
    if not text:
        return 0.0
    if ago := _AGO.fullmatch(text):
        unit = "hours" if ago[2] == "h" else "days"
        return (datetime.now(UTC) - timedelta(**{unit: int(ago[1])})).timestamp()
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Refusal(f"{option}: {text!r} is no instant", hint="write 24h, 7d, 2026-03-01 or an ISO instant") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
