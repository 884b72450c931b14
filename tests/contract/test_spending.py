"""The stores of spending against their contract, and what several processes do to one file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell.ports import Limit
from stepwell.stores.memory import MemoryRunStore
from stepwell.stores.sqlite import Database, SqliteRunStore
from stepwell.testing.spending_contract import SpendingContract
from stepwell.testing.store_builders import ManualClock, OpenedStore


class TestMemorySpending(SpendingContract):
    @pytest.fixture
    async def opened(self) -> OpenedStore:
        clock, uptime = ManualClock(1_800_000_000.0), ManualClock(1000.0)
        return OpenedStore(MemoryRunStore(clock=clock, uptime=uptime), clock, uptime)


class TestSqliteSpending(SpendingContract):
    @pytest.fixture
    async def opened(self, tmp_path: Path) -> AsyncIterator[OpenedStore]:
        clock, uptime = ManualClock(1_800_000_000.0), ManualClock(1000.0)
        store = SqliteRunStore(Database.open(tmp_path / "runs.db"), clock=clock, uptime=uptime)
        yield OpenedStore(store, clock, uptime)
        await store.close()


SPENDER = textwrap.dedent("""
    import asyncio, json, random, sys, time
    from stepwell.ports import Limit, Reservation, Spent
    from stepwell.stores.sqlite import SqliteRunStore

    async def main(path, name, seed):
        store, chance = SqliteRunStore.open(path, durability="normal"), random.Random(seed)
        limit = Limit("account", tokens=1500)
        async def call(number):
            most = chance.randint(1, 60)
            asked = Reservation(f"{name}-{number}", name, "w", "/a", 1, "m", 1, most, 0, 0, 0.0, time.time() + 2)
            while (full := await store.spending.reserve("default", asked, [limit])) is not None:
                if not full.open_tokens or full.tokens + most > 1500:
                    return
                await asyncio.sleep(0.01)
            await asyncio.sleep(chance.random() / 100)
            took = chance.randint(0, most)
            await store.spending.settle("default", asked.id, Spent(took, 0, 0))
            print(json.dumps([most, took]), flush=True)
        for start in range(0, 100, 20):
            await asyncio.gather(*(call(start + n) for n in range(20)))
        await store.close()
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
""")


async def test_processes_that_spend_at_once_and_are_killed_never_spend_more_than_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    store = SqliteRunStore.open(file)
    limit = Limit("account", tokens=1500)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    crew = [
        subprocess.Popen(
            [sys.executable, "-c", SPENDER, str(file), f"r{number}", str(number)],
            stdout=subprocess.PIPE, text=True, env=env,
        )
        for number in range(3)
    ]  # fmt: skip
    told = []
    victim = crew[0]
    assert victim.stdout is not None
    for line in victim.stdout:  # on a busy machine the others may have spent everything before
        told.append(json.loads(line))
        if len(told) == 8:
            break
    os.kill(victim.pid, signal.SIGKILL)
    for process in crew:
        assert process.stdout is not None
        told += [json.loads(line) for line in process.stdout if line.endswith("\n")]
        process.stdout.close()
        process.wait(60)
    (standing,) = await store.spending.standings("default", [limit])
    assert standing.tokens + standing.open_tokens <= 1500
    assert sum(took for _, took in told) <= standing.tokens, "what was told to be spent is counted"
    by_row = sum(one.input_tokens for one in await store.spending.usage("default", "run"))
    assert standing.tokens == by_row, "the sums are the sums of the rows"
    await store.close()
