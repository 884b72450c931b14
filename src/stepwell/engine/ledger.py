"""The ledger of a pass: what the journal says, and what is being added to it.

The law of the file: a fact is remembered only once it is durable; what can be derived again rides with the next append.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.journal.entry import Body, Draft, Entry, Outcome
from stepwell.journal.fold import Fold
from stepwell.ports import Batch

if TYPE_CHECKING:
    from stepwell.ports import Lease, Loaded, Outgoing, RunStore

Json: TypeAlias = Any


class Ledger:
    """Outcomes by path, rounds, and the entries that ride. `told` hears of every entry that counts."""

    def __init__(
        self,
        lease: Lease,
        loaded: Loaded,
        store: RunStore,
        told: Callable[[Draft], None],
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.handed: set[str] = set()
        """Paths handed to the store and not acknowledged: after an abort nobody knows here whether they are written."""
        self._lease = lease
        self._run = loaded.run
        self._store = store
        self._told = told
        self.fold = Fold(loaded.entries, self._fetch)
        self.outcomes = self.fold.outcomes
        self.remember = self.fold.remember
        self.has_begun = self.fold.has_begun
        self._live: set[str] = set()
        self._riders: list[Draft] = []
        self._active_before = max(loaded.run.active, self.fold.active)
        self._clock = clock
        self._monotonic = monotonic
        self._since = monotonic()
        self._idle = False

    def _fetch(self, digest: str) -> bytes:
        return self._store.blob_now(self._run.account, digest)

    def freshen(self, path: str) -> None:
        """Note that something new happens at a path in this pass."""
        live = self._live
        while path not in live:
            live.add(path)
            path = path.rpartition("/")[0]

    def is_live(self, path: str) -> bool:
        return path in self._live

    def active(self) -> float:
        """Active seconds of the run so far."""
        return self._active_before + (0.0 if self._idle else self._monotonic() - self._since)

    def set_idle(self, idle: bool) -> None:  # noqa: FBT001 -- the one thing that a change of it says
        """Stop the active clock, or let it go on."""
        if idle and not self._idle:
            self._active_before = self.active()
        elif self._idle and not idle:
            self._since = self._monotonic()
        self._idle = idle

    @property
    def rides(self) -> bool:
        return bool(self._riders)

    def ride(self, draft: Draft, *, quietly: bool = False) -> Outcome:
        """Record something that can be derived again; it becomes durable with the next append."""
        self._date(draft.body)
        outcome = draft.outcome()
        self._riders.append(draft)
        self.freshen(draft.path)
        self.remember(draft.path, outcome)
        if not quietly:
            self._told(draft)
        return outcome

    async def record(self, draft: Draft, *, outgoing: Sequence[Outgoing] = (), also: Batch | None = None) -> Outcome:
        """Record a fact with what rides and what belongs to it; returns when it is durable, with its order."""
        riders, self._riders = self._riders, []
        entries = [self._entry(rider) for rider in riders]
        entries.append(self._entry(draft))
        self.handed.add(draft.path)
        self.freshen(draft.path)
        batch = Batch(entries, outgoing=outgoing) if also is None else replace(also, entries=entries)
        order = await self._store.append(self._lease, batch)
        self.handed.discard(draft.path)
        outcome = draft.outcome()
        outcome.order = order + len(riders)
        for number, rider in enumerate(riders):
            self.outcomes[rider.path].order = order + number
        self.remember(draft.path, outcome)
        self._told(draft)
        return outcome

    def _entry(self, draft: Draft) -> Entry:
        self._date(draft.body)
        return draft.entry(generation=self._run.generation, at=self._clock())

    def _date(self, body: Body) -> None:
        """Note how long the run was active; what began in an earlier pass ends after it began, whatever clocks say."""
        body.active = round(self.active(), 3)
        if body.ended and body.ended < body.started:
            body.ended = body.started

    def closing(self) -> list[Entry]:
        """What still rides, for a transaction that somebody else makes."""
        riders, self._riders = self._riders, []
        return [self._entry(rider) for rider in riders]

    async def rewind(self, block: str, cause: str, stale: Sequence[str], failed: Draft) -> None:
        """Record that `cause` failed and why every step of `stale` starts another round."""
        draft = Draft(f"{cause}/~rewound", "rewound", Body(started=self._clock()))
        draft.value({"block": block, "cause": cause, "stale": list(stale)})
        self.ride(failed)
        outcome = await self.record(draft)
        self.fold.rewound(outcome.value)
