"""Events in memory: what was told to an account, and what a run has made of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import count

from stepwell.ports import SentEvent
from stepwell.stores.memory.records import RunRecord, copied
from stepwell.stores.rules import EVENTS_KEPT, EVENTS_SWEPT, SWEEP_EVERY, unusable


@dataclass(slots=True)
class KeptEvent:
    """An event as it came; `received` decides how long it is kept, whatever the sender says of its time."""

    account: str
    event: SentEvent
    received: float

    def unread(self, records: Iterable[RunRecord]) -> bool:
        """Whether one of these runs was told of the event and has not read so."""
        return any(self.event.order in record.told() for record in records)


class EventLog:
    """The events of all accounts, in the order in which they came."""

    def __init__(self) -> None:
        self._events: dict[int, KeptEvent] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._orders = count(1)

    def add(self, account: str, event: SentEvent, now: float, records: Collection[RunRecord]) -> SentEvent | None:
        """Keep an event and give it its order; None for one that is kept already."""
        if (known := self._ids.get((account, event.id))) is not None:
            kept = self._events[known]
            if kept.received > now - EVENTS_KEPT or kept.unread(records):
                return None
            self._forget(kept)
        order = next(self._orders)
        stored = replace(event, data=copied(event.data), at=event.at or now, order=order)
        self._events[order] = KeptEvent(account, stored, now)
        self._ids[account, event.id] = order
        if order % SWEEP_EVERY == 0:
            for kept in list(self._events.values()):
                if kept.received <= now - EVENTS_SWEPT and not kept.unread(records):
                    self._forget(kept)
        return stored

    def unused(self, record: RunRecord, name: str, since: float, now: float) -> list[SentEvent]:
        """Events of a name that a run has not used."""
        return [
            kept.event
            for kept in self._events.values()
            if (kept.account, kept.event.name) == (record.run.account, name)
            and kept.event.at >= since
            and (kept.received > now - EVENTS_KEPT or kept.unread([record]))
            and kept.event.order not in record.used
        ]

    def refuse_used(self, record: RunRecord, orders: Iterable[int]) -> None:
        """Raises Conflict for an event that is not there, or that the run has used, or twice among these."""
        seen = set(record.used)
        for order in orders:
            kept = self._events.get(order)
            known = kept is not None and kept.account == record.run.account
            if not known or order in seen:
                raise unusable(order, record.run.id, known=known)
            seen.add(order)

    def _forget(self, kept: KeptEvent) -> None:
        del self._events[kept.event.order], self._ids[kept.account, kept.event.id]
