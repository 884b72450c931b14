"""Waiting for events and times, and runs that share a lane, on the engine."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from tests.cases.test_pause_cases import approve, until_waiting
from tests.cases.test_step_cases import gate_step, tool
from tests.engine_world import engine_with, workflow

from stepwell.errors import Conflict, InputError
from stepwell.stores.memory import MemoryRunStore
from stepwell.testing.scripted import ScriptedTools

Json = Any


def paid(id_: str = "w", **more: Json) -> Json:
    return {"id": id_, "type": "wait", "event": "paid", "match": "event.data.order == workflow_input.order", **more}


async def test_an_event_wakes_the_run_that_it_matches_and_no_other() -> None:
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        loaded = workflow([paid(), tool("t", arguments={"sum": "{{step.w.data.sum}}", "by": "{{step.w.woken_by}}"})])
        first = await engine.start(loaded, {"order": 1})
        second = await engine.start(loaded, {"order": 2})
        for handle in (first, second):
            assert (await handle.wait()).status == "waiting"
        assert await engine.send_event("paid", {"order": 2, "sum": 7}) == 2
        run = await second.wait(until_final=True)
        assert run.status == "completed"
        await asyncio.sleep(0.05)
        assert (await engine.run(first.run_id)).status == "waiting"
        assert tools.called("t") == [{"sum": 7, "by": "event"}]


async def test_an_event_may_come_before_its_wait_and_satisfies_one_wait_of_a_run() -> None:
    async with engine_with(ScriptedTools(), serves=True) as engine:
        await engine.send_event("paid", {"order": 1, "n": 1}, event_id="E1")
        await engine.send_event("paid", {"order": 1, "n": 1}, event_id="E1")
        handle = await engine.start(
            workflow([paid("a"), paid("b")], output={"a": "{{step.a.data.n}}", "b": "{{step.b.data.n}}"}), {"order": 1}
        )
        assert (await handle.wait()).status == "waiting"
        await engine.send_event("paid", {"order": 1, "n": 2})
        run = await handle.wait(until_final=True)
        assert run.output == {"a": 1, "b": 2}


async def test_an_event_that_does_not_come_in_time_lets_the_run_go_on() -> None:
    async with engine_with(ScriptedTools(), serves=True) as engine:
        handle = await engine.start(workflow([paid(expires_in="0.2s")]), {"order": 1})
        run = await handle.wait(until_final=True)
        assert run.output == {"woken_by": "expired", "data": None}


async def test_a_match_that_cannot_be_worked_out_fails_the_step() -> None:
    async with engine_with(ScriptedTools(), serves=True) as engine:
        handle = await engine.start(workflow([paid()]), {"order": 1})
        await handle.wait()
        await engine.send_event("paid", {"orders": 1})
        run = await handle.wait(until_final=True)
        assert run.error is not None
        assert (run.status, run.error["kind"]) == ("failed", "expression_error")


async def test_an_event_without_a_name_is_refused() -> None:
    async with engine_with(ScriptedTools()) as engine:
        with pytest.raises(InputError):
            await engine.send_event("", {})


async def test_a_long_timer_parks_the_run_and_wakes_it() -> None:
    now = [1_800_000_000.0]
    store = MemoryRunStore(clock=lambda: now[0])
    async with engine_with(ScriptedTools(), store) as engine:
        handle = await engine.start(
            workflow([{"id": "w", "type": "wait", "until": "2099-01-01T00:00:00+01:00"}, tool("t")]), {}
        )
        run = await handle.wait()
        assert run.status == "waiting"
        assert run.wake_at > 4_000_000_000
        assert (await (await engine.resume(run.id)).wait()).status == "waiting"
        now[0] = 4_100_000_000.0
        assert (await (await engine.resume(run.id)).wait()).status == "completed"


LANE = {"key": "{{workflow_input.customer}}", "limit": 1}


async def test_runs_of_one_key_wait_for_each_other() -> None:
    tools = ScriptedTools(delays={"t": 0.1})
    async with engine_with(tools, serves=True) as engine:
        loaded = workflow([tool("t", arguments={"n": "{{workflow_input.n}}"})], concurrency=LANE)
        handles = [await engine.start(loaded, {"customer": "a", "n": n}) for n in range(3)]
        other = await engine.start(loaded, {"customer": "b", "n": 9})
        assert (await other.wait()).status == "completed"
        runs = [await handle.wait() for handle in handles]
        assert [run.status for run in runs] == ["completed"] * 3
        assert [call["n"] for call in tools.called("t") if call["n"] != 9] == [0, 1, 2]
        assert all(before.ended <= after.started for before, after in itertools.pairwise(runs))


async def test_a_parked_run_keeps_its_place_in_the_lane() -> None:
    async with engine_with(ScriptedTools(), serves=True) as engine:
        loaded = workflow([gate_step("g"), tool("t")], concurrency=LANE)
        first = await engine.start(loaded, {"customer": "a"})
        await until_waiting(engine, first.run_id, "/g")
        second = await engine.start(loaded, {"customer": "a"})
        await asyncio.sleep(0.1)
        assert (await engine.run(second.run_id)).status == "queued"
        await approve(engine, first.run_id, "/g")
        await until_waiting(engine, second.run_id, "/g")
        assert (await engine.run(first.run_id)).status == "completed"


@pytest.mark.parametrize("on_limit", ["reject", "cancel_oldest"])
async def test_a_full_lane_may_reject_or_cancel(on_limit: str) -> None:
    async with engine_with(ScriptedTools(), serves=True) as engine:
        loaded = workflow([gate_step("g")], concurrency={**LANE, "on_limit": on_limit})
        first = await engine.start(loaded, {"customer": "a"})
        await until_waiting(engine, first.run_id, "/g")
        if on_limit == "reject":
            with pytest.raises(Conflict):
                await engine.start(loaded, {"customer": "a"})
            assert (await engine.run(first.run_id)).status == "pending_approval"
        else:
            second = await engine.start(loaded, {"customer": "a"})
            await until_waiting(engine, second.run_id, "/g")
            assert (await engine.run(first.run_id)).status == "cancelled"


async def test_a_start_with_the_same_key_is_the_same_run() -> None:
    tools = ScriptedTools()
    async with engine_with(tools) as engine:
        loaded = workflow([tool("t")])
        first = await engine.start(loaded, {"n": 1}, idempotency_key="K")
        await first.wait()
        again = await engine.start(loaded, {"n": 1}, idempotency_key="K")
        assert again.run_id == first.run_id
        assert (await again.wait()).status == "completed"
        assert len(tools.calls) == 1
        with pytest.raises(Conflict):
            await engine.start(loaded, {"n": 2}, idempotency_key="K")


async def test_two_waits_at_once_never_take_the_same_event() -> None:
    fan = {"id": "p", "type": "parallel", "branches": {"a": [paid("a")], "b": [paid("b")]}}
    async with engine_with(ScriptedTools(), serves=True) as engine:
        handle = await engine.start(
            workflow([fan], output={"n": ["{{step.a.data.n}}", "{{step.b.data.n}}"]}), {"order": 1}
        )
        await handle.wait()
        await engine.send_event("paid", {"order": 1, "n": 1})
        await asyncio.sleep(0.1)
        assert (await handle.wait()).status == "waiting"
        await engine.send_event("paid", {"order": 1, "n": 2})
        run = await handle.wait(until_final=True)
        assert sorted(run.output["n"]) == [1, 2]


async def test_a_run_that_waits_for_its_lane_can_be_cancelled() -> None:
    async with engine_with(ScriptedTools(), serves=True) as engine:
        loaded = workflow([gate_step("g")], concurrency=LANE)
        first = await engine.start(loaded, {"customer": "a"})
        await until_waiting(engine, first.run_id, "/g")
        second = await engine.start(loaded, {"customer": "a"})
        assert (await engine.cancel(second.run_id)).status == "cancelled"
        assert (await engine.run(first.run_id)).status == "pending_approval"


async def test_waiting_for_a_time_does_not_count_as_active_however_short() -> None:
    steps = [
        {
            "id": "p",
            "type": "parallel",
            "branches": {"a": [{"id": "w", "type": "wait", "for": "0.6s"}], "b": [tool("t")]},
        },
        tool("after"),
    ]
    tools = ScriptedTools(delays={"t": 0.1})
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(steps, timeout="0.4s"), {})
        run = await handle.wait()
        assert run.status == "completed"
        assert 0.1 <= run.active < 0.4
        slow = ScriptedTools(delays={"t": 0.6})
    async with engine_with(slow) as engine:
        run = await (await engine.start(workflow(steps, timeout="0.4s"), {})).wait()
        assert run.status == "timed_out"
