"""Following a run to where it ends or parks, with ctrl-C as "park it": used by everything that carries runs on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli import aftermath, exits
from stepwell.cli.incident_view import doubt_lines, place_of, way_lines
from stepwell.cli.lines import ended_why, error_text
from stepwell.cli.program import program
from stepwell.cli.screen import JsonScreen, Screen
from stepwell.cli.text import json_text, visible, visible_lines
from stepwell.errors import Conflict
from stepwell.journal.view import instant, wait_json
from stepwell.ports import FINAL

if TYPE_CHECKING:
    from stepwell.engine.engine import Engine, RunHandle
    from stepwell.journal.view import RunTree
    from stepwell.ports import Run, Wait
    from stepwell.testing.mocking import Mocks

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Ending:
    """How following ended. `waits` are the open ones of a parked run."""

    run: Run
    waits: tuple[Wait, ...] = ()
    tree: RunTree | None = None
    """Its view, for a run that ended otherwise than well."""
    interrupted: bool = False

    @property
    def code(self) -> int:
        if self.interrupted and self.run.status not in FINAL:
            return exits.INTERRUPTED
        return exits.of_status(self.run.status)


@contextlib.contextmanager
def stopping() -> Iterator[asyncio.Event]:
    """An event that ctrl-C (and SIGTERM) set instead of ending the process; a second one ends it."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def follow(
    engine: Engine, handle: RunHandle, screen: Screen, *, watch: bool = False, mocks: Mocks | None = None
) -> Ending:
    """Show a run until it ends or parks (`watch`: until it ends); ctrl-C parks it.

    A parked run for which `mocks` have something to come is gone on with.

    Nothing may be awaited between the start of the run and this, or its first events go unseen.
    """
    with stopping() as stop:
        counting = _Counting(screen)
        more = mocks if mocks is not None and mocks.has(handle.run_id) else None
        reading = asyncio.create_task(counting.read(handle, watch=watch or more is not None))
        waiting = asyncio.create_task(_until(handle, more, watch=watch))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                screen.say("parking the run …")
                await handle.park()
            elif (problem := waiting.exception()) is not None:
                raise problem
            await _drain(reading, counting)
        finally:
            for task in (reading, waiting, stopped):
                task.cancel()
            await asyncio.gather(reading, waiting, stopped, return_exceptions=True)
            await screen.end()
    return await ending_of(engine, handle.run_id, interrupted=stop.is_set())


async def _until(handle: RunHandle, mocks: Mocks | None, *, watch: bool) -> Run:
    run = await handle.wait(until_final=watch)
    while mocks is not None and run.status not in FINAL and await mocks.something_comes(run.id):
        with contextlib.suppress(Conflict):  # what came has ended it, or another process goes on with it
            await handle.engine.resume(run.id)
        run = await handle.wait(until_final=watch)
    return run


async def ending_of(engine: Engine, run_id: str, *, interrupted: bool = False) -> Ending:
    """How a run stands that nobody follows."""
    run = await engine.run(run_id)
    waits: list[Wait] = [] if run.status in FINAL else await engine.waits(run_id=run.id)
    if run.status == "suspended":
        from stepwell.engine.incidents import Filter

        waits = [*await engine.incidents.open(Filter(run.id)), *waits]
    wrong = run.status in FINAL and run.status != "completed"
    return Ending(run, tuple(waits), await engine.tree(run.id) if wrong else None, interrupted=interrupted)


class _Counting:
    """Counts what a screen was told, to see when nothing more comes."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.seen = 0

    async def read(self, handle: RunHandle, *, watch: bool) -> None:
        while True:
            async for event in handle.events(text=self.screen.wants_text):
                self.seen += 1
                self.screen.event(event)
            if not watch:
                return


async def _drain(reading: asyncio.Task[None], counting: _Counting) -> None:
    """Let what was told before the end be shown; a run that was not carried on here never says that it ended."""
    seen = -1
    while not reading.done() and seen != counting.seen:
        seen = counting.seen
        await asyncio.wait({reading}, timeout=0.2)


def tell_ending(ending: Ending, screen: Screen, tail: str = "") -> None:
    """Print how it ended, and what can be done about it; `tail` follows each command that is suggested."""
    if isinstance(screen, JsonScreen):
        screen.emit(_ending_json(ending))
        return
    run = ending.run
    match run.status:
        case "completed":
            click.echo(click.style("completed", fg="green", bold=True))
            _print_output(run.output)
        case "failed" | "timed_out" | "compensated" | "cancelled":
            error = ended_why(run)
            place = f"  at {visible(run.error['path'])}" if run.error and run.error.get("path") else ""
            click.echo(f"{click.style(run.status.replace('_', ' '), fg='red', bold=True)}  {error}{place}".rstrip())
            for line in _left(ending):
                click.echo(f"  {line}")
            click.echo(f"  details: {program()} runs show {run.id}{tail}")
            if run.status in {"failed", "timed_out"} and not _is_undone(ending):
                click.echo(f"  go on from there: {program()} runs redrive {run.id}{tail}")
        case "pending_approval":
            _print_waits(ending, tail)
        case "waiting":
            _print_sleep(ending, tail)
        case "suspended":
            _print_incidents(ending, tail)
            _print_waits(ending, tail)
        case "stuck":
            error = f"  {error_text(run.error)}" if run.error else ""
            click.echo(f"{click.style(run.status, fg='red', bold=True)}{error}")
            click.echo(f"  details: {program()} runs show {run.id}{tail}")
        case _:
            click.echo(f"{click.style('parked', fg='yellow', bold=True)}  nothing is lost; go on with:")
            click.echo(f"  {program()} runs resume {run.id}{tail}")


def _left(ending: Ending) -> Iterator[str]:
    """What is left behind by a run that ended otherwise than well."""
    if ending.tree is not None:
        yield from aftermath.undone_lines(ending.tree)
        yield from aftermath.doubt_lines(ending.tree)


def _is_undone(ending: Ending) -> bool:
    return ending.tree is not None and ending.tree.story.undoing is not None


def _ending_json(ending: Ending) -> dict[str, Json]:
    run = ending.run
    last: dict[str, Json] = {"run": run.id, "event": "run_ended" if run.status in FINAL else "run_parked"}
    last |= {"path": "", "at": instant(run.ended or time.time()), "status": run.status}
    if run.status == "completed":
        last["output"] = run.output
    elif run.error is not None:
        last["error"] = run.error
    if run.status not in FINAL:
        last["waits"] = [wait_json(wait) for wait in ending.waits]
        last["wake_at"] = instant(run.wake_at)
    return last


def _print_output(output: Json) -> None:
    if output is None:
        return
    text = output if isinstance(output, str) else json_text(output, indent=2)
    click.echo("\n".join(visible_lines(text)))


def _print_waits(ending: Ending, tail: str) -> None:
    for wait in ending.waits:
        if wait.kind != "approval":
            continue
        title = wait.request.get("title") if isinstance(wait.request, dict) else ""
        until = f", until {instant(wait.deadline)}" if wait.deadline else ""
        head = click.style("waits for a person", fg="magenta", bold=True)
        click.echo(f"{head}  {visible(title or wait.path)}{until}")
        click.echo(f"  look:    {program()} approvals show {wait.id}{tail}")
        form = " -d NAME=VALUE" if isinstance(wait.request, dict) and wait.request.get("form") else ""
        click.echo(f"  approve: {program()} approvals approve {wait.id}{form}{tail}")
        click.echo(f"  reject:  {program()} approvals reject {wait.id} --comment WHY{tail}")
        if isinstance(wait.request, dict) and "changes_requested" in (wait.request.get("decisions") or ()):
            click.echo(f"  changes: {program()} approvals changes {wait.id} --comment WHAT{tail}")


_MOST = 5
"""Incidents that are told one by one."""


def _print_incidents(ending: Ending, tail: str) -> None:
    found = [wait for wait in ending.waits if wait.kind == "incident"]
    for wait in found[:_MOST]:
        head = click.style("suspended", fg="red", bold=True)
        click.echo(f"{head}  {visible(wait.request['title'])}  at {visible(place_of(wait))}")
        for line in doubt_lines(wait):
            click.echo(f"  {line}")
        click.echo(f"  {'look:':<12}{program()} incidents show {wait.id}{tail}")
        for line in way_lines(wait, tail, told=False):
            click.echo(f"  {line}")
    if len(found) > _MOST:
        click.echo(f"… and {len(found) - _MOST} more: {program()} incidents list --run {ending.run.id}{tail}")
    if len(found) > 1:
        click.echo(f"  all at once: {program()} incidents retry --run {ending.run.id} --all{tail}")


def _print_sleep(ending: Ending, tail: str) -> None:
    deadlines = [wait.deadline for wait in ending.waits if wait.deadline] + [ending.run.wake_at]
    until = instant(min((at for at in deadlines if at), default=0.0))
    click.echo(f"{click.style('waits', fg='cyan', bold=True)}  until {until or 'something happens'}")
    click.echo(f"  stay with it: {program()} runs resume {ending.run.id} --wait{tail}")
