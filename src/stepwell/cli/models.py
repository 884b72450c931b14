"""`stepwell models`: which models are configured, what is missing, what they cost; and one question put to one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import options
from stepwell.cli.command import Command, Group
from stepwell.cli.exits import FAILED, Refusal
from stepwell.cli.lines import dollars
from stepwell.cli.opening import opened, run_async
from stepwell.cli.text import duration, json_text, pad, visible, width

if TYPE_CHECKING:
    from stepwell.engine.model_list import ModelInfo, Trial

Json: TypeAlias = Any


@click.group(cls=Group, example="stepwell models list\nstepwell models try embedded 'Say hello.'")
def models() -> None:
    """See the models that workflows can name, and try one."""


@models.command("list", cls=Command, example="stepwell models list\nstepwell models list --json")
@options.as_json
def list_models(*, as_json: bool) -> None:
    """List the configured models: provider, price and what is missing. Asks no provider anything."""

    async def work() -> list[ModelInfo]:
        async with opened(missing="aside") as engine:
            return await engine.models.all()

    found = run_async(work())
    if as_json:
        click.echo(json_text([one.as_json() for one in found], indent=2))
        return
    rows = [(one.name, one.provider, one.model, price_text(one)) for one in found]
    widths = [max(width(row[column]) for row in rows) for column in range(3)]
    for one, row in zip(found, rows, strict=True):
        cells = [pad(visible(cell), room) for cell, room in zip(row, widths, strict=False)]
        click.echo(f"{'*' if one.is_default else ' '} {'  '.join(cells)}  {row[3]}")
        if one.fallback:
            click.echo(click.style(f"    then {', '.join(map(visible, one.fallback))}", dim=True))
        for problem in one.problems:
            click.echo(f"    {click.style('missing', fg='red')}: {visible(problem.message)}")
            click.echo(f"    {visible(problem.hint)}")
    click.echo(click.style("* the default", dim=True))


def price_text(one: ModelInfo) -> str:
    """What a million tokens cost, and who says so."""
    if one.price is None:
        return "price unknown"
    if one.price.input == one.price.output == 0:
        return "free"
    return f"${one.price.input:g} in, ${one.price.output:g} out per million tokens ({one.price_of})"


@models.command(
    "try",
    cls=Command,
    example="stepwell models try embedded 'Say hello.'\nstepwell models try big - --max-tokens 200 < prompt.txt",
    epilog="Exit codes: 0 answered, 1 failed, 2 wrong use.",
)
@click.argument("name")
@click.argument("prompt")
@click.option("--system", default="", metavar="TEXT", help="What the model is to be.")
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="The longest answer.")
@click.option("--temperature", type=click.FloatRange(0, 2), metavar="T", help="0 for the likeliest answer.")
@options.as_json
def try_model(*, name: str, prompt: str, as_json: bool, **given: Any) -> None:
    """Put PROMPT (- for standard input) to the model NAME, and show its answer as it comes."""
    from stepwell.errors import NotFound, StepFailed

    asked = sys.stdin.read() if prompt == "-" else prompt
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        click.echo(_shown(text), nl=False)

    async def work() -> Trial:
        async with opened(missing="aside") as engine:
            return await engine.models.try_out(name, asked, on_text=None if as_json else tell, **given)

    try:
        trial = run_async(work())
    except NotFound as error:
        raise Refusal(str(error), hint="see `stepwell models list`", kind="not_found") from None
    except StepFailed as failure:
        if told:
            click.echo()
        hint = failure.detail.get("hint", "") if isinstance(failure.detail, dict) else ""
        raise Refusal(failure.message, hint=hint, code=FAILED, kind=failure.kind) from None
    if as_json:
        facts = {**trial.meta, "cost_usd": trial.meta.get("cost_usd"), "seconds": round(trial.seconds, 3)}
        click.echo(json_text({"text": trial.text, **facts}, indent=2))
        return
    if not told:  # its server cannot stream
        click.echo(_shown(trial.text), nl=False)
    click.echo()
    click.echo(click.style(_facts(trial), dim=True), err=True)


def _shown(text: str) -> str:
    """A model's text for the terminal: its lines as they are, and nothing that a terminal would obey."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _facts(trial: Trial) -> str:
    meta = trial.meta
    cost = meta.get("cost_usd")
    money = "price unknown" if cost is None else dollars(cost)
    tokens = f"{meta.get('input_tokens', 0)} tokens in, {meta.get('output_tokens', 0)} out"
    cut = "  cut at the limit of tokens" if meta.get("finish_reason") == "length" else ""
    return f"{visible(str(meta.get('model', '')))}  {tokens}  {money}  {duration(trial.seconds)}{cut}"
