"""`stepwell doctor`: what is configured, reachable and missing, each with a fix."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.opening import database_file, opened, run_async
from stepwell.cli.text import json_text
from stepwell.errors import Problem


@click.command(cls=Command, example="stepwell doctor\nstepwell doctor --json")
@options.tools
@options.database
@options.as_json
def doctor(*, tools: tuple[Path, ...], database: str, as_json: bool) -> None:
    """Say what is configured, what works and what is missing. Exit code 1 if something is wrong."""

    async def work() -> list[Problem]:
        async with opened(database, tools=tools, missing="aside") as engine:
            file = database_file(database, engine.settings)
            there = f"runs are kept in {file}" if file.exists() else f"the first run makes {file}"
            return [Problem("note", "database", there), *await engine.doctor()]

    found = run_async(work())
    if as_json:
        click.echo(json_text([asdict(problem) for problem in found], indent=2))
    else:
        exits.tell_problems(found, err=False)
        worst = [problem.severity for problem in found]
        wrong = worst.count("error")
        click.echo("\nall is well" if not wrong else f"\n{wrong} to fix")
    wrong_code = exits.FAILED if any(problem.severity == "error" for problem in found) else exits.OK
    click.get_current_context().exit(wrong_code)
