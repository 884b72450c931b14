"""`stepwell keys`: keys with which a program proves to act for a person."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Group
from stepwell.cli.opening import NoDatabase, opened, run_async, tell_no_database
from stepwell.cli.program import program
from stepwell.cli.text import json_text, table, visible

if TYPE_CHECKING:
    from stepwell.ports import PersonKey

Json: TypeAlias = Any
T = TypeVar("T")


@click.group(cls=Group, default="list", example="stepwell keys create ana --note laptop\nstepwell keys list")
def keys() -> None:
    """Keys of people: a program that has one acts as that person, and may decide what they may decide."""


@keys.command("create", example="stepwell keys create ana --note 'the assistant on her laptop'")
@click.argument("who", metavar="NAME")
@click.option("--note", default="", metavar="TEXT", help="What it is for.")
@options.acting
@options.database
@options.as_json
def create(who: str, *, note: str, acting: str, database: str, as_json: bool) -> None:
    """Make a key for a person who is known. It is shown now and never again."""

    async def work() -> tuple[str, PersonKey]:
        from stepwell.cli.acting import actor

        async with opened(database) as engine:
            by = await actor(engine, acting)
            return await _known(engine.people.issue_key(who, note=note, by=by), f"nobody is called {who!r} here")

    text, kept = run_async(work())
    if as_json:
        click.echo(json_text({"id": kept.id, "person": kept.person, "key": text}, indent=2))
        return
    click.echo(f"key {kept.id} of {visible(kept.person)}, shown this once; put it into STEPWELL_KEY:", err=True)
    click.echo(text)


@keys.command("list", example="stepwell keys list --json")
@options.database
@options.as_json
def list_keys(*, database: str, as_json: bool) -> None:
    """List keys by their ids; what they are is kept nowhere."""

    async def work() -> list[PersonKey]:
        async with opened(database) as engine:
            return await engine.people.keys()

    try:
        found = run_async(work())
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)
        return
    if as_json:
        click.echo(json_text([_told(one) for one in found], indent=2))
    elif found:
        rows = [
            (one.id, one.person, "revoked" if one.revoked else "holds", _told(one)["created_at"], one.note)
            for one in found
        ]
        click.echo("\n".join(table(rows, ["KEY", "PERSON", "STATUS", "CREATED", "NOTE"])))
    else:
        click.echo(f"there are no keys; `{program()} keys create NAME` makes one")


@keys.command("revoke", example="stepwell keys revoke 1f0a77c2")
@click.argument("key")
@options.acting
@options.database
def revoke(key: str, *, acting: str, database: str) -> None:
    """Take a key back, by its id, for ever."""

    async def work() -> PersonKey:
        from stepwell.cli.acting import actor

        async with opened(database) as engine:
            by = await actor(engine, acting)
            return await _known(engine.people.revoke_key(key, by=by), f"there is no key {key!r}")

    gone = run_async(work())
    click.echo(f"key {gone.id} of {visible(gone.person)} is revoked")


def _told(key: PersonKey) -> dict[str, Json]:
    from stepwell.journal.view import instant

    return {
        "id": key.id,
        "person": key.person,
        "note": key.note,
        "created_at": instant(key.created),
        "revoked_at": instant(key.revoked),
    }


async def _known(asked: Awaitable[T], missing: str) -> T:
    from stepwell.errors import NotFound

    try:
        return await asked
    except NotFound:
        hint = f"`{program()} users list` and `{program()} keys list` show what there is"
        raise exits.Refusal(missing, hint=hint, kind="not_found") from None
