"""Spending in memory: the model of what the spending of a store is.

The law of the file: no method awaits between looking and writing; sums are taken anew each time, so that they are right
by construction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from stepwell.ports import EVERY_REQUEST, AuditRecord, Limit, Reservation, Spent, Standing, Usage, UsageFilter, UsageKey
from stepwell.stores.memory.people import MemoryPeople
from stepwell.stores.spending_rules import day_of, higher, lets_in, raised

T = TypeVar("T")


@dataclass(slots=True)
class _Row:
    account: str
    asked: Reservation
    """With what counts: while it is open or lost the most, then what it took."""
    state: str
    day: str

    @property
    def tokens(self) -> int:
        return self.asked.input_tokens + self.asked.output_tokens

    def counts_for(self, limit: Limit) -> bool:
        """Whether a limit is about this request."""
        asked = self.asked
        if limit.scope == "run":
            inside = not limit.below or asked.path.startswith(f"{limit.below}/")
            return asked.run_id == limit.subject and inside
        subject = asked.workflow if limit.scope == "workflow" else ""
        return subject == limit.subject and self.day.startswith(limit.period)


class MemorySpending:
    """`Spending` in the memory of one process."""

    def __init__(self, people: MemoryPeople, clock: Callable[[], float]) -> None:
        self._people = people
        self._clock = clock
        self._rows: dict[tuple[str, str], _Row] = {}
        self._raised: dict[tuple[str, str, str, str, str], tuple[int | None, int | None]] = {}

    async def reserve(self, account: str, asked: Reservation, limits: Sequence[Limit]) -> Standing | None:
        now = self._clock()
        for row in self._of(account):
            late = row.asked.until <= now or (row.asked.run_id == asked.run_id and row.asked.epoch < asked.epoch)
            if row.state == "open" and late:
                row.state = "lost"
        for limit in limits:
            standing = self._standing(account, limit)
            if not lets_in(standing, asked):
                return standing
        self._rows.setdefault((account, asked.id), _Row(account, asked, "open", day_of(asked.at or now)))
        return None

    def settle(self, account: str, reservation_id: str, spent: Spent) -> Awaitable[bool]:
        row = self._rows.get((account, reservation_id))
        new = row is not None and row.state != "settled" and not (row.state == "lost" and spent.lost)
        if row is not None and new:
            row.state = "lost" if spent.lost else "settled"
            if not spent.lost:
                row.asked = _with(row.asked, spent)
        return _done(new)

    def record(self, account: str, asked: Reservation, spent: Spent) -> Awaitable[None]:
        at = asked.at or self._clock()
        told = replace(asked, at=at)
        took, state = (told, "lost") if spent.lost else (_with(told, spent), "settled")
        self._rows.setdefault((account, asked.id), _Row(account, took, state, day_of(at)))
        return _done(None)

    async def standings(self, account: str, limits: Sequence[Limit]) -> list[Standing]:
        return [self._standing(account, limit) for limit in limits]

    async def raise_to(self, account: str, limit: Limit, *, notes: Sequence[AuditRecord] = ()) -> Limit:
        place = (account, limit.scope, limit.subject, limit.below, limit.period)
        tokens, nano_usd = self._raised.get(place, (None, None))
        self._raised[place] = held = (higher(tokens, limit.tokens), higher(nano_usd, limit.nano_usd))
        self._people.keep(account, notes)
        return replace(limit, tokens=held[0], nano_usd=held[1])

    async def usage(self, account: str, by: UsageKey, which: UsageFilter = EVERY_REQUEST) -> list[Usage]:
        found: dict[str, Usage] = {}
        for row in self._of(account):
            asked = row.asked
            if row.state == "open" or not _meant(asked, which):
                continue
            keys = {
                "workflow": asked.workflow,
                "model": asked.model,
                "day": row.day,
                "run": asked.run_id,
                "step": asked.path.partition("/$")[0],
                "attempt": f"{asked.path}/@{asked.attempt}",
            }
            sums = found.get(keys[by], Usage(keys[by]))
            found[keys[by]] = Usage(
                keys[by],
                sums.requests + 1,
                sums.input_tokens + asked.input_tokens,
                sums.output_tokens + asked.output_tokens,
                sums.nano_usd + (asked.nano_usd or 0),
                sums.lost + (row.state == "lost"),
                sums.unpriced + (row.tokens if asked.nano_usd is None else 0),
            )
        return [found[key] for key in sorted(found)]

    def _of(self, account: str) -> Iterator[_Row]:
        return (row for row in self._rows.values() if row.account == account)

    def _standing(self, account: str, limit: Limit) -> Standing:
        held = self._raised.get((account, limit.scope, limit.subject, limit.below, limit.period), (None, None))
        rows = [row for row in self._of(account) if row.counts_for(limit)]
        spent = [row for row in rows if row.state != "open"]
        still = [row for row in rows if row.state == "open"]
        return Standing(
            raised(limit, *held),
            sum(row.tokens for row in spent),
            sum(row.asked.nano_usd or 0 for row in spent),
            sum(row.tokens for row in still),
            sum(row.asked.nano_usd or 0 for row in still),
        )


def _with(asked: Reservation, spent: Spent) -> Reservation:
    return replace(asked, input_tokens=spent.input_tokens, output_tokens=spent.output_tokens, nano_usd=spent.nano_usd)


def _meant(asked: Reservation, which: UsageFilter) -> bool:
    if which.run_ids and asked.run_id not in which.run_ids:
        return False
    if which.workflow not in {"", asked.workflow}:
        return False
    return which.since <= asked.at and (not which.before or asked.at < which.before)


def _done(value: T) -> Awaitable[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future
