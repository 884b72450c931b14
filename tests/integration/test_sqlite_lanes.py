"""Lanes and events on one database file that several processes share, and files that knew neither."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from stepwell.ports import Ballot, Batch, Lease, SentEvent, Verdict
from stepwell.stores.sqlite import Database, SqliteRunStore, claiming, events, lanes
from stepwell.stores.sqlite.store import MIGRATIONS
from stepwell.testing.store_builders import ACCOUNT, TTL, a_wait, batch, entry, leased, new_run
from stepwell.testing.store_event_contract import for_event, parked_for
from stepwell.testing.store_lane_contract import in_lane

RUNS = 40
CLAIMER = """
import asyncio, json, sys, time
from stepwell.ports import Ballot, Batch, Verdict
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.testing.store_builders import TTL

async def work(store, lease, spans):
    began = time.monotonic()
    await asyncio.sleep(0.003)
    spans.append((lease.run_id, began, time.monotonic()))
    assert await store.release(lease, Batch(), Verdict("completed"))

async def main():
    store = SqliteRunStore.open(sys.argv[1])
    print("open", flush=True)
    sys.stdin.readline()
    spans, end = [], time.monotonic() + 30
    while time.monotonic() < end:
        leases = await store.claim("w" + sys.argv[2], TTL, limit=3)
        await asyncio.gather(*(work(store, lease, spans) for lease in leases))
        if not leases:
            if not await store.runs("acme", statuses=["queued", "running"], limit=1):
                break
            await asyncio.sleep(0.001)
    await store.close()
    print(json.dumps(spans), flush=True)

asyncio.run(main())
"""


def claimers(path: Path, number: int) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CLAIMER), str(path), str(each)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for each in range(number)
    ]


@pytest.mark.parametrize("limit", [1, 2])
async def test_two_processes_that_claim_at_once_never_exceed_a_lane(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "runs.db"
    store = SqliteRunStore.open(path)
    for number in range(RUNS):
        await store.create(in_lane(f"r{number:02}", limit))
    children = claimers(path, 2)
    spans: list[tuple[str, float, float]] = []
    try:
        for child in children:
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == "open\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        for child in children:
            assert child.stdout is not None
            spans += json.loads(await asyncio.to_thread(child.stdout.readline))
    finally:
        for child in children:
            child.kill()
            child.communicate()
    await store.close()
    assert sorted(run_id for run_id, _, _ in spans) == [f"r{number:02}" for number in range(RUNS)]
    for _, began, _ in spans:
        assert sum(start <= began < end for _, start, end in spans) <= limit
    if limit == 1:
        assert [run_id for run_id, _, _ in sorted(spans, key=lambda span: span[1])] == sorted(s[0] for s in spans)


async def test_a_place_that_becomes_free_is_heard_in_another_store_on_the_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    here, there = SqliteRunStore.open(path), SqliteRunStore.open(path)
    await here.create(in_lane("r0"))
    await here.create(in_lane("r1"))
    [lease] = await here.claim("here", TTL)
    assert await there.claim("there", TTL) == []
    while await there.changed(0):
        pass
    heard = asyncio.create_task(there.changed(5))
    began = time.monotonic()
    await here.release(lease, Batch(), Verdict("completed"))
    assert await heard
    assert time.monotonic() - began < 4
    assert [lease.run_id for lease in await there.claim("there", TTL)] == ["r1"]
    await here.close()
    await there.close()


async def test_the_place_of_a_run_whose_owner_closed_stays_taken(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    first, second = SqliteRunStore.open(path), SqliteRunStore.open(path)
    await first.create(in_lane("r0"))
    await first.create(in_lane("r1"))
    await first.claim("first", TTL)
    await first.close()
    assert [lease.run_id for lease in await second.claim("second", TTL, limit=9)] == ["r0"]
    await second.close()


async def test_an_event_wakes_a_run_of_another_store_on_the_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    here, there = SqliteRunStore.open(path), SqliteRunStore.open(path)
    await parked_for(here, for_event("x1", "/w"))
    while await here.changed(0):
        pass
    assert await there.send_event(ACCOUNT, SentEvent("e1", "paid", 1)) == 1
    assert await here.changed(2)
    [lease] = await here.claim("here", TTL)
    assert [event.data for event in await here.events(lease, "paid", 0)] == [1]
    await here.close()
    await there.close()


async def test_waits_of_one_run_that_use_an_event_at_once_have_one_winner(tmp_path: Path) -> None:
    store = SqliteRunStore.open(tmp_path / "runs.db")
    await parked_for(store, *(for_event(f"x{number}", f"/w{number}") for number in range(10)))
    await store.send_event(ACCOUNT, SentEvent("e1", "paid"))
    [lease] = await store.claim("w", TTL)
    [event] = await store.events(lease, "paid", 0)
    said = [
        store.append(lease, Batch([entry(f"/w{number}/?")], satisfied=[f"/w{number}"], used=[event.order]))
        for number in range(10)
    ]
    results = await asyncio.gather(*said, return_exceptions=True)
    assert [isinstance(result, int) for result in results].count(True) == 1
    assert len(await store.waits(ACCOUNT)) == 9
    assert len(await store.history(ACCOUNT, "r1")) == 2
    await store.close()


async def test_a_file_that_knew_neither_lanes_nor_events_goes_on(tmp_path: Path) -> None:
    path, folder = tmp_path / "runs.db", tmp_path / "migrations"
    folder.mkdir()
    shutil.copy(MIGRATIONS / "0001_runs.sql", folder)
    database = Database.open(path)
    assert database.migrate("runs", folder) == 1
    await database.close()
    raw = sqlite3.connect(path)
    with raw:
        raw.execute(
            "INSERT INTO run (uid, account, workflow, version, definition, status, requester, idempotency_key, created, "
            "due) VALUES ('old', ?, 'order', '1', 'd1', 'queued', '', '', 1.0, 0)",
            (ACCOUNT,),
        )
        raw.execute("INSERT INTO run_content (run, input, project) VALUES (1, '{}', '{}')")
        raw.execute(
            "INSERT INTO wait (account, uid, run, path, generation, kind, request, digest, opened, deadline, on_expire) "
            "VALUES (?, 'x0', 1, '/g', 0, 'approval', '{}', '', 1.0, 0, 'reject')",
            (ACCOUNT,),
        )
    raw.close()
    store = SqliteRunStore.open(path)
    run = await store.run(ACCOUNT, "old")
    assert (run.lane, run.status) == ("", "queued")
    assert (await store.wait(ACCOUNT, "x0")).topic == ""
    [lease] = await store.claim("w", TTL)
    await store.append(lease, batch("/s", open=[for_event("x1", "/w")]))
    assert await store.send_event(ACCOUNT, SentEvent("e1", "paid")) == 1
    await store.decide(ACCOUNT, "x0", Ballot({}))
    assert await store.release(lease, Batch(), Verdict("completed"))
    await store.close()


async def test_a_long_lane_is_no_part_of_what_a_claim_looks_at(tmp_path: Path) -> None:
    store = SqliteRunStore.open(tmp_path / "runs.db", durability="normal")
    waiting = 3000
    await asyncio.gather(*(store.create(in_lane(f"r{number}")) for number in range(waiting)))
    await store.create(new_run("last"))

    def due(connection: sqlite3.Connection) -> list[tuple[int]]:
        return connection.execute(claiming._DUE, (1e12, waiting)).fetchall()

    assert len(await store.database.read(due)) == 2
    [first] = await store.claim("w", TTL)
    assert first.run_id == "r0"
    assert [lease.run_id for lease in await store.claim("w", TTL, limit=50)] == ["last"]

    async def empties(lease: Lease, number: int) -> None:
        for _ in range(number):
            await store.release(lease, Batch(), Verdict("completed"))
            [lease] = await store.claim("w", TTL, limit=50)

    began = time.monotonic()
    await empties(first, 100)
    assert time.monotonic() - began < 10
    await store.close()


async def test_a_run_without_lane_is_told_when_it_is_due(tmp_path: Path) -> None:
    store = SqliteRunStore.open(tmp_path / "runs.db")
    assert await store.next_due() == 0
    lease = await leased(store)
    end = time.time() + 60
    await store.append(lease, batch("/s", open=[a_wait("x1", "/a", deadline=end)]))
    assert await store.next_due() == end
    await store.close()


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (lanes._CLAIMED, "run_lane"),
        (lanes._IN_STATE, "run_lane"),
        (lanes._OLDEST, "run_lane"),
        (lanes._FIRST, "run_lane"),
        (lanes._OLDER, "run_lane"),
        (claiming._DUE, "run_due"),
        (claiming._NEXT_RUN, "run_due"),
        (claiming._NEXT_WAIT, "wait_deadline"),
        (events._TELL, "wait_topic"),
        (events._WAKE, "wait_topic"),
        (events._UNUSED, "event_name"),
        (events._SWEEP, "event_received"),
    ],
)
async def test_what_is_asked_often_is_read_off_an_index(tmp_path: Path, statement: str, index: str) -> None:
    store = SqliteRunStore.open(tmp_path / "runs.db")
    given = [0] * statement.count("?")
    rows = await store.database.read(
        lambda connection: connection.execute("EXPLAIN QUERY PLAN " + statement, given).fetchall()
    )
    plan = [detail for *_, detail in rows]
    assert any(index in detail for detail in plan)
    assert not any(detail.startswith("SCAN") for detail in plan)
    await store.close()
