"""Events: what the engine says while it works, on its live branch only.

The law of the file: nobody listening costs nothing, and a listener can neither slow nor fail a run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from stepwell.journal.entry import Draft

Json: TypeAlias = Any
BACKLOG = 10_000
"""Events kept for a listener that is slow; older ones are dropped and counted."""


class Event(NamedTuple):
    """Something that happened in a run, at UTC seconds `at`."""

    name: str
    run_id: str
    path: str
    at: float
    data: Mapping[str, Json] = MappingProxyType({})


class Listener:
    """One reader of a run's events."""

    def __init__(self) -> None:
        self.told: deque[Event | None] = deque()
        """What was not read yet; None stands for the end."""
        self.dropped = 0
        self._reader: asyncio.Future[None] | None = None

    def put(self, event: Event | None) -> None:
        if len(self.told) >= BACKLOG:
            self.told.popleft()
            self.dropped += 1
        self.told.append(event)
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)

    async def more(self) -> None:
        """Return once something is told."""
        if not self.told:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader


class Listeners:
    """Who listens to which run."""

    def __init__(self) -> None:
        self._by_run: dict[str, list[Listener]] = {}

    def listen(self, run_id: str) -> Listener:
        listener = Listener()
        self._by_run.setdefault(run_id, []).append(listener)
        return listener

    def forget(self, run_id: str, listener: Listener) -> None:
        listeners = self._by_run.get(run_id, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._by_run.pop(run_id, None)

    async def events(self, run_id: str) -> AsyncIterator[Event]:
        """What happens to a run from the first look on, until nothing more comes for now."""
        listener = self.listen(run_id)
        told = listener.told
        try:
            while True:
                await listener.more()
                while told:
                    if (event := told.popleft()) is None:
                        return
                    yield event
        finally:
            self.forget(run_id, listener)

    def wanted(self, run_id: str) -> bool:
        return run_id in self._by_run

    def emit(self, event: Event) -> None:
        for listener in self._by_run.get(event.run_id, ()):
            listener.put(event)

    def close(self, run_id: str) -> None:
        """Tell every listener of a run that nothing more comes for now."""
        for listener in self._by_run.get(run_id, ()):
            listener.put(None)


_NAMES = {
    "succeeded": "step_completed",
    "failed": "step_failed",
    "cancelled": "step_cancelled",
    "completed": "step_completed",
    "skipped": "step_skipped",
}


def told_by(draft: Draft) -> tuple[str, str, dict[str, Json]] | None:
    """What an entry tells whoever listens: the event's name, path and data; None for what is of no interest."""
    body, path = draft.body, draft.path
    if path.endswith("/?") or "/~" in path.removesuffix("/~start"):
        return None
    if draft.kind == "started":
        if not path.endswith("/~start") or "/@" in path:
            return None
        said = draft.outcome().value
        items = len(said["over"]) if isinstance(said, dict) and "over" in said else None
        return "step_started", path.removesuffix("/~start"), {} if items is None else {"items": items}
    status = body.status or draft.kind
    data: dict[str, Json] = {
        name: value for name in ("attempts", "error", "reason", "retry_at", "meta") if (value := getattr(body, name))
    }
    if body.ended and body.started:
        data["duration_ms"] = max(0, round((body.ended - body.started) * 1000))
    name = "step_retrying" if "/@" in path else _NAMES.get(status, status)
    return name, path.partition("/@")[0], data
