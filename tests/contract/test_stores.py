"""The run stores against their contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell.stores.memory import MemoryRunStore
from stepwell.stores.sqlite import Database, SqliteRunStore
from stepwell.testing.store_builders import ManualClock, OpenedStore
from stepwell.testing.store_contract import RunStoreContract


class TestMemoryRunStore(RunStoreContract):
    @pytest.fixture
    async def opened(self) -> AsyncIterator[OpenedStore]:
        clock, uptime = ManualClock(1_800_000_000.0), ManualClock(1000.0)
        store = MemoryRunStore(clock=clock, uptime=uptime)
        yield OpenedStore(store, clock, uptime)
        await store.close()


class TestSqliteRunStore(RunStoreContract):
    @pytest.fixture
    async def opened(self, tmp_path: Path) -> AsyncIterator[OpenedStore]:
        clock, uptime = ManualClock(1_800_000_000.0), ManualClock(1000.0)
        store = SqliteRunStore(Database.open(tmp_path / "runs.db"), clock=clock, uptime=uptime)
        yield OpenedStore(store, clock, uptime)
        await store.close()
