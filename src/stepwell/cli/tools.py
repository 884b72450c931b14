"""`stepwell tools`: the tools that a project's workflows can call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stepwell.cli import options
from stepwell.cli.command import Group
from stepwell.cli.opening import opened, run_async
from stepwell.cli.text import json_text, table, visible


@click.group(cls=Group, default="list", example="stepwell tools list --tools tools.py")
def tools() -> None:
    """List the tools that a workflow can call."""


@tools.command("list", example="stepwell tools list\nstepwell tools list --tools tools.py --json")
@options.tools
@options.database
@options.as_json
def list_tools(*, tools: tuple[Path, ...], database: str, as_json: bool) -> None:
    """List the tools of this project and of its MCP servers, with their arguments."""

    async def work() -> list[dict[str, Any]]:
        async with opened(database, tools=tools, missing="aside") as engine:
            for problem in await engine.ask_servers():
                click.echo(visible(str(problem)), err=True)
            known = [engine.tools.get(name) for name in engine.tools.names()]
            return [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "idempotent": tool.idempotent,
                    "parameters": tool.parameters,
                }
                for tool in known
                if tool is not None
            ]

    found = run_async(work())
    if as_json:
        click.echo(json_text(found, indent=2))
    elif not found:
        click.echo("no tools here; name files of them in stepwell.toml (tools = [...]) or with --tools FILE.py")
    else:
        rows = [(tool["name"], _arguments(tool["parameters"]), _again(tool), _first_line(tool)) for tool in found]
        click.echo("\n".join(table(rows, ["TOOL", "ARGUMENTS", "AGAIN", "WHAT IT DOES"])))


def _arguments(schema: dict[str, Any]) -> str:
    required = set(schema.get("required") or ())
    names = [name if name in required else f"{name}?" for name in schema.get("properties") or {}]
    return ", ".join(names) or "-"


def _again(tool: dict[str, Any]) -> str:
    return "may be repeated" if tool["idempotent"] else "only once"


def _first_line(tool: dict[str, Any]) -> str:
    return visible(tool["description"].strip().partition("\n")[0])
