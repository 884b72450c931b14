"""Cases of the topics crash_recovery, duplicate_execution, sqlite, timeout and cancellation, with real processes."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.stage import QUICK, Stage, tool
from tests.engine_world import engine_with, workflow

from stepwell.engine import engine as engine_module
from stepwell.engine.clock import Rhythm
from stepwell.engine.incidents import Action
from stepwell.engine.worker import Worker
from stepwell.errors import Conflict, Gone, Unavailable
from stepwell.journal.entry import Entry, decode, read_body
from stepwell.ports import Batch, Lease
from stepwell.stores.memory import MemoryRunStore
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.testing.scripted import ScriptedTools

Json = Any


def gate(id_: str, **more: Json) -> Json:
    return {"id": id_, "type": "approval", "title": id_, **more}


# ── crash recovery ──


async def test_c043_a_cancel_of_an_orphaned_run_ends_it(tmp_path: Path) -> None:
    async with Stage(tmp_path, [tool("s1", "slow", arguments={"seconds": 60}), tool("s2")]) as stage:
        first = await stage.worker()
        run_id = await stage.start(first)
        await stage.called("/s1")
        await first.kill()
        began = time.monotonic()
        run = await stage.engine.cancel(run_id, "nobody is there")
        assert (run.status, time.monotonic() - began < 12) == ("cancelled", True)
        with pytest.raises(Conflict, match="cancelled") as second:
            await stage.engine.cancel(run_id)
        assert second.value.detail == {"status": "cancelled"}
        await stage.worker()
        await asyncio.sleep(0.5)
        assert (await stage.engine.run(run_id)).status == "cancelled"
        assert (len(stage.calls("/s1")), len(stage.calls("/s2"))) == (1, 0)


async def test_c043_a_cancel_of_a_run_whose_owner_is_stopped_is_obeyed_by_another(tmp_path: Path) -> None:
    async with Stage(tmp_path, [tool("s1", "slow", arguments={"seconds": 60}), tool("s2")]) as stage:
        first = await stage.worker(rhythm=QUICK)
        run_id = await stage.start(first)
        await stage.called("/s1")
        first.stop()
        await stage.engine.cancel(run_id, "it hangs")
        began = time.monotonic()
        await stage.worker(rhythm=QUICK)
        assert (await stage.ended(run_id)).status == "cancelled"
        assert time.monotonic() - began < 12
        first.go_on()
        await asyncio.sleep(0.6)
        assert (await stage.engine.run(run_id)).status == "cancelled"
        assert (len(stage.calls("/s1")), len(stage.calls("/s2"))) == (1, 0)


async def test_c044_a_crash_right_after_a_step_was_recorded_goes_on_with_the_next(tmp_path: Path) -> None:
    steps = [tool("a", "slow", arguments={"seconds": 0.7}), tool("b"), tool("c")]
    async with Stage(tmp_path, steps, concurrency={"key": "all", "limit": 1}) as stage:
        first = await stage.worker(die_at=["/b"])
        run_id = await stage.start(first)
        behind = await stage.start(first, name="behind")
        assert await first.dead(20)
        assert (await stage.engine.run(run_id)).status == "running"
        assert (await stage.engine.run(behind)).status == "queued"
        assert {"/a", "/b"} <= set(await stage.entries(run_id)) <= {"/a", "/a/~start", "/b"}
        await stage.worker()
        assert [(await stage.ended(one)).status for one in (run_id, behind)] == ["completed"] * 2
        for one in (run_id, behind):
            assert [len(stage.calls(f"{one}/{step}")) for step in "abc"] == [1, 1, 1]


EVERYTHING = [
    tool("a"),
    {"id": "chosen", "type": "condition", "cases": [{"name": "yes", "when": "1 == 1", "steps": [tool("b")]}]},
    {"id": "each", "type": "loop", "over": [1, 2], "as": "item", "steps": [tool("c", arguments={"said": "{{item}}"})]},
    {"id": "pay", "type": "tool_call", "tool": "slow_charge", "arguments": {"seconds": 0}},
    {"id": "child", "type": "sub_workflow", "workflow": "inner"},
    {
        "id": "last",
        "type": "set",
        "values": {"sum": ["{{step.b.said}}", "{{step.each.1.said}}", "{{step.child.said}}"]},
    },
]
CALLS = {"/a": 1, "/chosen/b": 1, "/each/0/c": 1, "/each/1/c": 1, "/pay": 1, "/child/d": 1}


@pytest.mark.parametrize("before", [False, True])
async def test_c044_a_crash_at_any_write_at_all_is_recovered_from(tmp_path: Path, before: bool) -> None:
    """Write after write of one run, its process dies right after it (or right before): from one to the next."""
    number, died, doubts = 0, True, 0
    while died:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        async with Stage(folder, EVERYTHING) as stage:
            stage.add_workflow("inner", [tool("d")], output={"said": "{{step.d.said}}"})
            first = await stage.worker(die_at_write=number, die_before=before)
            run_id = await stage.start(first)
            second = await stage.worker()
            run = await stage.ended(run_id)
            died = await first.dead(0)
            second.end()
            calls = {path: len(stage.calls(path)) for path in CALLS}
            repeated = {path for path in CALLS if calls[path] > 1}
            incidents = await stage.engine.incidents.open()
            doubtful = [wait.request["error"]["kind"] for wait in incidents] == ["in_doubt"]
            doubts += doubtful
            assert calls["/pay"] <= 1
            assert len(repeated) <= (1 if before else 0), (number, calls)
            assert (run.status, doubtful) in {("completed", False), ("suspended", True)}, run.error
            if run.status == "completed":
                assert run.output == {"sum": ["b", 2, "d"]}
                assert set(calls.values()) <= {1, 2}, (number, calls)
    assert (number > 6, doubts) == (True, 1)  # in doubt is what dies with its intent recorded and its result not


# ── duplicate execution ──


async def test_c045_a_run_started_in_the_tick_of_the_engines_start_is_executed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    loaded = workflow([{"id": "once", "type": "tool_call", "tool": "once", "idempotent": True}])
    tools, store = ScriptedTools(delays={"once": 0.001}), MemoryRunStore()
    ids = []
    for _ in range(500):
        async with engine_with(tools, store, serves=True) as engine:
            handle = await engine.start(loaded, {})
            assert (await handle.wait(until_final=True)).status == "completed"
            ids.append(handle.run_id)
    assert sorted(call.key for call in tools.calls) == sorted(f"{run_id}/once" for run_id in ids)


async def test_c045_five_hundred_starts_in_one_tick_beside_another_server_are_executed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Stage(tmp_path, [tool("once")]) as stage:
        monkeypatch.setenv("CHAOS_LEDGER", str(tmp_path / "ledger"))
        monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
        monkeypatch.setitem(SqliteRunStore.__init__.__kwdefaults__ or {}, "clock", time.time)
        await stage.worker()
        async with stage.server() as engine:
            loaded = engine.load(tmp_path / "w.yaml")
            handles = await asyncio.gather(*(engine.start(loaded, {}) for _ in range(500)))
            runs = [await stage.ended(handle.run_id, 60) for handle in handles]
        assert [run.status for run in runs] == ["completed"] * 500
        assert sorted(call.key for call in stage.calls("/once")) == sorted(f"{run.id}/once" for run in runs)


async def test_c046_a_decision_and_the_deadline_at_one_moment_have_one_winner(tmp_path: Path) -> None:
    asked = gate("g", expires_in="1s", on_expire="approve", on_reject="continue")
    use = tool("use", arguments={"said": "{{step.g.decision}}"})
    async with Stage(tmp_path, [asked, use]) as stage:
        workers = [await stage.worker(), await stage.worker()]
        ids = [await stage.start(workers[number % 2], name=str(number)) for number in range(30)]
        won = await asyncio.gather(*(_decide_at_the_deadline(stage, ids[n], n) for n in range(30)))
        runs = [await stage.ended(run_id) for run_id in ids]
        assert [run.status for run in runs] == ["completed"] * 30
        for run_id, winner in zip(ids, won, strict=True):
            entries = await stage.entries(run_id)
            recorded = decode(read_body(entries["/g"]).value)["decision"]
            assert decode(read_body(entries["/g/?"]).value)["decision"] == recorded == winner
            assert stage.told(f"{run_id}/use") == [winner]
            [wait] = await stage.engine.waits(run_id=run_id, pending_only=False)
            assert wait.status == ("decided" if winner == "approved" else "expired")
        assert len(set(won)) == 2, "the moment was missed: nothing raced"


async def _decide_at_the_deadline(stage: Stage, run_id: str, number: int) -> str:
    wait = await stage.waiting(run_id, "/g")
    await asyncio.sleep(wait.deadline - time.time() + (number - 15) * 0.02)
    try:
        await stage.engine.decide(wait.id, "approved")
    except Gone:
        return "expired"
    return "approved"


async def test_c047_a_step_longer_than_the_lease_is_called_once(tmp_path: Path) -> None:
    steps = [tool("long", "slow", arguments={"seconds": 6}, timeout="15s")]
    async with Stage(tmp_path, steps) as stage:
        first = await stage.worker(rhythm=QUICK)  # alone: whoever serves the database may have a run that is new
        run_id = await stage.start(first)
        await stage.called("/long")
        await stage.worker(rhythm=QUICK)
        run = await stage.ended(run_id)
        assert (run.status, run.output) == ("completed", {"pid": first.pid})
        assert len(stage.calls("/long")) == 1


async def test_c047_a_stopped_owner_loses_its_run_and_its_result_is_refused(tmp_path: Path) -> None:
    async with Stage(tmp_path, [tool("long", "slow", arguments={"seconds": 5}), tool("after")]) as stage:
        first = await stage.worker(rhythm=QUICK)
        run_id = await stage.start(first)
        await stage.called("/long")
        second = await stage.worker(rhythm=QUICK)
        first.stop()
        await stage.called("/long", 2)
        first.go_on()
        assert (await stage.ended(run_id)).status == "completed"
        await asyncio.sleep(0.5)
        entries = await stage.engine.history(run_id)
        [result] = [entry for entry in entries if entry.path == "/long"]
        assert decode(read_body(result).value) == {"pid": second.pid}
        assert [call.pid for call in stage.calls("/after")] == [second.pid]
        await second.kill()
        later = await stage.start(first, name="later")
        run = await stage.ended(later)
        assert run.status == "completed", "who lost one run still serves others"


async def test_c047_an_owner_that_was_stopped_between_two_attempts_makes_no_call_of_a_finished_step(
    tmp_path: Path,
) -> None:
    retry = {"max_attempts": 3, "initial_delay": "5s", "multiplier": 1, "jitter": "none"}
    async with Stage(tmp_path, [tool("t", "mends", arguments={}, retry=retry)]) as stage:
        first = await stage.worker(rhythm=QUICK)
        run_id = await stage.start(first)
        await stage.until(lambda: _recorded(stage, run_id, "/t/@1"), 20)
        second = await stage.worker(rhythm=QUICK)
        first.stop()
        assert (await stage.ended(run_id)).status == "completed"
        first.go_on()
        await asyncio.sleep(1.0)
        assert [call.pid for call in stage.calls("/t")] == [first.pid, second.pid]


async def _recorded(stage: Stage, run_id: str, path: str) -> Entry | None:
    return (await stage.entries(run_id)).get(path)


async def test_c047_a_charge_of_a_stopped_owner_is_in_doubt_and_not_made_again(tmp_path: Path) -> None:
    async with Stage(tmp_path, [tool("pay", "slow_charge", arguments={"seconds": 5})]) as stage:
        first = await stage.worker(rhythm=QUICK)
        run_id = await stage.start(first)
        await stage.called("/pay")
        await stage.worker(rhythm=QUICK)
        first.stop()
        run = await stage.ended(run_id)
        first.go_on()
        [wait] = await stage.engine.incidents.open()
        assert (run.status, wait.request["error"]["kind"]) == ("suspended", "in_doubt")
        await asyncio.sleep(5.2)
        assert len(stage.calls("/pay")) == 1
        await stage.engine.incidents.settle(wait.id, Action("provide", output="looked up"))
        assert (await stage.final(run_id)).status == "completed"
        assert len(stage.calls("/pay")) == 1


# ── pause and resume over processes ──


async def test_c002_a_process_killed_before_every_answer_puts_no_branch_back(tmp_path: Path) -> None:
    branches = {
        "a": [gate("ga")],
        "b": [tool("slow_b", "slow", arguments={"seconds": 0.3}), gate("gb")],
        "c": [tool("slow_c", "slow", arguments={"seconds": 0.6}), gate("gc")],
    }
    async with Stage(tmp_path, [{"id": "fan", "type": "parallel", "branches": branches}, tool("after")]) as stage:
        member = await stage.worker()
        run_id = await stage.start(member)
        completed: set[str] = set()
        for path in ("/fan/a/ga", "/fan/b/gb", "/fan/c/gc"):
            wait = await stage.waiting(run_id, path)
            await member.kill()
            await stage.engine.decide(wait.id, "approved")
            steps = (await stage.engine.tree(run_id)).as_json()["steps"]
            now = {step["path"] for step in steps if step["status"] == "completed"}
            assert completed <= now
            completed = now
            member = await stage.worker()
        assert (await stage.ended(run_id)).status == "completed"
        assert len(stage.calls("/after")) == 1
        paths = [entry.path for entry in await stage.engine.history(run_id)]
        assert len(paths) == len(set(paths))


async def test_c011_an_answer_to_a_child_wakes_its_parent_after_a_restart(tmp_path: Path) -> None:
    child = {"id": "child", "type": "sub_workflow", "workflow": "ask_and_act"}
    steps = [{"id": "L", "type": "loop", "over": [1], "steps": [child]}, tool("after")]
    async with Stage(tmp_path, steps) as stage:
        stage.add_workflow("ask_and_act", [gate("ask"), tool("act")])
        first = await stage.worker()
        run_id = await stage.start(first)
        wait = await stage.waiting(run_id, "/L/0/child/ask")
        await first.kill()
        await stage.engine.decide(wait.id, "approved")
        await stage.worker()
        assert (await stage.ended(run_id, 5)).status == "completed"
        assert (len(stage.calls("/act")), len(stage.calls("/after"))) == (1, 1)


@pytest.mark.parametrize("path", ["/child/ask/?", "/child/act", "/child", "/after"])
async def test_c025_a_store_that_fails_when_the_child_ends_keeps_nobody_waiting(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first two writes that hold the entry at `path` fail, each of them with everything after it."""
    failed = _failing_twice(path, monkeypatch)
    quick = Rhythm(0.6, 0.2, 0.1)
    monkeypatch.setattr(
        engine_module, "Worker", lambda name, world, **given: Worker(name, world, **given | {"rhythm": quick})
    )
    monkeypatch.setenv("CHAOS_LEDGER", str(tmp_path / "ledger"))
    steps = [{"id": "child", "type": "sub_workflow", "workflow": "gated"}, tool("after")]
    async with Stage(tmp_path, steps) as stage:
        stage.add_workflow("gated", [gate("ask"), tool("act")])
        with caplog.at_level(logging.WARNING, "stepwell.worker"):
            async with stage.server() as engine:
                handle = await engine.start(engine.load(tmp_path / "w.yaml"), {})
                wait = await stage.waiting(handle.run_id, "/child/ask")
                await engine.decide(wait.id, "approved")
                assert (await stage.ended(handle.run_id, 10)).status == "completed"
        assert len(failed) == 2
        paths = [entry.path for entry in await stage.engine.history(handle.run_id)]
        assert len(paths) == len(set(paths))
        assert (len(stage.calls("/act")), len(stage.calls("/after"))) == {
            "/child/ask/?": (1, 1), "/child/act": (3, 1), "/child": (1, 3), "/after": (1, 3),
        }[path]  # fmt: skip
        assert sum("the disk is full" in record.getMessage() for record in caplog.records) == 2


def _failing_twice(path: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    append = SqliteRunStore.append
    failed: list[str] = []

    async def refused() -> int:
        raise Unavailable("database: the disk is full")

    def failing(self: SqliteRunStore, lease: Lease, batch: Batch) -> Awaitable[int]:
        if len(failed) < 2 and any(entry.path == path for entry in batch.entries):
            failed.append(path)
            return refused()
        return append(self, lease, batch)

    monkeypatch.setattr(SqliteRunStore, "append", failing)
    return failed


# ── retries, timeouts and cancels over processes ──


async def test_c055_a_process_killed_after_every_attempt_begins_no_count_anew(tmp_path: Path) -> None:
    retry = {"max_retries": 3, "initial_delay": "50ms", "multiplier": 1, "jitter": "none"}
    async with Stage(tmp_path, [tool("t", "broken", arguments={}, retry=retry)]) as stage:
        member = await stage.worker(die_at=["/t/@1"])
        run_id = await stage.start(member)
        for number in (2, 3, 4):
            assert await member.dead(20), stage.said
            member = await stage.worker(die_at=[f"/t/@{number}"])
        run = await stage.ended(run_id)
        assert run.error is not None
        assert (run.status, run.error["kind"]) == ("failed", "server_error")
        calls = stage.calls("/t")
        assert (len(calls), len({call.pid for call in calls})) == (4, 4)
        [step] = (await stage.engine.tree(run_id)).as_json()["steps"]
        assert [attempt["number"] for attempt in step["attempt_log"]] == [1, 2, 3, 4]


async def test_c059_a_tool_that_blocks_for_ever_holds_up_neither_its_run_nor_its_process(tmp_path: Path) -> None:
    blocked = tool(
        "w", "blocking", arguments={"seconds": 60}, timeout="1s", retry={"max_attempts": 1}, on_error="continue"
    )
    async with Stage(tmp_path, [blocked, tool("after")]) as stage:
        member = await stage.worker()
        run_id = await stage.start(member)
        assert (await stage.ended(run_id)).status == "completed"
        ended = read_body((await stage.entries(run_id))["/w"])
        assert ended.error is not None
        assert ended.error["kind"] == "timeout"
        assert 1.0 <= ended.ended - ended.started <= 1.5
        member.end()
        assert await member.dead(10), "a thread that blocks kept its process from ending"


async def test_c062_a_cancel_from_another_process_starts_nothing_more_after_a_second(tmp_path: Path) -> None:
    steps = [
        {"id": "L", "type": "loop", "over": list(range(100)), "concurrency": 5,
         "steps": [tool("s", "slow", arguments={"seconds": 0.2})]},
    ]  # fmt: skip
    async with Stage(tmp_path, steps) as stage:
        run_id = await stage.start(await stage.worker())
        await stage.called("/s", 5)
        await stage.engine.cancel(run_id, "enough")
        told = time.time()
        assert (await stage.ended(run_id)).status == "cancelled"
        assert time.time() - told < 4
        await asyncio.sleep(0.5)
        assert max(call.at for call in stage.calls("/s")) < told + 1


# ── one file ──


async def test_c121_three_servers_a_long_reader_and_a_backup_share_one_file(tmp_path: Path) -> None:
    quick: Sequence[int] = range(10)
    branches = {f"b{branch}": [tool(f"s{branch}_{number}") for number in quick] for branch in range(20)}
    async with Stage(tmp_path, [{"id": "p", "type": "parallel", "branches": branches}]) as stage:
        workers = [await stage.worker() for _ in range(3)]
        reader = sqlite3.connect(stage.database, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM journal").fetchone()
        ids = [await stage.start(workers[number % 3], name=str(number)) for number in range(10)]
        await asyncio.to_thread(_back_up, stage.database, tmp_path / "backup.db")
        runs = [await stage.ended(run_id, 60) for run_id in ids]
        log = stage.database.with_name("runs.db-wal").stat().st_size
        reader.execute("ROLLBACK")
        reader.close()
        assert [run.status for run in runs] == ["completed"] * 10
        assert "locked" not in stage.said
        for run_id in ids:
            entries = await stage.entries(run_id)
            assert sum(path.count("/") == 3 and entry.kind == "succeeded" for path, entry in entries.items()) == 200
            assert len(stage.calls(f"{run_id}/p/b7/s7_3")) == 1
        assert log < 64 * 1024 * 1024
        for member in workers:
            member.end()
            assert await member.dead(30)
    copy = sqlite3.connect(tmp_path / "backup.db")
    assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    copy.close()


def _back_up(database: Path, copy: Path) -> None:
    connection = sqlite3.connect(database, timeout=30)
    connection.execute("VACUUM INTO ?", (str(copy),))
    connection.close()
