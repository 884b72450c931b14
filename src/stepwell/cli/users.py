"""`stepwell users`: who is known, with roles and departments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Group
from stepwell.cli.opening import NoDatabase, opened, run_async, tell_no_database
from stepwell.cli.program import program
from stepwell.cli.text import json_text, table, visible

if TYPE_CHECKING:
    from stepwell.people.listing import Listing
    from stepwell.ports import Person

Json: TypeAlias = Any

_ROLE = "viewer, operator, approver, editor, admin, or a word of your own such as care-manager; may be repeated."
_REPLACE = "Also over who is there already under the very same name."


@click.group(
    cls=Group,
    default="list",
    example="stepwell users add ana --email ana@example.org --role approver --department care\nstepwell users list",
)
def users() -> None:
    """Say who is known, and what they hold. Until somebody is, the local operator holds every role."""


@users.command("list", example="stepwell users list --role approver --json")
@click.option("--role", default="", metavar="ROLE", help="Only who has this role.")
@click.option("--department", default="", metavar="NAME", help="Only who is in this department.")
@options.database
@options.as_json
def list_users(*, role: str, department: str, database: str, as_json: bool) -> None:
    """List people by name."""

    async def work() -> list[Person]:
        async with opened(database) as engine:
            return await engine.people.known(role=role, department=department)

    try:
        found = run_async(work())
    except NoDatabase as none:
        tell_no_database(none, as_json=as_json)
        return
    if as_json:
        click.echo(json_text([asdict(person) for person in found], indent=2))
    elif found:
        rows = [(one.name, one.email or "-", ", ".join(one.roles) or "-", ", ".join(one.departments)) for one in found]
        click.echo("\n".join(table(rows, ["NAME", "E-MAIL", "ROLES", "DEPARTMENTS"])))
    else:
        which = "nobody like that" if role or department else "nobody is known, so the local operator holds every role"
        click.echo(f"{which}; `{program()} users add NAME --role ROLE` adds somebody")


@users.command("show", example="stepwell users show ana")
@click.argument("who")
@options.database
@options.as_json
def show(who: str, *, database: str, as_json: bool) -> None:
    """Show one person, by name or e-mail address."""

    async def work() -> Person:
        async with opened(database) as engine:
            return await _known(engine.people.person(who), who)

    found = run_async(work())
    if as_json:
        click.echo(json_text(asdict(found), indent=2))
        return
    click.echo(click.style(visible(found.name), bold=True))
    for key, value in asdict(found).items():
        if value and key != "name":
            click.echo(f"  {key}: {visible(', '.join(value) if isinstance(value, tuple) else value)}")


@users.command("add", example="stepwell users add ana --email ana@example.org --role approver --department care")
@click.argument("name")
@click.option("--email", default="", metavar="ADDRESS", help="Finds them too; mails go there.")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help=_ROLE)
@click.option("--department", "departments", multiple=True, metavar="NAME", help="May be repeated.")
@click.option("--display", default="", metavar="TEXT", help="How they are called in full.")
@click.option("--replace", "replaces", is_flag=True, help=_REPLACE)
@options.acting
@options.database
@options.as_json
def add(*, replaces: bool, acting: str, database: str, as_json: bool, **given: Any) -> None:
    """Add a person."""
    from stepwell.ports import Person

    stored, first = run_async(_add([Person(**given)], None, replaces=replaces, acting=acting, database=database))
    _tell(stored, first=first, as_json=as_json)


@users.command("import", example="stepwell users import people.yaml\nstepwell users import people.csv --replace")
@click.argument("file", type=options.FILE)
@click.option("--replace", "replaces", is_flag=True, help=_REPLACE)
@options.acting
@options.database
@options.as_json
def import_(file: Path, *, replaces: bool, acting: str, database: str, as_json: bool) -> None:
    """Add all people of a YAML, JSON or CSV file, or nobody if anything is wrong.

    Each has a name, and where wanted email, roles, departments, display. In CSV the first line names the columns, and
    semicolons stand between roles.
    """
    from stepwell.people.listing import read_people

    if file.suffix.lower() not in {".yaml", ".yml", ".json", ".csv"}:
        raise exits.Refusal(f"{file}: people are read from .yaml, .json or .csv files")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise exits.Refusal(f"{file}: this is not UTF-8 text: byte {error.start} is wrong") from None
    found = read_people(text, str(file))
    if not found.people and not found.problems:
        raise exits.Refusal(f"{file} names nobody")
    stored, first = run_async(_add(found.people, found, replaces=replaces, acting=acting, database=database))
    _tell(stored, first=first, as_json=as_json)


async def _add(
    people: list[Person], listing: Listing | None, *, replaces: bool, acting: str, database: str
) -> tuple[list[Person], bool]:
    """The people as stored, and whether nobody was known before."""
    from stepwell.cli.acting import actor

    async with opened(database, missing="make") as engine:
        first = await engine.people.empty()
        by = await actor(engine, acting)
        return await engine.people.add(people, by=by, replaces=replaces, listing=listing), first


def _tell(stored: list[Person], *, first: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json_text([asdict(person) for person in stored], indent=2))
    else:
        for one in stored:
            click.echo(f"{visible(one.name)}: {', '.join(one.roles) or 'no roles'}")
    if first:
        click.echo("from now on the rules about people count: only who is known may decide", err=as_json)
        click.echo("say who you are with --as NAME, STEPWELL_USER, or `user` in stepwell.toml", err=as_json)


@users.command("remove", example="stepwell users remove ana")
@click.argument("who")
@options.acting
@options.database
@options.as_json
def remove(who: str, *, acting: str, database: str, as_json: bool) -> None:
    """Remove a person, by name or e-mail address. What they did stays in the audit trail."""

    async def work() -> tuple[Person, bool]:
        from stepwell.cli.acting import actor

        async with opened(database) as engine:
            by = await actor(engine, acting)
            gone = await _known(engine.people.remove(who, by=by), who)
            return gone, await engine.people.empty()

    gone, last = run_async(work())
    if as_json:
        click.echo(json_text(asdict(gone), indent=2))
    else:
        click.echo(f"{visible(gone.name)} is removed")
    if last:
        click.echo("nobody is known any more: the local operator holds every role", err=as_json)


async def _known(asked: Any, who: str) -> Person:
    from stepwell.errors import NotFound

    try:
        found: Person = await asked
    except NotFound:
        hint = f"`{program()} users list` shows who is known"
        raise exits.Refusal(f"nobody is called {who!r} here", hint=hint, kind="not_found") from None
    return found
