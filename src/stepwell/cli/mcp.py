"""`stepwell mcp`: workflows as tools for programs that speak the Model Context Protocol."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from pathlib import Path

import click

from stepwell.cli import options
from stepwell.cli.command import Command
from stepwell.cli.exits import Refusal
from stepwell.cli.opening import run_async, settings_at, tell_busy
from stepwell.cli.program import program
from stepwell.extras import installing


@click.command(cls=Command, example="stepwell mcp --as ana\nstepwell mcp --key file:/home/ana/.stepwell-key")
@click.option("--key", default="env:STEPWELL_KEY", metavar="SOURCE", help="A person's key: env:NAME or file:PATH.")
@options.acting
@options.tools
@options.database
def mcp(*, key: str, acting: str, tools: tuple[Path, ...], database: str) -> None:
    """Serve workflows, runs and approvals over MCP, on standard input and output; for the settings of an MCP client.

    With a person's key (`stepwell keys create NAME`) whoever uses the client acts as that person, and may decide what
    they may decide. Without one nothing can be decided, and runs are started as --as or STEPWELL_USER says. Runs are
    carried on for as long as it serves, as by `stepwell worker`.
    """
    if importlib.util.find_spec("mcp") is None:
        raise Refusal("the extra `mcp` is not installed", hint=installing("mcp"))
    run_async(_serve(_read(key), acting, tools, database))


def _read(source: str) -> str:
    """The key; "" if the variable that is looked at by itself is not set. Raises Refusal."""
    from stepwell.engine.secret import Secret

    kind, _, place = source.partition(":")
    if kind not in {"env", "file"} or not place:
        raise Refusal("--key is env:NAME or file:PATH, never the key itself; this is neither")
    found = Secret.of_environment(place, os.environ) if kind == "env" else Secret.of_file(Path(place))
    if found.missing and source != "env:STEPWELL_KEY":
        raise Refusal(f"there is no key: {found.missing}", hint=f"`{program()} keys create NAME` makes one")
    return found.reveal()


async def _serve(key: str, acting: str, tools: tuple[Path, ...], database: str) -> None:
    from stepwell.cli.acting import origin
    from stepwell.cli.mcp_tools import Offered
    from stepwell.engine import open_engine
    from stepwell.testing.mocking import Mocks

    settings, mocks = settings_at(), Mocks()
    opening = open_engine(database, settings=settings, tools=tools, serves=True, on_busy=tell_busy, over=mocks.over)
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.redirect_stdout(sys.stderr):  # what a tools file prints when it is loaded is no message of ours
            engine = await stack.enter_async_context(opening)
        mocks.use(engine)
        if key:
            who = await engine.people.of_key(key, channel="mcp", origin=origin())
        else:
            who = await engine.people.actor(acting or settings.user, channel="mcp", origin=origin())
        more = "" if key else ", who decides nothing without a key"
        click.echo(f"serving {database or settings.database} over MCP as {who.name}{more}", err=True)
        await Offered(engine, who, decides=bool(key)).server().run_stdio_async()
