"""`stepwell tools`: the tools that a project's workflows can call; one of them may be called here and now.

The law of the file: a call that may not be repeated is made only when that was confirmed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli import options
from stepwell.cli.command import Group
from stepwell.cli.exits import FAILED, Refusal
from stepwell.cli.inputs import read_pairs
from stepwell.cli.opening import opened, run_async
from stepwell.cli.program import program
from stepwell.cli.text import cut, json_text, terminal_columns, visible, visible_lines, wrapped

if TYPE_CHECKING:
    from stepwell.engine.engine import Engine
    from stepwell.ports import Tool

_LONGEST = 10_000


@click.group(cls=Group, default="list", example="stepwell tools list --tools tools.py")
def tools() -> None:
    """List, show and call the tools that a workflow can call."""


@tools.command("list", example="stepwell tools list\nstepwell tools list --tools tools.py --json")
@options.tools
@options.database
@options.as_json
def list_tools(*, tools: tuple[Path, ...], database: str, as_json: bool) -> None:
    """List the tools of this project and of its MCP servers, with their arguments."""

    async def work() -> list[dict[str, Any]]:
        async with opened(database, tools=tools, missing="aside") as engine:
            for problem in await engine.ask_servers():
                click.echo("\n".join(visible_lines(str(problem))), err=True)
            known = [engine.tools.get(name) for name in engine.tools.names()]
            return [_told(tool) for tool in known if tool is not None]

    found = run_async(work())
    if as_json:
        click.echo(json_text(found, indent=2))
    elif not found:
        click.echo("no tools here; name files of them in stepwell.toml (tools = [...]) or with --tools FILE.py")
    else:
        columns = terminal_columns()
        room = max(columns // 4, 12) if columns else _LONGEST  # `tools show` tells them all
        rows = [(tool["name"], cut(_arguments(tool["parameters"]), room), _again(tool), _first_line(tool))
                for tool in found]  # fmt: skip
        click.echo("\n".join(wrapped(rows, ["TOOL", "ARGUMENTS", "AGAIN", "WHAT IT DOES"], columns=columns)))


@tools.command("show", example="stepwell tools show http\nstepwell tools show charge --tools tools.py --json")
@click.argument("name")
@options.tools
@options.as_json
def show(*, name: str, tools: tuple[Path, ...], as_json: bool) -> None:
    """Show one tool: what it does, and its arguments."""

    async def work() -> dict[str, Any]:
        async with opened(tools=tools, missing="aside") as engine:
            return _told(await _tool(engine, name))

    found = run_async(work())
    if as_json:
        click.echo(json_text(found, indent=2))
        return
    click.echo(f"{click.style(found['name'], bold=True)}  {_again(found)}")
    if found["description"].strip():
        click.echo(visible(found["description"].strip()))
    rows = [*_described(found["parameters"])]
    if rows:
        click.echo("\n" + "\n".join(wrapped(rows, ["ARGUMENT", "TYPE", "WHAT IT IS"], columns=terminal_columns())))


@tools.command(
    "call",
    example="stepwell tools call http -a url=https://example.org/\n"
    "stepwell tools call charge -a customer=C1 -a cents=300 --yes\n"
    "stepwell tools call http -a url=https://crm.example/ "
    '-a \'headers:={"authorization": "Bearer {{secret.CRM_TOKEN}}"}\'',
)
@click.argument("name")
@click.option(
    "-a", "--argument", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument; NAME:=JSON for JSON."
)
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds that the call may take.")
@click.option("--yes", is_flag=True, help="Call it also if a second call would be a second deed.")
@options.tools
@options.as_json
def call(
    *, name: str, pairs: tuple[str, ...], timeout: float, yes: bool, tools: tuple[Path, ...], as_json: bool
) -> None:
    """Call a tool here and now, outside any run, and print what it gives.

    It is called in earnest: what it does is done. In texts of the arguments {{secret.NAME}} means a secret of the
    settings, which is kept out of what is printed. Exit code 1 if the tool fails.
    """
    if not timeout > 0:  # neither 0 nor less, nor nan
        raise Refusal("--timeout is a number of seconds above 0", hint="inf waits for as long as it takes")

    async def work() -> Any:
        async with opened(tools=tools, missing="aside") as engine:
            tool = await _tool(engine, name)
            arguments = read_pairs(pairs, tool.parameters, option="-a")
            if not yes and not engine.trial.repeatable(tool, arguments):
                _confirm(name)
            with contextlib.redirect_stdout(sys.stderr):  # what a tool prints is no part of what it gives
                return await engine.trial.call(name, arguments, timeout=timeout)

    value = run_async(work())
    click.echo(json_text(value, indent=None if as_json else 2))


def _confirm(name: str) -> None:
    """Ask whether a call that may not be repeated is meant. Raises Refusal where nobody can be asked, or says no."""
    said = f"{name} may not be repeated: what it does is done"
    if not sys.stdin.isatty():
        raise Refusal(said, hint="add --yes to call it")
    if not click.confirm(f"{said}. Call it?", err=True):
        raise Refusal(f"{name} was not called", code=FAILED)


async def _tool(engine: Engine, name: str) -> Tool:
    """The tool of this name; servers are asked if nothing here has it. Raises Refusal."""
    from stepwell.definition.suggest import did_you_mean

    tool = engine.tools.get(name)
    if tool is None or "." in name:  # only its server knows what it takes, and whether it may be called again
        for problem in await engine.ask_servers():
            click.echo("\n".join(visible_lines(str(problem))), err=True)
        tool = engine.tools.get(name)
    if tool is None:
        hint = did_you_mean(name, engine.tools.names()) or f"`{program()} tools list` shows what there is"
        raise Refusal(f"there is no tool {name!r}", hint=hint, kind="not_found")
    return tool


def _told(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "idempotent": tool.idempotent,
        "parameters": tool.parameters,
    }


def _described(schema: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    required = set(schema.get("required") or ())
    for name, declared in (schema.get("properties") or {}).items():
        word = declared.get("type") or ("one of several" if "anyOf" in declared else declared.get("$ref", "any"))
        kind = " or ".join(word) if isinstance(word, list) else str(word).rpartition("/")[2]
        yield name if name in required else f"{name}?", kind, visible(str(declared.get("description") or ""))


def _arguments(schema: dict[str, Any]) -> str:
    required = set(schema.get("required") or ())
    names = [name if name in required else f"{name}?" for name in schema.get("properties") or {}]
    return ", ".join(names) or "-"


def _again(tool: dict[str, Any]) -> str:
    from stepwell.definition.http_call import HTTP

    if tool["name"] == HTTP:
        return "by its method"
    return "may be repeated" if tool["idempotent"] else "only once"


def _first_line(tool: dict[str, Any]) -> str:
    return visible(tool["description"].strip().partition("\n")[0])
