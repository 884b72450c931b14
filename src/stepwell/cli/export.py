"""`stepwell runs export`: a run as a file for something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.opening import find_run, opened, run_async
from stepwell.cli.program import program
from stepwell.cli.text import json_text, visible

_FILE: Any = click.Path(dir_okay=False, path_type=Path)


@click.command(
    cls=Command,
    example="stepwell runs export 019c --as-test tests/refund.test.yaml\nstepwell runs export 019c > run.json",
)
@click.argument("run")
@click.option("--as-test", "target", type=_FILE, metavar="FILE", help="Write a test file that runs it again.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@options.database
def export(run: str, *, target: Path | None, force: bool, database: str) -> None:
    """Write a run as JSON to the standard output, or as a test with its recorded answers to a file."""

    async def work() -> str:
        from stepwell.testing.recorded import as_test

        async with opened(database) as engine:
            found = await find_run(engine, run)
            if target is None:
                return json_text((await engine.tree(found.id)).as_json(), indent=2)
            return await as_test(engine, found.id, target)

    if target is not None and target.exists() and not force:
        raise exits.Refusal(f"{target} is there already", hint="name another file, or write over it with --force")
    text = run_async(work())
    if target is None:
        click.echo(text)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    click.echo(f"{visible(target)}; run it with: {program()} test {visible(target)}")
