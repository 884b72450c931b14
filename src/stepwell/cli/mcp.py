"""`stepwell mcp`: workflows as tools for programs that speak the Model Context Protocol."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path

import click

from stepwell.cli import options
from stepwell.cli.command import Command
from stepwell.cli.exits import Refusal
from stepwell.cli.opening import run_async, settings_at, tell_busy
from stepwell.extras import installing


@click.command(cls=Command, example="stepwell mcp --as ana\nstepwell mcp --database sqlite:////srv/x.db --as ana")
@options.acting
@options.tools
@options.database
def mcp(*, acting: str, tools: tuple[Path, ...], database: str) -> None:
    """Serve workflows, runs and approvals over MCP, on standard input and output; for the settings of an MCP client.

    Whoever uses the client acts as the person of --as or STEPWELL_USER; without one, nothing can be decided. Runs are
    carried on for as long as it serves, as by `stepwell worker`.
    """
    if importlib.util.find_spec("mcp") is None:
        raise Refusal("the extra `mcp` is not installed", hint=installing("mcp"))
    run_async(_serve(acting, tools, database))


async def _serve(acting: str, tools: tuple[Path, ...], database: str) -> None:
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
        who = await engine.people.actor(acting or settings.user, channel="mcp", origin=origin())
        click.echo(f"serving {database or settings.database} over MCP as {who.name}", err=True)
        await Offered(engine, who).server().run_stdio_async()
