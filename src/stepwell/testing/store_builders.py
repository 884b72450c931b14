"""Runs, entries and waits for the tests of run stores, and the clocks that those tests set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.journal.entry import Entry, EntryKind
from stepwell.ports import Batch, Lease, NewRun, RunStore, Verdict, Wait, WaitKind

ACCOUNT = "acme"
TTL = 15.0


class ManualClock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class OpenedStore:
    """A fresh store with its two clocks: UTC seconds, and seconds that nobody sets."""

    store: RunStore
    clock: ManualClock
    uptime: ManualClock


def new_run(run_id: str, **fields: Any) -> NewRun:
    """A run to be created."""
    return NewRun(
        **{
            "id": run_id,
            "account": ACCOUNT,
            "workflow": "order",
            "version": "1",
            "definition": "d1",
            "input": {"n": 1},
            **fields,
        }
    )


def entry(path: str, kind: EntryKind = "succeeded", body: bytes = b"{}", generation: int = 0) -> Entry:
    """An entry to be appended."""
    return Entry(path, kind, body, digest="0123", generation=generation)


def batch(*paths: str, open: Sequence[Wait] = ()) -> Batch:  # noqa: A002 -- the name of the port's field
    """A batch of succeeded steps."""
    return Batch([entry(path) for path in paths], open=open)


def a_wait(wait_id: str, path: str, *, kind: WaitKind = "approval", deadline: float = 0.0, digest: str = "") -> Wait:
    """A wait to be opened."""
    return Wait(wait_id, path, kind, {"title": "Pay?"}, deadline=deadline, digest=digest)


async def leased(store: RunStore, run_id: str = "r1", worker: str = "w1", **fields: Any) -> Lease:
    """A fresh run that `worker` owns."""
    await store.create(new_run(run_id, **fields))
    [lease] = await store.claim(worker, TTL, run_id=run_id)
    return lease


async def parked_at(store: RunStore, wait: Wait, run_id: str = "r1") -> None:
    """A run that is parked at one wait."""
    lease = await leased(store, run_id)
    await store.append(lease, Batch([entry(f"{wait.path}/~start", "started")], open=[wait]))
    assert await store.release(lease, Batch(), Verdict("pending_approval"))
