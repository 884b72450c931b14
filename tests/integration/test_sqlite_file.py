"""The database file fails: its disk is full, it is taken away, it is another program's, or it is none at all."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.engine_world import engine_with, workflow

from stepwell.engine.settings import absolute_database
from stepwell.errors import Unavailable
from stepwell.ports import Batch
from stepwell.stores.sqlite import Database, SqliteRunStore
from stepwell.stores.sqlite.file import APPLICATION_ID
from stepwell.testing.scripted import ScriptedTools
from stepwell.testing.store_builders import ACCOUNT, batch, entry, leased, new_run

ROOM = "PRAGMA max_page_count=1000000"


class Disk:
    """A store whose database has `pages` left to grow, and is given more after `lines` lines of complaint."""

    def __init__(self, path: Path, *, lines: int, patience: float = 20.0) -> None:
        self.said: list[str] = []
        self._lines = lines
        self.store = SqliteRunStore(Database.open(path, patience=patience, on_busy=self._hear))

    async def fill(self, pages: int) -> None:
        self._connection = await self.store.database.write(lambda connection: connection)
        (used,) = self._connection.execute("PRAGMA page_count").fetchone()
        self._connection.execute(f"PRAGMA max_page_count={used + pages}")

    def _hear(self, line: str) -> None:
        self.said.append(line)
        if len(self.said) == self._lines:
            self._connection.execute(ROOM)


# ── a full disk ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_full_disk_is_waited_for_with_a_line_a_second_and_nothing_is_lost_or_written_twice(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path / "runs.db", lines=2)
    store = disk.store
    lease = await leased(store)
    await disk.fill(5)
    began = time.monotonic()
    handed = [store.append(lease, Batch([entry(f"/b/{n}", body=b"x" * 9000), entry(f"/c/{n}")])) for n in range(30)]
    orders = await asyncio.gather(*handed)
    assert orders == sorted(set(orders))
    assert 1.9 <= time.monotonic() - began < 20
    assert len(disk.said) == 2
    assert all("the disk or the database is full; trying again" in line for line in disk.said)
    written = [entry.path for entry in await store.history(ACCOUNT, "r1")]
    assert written == [path for n in range(30) for path in (f"/b/{n}", f"/c/{n}")]
    await store.close()


async def test_a_disk_that_stays_full_is_unavailable_after_the_patience_and_can_be_read_meanwhile(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path / "runs.db", lines=99, patience=1.5)
    store = disk.store
    lease = await leased(store)
    await store.append(lease, batch("/a"))
    await disk.fill(5)
    handed = asyncio.ensure_future(store.append(lease, Batch([entry("/b"), entry("/c", body=b"x" * 90_000)])))
    await asyncio.sleep(0.5)
    assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/a"]
    with pytest.raises(Unavailable, match="the disk or the database is full"):
        await handed
    assert len(disk.said) == 1
    assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/a"]
    await store.append(lease, batch("/d"))
    assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/a", "/d"]
    await store.close()


async def test_a_step_that_ends_while_the_disk_is_full_is_not_called_again_once_there_is_room(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "runs.db", lines=1)
    tools = ScriptedTools(answers={"big": [{"text": "x" * 300_000}]})
    steps = [{"id": name, "type": "tool_call", "tool": name} for name in ("big", "after")]
    async with engine_with(tools, disk.store) as engine:
        await disk.fill(8)
        run = await (await engine.start(workflow(steps), {})).wait()
        assert run.status == "completed"
    assert len(disk.said) == 1
    assert [call.tool for call in tools.calls] == ["big", "after"]


LIMITED = """
import asyncio, resource, sys
from stepwell.ports import Batch
from stepwell.stores.sqlite import Database, SqliteRunStore
from stepwell.testing.store_builders import ACCOUNT, entry, leased

_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
said = []

def hear(line):
    said.append(line)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

async def main():
    store = SqliteRunStore(Database.open(sys.argv[1], patience=20, on_busy=hear))
    lease = await leased(store)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * 1024, hard))
    await store.append(lease, Batch([entry("/a"), entry("/b", body=b"x" * 2_000_000)]))
    assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/a", "/b"]
    assert len(said) == 1, said
    await store.close()

asyncio.run(main())
"""


def test_a_write_that_a_limit_of_the_system_refuses_is_waited_for_like_a_full_disk(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "runs.db")],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


# ── a file that is taken away ────────────────────────────────────────────────────────────────────────────────────────


def _removed(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


def _moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def _replaced(path: Path) -> None:
    with closing(sqlite3.connect(path.with_name("new.db"))) as new:
        new.execute("CREATE TABLE other (x)")
    path.with_name("new.db").replace(path)


def _without_its_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("gone"))


@pytest.mark.parametrize("take_away", [_removed, _moved, _replaced, _without_its_folder])
async def test_a_write_to_a_file_that_was_taken_away_is_not_told_as_done(
    tmp_path: Path, take_away: Callable[[Path], None]
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "runs.db"
    store = SqliteRunStore.open(path)
    lease = await leased(store)
    await store.append(lease, batch("/a"))
    take_away(path)
    left = {file: file.read_bytes() for file in (path,) if file.exists()}
    for call in (store.append(lease, batch("/b")), store.create(new_run("r2"))):
        with pytest.raises(Unavailable, match=r"the database file .* was removed or replaced while it was in use"):
            await call
    with pytest.raises(Unavailable, match="removed or replaced"):
        store.blob_now(ACCOUNT, "a reader of its own opens the file")
    await store.close()
    assert {file: file.read_bytes() for file in (path,) if file.exists()} == left


async def test_a_database_with_a_relative_path_stays_where_it_is_when_the_process_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteRunStore.open("runs.db")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    lease = await leased(store)
    await store.append(lease, batch("/a"))
    assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/a"]
    await store.close()
    assert list((tmp_path / "other").iterdir()) == []


# ── a file of another program ────────────────────────────────────────────────────────────────────────────────────────


def _foreign(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement).fetchall()


@pytest.mark.parametrize(
    ("statements", "named"),
    [
        (["CREATE TABLE invoice (id, total)", "INSERT INTO invoice VALUES (1, 2)"], "holds: invoice"),
        (["PRAGMA journal_mode=WAL", "CREATE TABLE invoice (id)"], "holds: invoice"),
        (["CREATE TABLE schema_migration (version)", "CREATE TABLE run (id)"], "holds: schema_migration, run"),
        (["CREATE VIEW total AS SELECT 1"], "holds: total"),
        (["PRAGMA application_id=1", "PRAGMA user_version=1"], "holds: nothing yet"),
    ],
)
def test_a_database_of_another_program_is_refused_and_left_as_it_is(
    tmp_path: Path, statements: list[str], named: str
) -> None:
    path = tmp_path / "shop.db"
    _foreign(path, *statements)
    before = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(Unavailable, match=f"belongs to another program .*{named}"):
        SqliteRunStore.open(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [file.name for file in tmp_path.iterdir()] == ["shop.db"]


def test_a_database_that_another_program_is_writing_is_refused_and_keeps_its_log(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE invoice (id)")
        log = path.with_name("shop.db-wal")
        before = path.read_bytes(), log.read_bytes()
        assert len(before[1]) > 0
        with pytest.raises(Unavailable, match="belongs to another program"):
            SqliteRunStore.open(path)
        assert (path.read_bytes(), log.read_bytes()) == before
        other.execute("INSERT INTO invoice VALUES (1)")
        assert other.execute("SELECT count(*) FROM invoice").fetchone() == (1,)


@pytest.mark.parametrize("statements", [[], ["PRAGMA journal_mode=WAL"], ["CREATE TABLE t (x)", "DROP TABLE t"]])
async def test_an_empty_file_becomes_a_database_that_says_whose_it_is(tmp_path: Path, statements: list[str]) -> None:
    path = tmp_path / "runs.db"
    path.touch()
    _foreign(path, *statements)
    store = SqliteRunStore.open(path)
    assert (await store.create(new_run("r1")))[1]
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert int.from_bytes(path.read_bytes()[68:72], "big") == APPLICATION_ID


async def test_a_database_from_before_it_said_whose_it_is_opens_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteRunStore.open(path)
    await store.create(new_run("r1"))
    await store.close()
    _foreign(path, "PRAGMA application_id=0")
    again = SqliteRunStore.open(path)
    assert [run.id for run in await again.runs(ACCOUNT)] == ["r1"]
    await again.close()


# ── no file ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "url", ["sqlite:///:memory:", "sqlite://:memory:", ":memory:", "sqlite:///file::memory:?cache=shared"]
)
def test_a_database_in_memory_is_refused_with_a_hint(url: str) -> None:
    with pytest.raises(ValueError, match="names no file, and runs are kept in one; write sqlite:///"):
        absolute_database(url, Path("/p"))


def test_a_store_in_memory_makes_no_file_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unavailable, match="names no file"):
        SqliteRunStore.open(":memory:")
    assert list(tmp_path.iterdir()) == []
