"""`stepwell publish`: keep workflows as versions in the library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli import options
from stepwell.cli.command import Command
from stepwell.cli.text import json_text, visible

if TYPE_CHECKING:
    from stepwell.ports import Published


@click.command(
    cls=Command,
    example="""
        stepwell publish workflows/refund.yaml --note "asks twice above 500 EUR"
        stepwell publish workflows/*.yaml --json
    """,
    epilog="Exit codes: 0 published or there already, 2 wrong use or definition.",
)
@click.argument("files", nargs=-1, required=True, type=options.FILE, metavar="FILE...")
@click.option("--note", default="", metavar="TEXT", help="Why there is a new version; kept with it.")
@options.tools
@options.acting
@options.database
@options.as_json
def publish(**given: Any) -> None:
    """Publish workflows, each with the recipes and sub-workflows that it names, as the next version.

    Runs that are under way keep the definition that they were started with.
    """
    from stepwell.cli.opening import run_async

    as_json = given.pop("as_json")
    found: list[tuple[Published, bool]] = []
    try:
        run_async(_publish(found, **given))
    finally:  # what was published before a file that is refused stays published, and is told
        _tell(found, as_json=as_json)


def _tell(found: list[tuple[Published, bool]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text([{**version_json(version), "new": new} for version, new in found], indent=2))
        return
    for version, new in found:
        name = click.style(visible(f"{version.workflow}@{version.number}"), bold=True)
        said = "published" if new else "nothing to publish: the newest version says the same"
        click.echo(f"{name}  {said}  {click.style(version.definition[:12], dim=True)}")


async def _publish(
    found: list[tuple[Published, bool]],
    *,
    files: tuple[Path, ...],
    note: str,
    tools: tuple[Path, ...],
    acting: str,
    database: str,
) -> None:
    from stepwell.cli.acting import actor
    from stepwell.cli.opening import opened

    start = files[0].resolve().parent
    async with opened(database, start=start, tools=tools, missing="make") as engine:
        by = await actor(engine, acting)
        loaded = [engine.load(file) for file in files]  # all are read before the first is published
        for one in loaded:
            version, new = await engine.versions.publish(one, note=note, by=by)
            found.append((version, new))


def version_json(version: Published) -> dict[str, Any]:
    """A version as programs see it, without its text."""
    from stepwell.journal.view import instant

    return {
        "id": version.workflow,
        "number": version.number,
        "label": version.label,
        "digest": version.definition,
        "note": version.note,
        "by": version.by,
        "at": instant(version.at),
        "origin": version.origin,
        "file": version.file,
    }
