"""Virtual time: days pass in no time, in the order in which they would."""

from __future__ import annotations

import asyncio
import time

import pytest

from stepwell.testing import VirtualClock, run_in_virtual_time


def test_time_leaps_to_the_next_thing_that_is_due() -> None:
    told = []

    async def sleeper(name: str, delay: float) -> None:
        await asyncio.sleep(delay)
        told.append((name, asyncio.get_running_loop().time()))

    async def all_of_them() -> None:
        await asyncio.gather(sleeper("month", 30 * 86_400), sleeper("day", 86_400), sleeper("second", 1))

    clock = VirtualClock()
    run_in_virtual_time(all_of_them(), clock)
    assert told == [("second", 1.0), ("day", 86_400.0), ("month", 30 * 86_400.0)]
    assert clock.monotonic() == 30 * 86_400.0


def test_a_timeout_is_kept_in_virtual_time() -> None:
    async def late() -> None:
        async with asyncio.timeout(60):
            await asyncio.sleep(3600)

    clock = VirtualClock()
    with pytest.raises(TimeoutError):
        run_in_virtual_time(late(), clock)
    assert clock.monotonic() == pytest.approx(60)


def test_while_a_thread_works_time_passes_as_it_does_outside() -> None:
    async def work() -> str:
        async with asyncio.timeout(60):  # leaping would end it at once
            return await asyncio.to_thread(lambda: (time.sleep(0.05), "done")[1])

    clock = VirtualClock()
    assert run_in_virtual_time(work(), clock) == "done"
    assert clock.monotonic() < 30


def test_waiting_for_what_cannot_come_is_told() -> None:
    async def forever() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="nothing can happen any more"):
        run_in_virtual_time(forever())


async def test_it_runs_beside_a_loop_that_is_running() -> None:
    async def now() -> float:
        await asyncio.sleep(5)
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(now()) == 5.0


def test_the_wall_clock_jumps_and_the_other_readings_do_not() -> None:
    clock = VirtualClock("2026-03-01T00:00:00+01:00")
    began = clock.now()
    clock.jump(hours=-12)
    clock.jump(hours=24, after="10s")
    assert (clock.now() - began, clock.monotonic(), clock.next_jump()) == (-43_200, 0, 10)
    clock.advance(10)
    assert (clock.now() - began, clock.monotonic()) == (43_210, 10)
