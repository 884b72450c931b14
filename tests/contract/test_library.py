"""The libraries of workflows against their contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell.stores.memory import MemoryRunStore
from stepwell.stores.memory.library import MemoryLibrary
from stepwell.stores.sqlite import Database, SqliteRunStore
from stepwell.stores.sqlite.library import SqliteLibrary
from stepwell.testing.store_builders import ManualClock, OpenedStore
from stepwell.testing.store_library_contract import LibraryContract, OpenedLibrary
from stepwell.testing.store_recipe_contract import RecipeStoreContract


class TestMemoryLibrary(LibraryContract, RecipeStoreContract):
    @pytest.fixture
    async def opened(self) -> AsyncIterator[OpenedLibrary]:
        clock, uptime = ManualClock(1_800_000_000.0), ManualClock(1000.0)
        store = MemoryRunStore(clock=clock, uptime=uptime)
        yield OpenedLibrary(MemoryLibrary(store, clock=clock), OpenedStore(store, clock, uptime), clock)
        await store.close()


class TestSqliteLibrary(LibraryContract, RecipeStoreContract):
    @pytest.fixture
    async def opened(self, tmp_path: Path) -> AsyncIterator[OpenedLibrary]:
        clock, uptime = ManualClock(1_800_000_000.0), ManualClock(1000.0)
        database = Database.open(tmp_path / "runs.db")
        store = SqliteRunStore(database, clock=clock, uptime=uptime)
        yield OpenedLibrary(SqliteLibrary(database, clock=clock), OpenedStore(store, clock, uptime), clock)
        await store.close()
