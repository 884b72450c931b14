"""The limit within one process: first come, first served, for each account by itself.

The law of the file: nothing here waits for anything but a slot.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from stepwell.adapters.limits.lane import Lane
from stepwell.adapters.limits.queueing import granted
from stepwell.ports import LimitStanding


class LocalLimiter:
    """A `Limiter` that knows the calls of this process alone."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"a limit is at least 1, this is {limit}")
        self._limit = limit
        self._lanes: dict[str, Lane] = {}
        self._numbers = count()

    @asynccontextmanager
    async def slot(self, account: str) -> AsyncIterator[None]:
        lane = self._lanes.setdefault(account, Lane())
        call = str(next(self._numbers))
        slot = lane.want(call)
        lane.give_up_to(self._limit)
        try:
            await granted(slot)
            yield
        finally:
            lane.end(call)
            lane.give_up_to(self._limit)
            if lane.empty:
                self._lanes.pop(account, None)

    async def standing(self, account: str) -> LimitStanding:
        lane = self._lanes.get(account) or Lane()
        return LimitStanding(self._limit, "process", len(lane.holding), len(lane.waiting))

    async def aclose(self) -> None:
        """There is nothing to close."""


class NoLimiter:
    """A `Limiter` for `model_calls = 0`."""

    @asynccontextmanager
    async def slot(self, account: str) -> AsyncIterator[None]:  # noqa: ARG002 -- the port's name
        yield

    async def standing(self, account: str) -> LimitStanding:  # noqa: ARG002 -- the port's name
        return LimitStanding(0, "process", 0, 0)

    async def aclose(self) -> None:
        """There is nothing to close."""
