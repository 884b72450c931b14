"""The run store in memory: the model of what a run store is, for tests and for runs that need not last.

The law of the file: no method awaits between looking and writing, so each is one transaction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, TypeAlias

from stepwell.errors import Conflict
from stepwell.ports import (
    FINAL,
    PARKED,
    RUNNABLE,
    AuditRecord,
    Batch,
    Lease,
    Loaded,
    Message,
    NewRun,
    Reopening,
    Repin,
    Run,
    SentEvent,
    Verdict,
)
from stepwell.stores.announcements import Seen
from stepwell.stores.liveness import boot_seconds
from stepwell.stores.memory.events import EventLog
from stepwell.stores.memory.lanes import Lanes
from stepwell.stores.memory.records import RunRecord, copied, queued, same
from stepwell.stores.memory.spending import MemorySpending
from stepwell.stores.memory.waits import Waits
from stepwell.stores.rules import (
    BEING_UNDONE,
    JUST_DUE,
    SATISFIED,
    being_undone,
    check_lane,
    refuse_carried,
    refuse_moved,
    replaced_by,
    sets_time,
    told_of,
)

Json: TypeAlias = Any


class MemoryRunStore(Waits):
    """`RunStore` in the memory of one process. See `SqliteRunStore` for `clock` and `uptime`."""

    def __init__(self, *, clock: Callable[[], float] = time.time, uptime: Callable[[], float] = boot_seconds) -> None:
        super().__init__(clock, uptime)
        self.spending = MemorySpending(self.people, clock)
        self._renewed = 0.0
        self._events = EventLog()
        self._runs_by_key: dict[tuple[str, str, str], RunRecord] = {}
        self._lanes = Lanes()
        self._order = count(1)
        self._seen = Seen()

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def create(self, run: NewRun, *, notes: Sequence[AuditRecord] = ()) -> tuple[Run, bool]:
        check_lane(run)
        key = (run.account, run.workflow, run.idempotency_key)
        if run.idempotency_key and key in self._runs_by_key:
            return same(self._runs_by_key[key].run, run), False
        if run.id in self._records:
            raise Conflict(f"there is a run {run.id} already")
        full = bool(run.lane) and self._lanes.refuse_full(run)
        stored = queued(run, now := self._clock())
        record = self._records[run.id] = RunRecord(len(self._records) + 1, stored, lane_limit=run.lane_limit)
        self._dues.add(0.0, record, record.key)
        for entry in run.seed:
            record.entries[entry.path, 0] = replace(entry, generation=0, order=next(self._order), blobs=())
            for digest, text in entry.blobs:
                self._blobs.setdefault((run.account, digest), text)
        if run.idempotency_key:
            self._runs_by_key[key] = record
        if run.lane:
            above = self._lanes.enter(record)
            for replaced in above if full and run.on_limit == "cancel_oldest" else ():
                if not any(message.kind == "cancel" for message in replaced.unread()):
                    self._tell(replaced, Message(replaced.run.id, "cancel", body=replaced_by(run), at=now))
        self.people.keep(run.account, notes)
        self._beats.announce()
        return stored, True

    # ── leases ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(
        self, worker: str, ttl: float, *, limit: int = 1, run_id: str = "", due_only: bool = False
    ) -> list[Lease]:
        if run_id:
            found = self._records.get(run_id)
            return [] if found is None else self._claimed(found, worker, ttl, due_only=due_only)
        now = self._clock()
        self._sweep(now)
        uptime = self._uptime()
        lapsed = [record for record in self._owned.values() if record.lapsed(worker, uptime, self._renewed)]
        lapsed.sort(key=lambda record: (record.lease_until, record.key))
        taken = [self._take(record, worker, uptime + ttl) for record in lapsed[:limit]]
        passed_over = []
        due = self._dues.due(now)
        while len(taken) < limit and (next_one := next(due, None)) is not None:
            if self._lanes.has_turn(next_one):
                taken.append(self._take(next_one, worker, uptime + ttl))
            else:
                passed_over.append(next_one)
        for record in passed_over:
            self._dues.add(0.0, record, record.key)
        return taken

    def _claimed(self, record: RunRecord, worker: str, ttl: float, *, due_only: bool) -> list[Lease]:
        now, uptime = self._clock(), self._uptime()
        self._sweep_run(record, now)
        if record.owned:
            free = record.lapsed(worker, uptime, self._renewed)
        else:
            free = not due_only or (record.due is not None and record.due <= now)
        if not free or record.run.status in FINAL or not self._lanes.may_begin(record):
            return []
        return [self._take(record, worker, uptime + ttl)]

    def _take(self, record: RunRecord, worker: str, until: float) -> Lease:
        record.owned, record.due, record.lease_until = True, None, until
        self._owned[record.run.id] = record
        started = record.run.started or self._clock()
        record.change(status="running", epoch=record.run.epoch + 1, owner=worker, wake_at=0.0, started=started)
        return record.lease(worker)

    async def next_due(self) -> float:
        after = max(0.0, self._clock() - JUST_DUE)
        timed = (self._deadlines.next(after), self._reminders.next(after), self._dues.next(after))
        return min((instant for instant in timed if instant), default=0.0)

    async def renew(self, leases: Sequence[Lease], ttl: float) -> list[Lease]:
        lost = []
        uptime = self._uptime()
        for lease in leases:
            record = self._records.get(lease.run_id)
            if record is None or not record.owned or record.run.epoch != lease.epoch:
                lost.append(lease)
            else:
                record.lease_until = uptime + ttl
        self._renewed = max(self._renewed, uptime)
        return lost

    async def load(self, lease: Lease) -> Loaded:
        record = self._leased(lease)
        return Loaded(record.run, record.open_entries(), record.unread(), list(record.pending()))

    # ── a pass ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, lease: Lease, batch: Batch) -> Awaitable[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self._append(lease, batch))
        except BaseException as error:  # noqa: BLE001 -- it reaches whoever awaits the result, as the port says
            future.set_exception(error)
        return future

    def _append(self, lease: Lease, batch: Batch) -> int:
        record = self._leased(lease)
        record.refuse_recorded(list(batch.entries))
        opened = [wait for wait in batch.open if (wait.path, wait.generation) not in record.waits]
        if any((lease.account, wait.id) in self._places for wait in opened):
            raise Conflict(f"run {lease.run_id}: an id of a wait is taken")
        self._events.refuse_used(record, batch.used)
        now = self._clock()
        stored = [replace(entry, order=next(self._order), at=entry.at or now, blobs=()) for entry in batch.entries]
        for entry in stored:
            record.entries[entry.path, entry.generation] = entry
        for digest, text in (blob for entry in batch.entries for blob in entry.blobs):
            self._blobs.setdefault((lease.account, digest), text)
        for wait in opened:
            run = record.run
            place = (run.id, wait.path, wait.generation)
            self._places[run.account, wait.id] = self._pending[run.account, wait.id] = place
            kept_wait = replace(
                wait, request=copied(wait.request), opened=wait.opened or now, status="pending", decision=None,
                decided=0.0, run_id=run.id, account=run.account, workflow=run.workflow, rules=copied(wait.rules),
                votes=(),
            )  # fmt: skip
            self._keep(record, kept_wait)
        if sets_time(batch):
            self._beats.announce()
        for wait in record.pending() if batch.satisfied else ():
            if wait.kind == "event" and wait.path in batch.satisfied:
                self._close(record, wait, "decided", copied(SATISFIED), now)
        record.used.update(batch.used)
        record.consumed.update(batch.consume)
        self._send(record, batch.outgoing, now)
        return stored[0].order if stored else 0

    async def withdraw(self, lease: Lease, paths: Sequence[str], reason: str) -> list[str]:
        record = self._leased(lease)
        for wait in record.pending():
            if wait.path in paths:
                self._close(record, wait, "withdrawn", {"reason": reason})
        newest = {wait.path: wait for wait in sorted(record.waits.values(), key=lambda wait: wait.generation)}
        return [path for path in paths if path in newest and newest[path].status == "withdrawn"]

    async def inbox(self, lease: Lease, after: int) -> list[Message]:
        return self._record(lease.account, lease.run_id).unread(after)

    async def arrived(self, worker: str) -> list[Message]:
        held = (record for record in self._owned.values() if record.run.owner == worker)
        return sorted((message for record in held for message in record.unread()), key=lambda message: message.order)

    async def release(self, lease: Lease, batch: Batch, verdict: Verdict) -> bool:
        self._append(lease, batch)
        record = self._leased(lease)
        record_due: float | None = None
        ended = verdict.ended
        if verdict.status in PARKED:
            if record.unread(verdict.seen):
                return False
            record_due = verdict.wake_at or None
        elif verdict.status in RUNNABLE:
            record_due = 0.0
        else:
            ended = ended or self._clock()
            for wait in record.pending():
                self._close(record, wait, "cancelled", None, ended)
            record.told_by.clear()
            self._lanes.leave(record)
        record.owned, record.due, record.lease_until = False, record_due, 0.0
        self._owned.pop(record.run.id, None)
        if record_due is not None:
            self._dues.add(record_due, record, record.key)
        record.change(
            status=verdict.status,
            output=copied(verdict.output),
            error=copied(verdict.error),
            wake_at=verdict.wake_at,
            active=verdict.active,
            usage=copied(verdict.usage),
            ended=ended,
            epoch=record.run.epoch + 1,
            owner="",
        )
        self._beats.announce()
        return True

    # ── messages and waits ───────────────────────────────────────────────────────────────────────────────────────────

    async def post(self, account: str, message: Message, *, notes: Sequence[AuditRecord] = ()) -> Message:
        record = self._record(account, message.run_id)
        if record.run.status in FINAL:
            status = record.run.status
            raise Conflict(f"run {message.run_id} has ended: {status}", {"status": status})
        if message.kind == "cancel" and any(path == BEING_UNDONE for path, _ in record.entries):
            raise being_undone(message.run_id)
        self.people.keep(account, notes)
        return self._tell(record, replace(message, body=copied(message.body), at=message.at or self._clock()))

    async def reopen(self, account: str, run_id: str, back: Reopening, *, notes: Sequence[AuditRecord] = ()) -> Run:
        record = self._record(account, run_id)
        refuse_carried(record.run, back, unread=bool(record.unread()))
        for wait in record.pending():
            if wait.path in back.withdraw:
                self._close(record, wait, "withdrawn", {"reason": back.reason})
        entry, generation = back.entry, record.run.generation + 1
        kept = replace(entry, generation=generation, order=next(self._order), at=entry.at or self._clock(), blobs=())
        record.entries[entry.path, generation] = kept
        for digest, text in entry.blobs:
            self._blobs.setdefault((account, digest), text)
        record.change(
            status="queued", generation=generation, wake_at=0.0, active=0.0, ended=0.0, output=None, error=None,
            epoch=record.run.epoch + 1,
        )  # fmt: skip
        record.due = 0.0
        self._dues.add(0.0, record, record.key)
        self._lanes.hold(record)
        self.people.keep(account, notes)
        self._beats.announce()
        return record.run

    async def repin(self, account: str, run_id: str, pin: Repin, *, notes: Sequence[AuditRecord] = ()) -> Run:
        record = self._record(account, run_id)
        refuse_moved(record.run, pin)
        record.refuse_recorded([pin.entry])
        record.entries[pin.entry.path, pin.entry.generation] = replace(pin.entry, order=next(self._order), blobs=())
        record.change(definition=pin.definition, version=pin.version)
        self.people.keep(account, notes)
        if pin.wake:
            record.change(status="queued", wake_at=0.0)
            record.due = 0.0
            self._dues.add(0.0, record, record.key)
        self._beats.announce()
        return record.run

    async def send_event(self, account: str, event: SentEvent) -> int:
        now, told = self._clock(), 0
        stored = self._events.add(account, event, now, self._records.values())
        if stored is None:
            return 0
        waiting = [self._found_wait(*place) for place in self._pending if place[0] == account]
        waiting = [found for found in waiting if found[1].kind == "event" and found[1].topic == event.name != ""]
        for record, wait in sorted(waiting, key=lambda found: found[1].deadline):
            self._expired(record, wait, now)
        for record, wait in waiting:
            if record.waits[wait.path, wait.generation].status == "pending":
                message = Message(record.run.id, "event", wait.path, told_of(stored, stored.order), at=now)
                record.told_by[self._tell(record, message).order] = stored.order
                told += 1
        return told

    async def events(self, lease: Lease, name: str, since: float) -> list[SentEvent]:
        return self._events.unused(self._leased(lease), name, since, self._clock())

    # ── workers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def changed(self, timeout: float) -> bool:
        """See the port. Each task sees every change once, however the calls of others lie between its own."""
        seen = self._seen.last()
        await self._beats.beyond(seen, timeout)
        self._seen.see(self._beats.count)
        return self._beats.count != seen

    async def close(self) -> None:
        """Nothing to flush."""
