"""Reading what the store in memory keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from stepwell.errors import NotFound
from stepwell.journal.entry import Entry
from stepwell.journal.lease import LeaseLost
from stepwell.ports import FINAL, Lease, Loaded, Outgoing, Run, Wait
from stepwell.stores.memory.records import RunRecord


class Kept:
    """The part of `RunStore` that changes no run."""

    def __init__(self, uptime: Callable[[], float]) -> None:
        self._uptime = uptime
        self._records: dict[str, RunRecord] = {}
        self._definitions: dict[tuple[str, str], bytes] = {}
        self._blobs: dict[tuple[str, str], bytes] = {}
        self._outgoing: dict[tuple[str, str], Outgoing] = {}
        self._places: dict[tuple[str, str], tuple[str, str, int]] = {}
        """Run, path and generation of every wait by account and id, in the order of opening."""
        self._pending: dict[tuple[str, str], tuple[str, str, int]] = {}
        """The same of those that are pending."""
        self._owned: dict[str, RunRecord] = {}
        self._workers: dict[str, tuple[bool, float]] = {}

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

    async def wait(self, account: str, wait_id: str) -> Wait:
        return self._found_wait(account, wait_id)[1]

    async def waits(
        self, account: str, *, run_id: str = "", kind: str = "", pending_only: bool = True, limit: int = 1000
    ) -> list[Wait]:
        if run_id:
            of_run = self._record(account, run_id)
            asked: Iterable[Wait] = of_run.pending() if pending_only else list(of_run.waits.values())
        else:
            names = self._pending if pending_only else self._places
            asked = (self._found_wait(*name)[1] for name in names if name[0] == account)
        return list(islice((wait for wait in asked if kind in ("", wait.kind)), limit))

    async def history(self, account: str, run_id: str) -> list[Entry]:
        return sorted(self._record(account, run_id).entries.values(), key=lambda entry: entry.order)

    async def peek(self, account: str, run_id: str) -> Loaded:
        record = self._record(account, run_id)
        return Loaded(record.run, record.open_entries(), record.unread(), list(record.pending()))

    def open_definitions(self, account: str) -> dict[str, list[str]]:
        """The ids of the runs that have not ended, by the digests of their definitions."""
        found: dict[str, list[str]] = {}
        for record in self._records.values():
            if record.run.account == account and record.run.status not in FINAL:
                found.setdefault(record.run.definition, []).append(record.run.id)
        return found

    async def outgoing(self, account: str, *, run_id: str = "", limit: int = 100) -> list[Outgoing]:
        if run_id:
            self._record(account, run_id)
        found = [
            outgoing
            for (owner, _), outgoing in reversed(self._outgoing.items())
            if owner == account and run_id in ("", outgoing.run_id)
        ]
        return found[:limit]

    async def put_definition(self, account: str, digest: str, body: bytes) -> None:
        self._definitions.setdefault((account, digest), body)

    async def definition(self, account: str, digest: str) -> bytes:
        return self.definition_now(account, digest)

    def definition_now(self, account: str, digest: str) -> bytes:
        try:
            return self._definitions[account, digest]
        except KeyError:
            raise NotFound(f"there is no definition {digest}") from None

    async def blob(self, account: str, digest: str) -> bytes:
        return self.blob_now(account, digest)

    def blob_now(self, account: str, digest: str) -> bytes:
        try:
            return self._blobs[account, digest]
        except KeyError:
            raise NotFound(f"there is no value {digest}") from None

    async def heartbeat(self, worker: str, *, serves: bool, ttl: float) -> None:
        self._workers[worker] = (serves, self._uptime() + ttl)

    async def served(self) -> bool:
        uptime = self._uptime()
        return any(serves and until > uptime for serves, until in self._workers.values())
