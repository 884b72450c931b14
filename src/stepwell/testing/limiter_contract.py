"""What every limiter must do, as tests: derive a class from `LimiterContract` and give it a fixture `limited`.

The law of the file: only the port is used, so that any limiter can be held against it. Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

from stepwell.ports import Limiter

LIMIT = 3
"""What the fixture's limiter allows."""
SOON = 20.0
"""Seconds after which what should have happened has not."""


class Crowd:
    """Calls that count themselves while they hold a slot."""

    def __init__(self, limiter: Limiter) -> None:
        self.limiter = limiter
        self.now = self.most = 0
        self.order: list[int] = []

    async def call(self, number: int, work: Callable[[], object] | float = 0.0, account: str = "a") -> None:
        """One call that works for so many seconds, or until what `work` gives is awaited."""
        async with self.limiter.slot(account):
            self.now += 1
            self.most = max(self.most, self.now)
            self.order.append(number)
            try:
                if callable(work):
                    await work()  # type: ignore[misc]
                else:
                    await asyncio.sleep(work)
            finally:
                self.now -= 1

    async def until(self, holding: int, waiting: int, account: str = "a") -> None:
        """Return once so many calls hold slots and so many wait."""
        async with asyncio.timeout(SOON):
            while True:
                standing = await self.limiter.standing(account)
                if (standing.holding, standing.waiting) == (holding, waiting):
                    return
                await asyncio.sleep(0.01)


class LimiterContract:
    async def test_no_more_calls_hold_slots_than_the_limit_says(self, limited: Limiter) -> None:
        crowd = Crowd(limited)
        await asyncio.gather(*[crowd.call(number, 0.005) for number in range(30)])
        assert (crowd.most, crowd.now) == (LIMIT, 0)
        await crowd.until(0, 0)

    async def test_who_came_first_is_served_first(self, limited: Limiter) -> None:
        crowd, gate = Crowd(limited), asyncio.Event()
        holders = [asyncio.create_task(crowd.call(number, gate.wait)) for number in range(LIMIT)]
        await crowd.until(LIMIT, 0)
        waiters = []
        for number in range(20):
            waiters.append(asyncio.create_task(crowd.call(100 + number)))
            await crowd.until(LIMIT, number + 1)
        gate.set()
        await asyncio.gather(*holders, *waiters)
        assert crowd.order[LIMIT:] == [100 + number for number in range(20)]

    async def test_accounts_do_not_wait_for_each_other(self, limited: Limiter) -> None:
        crowd, gate = Crowd(limited), asyncio.Event()
        holders = [asyncio.create_task(crowd.call(number, gate.wait)) for number in range(LIMIT + 2)]
        await crowd.until(LIMIT, 2)
        async with asyncio.timeout(SOON):
            await crowd.call(100, account="b")
        standing = await limited.standing("b")
        assert (standing.limit, standing.holding, standing.waiting, standing.degraded) == (LIMIT, 0, 0, "")
        gate.set()
        await asyncio.gather(*holders)

    async def test_who_gives_up_waiting_leaves_the_queue_to_the_others(self, limited: Limiter) -> None:
        crowd, gate = Crowd(limited), asyncio.Event()
        holders = [asyncio.create_task(crowd.call(number, gate.wait)) for number in range(LIMIT)]
        await crowd.until(LIMIT, 0)
        waiters = [asyncio.create_task(crowd.call(100 + number)) for number in range(4)]
        await crowd.until(LIMIT, 4)
        for gone in (waiters[0], waiters[2]):
            gone.cancel()
        await crowd.until(LIMIT, 2)
        gate.set()
        await asyncio.gather(*holders, *waiters, return_exceptions=True)
        assert crowd.order[LIMIT:] == [101, 103]
        await crowd.until(0, 0)

    async def test_however_calls_end_each_slot_is_given_back_once(self, limited: Limiter) -> None:
        """A thousand calls end in every way: success, error, timeout, cancelled while they wait or hold a slot."""
        crowd, chance = Crowd(limited), random.Random(7)  # noqa: S311 -- reproducible, not secret

        async def one(number: int) -> None:
            pause = chance.random() * 0.004
            end = chance.randrange(4)
            if end == 0:
                await crowd.call(number, pause)
            elif end == 1:
                await crowd.call(number, _failing(pause))
            elif end == 2:
                async with asyncio.timeout(pause):
                    await crowd.call(number, 0.002)
            else:
                task = asyncio.create_task(crowd.call(number, 0.002))
                await asyncio.sleep(pause)
                task.cancel()
                await task

        for begun in range(0, 1000, 50):
            ends = await asyncio.gather(*map(one, range(begun, begun + 50)), return_exceptions=True)
            kinds = {type(end) for end in ends}
            assert kinds <= {type(None), RuntimeError, TimeoutError, asyncio.CancelledError}
        assert crowd.most == LIMIT
        await crowd.until(0, 0)
        async with asyncio.timeout(SOON):
            await asyncio.gather(*[crowd.call(number, 0.01) for number in range(2 * LIMIT)])
        assert crowd.most == LIMIT

    async def test_a_slot_that_comes_together_with_a_cancel_goes_to_the_next(self, limited: Limiter) -> None:
        crowd = Crowd(limited)
        for _ in range(20):
            gate = asyncio.Event()
            holders = [asyncio.create_task(crowd.call(number, gate.wait)) for number in range(LIMIT)]
            await crowd.until(LIMIT, 0)
            waiters = [asyncio.create_task(crowd.call(number)) for number in range(2 * LIMIT)]
            await crowd.until(LIMIT, 2 * LIMIT)
            gate.set()
            await holders[0]  # whose slot is being handed on as the waiters go
            for waiter in waiters[:LIMIT]:
                waiter.cancel()
            with suppress(asyncio.CancelledError):
                await waiters[0]
            async with asyncio.timeout(SOON):
                await asyncio.gather(*waiters[LIMIT:], *holders)
            await crowd.until(0, 0)


def _failing(pause: float) -> Callable[[], object]:
    async def work() -> None:
        await asyncio.sleep(pause)
        raise RuntimeError("the call failed")

    return work
