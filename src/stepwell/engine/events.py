"""Events: what the engine says while it works, on its live branch only.

The law of the file: nobody listening costs nothing, and a listener can neither slow nor fail a run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from stepwell.journal.told import owner

if TYPE_CHECKING:
    from stepwell.journal.entry import Body, Draft

Json: TypeAlias = Any
BACKLOG = 10_000
"""Events kept for a listener that is slow; older ones are dropped and counted."""


TEXT = "model_text"
"""The event that tells what a model says while it says it; only for listeners that want it."""


class Event(NamedTuple):
    """Something that happened in a run, at UTC seconds `at`."""

    name: str
    run_id: str
    path: str
    at: float
    data: Mapping[str, Json] = MappingProxyType({})


class Listener:
    """One reader of a run's events, with or without what models say meanwhile."""

    def __init__(self, *, text: bool = False) -> None:
        self.text = text
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

    def listen(self, run_id: str, *, text: bool = False) -> Listener:
        listener = Listener(text=text)
        self._by_run.setdefault(run_id, []).append(listener)
        return listener

    def forget(self, run_id: str, listener: Listener) -> None:
        listeners = self._by_run.get(run_id, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._by_run.pop(run_id, None)

    async def events(self, run_id: str, *, text: bool = False) -> AsyncIterator[Event]:
        """What happens to a run from the first look on, until nothing more comes for now."""
        listener = self.listen(run_id, text=text)
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

    def wants_text(self, run_id: str) -> bool:
        """Whether answers of models are to be streamed, for somebody to see them come."""
        return any(listener.text for listener in self._by_run.get(run_id, ()))

    def emit(self, event: Event) -> None:
        for listener in self._by_run.get(event.run_id, ()):
            if listener.text or event.name != TEXT:
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


Told: TypeAlias = "tuple[str, str, dict[str, Json]] | None"


def told_by(draft: Draft) -> Told:
    """What an entry tells whoever listens: the event's name, path and data; None for what is of no interest."""
    tells = draft.kind == "started" or "/$" in draft.path
    value = draft.outcome().value if tells else None
    return told_of(draft.path, draft.kind, draft.body, value)


def told_of(path: str, kind: str, body: Body, value: Json = None) -> Told:
    """The same of an entry's parts; `value` is that of one that begins something, or of an agent's turn."""
    place = owner(path)
    mark = path[len(place) + 1 :]
    if kind == "started":
        return _begun(place, mark, body, value if isinstance(value, dict) else {})
    if mark[:1] == "$" and "/" not in mark:
        return _turned(place, mark[2:], body, value if isinstance(value, dict) else {})
    if not place or kind == "rewound" or not (mark == "" or (mark[0] == "@" and body.retry_at)):
        return None
    data = _facts(body)
    if body.ended and body.started:
        data["duration_ms"] = max(0, round((body.ended - body.started) * 1000))
    status = body.status or kind
    undone = (body.meta or {}).get("undoes")
    if undone is not None and status == "completed":
        return "step_compensated", str(undone), data
    return "step_retrying" if mark else _NAMES.get(status, status), place, data


def _turned(place: str, mark: str, body: Body, value: dict[str, Json]) -> Told:
    """What a turn of an agent step asks for, or how a call that it asked for ended."""
    number, _, index = mark.partition(".")
    data = _facts(body) | {"turn": int(number)}
    if index:
        return "tool_called", place, data | {"call": int(index)}
    return "turn_taken", place, data | {"calls": [call["name"] for call in value.get("calls", ())]}


def _begun(place: str, mark: str, body: Body, value: dict[str, Json]) -> Told:
    if mark == "~start":
        data: dict[str, Json] = {"attempt": body.attempts} if body.attempts else {}
        return "step_started", place, data | ({"items": len(value["over"])} if "over" in value else {})
    if mark == "~undo/~start":
        return "run_undoing", place, {"steps": [one["path"] for one in value.get("plan", ())], **_facts(body)}
    if mark[:1] == "!" and "strategy" in value:
        return "step_recovering", place, {"strategy": value["strategy"], **_facts(body)}
    return None


def _facts(body: Body) -> dict[str, Json]:
    words = ("attempts", "error", "reason", "retry_at", "meta")
    return {word: value for word in words if (value := getattr(body, word))}
