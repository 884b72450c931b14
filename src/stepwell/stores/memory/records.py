"""What the store in memory keeps, and the rules of it that need no clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import msgspec

from stepwell.errors import Conflict
from stepwell.journal.entry import Entry
from stepwell.ports import Lease, Message, NewRun, Run, Wait

Json: TypeAlias = Any
T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_canonical = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


def copied(value: Json) -> Json:
    """A value as it comes back from JSON text, which shares nothing with the original."""
    return _decode(_encode(value))


def equal(first: Json, second: Json) -> bool:
    """Whether two values are the same JSON, whatever the order of keys."""
    return _canonical(first) == _canonical(second)


def queued(new: NewRun, now: float) -> Run:
    """The run that is to be created."""
    return Run(
        id=new.id,
        account=new.account,
        workflow=new.workflow,
        version=new.version,
        definition=new.definition,
        input=copied(new.input),
        status="queued",
        requester=new.requester,
        project=copied(new.project),
        idempotency_key=new.idempotency_key,
        created=new.created or now,
        lane=new.lane,
    )


def same(there: Run, new: NewRun) -> Run:
    """The run that has the idempotency key already. Raises Conflict if it is another."""
    if there.definition != new.definition or not equal(there.input, new.input):
        raise Conflict(
            f"the idempotency key {new.idempotency_key} belongs to run {there.id}, whose definition or input differs",
            {"run": there.id},
        )
    return there


@dataclass(slots=True)
class RunRecord:
    """A run with all that belongs to it. `due` is None for an owned run and for one that only a message wakes."""

    key: int
    run: Run
    due: float | None = 0.0
    owned: bool = False
    lease_until: float = 0.0
    entries: dict[tuple[str, int], Entry] = field(default_factory=dict)
    waits: dict[tuple[str, int], Wait] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    consumed: set[int] = field(default_factory=set)
    lane_limit: int = 0
    used: set[int] = field(default_factory=set)
    told_by: dict[int, int] = field(default_factory=dict)
    """Which event a message tells of, by the orders of both."""

    def change(self, **fields: Json) -> None:
        """Give the run other values."""
        self.run = replace(self.run, **fields)

    def lease(self, owner: str) -> Lease:
        """The lease as of now."""
        return Lease(self.run.id, self.run.account, self.key, self.run.epoch, owner)

    def unread(self, after: int = 0) -> list[Message]:
        """Messages that came after `after` and that nobody has consumed."""
        return [message for message in self.messages if message.order > after and message.order not in self.consumed]

    def told(self) -> set[int]:
        """Orders of the events that unread messages tell of."""
        return {event for message, event in self.told_by.items() if message not in self.consumed}

    def pending(self) -> Iterator[Wait]:
        """Waits that are open, oldest first."""
        return (wait for wait in list(self.waits.values()) if wait.status == "pending")

    def put(self, wait: Wait) -> None:
        """Keep a wait as it is now."""
        self.waits[wait.path, wait.generation] = wait

    def refuse_recorded(self, entries: list[Entry]) -> None:
        """Raises Conflict if an entry is there already, or twice among these."""
        seen: set[tuple[str, int]] = set()
        for entry in entries:
            if (entry.path, entry.generation) in seen or (entry.path, entry.generation) in self.entries:
                raise Conflict(
                    f"{entry.path} is already recorded", {"path": entry.path, "generation": entry.generation}
                )
            seen.add((entry.path, entry.generation))

    def open_entries(self) -> list[Entry]:
        """The entries that have no settled ancestor, in order; all of a run that was made to go back."""
        if self.run.generation:
            return sorted(self.entries.values(), key=lambda entry: entry.order)
        newest: dict[str, Entry] = {}
        for entry in sorted(self.entries.values(), key=lambda entry: entry.generation):
            newest[entry.path] = entry
        settled = {path for path, entry in newest.items() if entry.kind == "settled"}
        found = [entry for path, entry in newest.items() if not any(above in settled for above in _ancestors(path))]
        return sorted(found, key=lambda entry: entry.order)

    def lapsed(self, worker: str, uptime: float, renewed: float) -> bool:
        """Whether an owned run was given up: its lease has run out, for its own worker when it last renewed leases."""
        return self.lease_until <= (renewed if self.run.owner == worker else uptime)


def _ancestors(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path
