"""`stepwell init`: a project that runs at once."""

from __future__ import annotations

import shlex
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepwell.cli.command import Command
from stepwell.cli.exits import Refusal
from stepwell.cli.program import program
from stepwell.cli.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

_NAMES = {"gitignore": ".gitignore", "tools.py.txt": "tools.py"}
"""Files whose name in a project would mean something where they are kept."""


@click.command(cls=Command, example="stepwell init demo")
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path), metavar="[DIR]")
def init(folder: Path) -> None:
    """Make a new project in DIR: settings, a workflow, tools, a recipe and a test input. Nothing is overwritten."""
    planned = [(source, folder / name) for name, source in _files(files("stepwell.cli") / "project")]
    taken = [target for _, target in planned if target.exists()]
    if taken:
        names = ", ".join(str(target) for target in taken[:3])
        raise Refusal(f"{names} {'is' if len(taken) == 1 else 'are'} there already", hint="choose another folder")
    for source, target in planned:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
        click.echo(f"  {visible(target)}")
    flow, given = (shlex.quote(str(folder / name)) for name in ("workflows/hello.yaml", "inputs/hello.json"))
    click.echo(f"\nNow:\n  {program()} run {flow} --input {given}")
    click.echo(f"  {program()} run {flow} -i name=Ana -i ask=true      # waits for a person")
    click.echo(f"  {program()} approvals list")
    click.echo(f"  {program()} test {shlex.quote(str(folder))}")


def _files(folder: Traversable, above: str = "") -> Iterator[tuple[str, Traversable]]:
    """Every file of the kept project with its name in a new one."""
    for part in sorted(folder.iterdir(), key=lambda part: part.name):
        if part.name == "__pycache__":
            continue
        if part.is_dir():
            yield from _files(part, f"{above}{part.name}/")
        else:
            yield above + _NAMES.get(part.name, part.name), part
