"""Cases of the topics pause_resume and double_resume, on the engine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.engine_world import engine_with, open_waits, statuses, workflow

from stepwell.engine.engine import Engine
from stepwell.errors import AlreadyDecided, Conflict, Gone
from stepwell.stores.memory import MemoryRunStore
from stepwell.testing.scripted import ScriptedTools

Json = Any


def tool(id_: str, **more: Json) -> Json:
    return {"id": id_, "type": "tool_call", "tool": id_, "idempotent": True, **more}


def gate(id_: str, **more: Json) -> Json:
    return {"id": id_, "type": "approval", "title": id_, **more}


async def until_waiting(engine: Engine, run_id: str, *paths: str) -> dict[str, Any]:
    for _ in range(400):
        waits = await open_waits(engine, run_id)
        if set(paths) <= set(waits):
            return waits
        await asyncio.sleep(0.01)
    raise AssertionError(f"{paths} do not wait: {list(waits)}")


async def approve(engine: Engine, run_id: str, path: str, **more: Json) -> None:
    waits = await until_waiting(engine, run_id, path)
    await engine.decide(waits[path].id, "approved", **more)


FAN = [
    {"id": "fan", "type": "parallel", "branches": {"a": [gate("ga"), tool("ta")], "b": [gate("gb"), tool("tb")]}},
    tool("after", depends_on=["fan"]),
]


async def test_c001_two_approvals_in_branches_are_answered_one_after_the_other() -> None:
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(FAN), {})
        await approve(engine, handle.run_id, "/fan/a/ga")
        while not tools.called("ta"):
            await asyncio.sleep(0.01)
        run = await handle.wait()
        assert run.status == "pending_approval"
        assert set(await open_waits(engine, run.id)) == {"/fan/b/gb"}
        assert (len(tools.called("ta")), len(tools.called("tb")), len(tools.called("after"))) == (1, 0, 0)
        await approve(engine, run.id, "/fan/b/gb")
        run = await handle.wait(until_final=True)
        assert run.status == "completed"
        assert [len(tools.called(name)) for name in ("ta", "tb", "after")] == [1, 1, 1]


async def test_c002_a_finished_branch_never_goes_back() -> None:
    steps = [
        {
            "id": "fan",
            "type": "parallel",
            "branches": {
                "a": [gate("ga")],
                "b": [tool("slow_b"), gate("gb")],
                "c": [tool("slow_c"), gate("gc")],
            },
        },
        tool("after", depends_on=["fan"]),
    ]
    tools = ScriptedTools(delays={"slow_b": 0.1, "slow_c": 0.2})
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        for path in ("/fan/a/ga", "/fan/b/gb", "/fan/c/gc"):
            await approve(engine, handle.run_id, path)
        run = await handle.wait(until_final=True)
        assert run.status == "completed"
        assert len(tools.called("after")) == 1
        settled: set[str] = set()
        for entry in await engine.history(run.id):
            assert entry.path not in settled
            if entry.kind in {"succeeded", "settled"}:
                settled.add(entry.path)


async def test_c003_work_in_one_branch_survives_the_answer_in_another() -> None:
    steps = [
        {
            "id": "fan",
            "type": "parallel",
            "branches": {"heavy": [tool("extract")], "ask": [gate("g1"), tool("n1"), gate("g2"), tool("n2")]},
        }
    ]
    tools = ScriptedTools(delays={"extract": 0.3})
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        await approve(engine, handle.run_id, "/fan/ask/g1")
        await until_waiting(engine, handle.run_id, "/fan/ask/g2")
        assert len(tools.called("n1")) == 1
        await asyncio.sleep(0.4)
        await approve(engine, handle.run_id, "/fan/ask/g2")
        run = await handle.wait(until_final=True)
        assert [len(tools.called(name)) for name in ("extract", "n1", "n2")] == [1, 1, 1]
        assert set(run.output) == {"heavy", "ask"}
        assert all(branch["status"] == "completed" for branch in run.output.values())


async def test_c006_one_approval_lets_one_iteration_pass() -> None:
    steps = [
        {
            "id": "L",
            "type": "loop",
            "over": [1, 2, 3],
            "steps": [gate("g"), tool("pay", arguments={"n": "{{loop_item}}"})],
        }
    ]
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        first = (await until_waiting(engine, handle.run_id, "/L/0/g"))["/L/0/g"]
        await engine.decide(first.id, "approved")
        await until_waiting(engine, handle.run_id, "/L/1/g")
        assert tools.called("pay") == [{"n": 1}]
        with pytest.raises(AlreadyDecided):
            await engine.decide(first.id, "approved")
        await asyncio.sleep(0.05)
        assert tools.called("pay") == [{"n": 1}]
        assert (await handle.wait()).status == "pending_approval"


async def test_c007_each_iteration_gets_its_own_answer() -> None:
    form = {"type": "object", "required": ["note"], "properties": {"note": {"type": "string"}}}
    steps = [
        {
            "id": "L",
            "type": "loop",
            "over": ["x", "y"],
            "steps": [gate("g", form=form), tool("use", arguments={"note": "{{step.g.data.note}}"})],
        }
    ]
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        await approve(engine, handle.run_id, "/L/0/g", data={"note": "first"})
        await until_waiting(engine, handle.run_id, "/L/1/g")
        assert (await handle.wait()).status == "pending_approval"
        await approve(engine, handle.run_id, "/L/1/g", data={"note": "second"})
        await handle.wait(until_final=True)
        assert tools.called("use") == [{"note": "first"}, {"note": "second"}]


async def test_c015_an_approval_at_the_end_of_a_branch_is_waited_for() -> None:
    steps = [{"id": "fan", "type": "parallel", "branches": {"a": [gate("ga")], "b": [gate("gb")]}}]
    async with engine_with(ScriptedTools(), serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        waits = await until_waiting(engine, handle.run_id, "/fan/a/ga", "/fan/b/gb")
        assert (await handle.wait()).status == "pending_approval"
        await engine.decide(waits["/fan/a/ga"].id, "rejected", comment="no")
        run = await handle.wait(until_final=True)
        assert run.status == "failed"
        assert run.error is not None
        assert run.error["kind"] == "rejected"
        with pytest.raises(Gone):
            await engine.decide(waits["/fan/b/gb"].id, "approved")


@pytest.mark.parametrize("gated", [False, True])
async def test_c016_a_loops_condition_is_evaluated_once(gated: bool) -> None:
    body = [tool("w"), *([gate("g")] if gated else [])]
    steps = [tool("open"), {"id": "L", "type": "loop", "over": [1, 2, 3], "condition": "step.open.ok", "steps": body}]
    tools = ScriptedTools(answers={"open": [{"ok": True}], "w": [{"ok": False}]})
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        for index in range(3 if gated else 0):
            await approve(engine, handle.run_id, f"/L/{index}/g")
        run = await handle.wait(until_final=True)
        assert run.status == "completed"
        assert len(tools.called("w")) == 3
        starts = [entry for entry in await engine.history(run.id) if entry.path == "/L/~start"]
        assert len(starts) == 1


@pytest.mark.parametrize("variant", ["reject", "expire"])
async def test_c017_a_refused_gate_fails_itself_and_is_never_retried(variant: str) -> None:
    retry = {"max_retries": 3}
    steps = [
        tool("a"),
        gate("g", depends_on=["a"], expires_in="0.2s"),
        tool("b", depends_on=["g"], retry=retry),
    ]
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        waits = await until_waiting(engine, handle.run_id, "/g")
        if variant == "reject":
            await engine.decide(waits["/g"].id, "rejected")
        run = await handle.wait(until_final=True)
        assert run.status == "failed"
        assert run.error is not None
        assert run.error["kind"] == ("rejected" if variant == "reject" else "approval_expired")
        assert run.error["path"] == "/g"
        found = await statuses(engine, run.id)
        assert found == {"/a": "completed", "/g": "failed", "/b": "skipped"}
        assert tools.called("b") == []
        assert len(await engine.waits(run_id=run.id, pending_only=False)) == 1


async def test_c020_every_open_gate_has_its_own_identity() -> None:
    form = {"type": "object", "properties": {"who": {"type": "string"}}}
    steps = [
        {
            "id": "fan",
            "type": "parallel",
            "branches": {
                "l": [
                    {"id": "Lp", "type": "loop", "over": ["p", "q"], "concurrency": 2, "steps": [gate("g", form=form)]}
                ],
                "r": [gate("g2", form=form)],
            },
        }
    ]
    async with engine_with(ScriptedTools(), serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        paths = ["/fan/l/Lp/0/g", "/fan/l/Lp/1/g", "/fan/r/g2"]
        waits = await until_waiting(engine, handle.run_id, *paths)
        assert len({wait.id for wait in waits.values()}) == 3
        for path in reversed(paths):
            await engine.decide(waits[path].id, "approved", data={"who": path})
        run = await handle.wait(until_final=True)
        assert [one["data"]["who"] for one in run.output["l"]["output"]] == paths[:2]
        assert run.output["r"]["output"]["data"]["who"] == paths[2]


@pytest.mark.parametrize("kind", ["approval", "tool_call", "set", "loop", "condition", "parallel", "wait"])
async def test_c022_skip_follows_skip_for_every_kind_of_step(kind: str) -> None:
    step = {
        "approval": gate("g"),
        "tool_call": tool("g"),
        "set": {"id": "g", "type": "set", "values": {"a": 1}},
        "loop": {"id": "g", "type": "loop", "over": [1], "steps": [tool("in")]},
        "condition": {"id": "g", "type": "condition", "when": "true", "then": [tool("in")]},
        "parallel": {"id": "g", "type": "parallel", "branches": {"a": [tool("in")]}},
        "wait": {"id": "g", "type": "wait", "for": "1h"},
    }[kind]
    steps = [tool("train", condition="workflow_input.retrain"), {**step, "depends_on": ["train"]}]
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {"retrain": False})
        run = await handle.wait(until_final=True)
        assert run.status == "completed"
        assert tools.calls == []
        assert await engine.waits(run_id=run.id, pending_only=False) == []
        assert (await statuses(engine, run.id))["/g"] == "skipped"


async def test_c024_pressing_approve_again_does_nothing() -> None:
    steps = [gate("g"), tool("slow"), gate("g2")]
    tools = ScriptedTools(delays={"slow": 0.3})
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        first = (await until_waiting(engine, handle.run_id, "/g"))["/g"]
        await engine.decide(first.id, "approved")
        for _ in range(3):
            with pytest.raises(AlreadyDecided):
                await engine.decide(first.id, "approved")
            await asyncio.sleep(0.05)
        await until_waiting(engine, handle.run_id, "/g2")
        with pytest.raises(AlreadyDecided):
            await engine.decide(first.id, "approved")
        assert len(tools.called("slow")) == 1
        assert set(await open_waits(engine, handle.run_id)) == {"/g2"}


async def test_a_decision_that_comes_while_nobody_owns_the_run_starts_a_pass() -> None:
    store = MemoryRunStore()
    tools = ScriptedTools()
    async with engine_with(tools, store) as engine:
        handle = await engine.start(workflow([gate("g"), tool("t")]), {})
        assert (await handle.wait()).status == "pending_approval"
        wait = (await open_waits(engine, handle.run_id))["/g"]
        await engine.decide(wait.id, "approved", by="ana", comment="fine")
        assert tools.calls == []
        handle = await engine.resume(handle.run_id)
        run = await handle.wait()
        assert run.status == "completed"
        assert len(tools.called("t")) == 1


async def test_a_rejection_may_be_let_pass() -> None:
    steps = [gate("g", on_reject="continue"), tool("t", condition="step.g.approved")]
    async with engine_with(ScriptedTools(), serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        wait = (await until_waiting(engine, handle.run_id, "/g"))["/g"]
        await engine.decide(wait.id, "rejected", comment="too much")
        run = await handle.wait(until_final=True)
        assert run.status == "completed"
        assert (await statuses(engine, run.id))["/t"] == "skipped"


async def test_a_cancelled_run_closes_its_approvals() -> None:
    async with engine_with(ScriptedTools(), serves=True) as engine:
        handle = await engine.start(workflow([gate("g"), tool("t")]), {})
        wait = (await until_waiting(engine, handle.run_id, "/g"))["/g"]
        await handle.wait()
        run = await engine.cancel(handle.run_id, "not needed")
        assert run.status == "cancelled"
        with pytest.raises(Gone):
            await engine.decide(wait.id, "approved")
        with pytest.raises(Conflict):
            await engine.cancel(handle.run_id)
        assert await statuses(engine, run.id) == {"/g": "cancelled", "/t": "skipped"}
