"""Following a run that another process carries on: its journal is read again and again, and told as events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.engine.events import Event, told_of
from stepwell.journal.entry import Entry, decode, read_body
from stepwell.journal.told import owner
from stepwell.ports import FINAL, PARKED

if TYPE_CHECKING:
    from stepwell.cli.screen import Screen
    from stepwell.engine.engine import Engine

Json: TypeAlias = Any

_PAUSE = 0.3
"""Seconds between two looks at the journal."""


async def tail(engine: Engine, run_id: str, screen: Screen, *, follow: bool, again: bool = True) -> None:
    """Tell what the journal holds (`again`) and what comes, until the run ends or parks (`follow`: until it ends)."""
    seen = 0
    told: set[str] = set()
    first = True
    while True:
        run = await engine.run(run_id)  # before the journal: what ended it is then in the journal
        fresh = [entry for entry in await engine.history(run_id) if entry.order > seen]
        for event in events_of(run_id, fresh):
            if again or not first:
                screen.event(event)
        seen = max((entry.order for entry in fresh), default=seen)
        for wait in await engine.waits(run_id=run_id):
            if wait.id not in told:
                told.add(wait.id)
                screen.event(_waiting(run_id, wait))
        first = False
        if run.status in FINAL or (run.status in PARKED and not follow):
            return
        await asyncio.sleep(_PAUSE)


def _waiting(run_id: str, wait: Any) -> Event:
    title = wait.request.get("title", "") if isinstance(wait.request, dict) else ""
    return Event("waiting", run_id, owner(wait.path), wait.opened, {"wait": wait.id, "kind": wait.kind, "title": title})


def events_of(run_id: str, entries: Iterable[Entry]) -> Iterator[Event]:
    """The events that entries tell of, as the engine would have told them."""
    for entry in entries:
        body = read_body(entry)
        tells = entry.kind == "started" or "/$" in entry.path
        value = decode(body.value) if tells and not body.value_ref else None
        told = told_of(entry.path, entry.kind, body, value)
        if told is not None:
            name, path, data = told
            yield Event(name, run_id, path, body.ended or body.started or entry.at, data)
            continue
        place = owner(entry.path)
        if entry.kind == "started" and entry.path.startswith(f"{place}/@"):  # a call that may not be repeated begins
            data = {"attempt": _number(entry.path, place)}
            yield Event("step_started", run_id, place, body.started or entry.at, data)


def _number(path: str, place: str) -> int:
    """The number of the attempt that an entry is about."""
    return int(path[len(place) + 2 :].partition("/")[0])
