"""`stepwell recipes`: the recipes that a workflow can use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.text import json_text, table, visible, visible_lines

if TYPE_CHECKING:
    from stepwell.library.recipes import FileRecipes, FoundRecipe


@click.command(cls=Command, example="stepwell recipes\nstepwell recipes mood\nstepwell recipes --for workflows/a.yaml")
@click.argument("recipe", required=False)
@click.option("--for", "workflow", type=options.FILE, metavar="FILE", help="As this workflow file sees them.")
@options.as_json
def recipes(*, recipe: str | None, workflow: Path | None, as_json: bool) -> None:
    """List the recipes of this project, or show one RECIPE (its id, or id@version)."""
    from stepwell.cli.opening import settings_at
    from stepwell.library.recipes import FileRecipes

    start = workflow.resolve().parent if workflow is not None else Path.cwd()
    library = FileRecipes(workflow, settings_at(start).recipes)
    if recipe is not None:
        _show(library.find(recipe), as_json=as_json)
        return
    problems = library.problems()
    found = [found for name in library.names() if (found := _found(library, name)) is not None]
    if as_json:
        click.echo(json_text([_object(one) for one in found], indent=2))
    elif not found and not problems:
        folders = ", ".join(str(folder) for folder in library.folders) or "no folder"
        click.echo(f"no recipes in {visible(folders)}; a recipe is a file <id>.yaml that begins with  recipe: <id>")
    else:
        told = [one.definition for one in found]
        rows = [(recipe.recipe, recipe.version, recipe.task, recipe.name) for recipe in told]
        click.echo("\n".join(table(rows, ["RECIPE", "VERSION", "TASK", "NAME"])))
    exits.tell_problems(problems)
    click.get_current_context().exit(exits.FAILED if problems else exits.OK)


def _found(library: FileRecipes, name: str) -> FoundRecipe | None:
    from stepwell.errors import DefinitionError

    try:
        return library.find(name)
    except DefinitionError:  # its problems are told below the list
        return None


def _object(one: FoundRecipe) -> dict[str, Any]:
    recipe = one.definition
    return {
        "id": recipe.recipe,
        "version": recipe.version,
        "task": recipe.task,
        "name": recipe.name,
        "digest": one.digest,
        "file": str(one.file),
    }


def _show(one: FoundRecipe, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text({**_object(one), "recipe": one.data}, indent=2))
        return
    recipe = one.definition
    click.echo(f"{click.style(visible(recipe.recipe), bold=True)}@{visible(recipe.version)}  {recipe.task}")
    for text in (recipe.name, recipe.description, str(one.file)):
        if text:
            click.echo(f"  {visible(text)}")
    for name, value in one.data.items():
        if name in {"recipe", "version", "task", "name", "description"}:
            continue
        lines = visible_lines(value if isinstance(value, str) else json_text(value, indent=2))
        click.echo("\n".join([f"  {name}:", *(f"    {line}" for line in lines)]))
