"""`stepwell schema`: the language as JSON Schema, for editors."""

from __future__ import annotations

from pathlib import Path

import click

from stepwell.cli.command import Command
from stepwell.cli.text import json_text, visible


@click.command(
    cls=Command,
    example="stepwell schema > stepwell.schema.json\nstepwell schema recipe --output recipe.schema.json",
    epilog="In a workflow file:  # yaml-language-server: $schema=stepwell.schema.json",
)
@click.argument("what", type=click.Choice(["workflow", "recipe"]), default="workflow")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it there instead."
)
def schema(*, what: str, output: Path | None) -> None:
    """Print the JSON Schema (2020-12) of a workflow, with every kind of step installed here, or of a recipe."""
    from stepwell.definition.schema import recipe_schema, workflow_schema
    from stepwell.kinds import discover

    found = recipe_schema() if what == "recipe" else workflow_schema(discover())
    text = json_text(found, indent=2)
    if output is None:
        click.echo(text)
    else:
        output.write_text(text + "\n", "utf-8")
        click.echo(f"{visible(output)}: written")
