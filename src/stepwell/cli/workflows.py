"""`stepwell workflows`: what is published, its versions, and going back to an earlier one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from stepwell.cli import options
from stepwell.cli.command import Group
from stepwell.cli.exits import FAILED, USAGE, Refusal
from stepwell.cli.opening import NoDatabase, opened, run_async, tell_no_database
from stepwell.cli.program import program
from stepwell.cli.publish import version_json
from stepwell.cli.text import json_text, table, visible, visible_lines

if TYPE_CHECKING:
    from stepwell.engine.engine import Engine
    from stepwell.ports import Published

T = TypeVar("T")


@click.group(
    cls=Group,
    default="list",
    example="stepwell workflows list\nstepwell workflows versions refund\nstepwell workflows rollback refund@3",
)
def workflows() -> None:
    """List, show, roll back and delete published workflows."""


@workflows.command("list", example="stepwell workflows list --json")
@options.database
@options.as_json
def list_workflows(*, database: str, as_json: bool) -> None:
    """List published workflows, each with its newest version."""
    try:
        found = run_async(_asking(database, lambda engine: engine.versions.workflows()))
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)
        return
    if as_json or found:
        _list(found, as_json=as_json)
    else:
        click.echo(f"nothing is published yet; `{program()} publish FILE` publishes a workflow")


@workflows.command("versions", example="stepwell workflows versions refund")
@click.argument("workflow", metavar="ID")
@options.database
@options.as_json
def versions(*, workflow: str, database: str, as_json: bool) -> None:
    """List the versions of a workflow, newest first."""
    _list(run_async(_asking(database, lambda engine: engine.versions.versions(workflow))), as_json=as_json)


@workflows.command("show", example="stepwell workflows show refund@3\nstepwell workflows show refund --text")
@click.argument("version", metavar="ID[@VERSION]")
@click.option("--text", "only_text", is_flag=True, help="Only the text of the file, as it was published.")
@options.database
@options.as_json
def show(*, version: str, only_text: bool, database: str, as_json: bool) -> None:
    """Show a version: who published it, when and why, and its text."""
    found = run_async(_asking(database, lambda engine: engine.versions.find(version)))
    if as_json:
        click.echo(json_text({**version_json(found), "text": found.text}, indent=2))
        return
    if not only_text:
        click.echo(click.style(visible(f"{found.workflow}@{found.number}"), bold=True))
        for key, value in version_json(found).items():
            if value and key not in {"id", "number"}:
                click.echo(f"  {key}: {visible(value)}")
        click.echo()
    click.echo("\n".join(visible_lines(found.text.rstrip("\n"))))


@workflows.command(
    "rollback",
    example='stepwell workflows rollback refund@3 --note "asks too often"',
    epilog="Runs that are under way keep their definition; `stepwell runs migrate` moves parked ones.",
)
@click.argument("version", metavar="ID@VERSION")
@click.option("--note", default="", metavar="TEXT", help="Why; kept with the new version.")
@options.acting
@options.database
@options.as_json
def rollback(*, version: str, note: str, acting: str, database: str, as_json: bool) -> None:
    """Publish an earlier version again, as the newest one."""
    if "@" not in version:
        raise Refusal("say to which version", hint=f"`{program()} workflows versions {version}` lists them")

    async def work(engine: Engine) -> tuple[Published, bool]:
        from stepwell.cli.acting import actor

        return await engine.versions.rollback(version, note=note, by=await actor(engine, acting))

    found, new = run_async(_asking(database, work))
    if as_json:
        click.echo(json_text({**version_json(found), "new": new}, indent=2))
        return
    name = visible(f"{found.workflow}@{found.number}")
    click.echo(f"{name} is what {visible(version)} was" if new else f"nothing to do: {name} says the same already")


@workflows.command(
    "delete",
    example="stepwell workflows delete refund@3",
    epilog="Exit codes: 0 deleted, 1 open runs use it, 2 wrong use.",
)
@click.argument("version", metavar="ID@NUMBER")
@options.acting
@options.database
def delete(*, version: str, acting: str, database: str) -> None:
    """Delete a version. Refused while runs that have not ended use it; its number is never given again."""
    from stepwell.errors import Conflict

    async def work(engine: Engine) -> Published:
        from stepwell.cli.acting import actor

        return await engine.versions.delete(version, by=await actor(engine, acting))

    try:
        found = run_async(_asking(database, work))
    except Conflict as used:
        hint = f"wait until they have ended, cancel them, or move them with `{program()} runs migrate`"
        raise Refusal(str(used), hint=hint, code=FAILED, kind="conflict") from None
    click.echo(f"deleted {visible(found.workflow)}@{found.number}")


def _list(found: list[Published], *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text([version_json(one) for one in found], indent=2))
        return
    rows = []
    for one in found:
        at = str(version_json(one)["at"])[:16].replace("T", " ")
        note = one.note or ("" if one.origin == "publish" else one.origin)
        rows.append((f"{one.workflow}@{one.number}", one.label or "-", at, one.by, note))
    click.echo("\n".join(table(rows, ["VERSION", "LABEL", "PUBLISHED", "BY", "NOTE"])))


async def _asking(database: str, ask: Callable[[Engine], Awaitable[T]]) -> T:
    from stepwell.errors import NotFound

    async with opened(database) as engine:
        try:
            return await ask(engine)
        except NotFound as missing:
            hint = f"`{program()} workflows list` shows what is published"
            raise Refusal(str(missing), hint=hint, code=USAGE, kind="not_found") from None
