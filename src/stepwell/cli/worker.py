"""`stepwell worker`: carries on whatever is due in a database, until it is stopped."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import click

from stepwell.cli import options
from stepwell.cli.command import Command
from stepwell.cli.opening import run_async, settings_at, tell_busy


@click.command(
    cls=Command, example="stepwell worker\nstepwell worker --database sqlite:////srv/stepwell.db --tools tools.py"
)
@options.tools
@options.database
def worker(*, tools: tuple[Path, ...], database: str) -> None:
    """Carry on every run of the database that is due: decided, woken by a time or an event, or left by a dead process.

    Stops on Ctrl-C or SIGTERM; what is in flight then gets a moment to end, and every run stays resumable.
    """
    run_async(_serve(tools, database))


async def _serve(tools: tuple[Path, ...], database: str) -> None:
    from stepwell.engine import open_engine
    from stepwell.testing.mocking import Mocks

    settings = settings_at()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    if sys.platform != "win32":  # there, Ctrl-C raises KeyboardInterrupt
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, stop.set)
    mocks = Mocks()
    opening = open_engine(database, settings=settings, tools=tools, serves=True, on_busy=tell_busy, over=mocks.over)
    async with opening as engine:
        mocks.use(engine)
        click.echo(f"serving {database or settings.database}; Ctrl-C stops it", err=True)
        await stop.wait()
        click.echo("stopping; every run stays resumable", err=True)
