"""`stepwell explain`: why a run stands where it stands."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.opening import database_tail, find_run, opened, run_async
from stepwell.cli.program import program
from stepwell.cli.text import json_text, visible

if TYPE_CHECKING:
    from stepwell.journal.explain import Explanation, Reason

Json: TypeAlias = Any

_MOST = 60
"""Steps that are told one by one."""


@click.command(cls=Command, example="stepwell explain 019c\nstepwell explain 019c --json | jq '.steps[].why'")
@click.argument("run")
@click.option("--all", "whole", is_flag=True, help="Every step, however many there are.")
@options.database
@options.as_json
def explain(run: str, *, whole: bool, database: str, as_json: bool) -> None:
    """Say why a run stands where it stands, and why each step waits, was skipped, or failed."""

    async def work() -> None:
        from stepwell.cli.standing import is_gone
        from stepwell.journal.explain import explain as explained

        async with opened(database) as engine:
            found = await find_run(engine, run)
            tree: Any = await engine.tree(found.id)
            told = explained(tree, now=time.time(), gone=is_gone(tree.run.owner))
            _print(told, database_tail(database, engine.settings), as_json=as_json, whole=whole)

    run_async(work())
    click.get_current_context().exit(exits.OK)


def commands(told: Explanation, tail: str = "") -> list[str]:
    """The commands that move a run."""
    found = []
    for action, name in told.goes_on:
        match action:
            case "decide":
                found.append(f"{program()} approvals show {name}{tail}")
                found.append(f"{program()} approvals approve {name}{tail}")
            case "event":
                found.append(f"{program()} events send {name or 'NAME'}{tail}")
            case "operate":
                found.append(f"{program()} incidents show {name}{tail}")
                found.append(f"{program()} incidents retry {name}{tail}")
            case "raise":
                found.append(f"{name}{tail}")
            case "wait":
                found.append(f"{program()} runs resume {name} --wait{tail}")
            case _:
                found.append(f"{program()} runs resume {name}{tail}")
    return list(dict.fromkeys(found))


def _print(told: Explanation, tail: str, *, as_json: bool, whole: bool) -> None:
    if as_json:
        steps = [step.as_json() for step in told.steps]
        row = {
            "run": told.run,
            "status": told.status,
            "why": told.why,
            "commands": commands(told, tail),
            "steps": steps,
        }
        click.echo(json_text(row, indent=2))
        return
    click.echo(f"run {told.run} is {click.style(told.status.replace('_', ' '), bold=True)}. {visible(told.why)}")
    for line in commands(told, tail):
        click.echo(f"  {line}")
    shown = told.steps if whole else told.steps[:_MOST]
    if shown:
        click.echo()
    for step in shown:
        click.echo("\n".join(_lines(step)))
    if len(shown) < len(told.steps):
        click.echo(f"… and {len(told.steps) - len(shown)} more; --all tells them")


def _lines(step: Reason) -> Iterable[str]:
    name = click.style(visible(step.path.lstrip("/")), bold=True)
    yield f"{name}  {visible(step.type)}  {step.status.replace('_', ' ')}"
    yield f"  {visible(step.why)}"
