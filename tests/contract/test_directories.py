"""The directories against their contract, and what only a database can do wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell.ports import AuditRecord, Person
from stepwell.stores.memory import MemoryRunStore
from stepwell.stores.sqlite import Database, SqliteRunStore
from stepwell.testing.people_contract import PeopleContract
from stepwell.testing.store_builders import ManualClock, OpenedStore


class TestMemoryPeople(PeopleContract):
    @pytest.fixture
    async def opened(self) -> OpenedStore:
        clock, uptime = ManualClock(1_800_000_000.0), ManualClock(1000.0)
        return OpenedStore(MemoryRunStore(clock=clock, uptime=uptime), clock, uptime)


class TestSqlitePeople(PeopleContract):
    @pytest.fixture
    async def opened(self, tmp_path: Path) -> AsyncIterator[OpenedStore]:
        clock, uptime = ManualClock(1_800_000_000.0), ManualClock(1000.0)
        store = SqliteRunStore(Database.open(tmp_path / "runs.db"), clock=clock, uptime=uptime)
        yield OpenedStore(store, clock, uptime)
        await store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET who = 'eve'",
        "DELETE FROM audit",
        "INSERT OR REPLACE INTO audit VALUES (1, 'acme', 0, 'eve', 'x', '', '', '', 'null')",
    ],
)
async def test_the_database_itself_refuses_to_change_the_trail(tmp_path: Path, statement: str) -> None:
    store = SqliteRunStore.open(tmp_path / "runs.db")
    await store.people.note("acme", AuditRecord("ana", "run.start", "r1"))
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        await store.database.write(lambda connection: connection.execute(statement))
    assert [one.by for one in await store.people.audit("acme")] == ["ana"]
    await store.close()


async def test_people_and_trail_are_there_after_the_database_was_closed(tmp_path: Path) -> None:
    store = SqliteRunStore.open(tmp_path / "runs.db")
    await store.people.put("acme", [Person("ana")], notes=[AuditRecord("x", "people.add", "ana")])
    await store.close()
    store = SqliteRunStore.open(tmp_path / "runs.db")
    assert (await store.people.person("acme", "ana")).name == "ana"
    assert [one.object for one in await store.people.audit("acme")] == ["ana"]
    await store.close()
