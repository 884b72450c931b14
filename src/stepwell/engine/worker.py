"""The worker: carries on the runs of a database, keeps their leases, and brings them their messages.

The law of the file: a run is worked on only under a lease that this worker holds, and a pass whose lease is lost is
stopped before it can do anything more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from stepwell.engine.advance import Parked, Pass, cancellation
from stepwell.engine.clock import USUAL, Rhythm
from stepwell.errors import DefinitionError, NotFound, StepwellError, Unavailable
from stepwell.interpreter.interruption import LeaseLost
from stepwell.ports import Batch, Verdict

if TYPE_CHECKING:
    from stepwell.engine.world import World
    from stepwell.interpreter.definition import Definition
    from stepwell.ports import Lease, Loaded, Run

GRACE = 3.0
"""Seconds that steps in flight get to end when their run is cancelled or the worker stops."""

log = logging.getLogger("stepwell.worker")


class Worker:
    """Carries runs on in this process."""

    def __init__(self, name: str, world: World, *, serves: bool, capacity: int = 500, rhythm: Rhythm = USUAL) -> None:
        self.name = name
        self._rhythm = rhythm
        self._world = world
        self._world_of: Callable[[Run], World] = lambda _: world
        self._store = world.store
        self._now, self._uptime = world.clock.now, world.clock.uptime
        self._serves = serves
        self._capacity = capacity
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._passes: dict[str, Pass] = {}
        self._leases: dict[str, Lease] = {}
        self._until: dict[str, float] = {}
        """By run, up to when its lease surely lives, in boot seconds."""
        self._watched: dict[str, int] = {}
        self._aside: set[str] = set()
        """Runs that were taken off this worker: it takes them up again only if it is asked to."""
        self._due = 0.0
        """When the next thing of the database is due, as of the last look."""
        self._expired = 0.0
        """Up to which of these instants waits of running passes were made to expire by a worker that claims nothing."""
        self._background: list[asyncio.Task[None]] = []

    def use(self, world_of: Callable[[Run], World]) -> None:
        """Let each run be carried on with the tools and models of the project it was started in.

        `world_of` raises DefinitionError where they are not to be had.
        """
        self._world_of = world_of

    async def open(self) -> None:
        """Begin to sweep, renew and listen."""
        await self._store.heartbeat(self.name, serves=self._serves, ttl=self._rhythm.ttl)
        self._background = [asyncio.create_task(self._sweep()), asyncio.create_task(self._renew())]

    async def close(self, drain: float = 10.0) -> None:
        """Stop claiming, let what is in flight end for a while, give the runs back."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.park(list(self._tasks), grace=min(drain, GRACE))

    def task(self, run_id: str) -> asyncio.Task[None] | None:
        """The task that carries a run on here, if one does."""
        return self._tasks.get(run_id)

    @contextlib.contextmanager
    def watching(self, run_id: str) -> Iterator[None]:
        """Carry this run on whenever it is due, for as long as the block lasts."""
        self._watched[run_id] = self._watched.get(run_id, 0) + 1
        try:
            yield
        finally:
            self._watched[run_id] -= 1
            if not self._watched[run_id]:
                del self._watched[run_id]

    async def adopt(self, run_id: str, *, due_only: bool = False) -> asyncio.Task[None] | None:
        """Claim a run and carry it on; None if it cannot be had (owned by a living worker, final, or not due)."""
        if (task := self._tasks.get(run_id)) is not None and not task.done():
            return task
        self._aside.discard(run_id)
        asked = self._uptime()
        for lease in await self._store.claim(self.name, self._rhythm.ttl, run_id=run_id, due_only=due_only):
            return self._carry(lease, asked)
        return None

    async def park(self, run_ids: list[str], grace: float = GRACE) -> None:
        """Take runs off this worker; they stay resumable. Steps in flight are cut off after `grace` seconds."""
        self._aside.update(run_ids)
        tasks = [self._tasks[run_id] for run_id in run_ids if run_id in self._tasks]
        for run_id in run_ids:
            if (current := self._passes.get(run_id)) is not None:
                current.runtime.abort(Parked())
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=grace)
            for task in pending:
                task.cancel()
            if pending:
                await asyncio.wait(pending, timeout=grace)

    def _carry(self, lease: Lease, asked: float) -> asyncio.Task[None]:
        self._leases[lease.run_id] = lease
        self._until[lease.run_id] = asked + self._rhythm.ttl
        task = asyncio.create_task(self._passes_of(lease), name=f"run {lease.run_id}")
        self._tasks[lease.run_id] = task
        task.add_done_callback(lambda done: self._ended(lease.run_id, done))
        return task

    def _ended(self, run_id: str, task: asyncio.Task[None]) -> None:
        replaced = self._tasks.get(run_id) is not task  # it was adopted again before this was called
        if not replaced:
            for kept in (self._tasks, self._passes, self._leases, self._until):
                kept.pop(run_id, None)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.warning("run %s left this worker: %s: %s", run_id, type(problem).__name__, problem)
        if not replaced:
            self._world.listeners.close(run_id)

    async def _passes_of(self, lease: Lease) -> None:
        """Pass after pass until the lease is given back."""
        while True:
            loaded = await self._store.load(lease)
            try:
                world, definition = self._world_of(loaded.run), await self._pinned(loaded.run)
            except (NotFound, DefinitionError) as missing:  # nothing is created anew for it: it waits to be mended
                if await self._store.release(lease, Batch(), _unable(loaded, str(missing))):
                    return
                continue
            current = Pass(lease, loaded, definition, world, partial(self._sure, lease))
            self._passes[lease.run_id] = current
            try:
                if await current.run():
                    return
            except LeaseLost:
                raise Unavailable(f"run {lease.run_id} is carried on by another worker now") from None

    def _sure(self, lease: Lease) -> Awaitable[None] | None:
        """What is to be awaited before the next effect: if this process, or the machine, may have been asleep."""
        return self._make_sure(lease) if self._uptime() >= self._until.get(lease.run_id, 0.0) else None

    async def _make_sure(self, lease: Lease) -> None:
        if await self._prolong([lease]):
            raise LeaseLost(lease.run_id)

    async def _prolong(self, leases: list[Lease]) -> list[Lease]:
        """Renew leases; returns those that were lost, whose passes are stopped."""
        asked = self._uptime()
        lost = await self._store.renew(leases, self._rhythm.ttl)
        for lease in leases:
            current = self._passes.get(lease.run_id)
            if lease not in lost:
                self._until[lease.run_id] = asked + self._rhythm.ttl
            elif current is not None and current.lease.epoch == lease.epoch:
                current.runtime.fail(LeaseLost())
        return lost

    async def _pinned(self, run: Run) -> Definition:
        assert self._world.definitions is not None
        return await self._world.definitions.get(run.account, run.definition)

    async def _sweep(self) -> None:
        """Bring messages to running passes, and take up runs that are due."""
        while True:
            try:
                await self._deliver()
                await self._take_up()
                await self._store.changed(await self._pause())
            except StepwellError as problem:
                log.warning("the sweep failed and is tried again: %s", problem)
                await asyncio.sleep(1.0)

    async def _pause(self) -> float:
        """Seconds until it is time to look again, if nothing is told before."""
        due = self._due = await self._store.next_due()
        return min(self._rhythm.sweep, max(0.02, due - self._now())) if due else self._rhythm.sweep

    async def _deliver(self) -> None:
        passes = dict(self._passes)  # a pass that begins later has read its messages itself
        for message in await self._store.arrived(self.name) if passes else ():
            current = passes.get(message.run_id)
            if current is not None and message.order > current.runtime.seen:
                current.runtime.deliver(message)

    async def _take_up(self) -> None:
        for run_id in list(self._watched):
            if run_id not in self._tasks and run_id not in self._aside:
                await self.adopt(run_id, due_only=True)
        free = self._capacity - len(self._tasks)
        if self._serves and free > 0:
            asked = self._uptime()
            for lease in await self._store.claim(self.name, self._rhythm.ttl, limit=free):
                self._carry(lease, asked)
        elif self._tasks and self._expired < self._due <= self._now():
            self._expired = self._due
            await self._store.claim(self.name, self._rhythm.ttl, limit=0)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._rhythm.renew)
            try:
                await self._store.heartbeat(self.name, serves=self._serves, ttl=self._rhythm.ttl)
                await self._prolong(list(self._leases.values()))
            except StepwellError as problem:
                log.warning("leases could not be renewed: %s", problem)


def _unable(loaded: Loaded, problem: str) -> Verdict:
    """The end of a pass that cannot begin: the run is kept for when what is missing is back, or cancelled if asked."""
    active, seen = loaded.run.active, max((message.order for message in loaded.messages), default=0)
    cancel = next((message for message in loaded.messages if message.kind == "cancel"), None)
    if cancel is not None:
        error = cancellation((cancel.body or {}).get("reason", ""))
        return Verdict("cancelled", error=error, active=active, seen=seen)
    return Verdict("stuck", error={"kind": "missing", "message": problem, "retryable": False}, active=active, seen=seen)
