"""Several processes on one database file: they share it, die, stop and wake, and nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepwell.errors import AlreadyDecided, Unavailable
from stepwell.journal.lease import LeaseLost
from stepwell.ports import Ballot, Batch, Message, Verdict
from stepwell.stores.liveness import ProcessIdentity
from stepwell.stores.sqlite import Database, SqliteRunStore
from stepwell.testing.store_builders import ACCOUNT, TTL, a_wait, batch, entry, leased, new_run, parked_at

PRELUDE = """
import asyncio, json, os, sys, time
from stepwell.journal.lease import LeaseLost
from stepwell.ports import Ballot, Batch, Message, Verdict
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.testing.store_builders import ACCOUNT, TTL, batch, entry, leased, new_run

path = sys.argv[1]

def say(**said):
    print(json.dumps(said), flush=True)
"""


class Child:
    """A Python process that runs a coroutine `main()` on the file and says JSON lines."""

    def __init__(self, path: Path, source: str, *arguments: str) -> None:
        code = PRELUDE + textwrap.dedent(source) + "\nasyncio.run(main())\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(path), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process ended without a word"
        return json.loads(line)

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self) -> int:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        return self.process.wait(60)


@contextmanager
def child(path: Path, source: str, *arguments: str) -> Iterator[Child]:
    started = Child(path, source, *arguments)
    try:
        yield started
    finally:
        started.process.kill()
        started.end()


OWNER = """
async def main():
    store = SqliteRunStore.open(path)
    lease = await leased(store, "r1", "there")
    await store.renew([lease], float(sys.argv[2]))
    await store.append(lease, batch("/a"))
    say(epoch=lease.epoch, pid=os.getpid())
    sys.stdin.readline()
    try:
        await store.append(lease, batch("/late"))
        say(appended=True)
    except LeaseLost:
        say(appended=False)
    await store.close()
"""


async def test_a_killed_owner_loses_its_run_at_once(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteRunStore.open(path)
    with child(path, OWNER, "600") as owner:
        owner.hear()
        assert await store.claim("here", TTL) == []
        owner.process.send_signal(signal.SIGKILL)  # and nobody has waited for it: it is a zombie now
        deadline = time.monotonic() + 2
        while not (leases := await store.claim("here", TTL)):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert [entry.path for entry in (await store.load(leases[0])).entries] == ["/a"]
    await store.close()


async def test_c047_a_stopped_owner_that_wakes_after_its_lease_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteRunStore.open(path)
    with child(path, OWNER, "2") as owner:
        owner.hear()
        owner.process.send_signal(signal.SIGSTOP)
        assert await store.claim("here", TTL) == []
        await asyncio.sleep(2.1)
        [lease] = await store.claim("here", TTL)
        await store.append(lease, batch("/b"))
        owner.process.send_signal(signal.SIGCONT)
        owner.tell()
        assert owner.hear() == {"appended": False}
        assert await store.release(lease, Batch(), Verdict("completed"))
    assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/a", "/b"]
    await store.close()


async def test_an_owner_that_closed_its_store_gives_its_runs_up(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    first = SqliteRunStore.open(path)
    await leased(first)
    second = SqliteRunStore.open(path)
    assert await second.claim("here", TTL) == []
    await first.close()
    assert len(await second.claim("here", TTL)) == 1
    await second.close()


def test_a_process_is_not_mistaken_for_an_earlier_one_with_its_number() -> None:
    me = ProcessIdentity.current()
    assert ProcessIdentity.parse(str(me)) == me
    assert not me.known_dead()
    assert ProcessIdentity(me.host, me.pid, "1" + me.started, me.boot).known_dead()
    assert ProcessIdentity(me.host, me.pid, me.started, "another boot").known_dead()
    assert not ProcessIdentity("another host", me.pid, "1" + me.started, me.boot).known_dead()
    assert ProcessIdentity(me.host, 2**22 + 1, me.started, me.boot).known_dead()


APPENDERS = """
async def work(store, name):
    lease = await leased(store, name, "w" + sys.argv[2])
    for number in range(20):
        orders = [store.append(lease, batch(f"/p/{branch}/{number}")) for branch in range(10)]
        await asyncio.gather(*orders)
    assert await store.release(lease, batch("/end"), Verdict("completed"))

async def main():
    store = SqliteRunStore.open(path)
    await asyncio.gather(*(work(store, f"r{sys.argv[2]}-{number}") for number in range(4)))
    await store.close()
    say(done=True)
"""


async def test_c121_three_processes_a_long_reader_and_a_backup_share_one_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await SqliteRunStore.open(path).close()
    reader = sqlite3.connect(path, isolation_level=None)
    children = [Child(path, APPENDERS, str(number)) for number in range(3)]
    try:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM journal").fetchone()
        await asyncio.sleep(0.5)
        backup = sqlite3.connect(path)
        backup.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
        backup.close()
        assert [await asyncio.to_thread(started.hear) for started in children] == [{"done": True}] * 3
        reader.execute("ROLLBACK")
    finally:
        codes = [started.end() for started in children]
        reader.close()
    assert codes == [0, 0, 0]
    store = SqliteRunStore.open(path)
    runs = await store.runs(ACCOUNT)
    assert [run.status for run in runs] == ["completed"] * 12
    for run in runs:
        assert len(await store.history(ACCOUNT, run.id)) == 201
    await store.close()
    assert not path.with_name("runs.db-wal").exists() or path.with_name("runs.db-wal").stat().st_size == 0
    copy = sqlite3.connect(tmp_path / "backup.db")
    assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    copy.close()


async def test_the_log_shrinks_again_after_a_reader_kept_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepwell.stores.sqlite.writer._WAL_BOUND", 1024 * 1024)
    monkeypatch.setattr("stepwell.stores.sqlite.writer._LOOK_AT_WAL", 0.0)
    path = tmp_path / "runs.db"
    store = SqliteRunStore.open(path)
    lease = await leased(store)
    log = path.with_name("runs.db-wal")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM journal").fetchone()
    for number in range(40):
        await store.append(lease, Batch([entry(f"/a/{number}", body=b"x" * 50_000)]))
    assert log.stat().st_size > 1024 * 1024
    reader.close()
    await store.append(lease, batch("/b"))
    await store.append(lease, batch("/c"))
    assert log.stat().st_size < 1024 * 1024
    await store.close()


OPENERS = """
async def main():
    say(ready=True)
    sys.stdin.readline()
    store = SqliteRunStore.open(path)
    await store.create(new_run(f"r{sys.argv[2]}"))
    await store.close()
    say(done=True)
"""


async def test_processes_that_open_a_fresh_file_at_once_all_find_it_ready(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    children = [Child(path, OPENERS, str(number)) for number in range(6)]
    for started in children:
        assert started.hear() == {"ready": True}
    for started in children:
        started.tell()
    heard = [await asyncio.to_thread(started.hear) for started in children]
    assert heard == [{"done": True}] * 6
    assert [started.end() for started in children] == [0] * 6
    store = SqliteRunStore.open(path)
    assert len(await store.runs(ACCOUNT)) == 6
    await store.close()


DECIDER = """
async def main():
    from stepwell.errors import AlreadyDecided
    store = SqliteRunStore.open(path)
    say(ready=True)
    sys.stdin.readline()
    said = [store.decide(ACCOUNT, "x1", Ballot({"by": f"{os.getpid()}-{n}"})) for n in range(17)]
    results = await asyncio.gather(*said, return_exceptions=True)
    won = [result.decision for result in results if not isinstance(result, Exception)]
    told = [result.detail for result in results if isinstance(result, AlreadyDecided)]
    say(won=won, told=told)
    await store.close()
"""


async def test_fifty_decisions_from_three_processes_have_one_winner(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteRunStore.open(path)
    await parked_at(store, a_wait("x1", "/g"))
    children = [Child(path, DECIDER) for _ in range(3)]
    for started in children:
        started.hear()
    for started in children:
        started.tell()
    said = [await asyncio.to_thread(started.hear) for started in children]
    assert [started.end() for started in children] == [0] * 3
    [winner] = [decision for heard in said for decision in heard["won"]]
    told = [decision for heard in said for decision in heard["told"]]
    assert told == [winner] * 50
    [lease] = await store.claim("w", TTL)
    assert [message.body for message in (await store.load(lease)).messages] == [winner]
    await store.close()


def test_threads_with_loops_of_their_own_share_one_store(tmp_path: Path) -> None:
    store = SqliteRunStore.open(tmp_path / "runs.db")
    asyncio.run(parked_at(store, a_wait("x1", "/g")))
    won: list[object] = []
    lost: list[object] = []

    def decide(number: int) -> None:
        try:
            won.append(asyncio.run(store.decide(ACCOUNT, "x1", Ballot({"by": number}))).decision)
        except AlreadyDecided as refused:
            lost.append(refused.detail)

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert lost == won * 49
    asyncio.run(store.close())


CREATOR = """
async def main():
    store = SqliteRunStore.open(path)
    taken = []
    for number in range(125):
        name = f"{sys.argv[2]}-{number}"
        _, leases = await asyncio.gather(store.create(new_run(name, created=1.0)), store.claim("w", TTL, limit=2))
        taken += [lease.run_id for lease in leases]
    while leases := await store.claim("w", TTL, limit=50):
        taken += [lease.run_id for lease in leases]
    say(taken=taken)
    sys.stdin.readline()
    await store.close()
"""


async def test_c045_runs_created_and_claimed_in_one_tick_by_four_processes_have_one_owner(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    children = [Child(path, CREATOR, str(number)) for number in range(4)]
    taken = [name for started in children for name in (await asyncio.to_thread(started.hear))["taken"]]
    store = SqliteRunStore.open(path)
    taken += [lease.run_id for lease in await store.claim("here", TTL, limit=500)]
    assert sorted(taken) == sorted(f"{process}-{number}" for process in range(4) for number in range(125))
    for started in children:
        started.tell()
    assert [started.end() for started in children] == [0] * 4
    await store.close()


async def test_a_message_of_another_process_is_heard(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteRunStore.open(path)
    lease = await leased(store)
    while await store.changed(0):
        pass
    source = """
    async def main():
        store = SqliteRunStore.open(path)
        await store.post(ACCOUNT, Message("r1", "cancel"))
        await store.heartbeat("server", serves=True, ttl=60)
        say(posted=True)
        sys.stdin.readline()
    """
    with child(path, source) as poster:
        assert await store.changed(20)
        assert [message.kind for message in await store.inbox(lease, 0)] == ["cancel"]
        await asyncio.to_thread(poster.hear)
        assert await store.served()
    assert not await store.served()
    await store.close()


async def test_a_locked_file_is_waited_for_with_a_line_a_second_and_then_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    lines: list[str] = []
    store = SqliteRunStore(Database.open(path, patience=2.5, on_busy=lines.append))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="another process keeps it locked"):
        await store.create(new_run("r1"))
    assert len(lines) == 2
    waiting = asyncio.create_task(store.create(new_run("r2")))
    await asyncio.sleep(0.3)
    other.execute("ROLLBACK")
    assert (await waiting)[1]
    assert [run.id for run in await store.runs(ACCOUNT)] == ["r2"]
    other.close()
    await store.close()


async def test_a_full_database_applies_nothing_by_halves_and_works_again_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteRunStore(Database.open(path, patience=0.3))
    lease = await leased(store)
    await store.append(lease, batch("/a"))
    pages = await store.database.write(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
    await store.database.write(lambda connection: connection.execute(f"PRAGMA max_page_count={pages + 20}").fetchone())
    handed = [store.append(lease, Batch([entry(f"/b/{n}", body=b"x" * 9000), entry(f"/c/{n}")])) for n in range(30)]
    results = await asyncio.gather(*handed, return_exceptions=True)
    assert all(isinstance(result, Unavailable) and "full" in str(result) for result in results)
    assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/a"]
    await store.append(lease, batch("/small"))
    await store.database.write(lambda connection: connection.execute("PRAGMA max_page_count=1000000").fetchone())
    await store.append(lease, Batch([entry("/b", body=b"x" * 90_000)]))
    assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/a", "/small", "/b"]
    await store.close()


async def test_a_file_that_may_only_be_read_is_unavailable_for_writes_and_can_be_read(tmp_path: Path) -> None:
    store = SqliteRunStore.open(tmp_path / "runs.db")
    lease = await leased(store)
    await store.database.write(lambda connection: connection.execute("PRAGMA query_only=ON").fetchone())
    with pytest.raises(Unavailable, match="may not be written"):
        await store.append(lease, batch("/a"))
    with pytest.raises(Unavailable):
        await store.post(ACCOUNT, Message("r1", "cancel"))
    assert (await store.run(ACCOUNT, "r1")).status == "running"
    await store.database.close()


def test_what_cannot_be_opened_is_unavailable_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="does its folder exist"):
        SqliteRunStore.open(tmp_path / "nowhere" / "runs.db")
    (tmp_path / "text.db").write_text("This is no database, and long enough to be taken for one at first sight." * 20)
    with pytest.raises(Unavailable, match="no SQLite database"):
        SqliteRunStore.open(tmp_path / "text.db")


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await SqliteRunStore.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO schema_migration VALUES ('runs', 999, 'later', 'x')")
    connection.commit()
    with pytest.raises(Unavailable, match="newer version of Stepwell"):
        SqliteRunStore.open(path)
    connection.execute("DELETE FROM schema_migration WHERE number = 999")
    connection.execute("UPDATE schema_migration SET checksum = 'x'")
    connection.commit()
    connection.close()
    with pytest.raises(Unavailable, match="another migration"):
        SqliteRunStore.open(path)


async def test_a_closed_store_refuses_and_has_kept_what_was_handed_over(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SqliteRunStore.open(path)
    lease = await leased(store)
    handed = asyncio.ensure_future(store.append(lease, batch("/a")))
    await store.close()
    await store.close()
    assert await handed > 0
    for call in (store.create(new_run("r2")), store.run(ACCOUNT, "r1")):
        with pytest.raises(Unavailable, match="closed"):
            await call
    again = SqliteRunStore.open(path)
    assert [entry.path for entry in await again.history(ACCOUNT, "r1")] == ["/a"]
    await again.close()


async def test_an_abandoned_append_is_written_all_the_same(tmp_path: Path) -> None:
    store = SqliteRunStore.open(tmp_path / "runs.db")
    lease = await leased(store)
    handed = asyncio.ensure_future(store.append(lease, batch("/a")))
    handed.cancel()
    await store.append(lease, batch("/b"))
    assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/a", "/b"]
    await store.close()


async def test_a_failing_operation_of_a_group_takes_only_its_own_writes_with_it(tmp_path: Path) -> None:
    store = SqliteRunStore.open(tmp_path / "runs.db")

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO blob (account, digest, body) VALUES ('a', 'half', x'00')")
        raise LeaseLost("r1")

    calls = [store.create(new_run("r1")), store.database.write(broken), store.create(new_run("r2"))]
    first, lost, second = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(lost, LeaseLost)
    assert (first[1], second[1]) == (True, True)
    count = await store.database.read(lambda connection: connection.execute("SELECT count(*) FROM blob").fetchone())
    assert count == (0,)
    await store.close()
