"""The limit over all processes: slots are leases in Redis, and while Redis cannot be asked, each process counts alone.

The law of the file: a call waits for a slot, never for Redis: whatever Redis does, it is cut off after a moment and the
limit goes on without it; giving a slot back awaits nothing and cannot fail.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, TypeAlias, TypeVar

from stepwell.adapters.limits.queueing import granted
from stepwell.adapters.limits.redis_wire import Call, RedisWire
from stepwell.adapters.limits.script import COUNT, TELL, channel, keys
from stepwell.adapters.limits.shared_lane import SharedLane, Telling
from stepwell.errors import StepFailed
from stepwell.ports import LimitStanding

OnError: TypeAlias = Literal["local", "open", "closed"]
Answer = TypeVar("Answer")

log = logging.getLogger("stepwell.limits")

SLICES = 10
"""Parts of a cut, each waited for by itself: a busy event loop does not take its own lateness for that of Redis."""
LOOK = 2.0
"""Seconds within which Redis says how the limit stands, where only somebody who asks waits for it."""
REACH = 2.0
"""Seconds to connect again in, while calls go on without Redis."""
BEAT = 1.0
"""Seconds after which everything is told again, so that leases go on and no message need be relied on."""
PATIENCE = 5
"""Beats after which a call that waits, and does not say so again, is taken for gone."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How the limit is kept. Seconds: a `lease` without renewal, the `cut` of a call, between `probe`s of an outage."""

    limit: int
    lease: float = 30.0
    on_error: OnError = "local"
    cut: float = 0.2
    probe: float = 1.0

    @property
    def beat(self) -> float:
        return min(BEAT, self.lease / 4)


class RedisLimiter:
    """A `Limiter` over all processes that use one Redis.

    One task speaks with Redis, one telling at a time; what comes meanwhile is in the next. A process has two
    connections, however many calls wait.
    """

    def __init__(self, url: str, terms: Terms) -> None:
        self.degraded = ""
        """Why Redis is not asked now; "" while it is."""
        self.admitted_degraded = 0
        """Calls let through while it was not."""
        self._terms = terms
        self._wire = RedisWire(url)
        self._looking = RedisWire(url)
        """For `standing`, whose failures are nobody else's."""
        self._name = secrets.token_hex(6)
        self._numbers = count(1)
        self._tellings = count(1)
        self._lanes: dict[str, SharedLane] = {}
        self._closed = False
        self._stir = asyncio.Event()
        self._speaker: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[Any]] = set()

    # ── the port ──

    @asynccontextmanager
    async def slot(self, account: str) -> AsyncIterator[None]:
        """Raises StepFailed only under `on_error` closed, while Redis cannot be asked."""
        lane = self._lanes.setdefault(account, SharedLane())
        call = f"{self._name}.{next(self._numbers)}"
        slot = lane.want(call)
        self._moved(lane)
        try:
            await granted(slot)
            yield
        finally:
            lane.end(call)
            self._moved(lane)

    async def standing(self, account: str) -> LimitStanding:
        """As Redis counts, or if it cannot be asked, as this process does."""
        leases, _, alive = keys(account)
        trouble = self.degraded
        if not trouble:
            try:
                await self._looking.load()
                looked = self._looking.evaluate([(COUNT, (leases, alive), ())])
                ((holding, waiting),) = await self._cut(self._looking, looked, LOOK)
                return LimitStanding(self._terms.limit, "shared", holding, waiting, "", self.admitted_degraded)
            except Exception as error:  # noqa: BLE001 -- whatever is wrong with Redis is what is to be told
                trouble = self._wire.said(error)
        lane = self._lanes.get(account) or SharedLane()
        counted = len(lane.holding), len(lane.waiting)
        return LimitStanding(self._terms.limit, "process", *counted, trouble, self.admitted_degraded)

    async def aclose(self) -> None:
        """Give back what is held, if Redis can be asked, and close. Calls that come later are counted here alone."""
        self._closed = True
        for task in (self._speaker, self._listener):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        for lane in self._lanes.values():
            for call in [*lane.holding, *lane.waiting]:
                lane.end(call)
        if self._speaker is not None and not self.degraded:
            with suppress(Exception):  # then the leases lapse
                await self._tell()
        self._speaker = None
        drops = {asyncio.ensure_future(wire.drop()) for wire in (self._wire, self._looking)}
        await asyncio.wait(drops, timeout=self._terms.cut)
        for task in self._ending:
            task.cancel()

    # ── who speaks with Redis ──

    def _moved(self, lane: SharedLane) -> None:
        if self._closed:
            lane.give_up_to(self._terms.limit)
            return
        if self.degraded:
            self._admit(lane)
        self._stir.set()
        if self._speaker is None:
            self._speaker = asyncio.create_task(self._speak(), name="stepwell-limiter", context=Context())

    async def _speak(self) -> None:
        loaded = False
        while True:
            await self._until_something()
            try:
                if not loaded:
                    await self._wire.load()
                    loaded = True
                if self.degraded:
                    await self._cut(self._wire, self._wire.ping(), REACH)  # to connect takes several round trips
                    self._tell_all_again()
                await self._tell()
            except Exception as error:  # noqa: BLE001 -- nothing that Redis or its library does stops a call
                self._degrade(error)
            else:
                self._recover()

    async def _until_something(self) -> None:
        """Wait until there is something to tell, a beat has passed, or in an outage a probe is due."""
        if self.degraded:
            await asyncio.sleep(self._terms.probe)
            return
        if all(lane.empty for lane in self._lanes.values()):
            await self._stir.wait()
        else:
            try:
                async with asyncio.timeout(self._terms.beat):
                    await self._stir.wait()
            except TimeoutError:
                self._tell_all_again()
        self._stir.clear()

    async def _tell(self) -> None:
        """Tell Redis what it does not know, and hand on the slots that it gave. Raises what went wrong."""
        told = {account: lane.telling() for account, lane in self._lanes.items() if not lane.quiet}
        if not told:
            return
        calls = [self._call(account, telling) for account, telling in told.items()]
        answers = await self._cut(self._wire, self._wire.evaluate(calls))
        for (account, telling), (holding, _, given) in zip(told.items(), answers, strict=True):
            if holding < 0:
                raise RuntimeError("Redis knows a later telling than this one")
            self._lanes[account].answered(telling, given)
        self._lanes = {account: lane for account, lane in self._lanes.items() if not (lane.empty and lane.quiet)}
        if any(lane.waiting for lane in self._lanes.values()):
            self._listen()

    def _call(self, account: str, telling: Telling) -> Call:
        terms, number = self._terms, next(self._tellings)
        told = f"{keys(account)[0]}:told:{self._name}"
        times = (round(1000 * terms.lease), round(1000 * PATIENCE * terms.beat))
        head = (terms.limit, *times, self._name, number, channel(), len(telling.over), len(telling.holding))
        return TELL, (*keys(account), told), (*head, *telling.over, *telling.holding, *telling.waiting)

    async def _cut(self, wire: RedisWire, work: Coroutine[Any, Any, Answer], seconds: float = 0.0) -> Answer:
        """What `work` gives within the cut. Raises TimeoutError, and what it raises; then its connection is dropped."""
        task = asyncio.ensure_future(work)
        seconds = seconds or self._terms.cut
        try:
            for _ in range(SLICES):
                if not task.done():
                    await asyncio.wait({task}, timeout=seconds / SLICES)
        except asyncio.CancelledError:
            self._give_up(task, wire)
            raise
        answered = task.done() and not task.cancelled()
        problem = task.exception() if answered else TimeoutError(f"no answer within {1000 * seconds:g} ms")
        if problem is None:
            return task.result()
        self._give_up(task, wire)
        raise problem

    def _give_up(self, task: asyncio.Task[Any], wire: RedisWire) -> None:
        task.cancel()
        for left in (task, asyncio.ensure_future(wire.drop())):
            self._ending.add(left)
            left.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._ending.discard(task)
        if not task.cancelled():
            task.exception()

    # ── hearing of slots that others gave ──

    def _listen(self) -> None:
        if self._listener is None or self._listener.done():
            heard = self._wire.listen(channel(self._name), self._tell_all_again, self._heard)
            self._listener = asyncio.ensure_future(heard)
            self._listener.add_done_callback(self._ended)

    def _heard(self, calls: str) -> None:
        for lane in self._lanes.values():
            lane.tell_again(calls.split())
        self._stir.set()

    def _tell_all_again(self) -> None:
        for lane in self._lanes.values():
            lane.tell_again()
        self._stir.set()

    # ── without Redis ──

    def _degrade(self, error: Exception) -> None:
        before, self.degraded = self.degraded, self._wire.said(error)
        if self._listener is not None:
            self._listener.cancel()
        older = asyncio.get_running_loop().time() - 2 * self._terms.lease
        for lane in self._lanes.values():
            lane.forget(older)
            self._admit(lane)
        if not before:
            goes_on = {"local": "each process counts for itself", "open": "no limit holds", "closed": "calls fail"}
            message = "limit on model calls: Redis at %s cannot be asked (%s); until it can, %s"
            log.warning(message, self._wire.shown, self.degraded, goes_on[self._terms.on_error])

    def _recover(self) -> None:
        if self.degraded:
            self.degraded = ""
            log.warning("limit on model calls: Redis at %s answers again; the limit holds for all", self._wire.shown)

    def _admit(self, lane: SharedLane) -> None:
        """What is done with calls that wait while Redis cannot be asked."""
        if self._terms.on_error == "closed":
            message = f"the limit on model calls cannot be asked: Redis at {self._wire.shown} ({self.degraded})"
            lane.refuse(lambda: StepFailed("connection_error", message, detail={"sent": False}))
            return
        limit = self._terms.limit if self._terms.on_error == "local" else len(lane.holding) + len(lane.waiting)
        self.admitted_degraded += lane.give_up_to(limit)
