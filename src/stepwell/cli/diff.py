"""`stepwell diff`: what differs between two definitions, by step and field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.text import cut, json_text, visible

if TYPE_CHECKING:
    from stepwell.engine.versions import Compared
    from stepwell.library.differences import Difference

Json: TypeAlias = Any

_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "moved": (">", "cyan"), "changed": ("~", "yellow")}
_WIDEST = 60
"""Columns of a value that is shown in a line."""


@click.command(
    cls=Command,
    example="""
        stepwell diff refund@3 refund@4
        stepwell diff refund workflows/refund.yaml
        stepwell diff 019c workflows/refund.yaml --json
    """,
    epilog="Exit codes: 0 nothing that is done differs, 1 something does, 2 wrong use or definition.",
)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@options.database
@options.as_json
def diff(*, before: str, after: str, database: str, as_json: bool) -> None:
    """Compare two definitions: files, published ID or ID@VERSION, or runs (what they pinned).

    Layout, comments and the order of keys are never told; names, descriptions, tags and labels are told as cosmetic.
    """
    from stepwell.cli.opening import run_async

    compared = run_async(_compare(before, after, database))
    if as_json:
        click.echo(json_text(_object(compared), indent=2))
    else:
        for line in _lines(compared):
            click.echo(line)
    click.get_current_context().exit(exits.OK if compared.cosmetic else exits.FAILED)


async def _compare(before: str, after: str, database: str) -> Compared:
    from stepwell.cli.opening import opened
    from stepwell.cli.sources import are_files, definition_named, folder_of

    missing: Any = "aside" if are_files(before, after) else "refuse"
    async with opened(database, start=folder_of(before, after), missing=missing) as engine:
        sides = [await definition_named(engine, name) for name in (before, after)]
        return await engine.versions.diff(sides[0], sides[1])


# ── for people ──


def _lines(compared: Compared) -> Iterator[str]:
    yield click.style(f"--- {visible(compared.before.name)}", bold=True)
    yield click.style(f"+++ {visible(compared.after.name)}", bold=True)
    for one in compared.found:
        yield _line(one, compared)
    if not compared.found:
        yield "no difference"
    elif compared.cosmetic:
        yield "no change in what is done: only names, descriptions, tags or labels differ"


def _line(one: Difference, compared: Compared) -> str:
    sign, colour = _SIGNS[one.kind]
    if one.cosmetic:
        sign, colour = "·", ""
    subject = visible(one.path or "workflow")
    match one.kind:
        case "added" | "removed":
            said = f"{subject}  {visible(one.after if one.kind == 'added' else one.before)}"
        case "moved":
            said = f"{subject}  moved from {visible(one.before)} to {visible(one.after)}"
        case _:
            said = f"{subject}  {visible(one.field)}: {_value(one.before)} → {_value(one.after)}"
    said += " (cosmetic)" if one.cosmetic else ""
    place = _place(one, compared)
    line = click.style(f"{sign} {said}", fg=colour or None, dim=one.cosmetic)
    return f"{line}  {click.style(place, dim=True)}" if place else line


def _value(value: Json) -> str:
    from stepwell.library.differences import ABSENT

    return "nothing" if value is ABSENT else cut(json_text(value), _WIDEST)


def _place(one: Difference, compared: Compared) -> str:
    """Where it is written on each side, as far as that is known: "12", or "12 → 14" where the lines differ."""
    old, new = _rows(one, compared)
    if old and new:
        return f"line {old} → {new}" if old != new else f"line {old}"
    return f"line {old or new}" if old or new else ""


def _rows(one: Difference, compared: Compared) -> tuple[int, int]:
    here = compared.places[0].place(one.here)[0] if one.here is not None else 0
    there = compared.places[1].place(one.there)[0] if one.there is not None else 0
    return here, there


# ── for programs ──


def _object(compared: Compared) -> dict[str, Json]:
    return {
        "before": compared.before.name,
        "after": compared.after.name,
        "same": not compared.found,
        "cosmetic": compared.cosmetic,
        "differences": [_difference(one, compared) for one in compared.found],
    }


def _difference(one: Difference, compared: Compared) -> dict[str, Json]:
    from stepwell.library.differences import ABSENT

    old, new = _rows(one, compared)
    told: dict[str, Json] = {"kind": one.kind, "step": one.step or None, "path": one.path or None}
    told |= {"field": one.field or None, "cosmetic": one.cosmetic}
    if one.before is not ABSENT:
        told["before"] = one.before
    if one.after is not ABSENT:
        told["after"] = one.after
    return told | {"line_before": old or None, "line_after": new or None}
