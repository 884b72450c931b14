"""Fifty processes that decide one approval at the same moment."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stepwell.approvals.opening import opened
from stepwell.ports import Person
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.testing.store_builders import ACCOUNT, TTL, a_wait, parked_at

PEOPLE = [Person(f"p{number}", roles=("finance",)) for number in range(50)]

# One process loads everything and forks, so that all of them are there at once and none is late by its imports.
CROWD = """
import asyncio, json, os, sys
from stepwell.errors import AlreadyDecided, StepwellError
from stepwell.ports import Ballot, Person
from stepwell.stores.sqlite import SqliteRunStore

path, count = sys.argv[1], int(sys.argv[2])
ready_out, ready_in = os.pipe()
go_out, go_in = os.pipe()

async def decide(number):
    person = Person(f"p{number}", roles=("finance",))
    store = SqliteRunStore.open(path)
    os.write(ready_in, b"r")
    await asyncio.to_thread(os.read, go_out, 1)
    word = "approved" if number % 2 else "rejected"
    said = {"decision": word, "by": person.name, "comment": "", "data": None}
    try:
        wait = await store.decide("acme", "x1", Ballot(said, person))
        told = {"status": wait.status, "decision": wait.decision}
    except StepwellError as refused:
        told = {"status": type(refused).__name__, "decision": getattr(refused, "detail", None)}
    await store.close()
    os.write(1, (json.dumps(told) + "\\n").encode())

for number in range(count):
    if os.fork() == 0:
        code = 1
        try:
            asyncio.run(decide(number))
            code = 0
        finally:
            os._exit(code)
got = 0
while got < count:
    got += len(os.read(ready_out, count))
os.write(go_in, b"g" * count)
sys.exit(max(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(count)))
"""


def crowd(path: Path) -> list[dict]:
    ended = subprocess.run(
        [sys.executable, "-c", CROWD, str(path), "50"], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return [json.loads(line) for line in ended.stdout.splitlines()]


async def opened_gate(path: Path, **rules) -> SqliteRunStore:
    store = SqliteRunStore.open(path)
    given = {"approvers": [{"kind": "role", "name": "finance"}], **rules}
    await parked_at(store, opened(replace(a_wait("x1", "/g"), rules=given), PEOPLE, "")[0])
    return store


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
async def test_of_fifty_processes_one_decides_and_the_others_are_told_its_decision(tmp_path: Path) -> None:
    store = await opened_gate(tmp_path / "runs.db")
    told = await asyncio.to_thread(crowd, tmp_path / "runs.db")
    [winner] = [one["decision"] for one in told if one["status"] == "decided"]
    assert [one["decision"] for one in told if one["status"] == "AlreadyDecided"] == [winner] * 49
    [lease] = await store.claim("w", TTL)
    assert [message.body for message in (await store.load(lease)).messages] == [winner]
    assert [vote["by"] for vote in (await store.wait(ACCOUNT, "x1")).votes] == [winner["by"]]
    await store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
async def test_a_quorum_is_counted_once_for_each_of_fifty_processes(tmp_path: Path) -> None:
    store = await opened_gate(tmp_path / "runs.db", require={"mode": "quorum", "count": 10})
    told = await asyncio.to_thread(crowd, tmp_path / "runs.db")
    wait = await store.wait(ACCOUNT, "x1")
    approving = [vote["by"] for vote in wait.votes if vote["decision"] == "approved"]
    assert (wait.status, wait.decision["decision"], len(set(approving))) == ("decided", "approved", 10)
    statuses = [one["status"] for one in told]
    assert statuses.count("decided") == 1
    assert statuses.count("pending") == len(wait.votes) - 1
    assert statuses.count("AlreadyDecided") == 50 - len(wait.votes)
    [lease] = await store.claim("w", TTL)
    assert len((await store.load(lease)).messages) == 1
    await store.close()
