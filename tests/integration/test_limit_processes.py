"""The limit over several processes with a real Redis: killed and stopped holders, waiters that die, restarts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import pytest
from tests.redis_server import RedisServer, redis_server

from stepwell.adapters.limits import RedisLimiter, Terms
from stepwell.testing.limiter_contract import Crowd

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT, LEASE = 10, 4.0
LONG = 60.0
"""Seconds after which what should have happened has not, on the busiest machine."""


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


class Gauge:
    """Counts the calls of other processes, by the connections that each of them keeps."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._call, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        await until(lambda: self.now == 0)

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.now, self.total = self.now + 1, self.total + 1
        self.most = max(self.most, self.now)
        try:
            await reader.read()
        except ConnectionError:
            pass
        finally:
            self.now -= 1
            writer.close()


async def until(holds) -> None:
    async with asyncio.timeout(LONG):
        while not holds():
            await asyncio.sleep(0.02)


class Processes:
    """Processes of `tests.limit_process`, ended with the test."""

    def __init__(self, redis: RedisServer, gauge: Gauge) -> None:
        self._arguments = (redis.url, str(gauge.port), str(LIMIT), str(LEASE))
        self._all: list[Process] = []

    async def start(self, holders: int, calls: int = 0) -> Process:
        command = [sys.executable, "-m", "tests.limit_process", *self._arguments, str(holders), str(calls)]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, cwd=ROOT)
        self._all.append(process)
        return process

    async def holding(self, holders: int) -> Process:
        process = await self.start(holders)
        await said(process, b"holding")
        return process

    async def kill(self, process: Process) -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    async def close(self) -> None:
        for process in self._all:
            if process.returncode is None:
                os.kill(process.pid, signal.SIGCONT)
            await self.kill(process)


async def said(process: Process, word: bytes) -> None:
    async with asyncio.timeout(LONG):
        assert process.stdout is not None
        assert (await process.stdout.readline()).strip() == word


@asynccontextmanager
async def stage(redis: RedisServer) -> AsyncIterator[tuple[RedisLimiter, Gauge, Processes]]:
    """A limiter of this process, and others beside it."""
    async with Gauge() as gauge:
        limiter = RedisLimiter(redis.url, Terms(LIMIT, lease=LEASE, cut=5.0, probe=0.2))
        processes = Processes(redis, gauge)
        try:
            yield limiter, gauge, processes
        finally:
            await processes.close()
            await limiter.aclose()


async def test_c117_slots_of_killed_holders_are_free_after_the_lease_and_those_of_living_ones_never(redis):
    async with stage(redis) as (limiter, gauge, processes):
        await processes.holding(2)  # lives throughout, longer than any lease
        for _ in range(5):
            doomed = await processes.holding(4)
            await processes.kill(doomed)
            crowd, gate = Crowd(limiter), asyncio.Event()
            calls = [asyncio.create_task(crowd.call(number, gate.wait)) for number in range(12)]
            await until(lambda: crowd.now >= LIMIT - 2 - 4)  # noqa: B023 -- called at once
            await until(lambda: crowd.now == LIMIT - 2)  # noqa: B023
            standing = await limiter.standing("a")
            assert (standing.holding, standing.waiting) == (LIMIT, 4)
            gate.set()
            await asyncio.gather(*calls)
            assert crowd.most == LIMIT - 2
            await crowd.until(2, 0)
        assert gauge.now == 2
        assert limiter.degraded == ""


async def test_a_waiter_that_dies_does_not_block_those_behind_it(redis):
    async with stage(redis) as (limiter, _, processes):
        crowd, gate = Crowd(limiter), asyncio.Event()
        holders = [asyncio.create_task(crowd.call(number, gate.wait)) for number in range(LIMIT)]
        await crowd.until(LIMIT, 0)
        doomed = await processes.start(5)
        await crowd.until(LIMIT, 5)
        behind = [asyncio.create_task(crowd.call(number)) for number in range(100, 110)]
        await crowd.until(LIMIT, 15)
        await processes.kill(doomed)
        gate.set()
        async with asyncio.timeout(LONG):
            await asyncio.gather(*holders, *behind)
        await crowd.until(0, 0)


async def test_a_holder_that_stood_still_longer_than_its_lease_is_counted_again_once_it_goes_on(redis):
    async with stage(redis) as (limiter, gauge, processes):
        still = await processes.holding(LIMIT)
        os.kill(still.pid, signal.SIGSTOP)
        crowd, gate = Crowd(limiter), asyncio.Event()
        calls = [asyncio.create_task(crowd.call(number, gate.wait)) for number in range(LIMIT)]
        await until(lambda: crowd.now == LIMIT)  # its leases have lapsed
        os.kill(still.pid, signal.SIGCONT)
        await crowd.until(2 * LIMIT, 0)  # the truth: so many are in flight
        late = asyncio.create_task(crowd.call(100))
        await crowd.until(2 * LIMIT, 1)
        gate.set()
        await asyncio.gather(*calls)
        await crowd.until(LIMIT, 1)
        await processes.kill(still)
        await asyncio.wait_for(late, LONG)
        await crowd.until(0, 0)
        assert gauge.now == 0


async def test_processes_share_the_slots_and_each_gets_its_turn(redis):
    async with stage(redis) as (_, gauge, processes):
        three = [await processes.start(0, calls=200) for _ in range(3)]
        for process in three:
            await said(process, b"holding")
        for process in three:
            await said(process, b"done")
            await asyncio.wait_for(process.wait(), LONG)
        assert gauge.total == 600
        assert 3 < gauge.most <= LIMIT
        await until(lambda: redis.ask("ZCARD", "stepwell:limit:{a}:leases").strip() == b":0")


@pytest.mark.parametrize("outage", ["restarted", "stopped"])
async def test_under_load_an_outage_stops_no_process_and_the_count_is_right_afterwards(redis, outage):
    async with stage(redis) as (limiter, gauge, processes):
        three = [await processes.start(0, calls=300) for _ in range(3)]
        for process in three:
            await said(process, b"holding")
        for _ in range(3):
            reached = gauge.total + 50
            await until(lambda: gauge.total >= reached)  # noqa: B023
            if outage == "restarted":
                redis.kill()
            else:
                redis.stop()
            reached = gauge.total + 50
            await until(lambda: gauge.total >= reached)  # noqa: B023
            if outage == "restarted":
                redis.start()
            else:
                redis.go_on()
        for process in three:
            await said(process, b"done")
            await asyncio.wait_for(process.wait(), LONG)
            assert process.returncode == 0
        assert gauge.total == 900
        assert gauge.most <= 3 * LIMIT
        await Crowd(limiter).until(0, 0)
        crowd = Crowd(limiter)
        await asyncio.gather(*[crowd.call(number, 0.01) for number in range(40)])
        assert crowd.most == LIMIT
