"""`stepwell recipes`: the recipes of a project and of the library, with their versions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Group
from stepwell.cli.exits import FAILED, USAGE, Refusal
from stepwell.cli.opening import opened, run_async
from stepwell.cli.program import program
from stepwell.cli.recipe_sources import recipe_named, recipe_refusals
from stepwell.cli.text import cut, json_text, table, visible, visible_lines

if TYPE_CHECKING:
    from stepwell.engine.engine import Engine
    from stepwell.engine.recipe_versions import RecipeDifference
    from stepwell.errors import Problem
    from stepwell.library.recipes import FoundRecipe
    from stepwell.ports import PublishedRecipe, RecipeVersion

Json: TypeAlias = Any

_WIDEST = 80
_FOR = click.option("--for", "workflow", type=options.FILE, metavar="FILE", help="As this workflow file sees them.")


class _Recipes(Group):
    """The group, which knows what is meant by `recipes ID`."""

    def _unknown(self, ctx: click.Context, name: str) -> exits.Mistyped:
        mistyped = super()._unknown(ctx, name)
        mistyped.hint = mistyped.hint or f"to see a recipe: `{program()} recipes show {name}`"
        return mistyped


@click.group(
    cls=_Recipes,
    default="list",
    lazy={
        "try": ("stepwell.cli.recipe_try:try_recipe", "Ask a recipe once, or run its own tests."),
        "eval": ("stepwell.cli.recipe_eval:evaluate", "Score a recipe over a table; compare two versions or models."),
    },
    example="stepwell recipes list\nstepwell recipes try mood -i text='Thank you!'\nstepwell recipes publish mood.yaml",
)
def recipes() -> None:
    """List, show, try, evaluate, publish and compare recipes."""


@recipes.command("list", example="stepwell recipes list\nstepwell recipes list --for workflows/a.yaml --json")
@_FOR
@options.database
@options.as_json
def list_recipes(*, workflow: Path | None, database: str, as_json: bool) -> None:
    """List the recipes in the project's files and those that are published, with their versions."""
    start = workflow.resolve().parent if workflow is not None else None

    async def work() -> tuple[list[dict[str, Json]], list[Problem], str]:
        async with opened(database, start=start, missing="aside") as engine:
            files, wrong = engine.recipes.in_files(beside=workflow)
            rows = [_of_file(one) for one in files]
            rows += [_of_version(one) for one in await engine.recipes.versions()]
            rows += [_of_pin(one) for one in await engine.recipes.pinned()]
            folders = ", ".join(str(folder) for folder in engine.recipes.folders(beside=workflow)) or "no folder"
        return sorted(rows, key=lambda row: str(row["id"])), wrong, folders

    rows, problems, folders = run_async(work())
    if as_json:
        click.echo(json_text(rows, indent=2))
    elif not rows and not problems:
        click.echo(f"no recipes in {visible(folders)}; a recipe is a file <id>.yaml that begins with  recipe: <id>")
    elif rows:
        heads = ("id", "version", "task", "model", "from", "name")
        cells = [[row[head] or "-" for head in heads] for row in rows]
        click.echo("\n".join(table(cells, [head.upper().replace("ID", "RECIPE") for head in heads])))
    exits.tell_problems(problems)
    click.get_current_context().exit(FAILED if problems else exits.OK)


def _of_file(one: FoundRecipe) -> dict[str, Json]:
    return {**_facts(one.data), "from": _near(one.file), "file": str(one.file), "digest": one.digest, "source": "file"}


def _of_version(one: RecipeVersion) -> dict[str, Json]:
    from stepwell.engine.recipe_versions import data_of
    from stepwell.journal.view import instant

    told = {"from": f"published {str(instant(one.at))[:10]}", "file": one.file, "digest": one.digest}
    return {**_facts(data_of(one)), **told, "source": "published", "by": one.by, "note": one.note}


def _of_pin(one: PublishedRecipe) -> dict[str, Json]:
    from stepwell.engine.recipe_versions import data_of

    facts = _facts(data_of(one))
    return {**facts, "from": "pinned by a published workflow", "file": "", "digest": one.digest, "source": "pinned"}


def _facts(data: dict[str, Json]) -> dict[str, Json]:
    model = data.get("model") or {}
    named = model if isinstance(model, str) else model.get("name") or model.get("provider") or ""
    return {
        "id": data["recipe"],
        "version": str(data.get("version", "1")),
        "task": data.get("task", "generate"),
        "model": named,
        "name": data.get("name", ""),
        "tests": len(data.get("tests", ())),
    }


def _near(file: Path) -> str:
    """A path as it is shortest from here."""
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)


@recipes.command("show", example="stepwell recipes show mood\nstepwell recipes show mood@2 --text")
@click.argument("recipe", metavar="ID[@VERSION]|FILE")
@click.option("--text", "only_text", is_flag=True, help="Only the text, as it was written.")
@_FOR
@options.database
@options.as_json
def show(*, recipe: str, only_text: bool, workflow: Path | None, database: str, as_json: bool) -> None:
    """Show a recipe, as a step finds it: in files first, then in the library."""

    async def work() -> FoundRecipe:
        start = workflow.resolve().parent if workflow is not None else None  # noqa: ASYNC240 -- before anything else runs
        async with opened(database, start=start, missing="aside") as engine:
            return recipe_named(engine, recipe, beside=workflow)

    _show(run_async(work()), as_json=as_json, only_text=only_text)


def _show(one: FoundRecipe, *, as_json: bool, only_text: bool) -> None:
    if as_json:
        click.echo(json_text({**_of_file(one), "recipe": one.data}, indent=2))
        return
    if only_text:
        click.echo("\n".join(visible_lines((one.text or json_text(one.data, indent=2)).rstrip("\n"))))
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


@recipes.command(
    "publish",
    example='stepwell recipes publish recipes/mood.yaml --note "knows irony"',
    epilog="Exit codes: 0 published or there already, 1 the version has other content, 2 wrong use or recipe.",
)
@click.argument("files", nargs=-1, required=True, type=options.FILE, metavar="FILE...")
@click.option("--note", default="", metavar="TEXT", help="Why there is a new version; kept with it.")
@options.acting
@options.database
@options.as_json
def publish(*, files: tuple[Path, ...], note: str, acting: str, database: str, as_json: bool) -> None:
    """Keep recipes in the library, each under the version that it says; a version never changes.

    Steps find it there as `recipe: ID@VERSION` wherever no file of that version is nearer. Runs keep what they pinned.
    """
    from stepwell.errors import Conflict

    found: list[tuple[RecipeVersion, bool]] = []
    try:
        run_async(_publish(found, files, note, acting, database))
    except Conflict as taken:
        raise Refusal(str(taken), code=FAILED, kind="conflict") from None
    finally:  # what was published before one that is refused stays published, and is told
        if as_json:
            click.echo(json_text([{**_of_version(one), "new": new} for one, new in found], indent=2))
        else:
            for one, new in found:
                name = click.style(visible(f"{one.recipe}@{one.version}"), bold=True)
                said = "published" if new else "nothing to publish: this version says the same"
                click.echo(f"{name}  {said}  {click.style(one.digest[:12], dim=True)}")


async def _publish(
    found: list[tuple[RecipeVersion, bool]], files: tuple[Path, ...], note: str, acting: str, database: str
) -> None:
    from stepwell.cli.acting import actor

    start = files[0].resolve().parent
    async with opened(database, start=start, missing="make") as engine:
        by = await actor(engine, acting)
        loaded = [engine.recipes.find(file) for file in files]  # all are read before the first is published
        for one in loaded:
            version, new = await engine.recipes.publish(one, note=note, by=by)
            found.append((version, new))


@recipes.command("versions", example="stepwell recipes versions mood")
@click.argument("recipe", metavar="ID")
@options.database
@options.as_json
def versions(*, recipe: str, database: str, as_json: bool) -> None:
    """List the published versions of a recipe, the last first."""

    async def work(engine: Engine) -> list[RecipeVersion]:
        found = await engine.recipes.versions(recipe)
        if not found:
            hint = f"`{program()} recipes publish FILE` publishes one; `{program()} recipes list` lists what there is"
            raise Refusal(f"no version of the recipe {recipe!r} is published", hint=hint, kind="not_found")
        return found

    found = run_async(_asking(database, work))
    if as_json:
        click.echo(json_text([_of_version(one) for one in found], indent=2))
        return
    rows = [(f"{one.recipe}@{one.version}", _of_version(one)["from"], one.by, one.note) for one in found]
    click.echo("\n".join(table(rows, ["VERSION", "PUBLISHED", "BY", "NOTE"])))


@recipes.command(
    "diff",
    example="stepwell recipes diff mood@1 mood@2\nstepwell recipes diff mood@1 recipes/mood.yaml",
    epilog="Exit codes: 0 nothing that is done differs, 1 something does, 2 wrong use or recipe.",
)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@options.database
@options.as_json
def diff(*, before: str, after: str, database: str, as_json: bool) -> None:
    """Compare two recipes, each a file, ID, ID@VERSION, or library:ID@VERSION (no file is meant), by their fields.

    Layout, comments and the order of keys are never told; names, versions and tests are told as cosmetic.
    """
    from stepwell.engine.recipe_versions import differences

    async def work() -> tuple[FoundRecipe, FoundRecipe]:
        async with opened(database, missing="aside") as engine:
            return recipe_named(engine, before), recipe_named(engine, after)

    first, second = run_async(work())
    found = differences(first, second)
    if as_json:
        told = {"before": first.reference, "after": second.reference, "same": not found}
        click.echo(json_text({**told, "differences": [_difference(one) for one in found]}, indent=2))
    else:
        click.echo(click.style(f"--- {visible(first.reference)}  {visible(_near(first.file))}", bold=True))
        click.echo(click.style(f"+++ {visible(second.reference)}  {visible(_near(second.file))}", bold=True))
        click.echo("\n".join(line for one in found for line in _lines(one)) or "no difference")
    click.get_current_context().exit(exits.OK if all(one.cosmetic for one in found) else FAILED)


def _lines(one: RecipeDifference) -> list[str]:
    """A difference; of texts of several lines, those that differ."""
    if isinstance(one.before, str) and isinstance(one.after, str) and "\n" in one.before + one.after:
        from difflib import unified_diff

        changed = list(unified_diff(one.before.splitlines(), one.after.splitlines(), lineterm="", n=1))[2:]
        return [f"~ {visible(one.field)}", *(f"    {visible(line)}" for line in changed)]
    sign = "·" if one.cosmetic else "~"
    said = f"{sign} {visible(one.field)}: {_value(one.before)} → {_value(one.after)}"
    return [click.style(f"{said} (cosmetic)", dim=True) if one.cosmetic else click.style(said, fg="yellow")]


def _value(value: Json) -> str:
    from stepwell.library.differences import ABSENT

    return "nothing" if value is ABSENT else cut(json_text(value), _WIDEST)


def _difference(one: RecipeDifference) -> dict[str, Json]:
    from stepwell.library.differences import ABSENT

    sides = {"before": one.before, "after": one.after}
    told = {name: value for name, value in sides.items() if value is not ABSENT}
    return {"field": one.field, "cosmetic": one.cosmetic, **told}


@recipes.command(
    "delete",
    example="stepwell recipes delete mood@1",
    epilog="Exit codes: 0 deleted, 1 open runs pinned it, 2 wrong use.",
)
@click.argument("version", metavar="ID@VERSION")
@options.acting
@options.database
def delete(*, version: str, acting: str, database: str) -> None:
    """Delete a published version. Refused while runs that have not ended use it; no other content gets its label."""
    from stepwell.errors import Conflict

    async def work(engine: Engine) -> RecipeVersion:
        from stepwell.cli.acting import actor

        return await engine.recipes.delete(version, by=await actor(engine, acting))

    try:
        found = run_async(_asking(database, work))
    except Conflict as used:
        hint = "wait until they have ended, or cancel them"
        raise Refusal(str(used), hint=hint, code=FAILED, kind="conflict") from None
    click.echo(f"deleted {visible(found.recipe)}@{visible(found.version)}")


async def _asking(database: str, ask: Any) -> Any:
    async with opened(database) as engine:
        with recipe_refusals(code=USAGE):
            return await ask(engine)
