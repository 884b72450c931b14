"""The run store on an SQLite file.

The law of the file: values become JSON text in the caller's thread, and only text crosses to the writer's.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from stepwell.errors import Gone, Unavailable
from stepwell.journal.entry import Entry
from stepwell.ports import (
    FINAL,
    Amendment,
    AuditRecord,
    Ballot,
    Batch,
    Lease,
    Loaded,
    Message,
    NewRun,
    Outgoing,
    Reopening,
    Repin,
    Run,
    SentEvent,
    Verdict,
    Wait,
)
from stepwell.stores.announcements import Seen
from stepwell.stores.liveness import boot_seconds
from stepwell.stores.rules import check_lane, sets_time
from stepwell.stores.sqlite import claiming, creating, deciding, events, journal, people, reopening, voting
from stepwell.stores.sqlite.claiming import Claimant
from stepwell.stores.sqlite.connection import BusyLine, Durability
from stepwell.stores.sqlite.creating import RunFilter, WaitFilter
from stepwell.stores.sqlite.database import Database
from stepwell.stores.sqlite.people import SqlitePeople
from stepwell.stores.sqlite.rows import encode, message_of
from stepwell.stores.sqlite.spending import SqliteSpending

Json: TypeAlias = Any
Connection: TypeAlias = sqlite3.Connection
MIGRATIONS = Path(__file__).parent / "migrations"
_POLL = 0.08


class SqliteRunStore:
    """`RunStore` on a `Database`. Other stores may share the database; closing this store closes it.

    `clock` gives UTC seconds since 1970, `uptime` seconds that nobody sets (see `stores/liveness.py`).
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = boot_seconds,
    ) -> None:
        database.migrate("runs", MIGRATIONS)
        self.database = database
        self.people = SqlitePeople(database, clock)
        self.spending = SqliteSpending(database, clock)
        self._clock = clock
        self._uptime = uptime
        self._process = claiming.instance_of_this_process()
        self._closed = False
        self._renewed = 0.0
        self._seen = Seen()

    @classmethod
    def open(
        cls, path: str | Path, *, durability: Durability = "full", on_busy: BusyLine | None = None
    ) -> SqliteRunStore:
        """Open or create the file at `path`; blocks while another process keeps it locked. Raises Unavailable."""
        return cls(Database.open(path, durability=durability, on_busy=on_busy))

    def _claimant(self, worker: str) -> Claimant:
        return Claimant(worker, self._process, self._uptime(), self._clock(), self._renewed)

    # ── definitions and runs ─────────────────────────────────────────────────────────────────────────────────────────

    async def put_definition(self, account: str, digest: str, body: bytes) -> None:
        await self.database.write(
            lambda connection: creating.put_definition(connection, account, digest, body), size=len(body)
        )

    async def definition(self, account: str, digest: str) -> bytes:
        return await self.database.read(lambda connection: creating.definition(connection, account, digest))

    def definition_now(self, account: str, digest: str) -> bytes:
        return self.database.read_now(lambda connection: creating.definition(connection, account, digest))

    async def create(self, run: NewRun, *, notes: Sequence[AuditRecord] = ()) -> tuple[Run, bool]:
        """See the port. Raises ValueError for a lane without places."""
        check_lane(run)
        content, now = (encode(run.input), encode(run.project)), self._clock()

        def act(connection: Connection) -> tuple[Run, bool]:
            stored, new = creating.create(connection, run, content, now)
            people.note(connection, run.account, notes if new else (), now)
            return stored, new

        return await self.database.write(
            act,
            size=sum(map(len, content)) + 400,
            announces=True,
        )

    async def run(self, account: str, run_id: str) -> Run:
        return await self.database.read(lambda connection: creating.run(connection, account, run_id))

    async def runs(
        self, account: str, *, statuses: Sequence[str] = (), workflow: str = "", limit: int = 50, before: str = ""
    ) -> list[Run]:
        wanted = RunFilter(statuses, workflow, limit, before)
        return await self.database.read(lambda connection: creating.runs(connection, account, wanted))

    # ── leases ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(
        self, worker: str, ttl: float, *, limit: int = 1, run_id: str = "", due_only: bool = False
    ) -> list[Lease]:
        """See the port. At most 1,000 waits are turned into messages at once where it is those of all runs."""
        claimant = self._claimant(worker)

        def act(connection: Connection) -> list[Lease]:
            if run_id:
                return claiming.claim_run(connection, claimant, ttl, run_id, due_only=due_only)
            claiming.sweep(connection, claimant.now, limit=claiming.EXPIRE_AT_ONCE)
            return claiming.claim(connection, claimant, ttl, limit)

        return await self.database.write(act, announces=True)

    async def next_due(self) -> float:
        """See the port. The answer may be up to a second ago; what has been due for longer is not told any more."""
        now = self._clock()
        return await self.database.read(lambda connection: claiming.next_due(connection, now))

    async def renew(self, leases: Sequence[Lease], ttl: float) -> list[Lease]:
        held, uptime = list(leases), self._uptime()
        lost = await self.database.write(lambda connection: claiming.renew(connection, held, uptime + ttl))
        self._renewed = max(self._renewed, uptime)
        return lost

    async def load(self, lease: Lease) -> Loaded:
        return await self.database.read(lambda connection: journal.loaded(connection, lease))

    # ── a pass ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, lease: Lease, batch: Batch) -> Awaitable[int]:
        act, size, indivisible = journal.appending(lease, batch, self._clock())
        return self.database.submit(act, size=size, indivisible=indivisible, announces=sets_time(batch))

    async def withdraw(self, lease: Lease, paths: Sequence[str], reason: str) -> list[str]:
        closed, now = list(paths), self._clock()
        return await self.database.write(lambda connection: deciding.withdraw(connection, lease, closed, reason, now))

    async def inbox(self, lease: Lease, after: int) -> list[Message]:
        rows = await self.database.read(lambda connection: journal.unread(connection, lease, after))
        return [message_of(lease.run_id, row) for row in rows]

    async def arrived(self, worker: str) -> list[Message]:
        process = self._process
        rows = await self.database.read(lambda connection: journal.arrived(connection, process, worker))
        return [message_of(row[0], row[1:]) for row in rows]

    async def release(self, lease: Lease, batch: Batch, verdict: Verdict) -> bool:
        append, size, _ = journal.appending(lease, batch, self._clock())
        if verdict.status in FINAL and not verdict.ended:
            verdict = replace(verdict, ended=self._clock())
        content = (
            encode(verdict.output),
            None if verdict.error is None else encode(verdict.error),
            encode(verdict.usage),
        )

        def act(connection: Connection) -> bool:
            append(connection)
            return deciding.end_pass(connection, lease, verdict, content)

        return await self.database.write(act, size=size + len(content[0]) + 400, announces=True)

    # ── messages and waits ───────────────────────────────────────────────────────────────────────────────────────────

    async def post(self, account: str, message: Message, *, notes: Sequence[AuditRecord] = ()) -> Message:
        message = replace(message, at=message.at or self._clock())
        body = encode(message.body)

        def act(connection: Connection) -> int:
            people.note(connection, account, notes, message.at)
            return deciding.post(connection, account, message, body)

        order = await self.database.write(act, size=len(body) + 200, announces=True)
        return replace(message, order=order)

    async def decide(self, account: str, wait_id: str, ballot: Ballot, *, notes: Sequence[AuditRecord] = ()) -> Wait:
        """See the port. What was decided becomes JSON text in the writer's thread: it depends on what is stored."""
        size, now = len(encode(ballot.body)), self._clock()

        def act(connection: Connection) -> Wait | Gone:
            decided = voting.decide(connection, account, wait_id, ballot, now)
            if isinstance(decided, Wait):
                people.note(connection, account, notes, now)
            return decided

        result = await self.database.write(act, size=size + 400, announces=True)
        if isinstance(result, Gone):
            raise result
        return result

    async def amend(
        self,
        account: str,
        wait_id: str,
        change: Callable[[Wait], Amendment],
        *,
        notes: Sequence[AuditRecord] = (),
    ) -> Wait:
        now = self._clock()

        def act(connection: Connection) -> Wait:
            people.note(connection, account, notes, now)
            return voting.amend(connection, account, wait_id, change, now)

        return await self.database.write(act, announces=True)

    async def send_event(self, account: str, event: SentEvent) -> int:
        data, now = encode(event.data), self._clock()
        return await self.database.write(
            lambda connection: events.send(connection, account, event, data, now), size=len(data) + 400, announces=True
        )

    async def events(self, lease: Lease, name: str, since: float) -> list[SentEvent]:
        """See the port. They come in the order in which they were told. Raises LeaseLost."""
        now = self._clock()
        return await self.database.read(lambda connection: events.unused(connection, lease, name, since, now))

    async def wait(self, account: str, wait_id: str) -> Wait:
        return await self.database.read(lambda connection: creating.wait(connection, account, wait_id))

    async def waits(
        self, account: str, *, run_id: str = "", kind: str = "", pending_only: bool = True, limit: int = 1000
    ) -> list[Wait]:
        wanted = WaitFilter(run_id, kind, pending_only, limit)
        return await self.database.read(lambda connection: creating.waits(connection, account, wanted))

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def history(self, account: str, run_id: str) -> list[Entry]:
        return await self.database.read(
            lambda connection: journal.history(connection, creating.run_key(connection, account, run_id))
        )

    async def peek(self, account: str, run_id: str) -> Loaded:
        return await self.database.read(
            lambda connection: journal.peeked(connection, creating.run_key(connection, account, run_id))
        )

    async def reopen(self, account: str, run_id: str, back: Reopening, *, notes: Sequence[AuditRecord] = ()) -> Run:
        now = self._clock()

        def act(connection: Connection) -> Run:
            people.note(connection, account, notes, now)
            return reopening.reopen(connection, account, run_id, back, now)

        return await self.database.write(act, announces=True)

    async def repin(self, account: str, run_id: str, pin: Repin, *, notes: Sequence[AuditRecord] = ()) -> Run:
        now = self._clock()

        def act(connection: Connection) -> Run:
            people.note(connection, account, notes, now)
            return creating.repin(connection, account, run_id, pin, now)

        return await self.database.write(act, announces=True)

    async def blob(self, account: str, digest: str) -> bytes:
        return await self.database.read(lambda connection: creating.blob(connection, account, digest))

    def blob_now(self, account: str, digest: str) -> bytes:
        return self.database.read_now(lambda connection: creating.blob(connection, account, digest))

    async def outgoing(self, account: str, *, run_id: str = "", limit: int = 100) -> list[Outgoing]:
        return await self.database.read(lambda connection: creating.outgoing(connection, account, run_id, limit))

    # ── workers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def changed(self, timeout: float) -> bool:
        """See the port. Each task sees every change once, however the calls of others lie between its own."""
        loop = asyncio.get_running_loop()
        announcements = self.database.announcements
        end = loop.time() + timeout
        while True:
            count = announcements.count
            beats = await self.database.read(_beats)
            if beats != self._seen.last():
                self._seen.see(beats)
                return True
            left = end - loop.time()
            if left <= 0:
                return False
            await announcements.beyond(count, min(left, _POLL))

    async def heartbeat(self, worker: str, *, serves: bool, ttl: float) -> None:
        claimant = self._claimant(worker)
        await self.database.write(lambda connection: claiming.heartbeat(connection, claimant, ttl, serves=serves))

    async def served(self) -> bool:
        uptime = self._uptime()
        return await self.database.read(lambda connection: claiming.served(connection, uptime))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with suppress(Unavailable):  # what is still held lapses by itself
            await self.database.write(lambda connection: claiming.disown(connection, self._process), announces=True)
        await self.database.close()


def _beats(connection: Connection) -> int:
    return int(connection.execute("SELECT beats FROM pulse").fetchone()[0])
