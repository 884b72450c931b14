"""`stepwell kinds`: the kinds of step that a workflow may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stepwell.cli import options
from stepwell.cli.command import Command
from stepwell.cli.exits import Refusal
from stepwell.cli.text import json_text, table, terminal_columns, wrapped

if TYPE_CHECKING:
    from stepwell.interpreter.kind import RunnableStep

_COMMON = ("id", "type", "name", "description", "depends_on", "join", "condition", "on_error", "compensate")


@click.command(cls=Command, example="stepwell kinds\nstepwell kinds loop")
@click.argument("kind", required=False)
@options.as_json
def kinds(kind: str | None, *, as_json: bool) -> None:
    """List the kinds of step, or show the fields of one KIND."""
    from stepwell.kinds import discover

    known = discover()
    if kind is None:
        names = list(known.names())
        rows = [(name, _summary(known.get(name))) for name in names]
        if as_json:
            click.echo(json_text([{"kind": name, "summary": summary} for name, summary in rows], indent=2))
        else:
            click.echo("\n".join(wrapped(rows, ["KIND", "WHAT IT DOES"], columns=terminal_columns())))
        return
    found = known.get(kind)
    if found is None:
        import difflib

        close = difflib.get_close_matches(kind, known.names(), n=1, cutoff=0.5)
        hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(known.names())}"
        raise Refusal(f"there is no kind of step `{kind}`", hint=hint)
    if as_json:
        click.echo(json_text({"kind": kind, "summary": _summary(found), "schema": _schema(found)}, indent=2))
        return
    click.echo(f"{click.style(kind, bold=True)}: {_summary(found)}\n")
    click.echo("\n".join(table(_fields(found), ["FIELD", "TYPE", "DEFAULT"])))
    click.echo(f"\nBesides, as every step: {', '.join(_COMMON)}")


def _summary(kind: type[RunnableStep] | None) -> str:
    return ((kind.__doc__ if kind is not None else "") or "").strip().partition("\n")[0]


def _schema(kind: type[RunnableStep]) -> dict[str, Any]:
    try:
        return kind.model_json_schema(by_alias=True)
    except Exception as error:  # a plug-in's own types may have no JSON Schema
        raise Refusal(f"this kind has no JSON Schema: {error}") from error


def _fields(kind: type[RunnableStep]) -> list[tuple[str, str, str]]:
    rows = []
    for name, field in kind.model_fields.items():
        if name in _COMMON:
            continue
        default = "required" if field.is_required() else _plain(field.get_default(call_default_factory=False))
        rows.append((field.alias or name, _type_name(field.annotation), default))
    return rows


def _plain(value: object) -> str:
    if value is None or value in ((), {}):
        return "-"
    return str(value)


_NAMES = {
    "Template": "text with {{ }}",
    "Expression": "expression",
    "Value": "any value with {{ }}",
    "str": "text",
    "int": "number",
    "float": "number",
    "bool": "true or false",
    "dict": "map",
    "tuple": "list",
    "NoneType": "",
    "Any": "any value",
    "RetryPolicy": "retry policy",
}


def _type_name(annotation: object) -> str:
    """A type in the words of the language."""
    from types import UnionType
    from typing import Annotated, Literal, Union, get_args, get_origin

    origin = get_origin(annotation)
    if origin is Annotated:
        return _type_name(get_args(annotation)[0])
    if origin is Literal:
        return " | ".join(str(word) for word in get_args(annotation))
    if origin in {Union, UnionType}:
        names = dict.fromkeys(name for part in get_args(annotation) if (name := _type_name(part)))
        return " | ".join(names)
    name = getattr(origin or annotation, "__name__", str(annotation))
    if origin is tuple and "Step" in str(get_args(annotation)[:1]):
        return "steps"
    return _NAMES.get(name, name.lower())
