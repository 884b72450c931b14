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

from stepwell.errors import AlreadyDecided, Conflict, Gone, NotFound
from stepwell.journal.entry import Entry
from stepwell.journal.lease import LeaseLost
from stepwell.ports import (
    FINAL,
    PARKED,
    RUNNABLE,
    Batch,
    Lease,
    Loaded,
    Message,
    NewRun,
    Outgoing,
    Run,
    Verdict,
    Wait,
    WaitStatus,
)
from stepwell.stores.announcements import Announcements, Seen
from stepwell.stores.liveness import boot_seconds
from stepwell.stores.memory.records import RunRecord, copied, queued, same

Json: TypeAlias = Any


class MemoryRunStore:
    """`RunStore` in the memory of one process. See `SqliteRunStore` for `clock` and `uptime`."""

    def __init__(self, *, clock: Callable[[], float] = time.time, uptime: Callable[[], float] = boot_seconds) -> None:
        self._clock = clock
        self._uptime = uptime
        self._renewed = 0.0
        self._records: dict[str, RunRecord] = {}
        self._definitions: dict[tuple[str, str], bytes] = {}
        self._blobs: dict[tuple[str, str], bytes] = {}
        self._outgoing: dict[tuple[str, str], Outgoing] = {}
        self._places: dict[tuple[str, str], tuple[str, str, int]] = {}
        self._workers: dict[str, tuple[bool, float]] = {}
        self._order = count(1)
        self._message_order = count(1)
        self._beats = Announcements()
        self._seen = Seen()

    def _record(self, account: str, run_id: str) -> RunRecord:
        record = self._records.get(run_id)
        if record is None or record.run.account != account:
            raise NotFound(f"there is no run {run_id}")
        return record

    def _leased(self, lease: Lease) -> RunRecord:
        record = self._records.get(lease.run_id)
        if record is None or record.run.epoch != lease.epoch:
            raise LeaseLost(lease.run_id)
        return record

    def _found_wait(self, account: str, wait_id: str) -> tuple[RunRecord, Wait]:
        try:
            run_id, path, generation = self._places[account, wait_id]
        except KeyError:
            raise NotFound(f"there is no wait {wait_id}") from None
        record = self._records[run_id]
        return record, record.waits[path, generation]

    # ── definitions and runs ─────────────────────────────────────────────────────────────────────────────────────────

    async def put_definition(self, account: str, digest: str, body: bytes) -> None:
        self._definitions.setdefault((account, digest), body)

    async def definition(self, account: str, digest: str) -> bytes:
        try:
            return self._definitions[account, digest]
        except KeyError:
            raise NotFound(f"there is no definition {digest}") from None

    async def create(self, run: NewRun) -> tuple[Run, bool]:
        for there in (record.run for record in self._records.values()):
            same_key = (there.account, there.workflow, there.idempotency_key) == (
                run.account, run.workflow, run.idempotency_key,
            )  # fmt: skip
            if run.idempotency_key and same_key:
                return same(there, run), False
        if run.id in self._records:
            raise Conflict(f"there is a run {run.id} already")
        stored = queued(run, self._clock())
        self._records[run.id] = RunRecord(len(self._records) + 1, stored)
        self._beats.announce()
        return stored, True

    async def run(self, account: str, run_id: str) -> Run:
        return self._record(account, run_id).run

    async def runs(
        self, account: str, *, statuses: Sequence[str] = (), workflow: str = "", limit: int = 50, before: str = ""
    ) -> list[Run]:
        end = self._record(account, before).key if before else len(self._records) + 1
        found = [
            record.run
            for record in reversed(self._records.values())
            if record.run.account == account
            and record.key < end
            and (not statuses or record.run.status in statuses)
            and (not workflow or record.run.workflow == workflow)
        ]
        return found[:limit]

    # ── leases ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(
        self, worker: str, ttl: float, *, limit: int = 1, run_id: str = "", due_only: bool = False
    ) -> list[Lease]:
        now, uptime = self._clock(), self._uptime()
        for record in self._records.values():
            self._expire(record, now)
        if run_id:
            candidates = [self._records[run_id]] if run_id in self._records else []
            limit = 1
        else:
            candidates = sorted(self._records.values(), key=RunRecord.urgency)
        taken: list[Lease] = []
        for record in candidates:
            parked = bool(run_id) and not due_only and not record.owned and record.run.status not in FINAL
            if len(taken) < limit and (
                parked or record.takeable(worker, uptime=uptime, renewed=self._renewed, now=now)
            ):
                record.owned, record.due, record.lease_until = True, None, uptime + ttl
                run = record.run
                record.change(
                    status="running", epoch=run.epoch + 1, owner=worker, wake_at=0.0, started=run.started or now
                )
                taken.append(record.lease(worker))
        return taken

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
        now = self._clock()
        stored = [replace(entry, order=next(self._order), at=entry.at or now, blobs=()) for entry in batch.entries]
        for entry in stored:
            record.entries[entry.path, entry.generation] = entry
        for digest, text in (blob for entry in batch.entries for blob in entry.blobs):
            self._blobs.setdefault((lease.account, digest), text)
        for wait in opened:
            run = record.run
            self._places[lease.account, wait.id] = (run.id, wait.path, wait.generation)
            record.put(
                replace(
                    wait, request=copied(wait.request), opened=wait.opened or now, status="pending", decision=None,
                    decided=0.0, run_id=run.id, account=run.account, workflow=run.workflow,
                )
            )  # fmt: skip
        record.consumed.update(batch.consume)
        for outgoing in batch.outgoing:
            kept = replace(outgoing, to=copied(outgoing.to), body=copied(outgoing.body), at=outgoing.at or now)
            self._outgoing.setdefault((lease.account, outgoing.key), replace(kept, run_id=lease.run_id))
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
        record.owned, record.due, record.lease_until = False, record_due, 0.0
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

    async def post(self, account: str, message: Message) -> Message:
        record = self._record(account, message.run_id)
        if record.run.status in FINAL:
            status = record.run.status
            raise Conflict(f"run {message.run_id} has ended: {status}", {"status": status})
        return self._tell(record, replace(message, body=copied(message.body), at=message.at or self._clock()))

    async def decide(self, account: str, wait_id: str, decision: Json, *, digest: str = "") -> Wait:
        record, wait = self._found_wait(account, wait_id)
        now = self._clock()
        wait = self._expired(record, wait, now)
        if wait.status == "decided":
            raise AlreadyDecided(f"{wait_id} is decided already", wait.decision)
        if wait.status != "pending":
            raise Gone(f"{wait_id} can no longer be decided: {wait.status}", {"status": wait.status})
        if digest and digest != wait.digest:
            raise Conflict(f"what {wait_id} shows has changed since", {"digest": wait.digest})
        decided = self._close(record, wait, "decided", copied(decision), now)
        self._tell(record, Message(record.run.id, "decision", wait.path, decided.decision, at=now))
        return decided

    async def wait(self, account: str, wait_id: str) -> Wait:
        return self._found_wait(account, wait_id)[1]

    async def waits(
        self, account: str, *, run_id: str = "", kind: str = "", pending_only: bool = True, limit: int = 1000
    ) -> list[Wait]:
        if run_id:
            self._record(account, run_id)
        all_waits = [self._found_wait(*name)[1] for name in self._places if name[0] == account]
        found = [
            wait
            for wait in all_waits
            if run_id in ("", wait.run_id)
            and kind in ("", wait.kind)
            and (not pending_only or wait.status == "pending")
        ]
        return found[:limit]

    def _close(
        self, record: RunRecord, wait: Wait, status: WaitStatus, decision: Json, at: float | None = None
    ) -> Wait:
        closed = replace(wait, status=status, decision=decision, decided=self._clock() if at is None else at)
        record.put(closed)
        return closed

    def _expire(self, record: RunRecord, now: float) -> None:
        for wait in sorted(record.pending(), key=lambda wait: wait.deadline):
            self._expired(record, wait, now)

    def _expired(self, record: RunRecord, wait: Wait, now: float) -> Wait:
        if wait.status != "pending" or not 0 < wait.deadline <= now:
            return wait
        said = {"decision": "due" if wait.kind == "timer" else "expired"}
        self._tell(record, Message(record.run.id, "decision", wait.path, said, at=now))
        return self._close(record, wait, "expired", said, now)

    def _tell(self, record: RunRecord, message: Message) -> Message:
        message = replace(message, order=next(self._message_order))
        record.messages.append(message)
        if not record.owned:
            record.due = 0.0
        self._beats.announce()
        return message

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def history(self, account: str, run_id: str) -> list[Entry]:
        return sorted(self._record(account, run_id).entries.values(), key=lambda entry: entry.order)

    async def blob(self, account: str, digest: str) -> bytes:
        return self.blob_now(account, digest)

    def blob_now(self, account: str, digest: str) -> bytes:
        try:
            return self._blobs[account, digest]
        except KeyError:
            raise NotFound(f"there is no value {digest}") from None

    async def outgoing(self, account: str, *, run_id: str = "", limit: int = 100) -> list[Outgoing]:
        if run_id:
            self._record(account, run_id)
        found = [
            outgoing
            for (owner, _), outgoing in reversed(self._outgoing.items())
            if owner == account and run_id in ("", outgoing.run_id)
        ]
        return found[:limit]

    # ── workers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def changed(self, timeout: float) -> bool:
        """See the port. Each task sees every change once, however the calls of others lie between its own."""
        seen = self._seen.last()
        await self._beats.beyond(seen, timeout)
        self._seen.see(self._beats.count)
        return self._beats.count != seen

    async def heartbeat(self, worker: str, *, serves: bool, ttl: float) -> None:
        self._workers[worker] = (serves, self._uptime() + ttl)

    async def served(self) -> bool:
        uptime = self._uptime()
        return any(serves and until > uptime for serves, until in self._workers.values())

    async def close(self) -> None:
        """Nothing to flush."""
