"""`stepwell budget`: what may be spent, and letting more be spent."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Group
from stepwell.cli.opening import NoDatabase, database_tail, find_run, opened, run_async, tell_no_database
from stepwell.cli.program import program
from stepwell.cli.text import json_text, table, visible

if TYPE_CHECKING:
    from stepwell.engine.budgets import Raised, Scope
    from stepwell.engine.engine import Engine
    from stepwell.ports import Standing

Json: TypeAlias = Any


@click.group(
    cls=Group,
    example="stepwell budget show 019c2f3b\nstepwell budget raise 019c2f3b --tokens 400000\n"
    "stepwell budget raise --account --usd 80",
)
def budget() -> None:
    """See what runs, workflows and the account may spend on models, and let them spend more."""


def _whose(function: Any) -> Any:
    for decorate in (
        click.option("--account", "of_account", is_flag=True, help="The account's budget (stepwell.toml)."),
        click.option("--workflow", default="", metavar="ID", help="The budget of this workflow (stepwell.toml)."),
        click.option("--path", "below", default="", metavar="PATH", help="A sub-workflow's budget: its step's path."),
        click.argument("run", required=False, default=""),
    ):
        function = decorate(function)
    return function


@budget.command(
    "show",
    example="stepwell budget show 019c2f3b\nstepwell budget show --workflow triage\nstepwell budget show --account",
)
@_whose
@options.database
@options.as_json
def show(*, database: str, as_json: bool, **whose: Any) -> None:
    """Show what may be spent, what is, and what requests in flight hold. Of a run: all budgets that bound it."""

    async def work() -> list[Standing]:
        async with opened(database) as engine:
            scope = await _scope(engine, **whose)
            return [one for one in await engine.budgets.standings(scope) if one.limit.below.startswith(scope.below)]

    try:
        found = run_async(work())
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)
        return
    if as_json:
        click.echo(json_text([_object(one) for one in found], indent=2))
    elif not found:
        click.echo("no budget bounds that")
    else:
        click.echo(
            "\n".join(table([row for one in found for row in _rows(one)], ["BUDGET", "MAY", "SPENT", "IN FLIGHT"]))
        )


@budget.command(
    "raise",
    epilog="Exit codes: 0 raised, 1 refused, with the reason; 2 wrong use. They speak of the raise alone.",
    example="stepwell budget raise 019c2f3b --tokens 400000\nstepwell budget raise --workflow triage --usd 20\n"
    "stepwell budget raise --account --usd 80 --no-resume",
)
@_whose
@click.option("--tokens", type=click.IntRange(1), help="To so many tokens in all.")
@click.option("--usd", metavar="AMOUNT", help="To so many dollars in all, such as 2.50.")
@options.acting
@click.option("--no-resume", is_flag=True, help="Only raise; do not carry the runs on.")
@options.database
@options.as_json
def raise_budget(
    *, tokens: int | None, usd: str | None, acting: str, no_resume: bool, database: str, as_json: bool, **whose: Any
) -> None:
    """Let more be spent in all, what is spent included, and go on with the runs that were suspended for it.

    A workflow's or the account's budget is raised for its present day or month.
    """
    nano_usd = None if usd is None else _nano(usd)

    async def work() -> int:
        from stepwell.cli.acting import actor
        from stepwell.cli.onward import go_on
        from stepwell.cli.settling import taken_care_of

        async with opened(database) as engine:
            scope = await _scope(engine, **whose)
            by = await actor(engine, acting)
            raised = await engine.budgets.raise_to(scope, tokens=tokens, nano_usd=nano_usd, by=by)
            tail, where = database_tail(database, engine.settings), database or engine.settings.database
            runs = dict.fromkeys(wait.run_id for wait in raised.continued)
            left = runs if no_resume else await taken_care_of(engine, runs)
        _tell(raised, as_json=as_json)
        for run in runs:
            if run in left:
                if not as_json:
                    said = left[run] or f"go on with: {program()} runs resume {run}{tail}"
                    click.echo(f"run {run}: {said}")
            elif not await go_on(run, where, tail, as_json=as_json):
                break
        return exits.OK

    click.get_current_context().exit(run_async(work()))


async def _scope(engine: Engine, *, run: str, below: str, workflow: str, of_account: bool) -> Scope:
    from stepwell.engine.budgets import Scope

    if sum((bool(run), bool(workflow), of_account)) != 1:
        raise exits.Refusal("it is not said whose budget is meant", hint="give a run, --workflow ID or --account")
    if below and not run:
        raise exits.Refusal("--path is a place in a run", hint="give the run too")
    return Scope((await find_run(engine, run)).id if run else "", below, workflow)


def _nano(text: str) -> int:
    from stepwell.ports import NANO

    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        amount = Decimal(0)
    if not 0 < amount <= 10**9 or amount != amount.quantize(Decimal("0.000001")):
        hint = "write an amount above 0 with at most six decimals, such as 2.50"
        raise exits.Refusal(f"--usd: {text!r} is no amount of dollars", hint=hint)
    return int(amount * NANO)


def _tell(raised: Raised, *, as_json: bool) -> None:
    if as_json:
        continued = [{"incident": wait.id, "run": wait.run_id} for wait in raised.continued]
        short = [{"incident": wait.id, "run": wait.run_id} for wait in raised.short]
        click.echo(json_text({"raised": _object(raised.standing), "continued": continued, "short": short}))
        return
    for row in _rows(raised.standing):
        click.echo(f"{click.style('raised', fg='green', bold=True)}  {row[0]} is {row[1]}, {row[2]} are spent")
    for wait in raised.short:
        click.echo(f"run {wait.run_id} still waits: {visible(wait.request['error']['message'])}")
        hint = wait.request["error"]["detail"]["hint"]
        click.echo(f"    what was needed then: {visible(hint)}")


def _rows(one: Standing) -> list[tuple[str, ...]]:
    from stepwell.engine.budget_words import dollars, named

    limit = one.limit
    rows: list[tuple[str, ...]] = []
    if limit.tokens is not None:
        rows.append((named(limit), f"{limit.tokens} tokens", f"{one.tokens} tokens", f"{one.open_tokens} tokens"))
    if limit.nano_usd is not None:
        amounts = (limit.nano_usd, one.nano_usd, one.open_nano_usd)
        rows.append((named(limit), *(dollars(amount) for amount in amounts)))
    return [(visible(name), *rest) for name, *rest in rows]


def _object(one: Standing) -> dict[str, Json]:
    from stepwell.ports import NANO

    limit = one.limit
    facts: dict[str, Json] = {"scope": limit.scope, "subject": limit.subject}
    facts |= {name: value for name, value in (("path", limit.below), ("period", limit.period)) if value}
    if limit.tokens is not None:
        facts |= {"tokens": limit.tokens, "spent_tokens": one.tokens, "open_tokens": one.open_tokens}
    if limit.nano_usd is not None:
        money = {"usd": limit.nano_usd, "spent_usd": one.nano_usd, "open_usd": one.open_nano_usd}
        facts |= {name: value / NANO for name, value in money.items()}
    return facts | {"on_exceed": limit.on_exceed}
