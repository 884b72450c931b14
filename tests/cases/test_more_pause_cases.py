"""Neighbours of the cases of pause_resume, double_resume and cancellation: what else could be mixed up by a pause."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cases.test_container_cases import engine_at, project
from tests.cases.test_pause_cases import FAN, approve, gate, tool, until_waiting
from tests.engine_world import engine_with, open_waits, statuses, workflow

from stepwell.engine.engine import Engine, open_engine
from stepwell.engine.settings import Settings
from stepwell.errors import AlreadyDecided, Conflict, DefinitionError, Gone, StepFailed
from stepwell.journal.entry import read_body
from stepwell.stores.memory import MemoryRunStore
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.testing.scripted import ScriptedTools

Json = Any
FINAL_STEP = {"completed", "failed", "skipped", "cancelled"}


def loop(body: list[Json], **more: Json) -> Json:
    return {"id": "L", "type": "loop", "over": [1, 2, 3], "steps": body, **more}


async def quiet(seconds: float = 0.15) -> None:
    await asyncio.sleep(seconds)


# ── answers reach the gate that asked ──


@pytest.mark.parametrize("first", ["/fan/a/ga", "/fan/b/gb"])
async def test_c001_either_order_with_a_new_process_before_each_answer(tmp_path: Path, first: str) -> None:
    tools = ScriptedTools()
    second = "/fan/b/gb" if first == "/fan/a/ga" else "/fan/a/ga"
    mine = "t" + first[-1]
    run_id = ""
    for number, answered in enumerate(["", first, second]):
        async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
            if answered:
                await approve(engine, run_id, answered)
                handle = await engine.resume(run_id)
            else:
                handle = await engine.start(workflow(FAN), {})
            run_id = handle.run_id
            run = await handle.wait()
            assert run.status == ["pending_approval", "pending_approval", "completed"][number]
            if number == 1:
                assert set(await open_waits(engine, run_id)) == {second}
                assert [call.tool for call in tools.calls] == [mine]
    assert sorted(call.tool for call in tools.calls) == ["after", "ta", "tb"]


async def test_c002_no_status_ever_shown_goes_back_from_a_final_one() -> None:
    branches = {name: [tool(f"slow_{name}"), gate(f"g{name}"), tool(f"t_{name}")] for name in "abc"}
    tools = ScriptedTools(delays={"slow_a": 0.0, "slow_b": 0.05, "slow_c": 0.1})
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow([{"id": "fan", "type": "parallel", "branches": branches}]), {})
        final: dict[str, str] = {}
        while (await engine.run(handle.run_id)).status != "completed":
            found = await statuses(engine, handle.run_id)
            assert {path: found.get(path) for path in final} == final
            final |= {path: status for path, status in found.items() if status in FINAL_STEP}
            for wait in (await open_waits(engine, handle.run_id)).values():
                await engine.decide(wait.id, "approved")
            await asyncio.sleep(0.005)
        assert all(len(tools.called(f"t_{name}")) == 1 for name in "abc")


async def test_c006_the_answer_of_one_round_of_a_container_does_not_pass_the_next_round() -> None:
    """A container that is tried again asks again: what was approved was the round that failed."""
    steps = [
        {"id": "c", "type": "condition", "when": "true", "retry": {"max_attempts": 2, "initial_delay": "1ms"},
         "then": [gate("g"), tool("pay", retry={"max_attempts": 1})]},
    ]  # fmt: skip
    tools = ScriptedTools(answers={"/c/pay": [StepFailed("server_error", "503")]})
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        first = next(iter((await until_waiting(engine, handle.run_id, "/c/g")).values()))
        await engine.decide(first.id, "approved")
        waits = await until_waiting(engine, handle.run_id, "/c#2/g")
        await quiet()
        assert (len(tools.called("pay")), (await handle.wait()).status) == (1, "pending_approval")
        with pytest.raises(AlreadyDecided):
            await engine.decide(first.id, "approved")
        await engine.decide(waits["/c#2/g"].id, "approved")
        assert (await handle.wait(until_final=True)).status == "completed"
        assert len(tools.called("pay")) == 2


async def test_c006_concurrent_iterations_pass_one_by_one_as_they_are_approved() -> None:
    body = [gate("g"), tool("pay", arguments={"n": "{{loop_item}}"})]
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow([loop(body, concurrency=3)]), {})
        waits = await until_waiting(engine, handle.run_id, "/L/0/g", "/L/1/g", "/L/2/g")
        for count, index in enumerate([2, 0, 1], start=1):
            await engine.decide(waits[f"/L/{index}/g"].id, "approved")
            with pytest.raises(AlreadyDecided):
                await engine.decide(waits[f"/L/{index}/g"].id, "rejected")
            while len(tools.called("pay")) < count:
                await asyncio.sleep(0.005)
            await quiet(0.05)
            assert len(tools.called("pay")) == count
        assert [call["n"] for call in tools.called("pay")] == [3, 1, 2]
        assert [one["n"] for one in (await handle.wait(until_final=True)).output] == [1, 2, 3]


async def test_c007_every_turn_of_an_until_loop_asks_anew_and_gets_its_own_answer(tmp_path: Path) -> None:
    form = {"type": "object", "required": ["done"], "properties": {"done": {"type": "boolean"}}}
    turns = {"id": "L", "type": "loop", "until": "step.g.data.done", "max_iterations": 5,
             "steps": [gate("g", form=form), tool("use", arguments={"done": "{{step.g.data.done}}"})]}  # fmt: skip
    tools = ScriptedTools()
    run_id = ""
    for index, done in enumerate([None, False, False, True]):
        async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
            if done is None:
                handle = await engine.start(workflow([turns]), {})
            else:
                await approve(engine, run_id, f"/L/{index - 1}/g", data={"done": done})
                handle = await engine.resume(run_id)
            run_id = handle.run_id
            run = await handle.wait()
            assert run.status == ("completed" if done else "pending_approval")
            assert len(await engine.waits(run_id=run_id)) == (0 if done else 1)
    assert tools.called("use") == [{"done": False}, {"done": False}, {"done": True}]


# ── children ──


@pytest.mark.parametrize("value", [0, False, "", None, [], {}])
async def test_c012_a_falsy_output_of_a_child_that_paused_is_its_output(tmp_path: Path, value: Json) -> None:
    child = {"steps": [gate("ask"), tool("score")], "output": "{{step.score}}"}
    main = {
        "steps": [
            {"id": "child", "type": "sub_workflow", "workflow": "kid", "inputs": {"name": "the input"}},
            tool("use", arguments={"v": "{{step.child}}"}),
        ]
    }
    project(tmp_path, main=main, kid=child)
    tools = ScriptedTools(answers={"score": [value]})
    engine = engine_at(tools)
    await engine.open()
    handle = await engine.start(engine.load(tmp_path / "main.yaml"), {})
    await approve(engine, handle.run_id, "/child/ask")
    assert (await handle.wait(until_final=True)).status == "completed"
    (call,) = tools.called("use")
    assert call == {"v": value}
    assert type(call["v"]) is type(value)
    await engine.close()


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("strategy", ["fail", "continue"])
async def test_c013_a_childs_failure_is_the_same_before_and_after_its_gate(
    tmp_path: Path, gated: bool, strategy: str
) -> None:
    child = {"steps": [*([gate("ask")] if gated else []), tool("bad")]}
    step = {"id": "child", "type": "sub_workflow", "workflow": "kid", "on_error": strategy}
    project(tmp_path, main={"steps": [step, tool("after")]}, kid=child)
    tools = ScriptedTools(answers={"bad": [StepFailed("invalid_request", "400 bad name")]})
    engine = engine_at(tools)
    await engine.open()
    handle = await engine.start(engine.load(tmp_path / "main.yaml"), {})
    if gated:
        await approve(engine, handle.run_id, "/child/ask")
    run = await handle.wait(until_final=True)
    steps = {one["path"]: one for one in (await engine.tree(run.id)).as_json()["steps"]}
    error = steps["/child"]["error"]
    assert (steps["/child"]["status"], error["kind"]) == ("failed", "child_failed")
    assert error["message"] == "kid: invalid_request: 400 bad name"
    assert run.status == ("failed" if strategy == "fail" else "completed")
    assert (run.error or {}).get("message") == (error["message"] if strategy == "fail" else None)
    assert len(tools.called("after")) == (0 if strategy == "fail" else 1)
    await engine.close()


# ── gates that nobody answers, refuses, or that are skipped ──


@pytest.mark.parametrize("mode", ["all_settled", "fail_fast", "first_success", {"quorum": 1}])
async def test_c015_no_mode_of_a_parallel_goes_on_without_an_answer(mode: Json) -> None:
    fan = {"id": "fan", "type": "parallel", "mode": mode, "branches": {"a": [gate("ga")], "b": [gate("gb")]}}
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow([fan, tool("after")]), {})
        waits = await until_waiting(engine, handle.run_id, "/fan/a/ga", "/fan/b/gb")
        await asyncio.sleep(0.5)
        run = await engine.run(handle.run_id)
        assert (run.status, run.ended, tools.calls) == ("pending_approval", 0, [])
        assert (await engine.history(run.id))[-1].path != ""
        await engine.decide(waits["/fan/a/ga"].id, "approved")
        if mode in ("all_settled", "fail_fast"):
            await quiet()
            assert set(await open_waits(engine, run.id)) == {"/fan/b/gb"}
            await engine.decide(waits["/fan/b/gb"].id, "approved")
        run = await handle.wait(until_final=True)
        assert (run.status, len(tools.called("after"))) == ("completed", 1)
        if mode not in ("all_settled", "fail_fast"):
            with pytest.raises(Gone):
                await engine.decide(waits["/fan/b/gb"].id, "approved")


async def test_c016_a_loop_that_has_begun_is_not_skipped_by_what_its_condition_would_say_after_a_restart(
    tmp_path: Path,
) -> None:
    """The condition reads a step outside and the time; a restart in the middle of the body evaluates nothing again."""
    body = [tool("w"), gate("g")]
    steps = [tool("open"), loop(body, condition="step.open.ok", until=None)]
    steps[1] = {key: value for key, value in steps[1].items() if value is not None}
    tools = ScriptedTools(answers={"open": [{"ok": True}], "w": [{"ok": False}]})
    run_id = ""
    for number in range(4):
        async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
            if number:
                await approve(engine, run_id, f"/L/{number - 1}/g")
                handle = await engine.resume(run_id)
            else:
                handle = await engine.start(workflow(steps), {})
            run_id = handle.run_id
            run = await handle.wait()
            history = await engine.history(run_id)
            assert sum(entry.path == "/L/~start" for entry in history) == 1
    assert (run.status, len(tools.called("w")), len(tools.called("open"))) == ("completed", 3, 1)


@pytest.mark.parametrize("variant", ["reject", "expire"])
async def test_c017_a_container_that_may_be_tried_again_does_not_ask_again_what_was_refused(variant: str) -> None:
    steps = [
        {"id": "c", "type": "condition", "when": "true", "retry": {"max_attempts": 4, "initial_delay": "1ms"},
         "then": [tool("a"), gate("g", expires_in="0.1s"), tool("b")]},
    ]  # fmt: skip
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        waits = await until_waiting(engine, handle.run_id, "/c/g")
        if variant == "reject":
            await engine.decide(waits["/c/g"].id, "rejected")
        run = await handle.wait(until_final=True)
        assert run.error is not None
        assert (run.status, run.error["path"]) == ("failed", "/c/g")
        assert len(await engine.waits(run_id=run.id, pending_only=False)) == 1
        assert len([one for one in await engine.notifications(run.id) if one.path.startswith("/c")]) <= 1
        assert (len(tools.called("a")), tools.called("b")) == (1, [])


def test_c017_an_approval_takes_no_retry_policy() -> None:
    with pytest.raises(DefinitionError) as caught:
        workflow([gate("g", retry={"max_retries": 3})])
    (problem,) = caught.value.problems
    assert "retry" in problem.message


async def test_c017_each_way_a_gate_may_expire_is_told_as_such() -> None:
    for on_expire, run_status, step_status in (
        ("reject", "failed", "failed"), ("fail", "failed", "failed"), ("approve", "completed", "completed"),
    ):  # fmt: skip
        tools = ScriptedTools()
        async with engine_with(tools, serves=True) as engine:
            steps = [gate("g", expires_in="0.1s", on_expire=on_expire), tool("b")]
            handle = await engine.start(workflow(steps), {})
            run = await handle.wait(until_final=True)
            assert run.status == run_status
            assert (await statuses(engine, run.id))["/g"] == step_status
            assert len(tools.called("b")) == (run_status == "completed")
            (wait,) = await engine.waits(run_id=run.id, pending_only=False)
            with pytest.raises((Gone, AlreadyDecided)):
                await engine.decide(wait.id, "approved")


async def test_c020_gates_of_equal_steps_in_runs_children_and_rounds_have_identities_of_their_own(
    tmp_path: Path,
) -> None:
    child = {"id": "kid", "type": "sub_workflow", "workflow": "kid"}
    main = {"steps": [{"id": "fan", "type": "parallel", "branches": {"a": [child], "b": [{**child, "id": "kid2"}]}}]}
    project(tmp_path, main=main, kid={"steps": [gate("g"), tool("act", arguments={"by": "{{step.g.by}}"})]})
    tools = ScriptedTools()
    engine = engine_at(tools)
    await engine.open()
    runs = [await engine.start(engine.load(tmp_path / "main.yaml"), {}) for _ in range(2)]
    waits = {}
    for number, handle in enumerate(runs):
        found = await until_waiting(engine, handle.run_id, "/fan/a/kid/g", "/fan/b/kid2/g")
        waits |= {(number, path): wait for path, wait in found.items()}
    assert len({wait.id for wait in waits.values()}) == len(waits) == 4
    for (number, path), wait in reversed(waits.items()):
        await engine.decide(wait.id, "approved", by=f"{number}{path}")
    for number, handle in enumerate(runs):
        run = await handle.wait(until_final=True)
        assert run.output["a"]["output"] == {"by": f"{number}/fan/a/kid/g"}
        assert run.output["b"]["output"] == {"by": f"{number}/fan/b/kid2/g"}
    await engine.close()


SKIPPABLE = {
    "recipe": {"type": "recipe", "recipe": "nobody-asks"},
    "llm_call": {"type": "llm_call", "prompt": "hello"},
    "kb_write": {"type": "kb_write", "document": "d", "content": "text"},
    "kb_search": {"type": "kb_search", "query": "text"},
    "handoff": {"type": "handoff", "to": "department:care", "message": "hello"},
    "end": {"type": "end", "output": {"ended": True}},
    "sub_workflow": {"type": "sub_workflow", "workflow": "kid"},
}


@pytest.mark.parametrize("kind", sorted(SKIPPABLE))
async def test_c022_skip_follows_skip_for_kinds_that_reach_outside(tmp_path: Path, kind: str) -> None:
    import json

    steps = [
        {"id": "train", "type": "set", "values": {"a": 1}, "condition": "workflow_input.retrain"},
        {"id": "g", **SKIPPABLE[kind], "depends_on": ["train"]},
    ]
    (tmp_path / "w.json").write_text(json.dumps({"workflow": "w", "steps": steps}))
    (tmp_path / "kid.json").write_text(json.dumps({"workflow": "kid", "steps": [{"id": "k", "type": "approval"}]}))
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/nobody-asks.yaml").write_text('recipe: nobody-asks\nversion: "1"\nprompt: hello\n')
    async with open_engine(f"sqlite:///{tmp_path}/s.db", settings=Settings(root=tmp_path)) as engine:
        handle = await engine.start(engine.load(tmp_path / "w.json"), {"retrain": False})
        run = await handle.wait()
        assert (run.status, run.output) == ("completed", None)
        assert await statuses(engine, run.id) == {"/train": "skipped", "/g": "skipped"}
        assert (await engine.notifications(run.id), await engine.waits(run_id=run.id, pending_only=False)) == ([], [])
        assert await engine.knowledge.documents("default") == []


# ── double resume ──


async def test_c024_fifty_clicks_at_once_from_two_servers_start_one_continuation(tmp_path: Path) -> None:
    file = tmp_path / "r.db"
    tools, others = ScriptedTools(delays={"slow": 0.2}), ScriptedTools(delays={"slow": 0.2})
    async with (
        engine_with(tools, SqliteRunStore.open(file), serves=True) as engine,
        engine_with(others, SqliteRunStore.open(file), serves=True) as other,
    ):
        handle = await engine.start(workflow([gate("g"), tool("slow"), gate("g2")]), {})
        first = (await until_waiting(engine, handle.run_id, "/g"))["/g"]
        clicks = [(engine, other)[number % 2].decide(first.id, "approved", by=str(number)) for number in range(50)]
        answers = await asyncio.gather(*clicks, return_exceptions=True)
        taken = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert len(taken) == 1
        assert all(isinstance(answer, AlreadyDecided) for answer in answers if answer is not taken[0])
        waits = await until_waiting(engine, handle.run_id, "/g2")
        with pytest.raises(AlreadyDecided):
            await other.decide(first.id, "rejected")
        assert len(tools.called("slow") + others.called("slow")) == 1
        assert [entry.path for entry in await engine.history(handle.run_id)].count("/g/?") == 1
        await other.decide(waits["/g2"].id, "approved", by="last")
        run = await handle.wait(until_final=True)
        assert (run.status, run.output["by"]) == ("completed", "last")
        steps = {one["path"]: one for one in (await engine.tree(run.id)).as_json()["steps"]}
        assert steps["/g"]["output"]["by"] == taken[0].decision["by"]


# ── cancellation ──


async def cancelled_within(engine: Engine, run_id: str, seconds: float) -> str:
    began = time.monotonic()
    run = await engine.cancel(run_id, "stop")
    assert time.monotonic() - began < seconds
    return run.status


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_c062_a_cancel_reaches_what_runs_in_a_child(tmp_path: Path, elsewhere: bool) -> None:
    """At once where the run is carried on; within a second of the beat when another process carries it on."""
    main = {"steps": [{"id": "child", "type": "sub_workflow", "workflow": "outer"}, tool("after")]}
    inner = {"id": "inner", "type": "sub_workflow", "workflow": "inner"}
    project(tmp_path, main=main, outer={"steps": [tool("t1"), tool("t2"), inner]}, inner={"steps": [tool("t3")]})
    tools = ScriptedTools(delays={"t1": 30})
    store = MemoryRunStore() if not elsewhere else SqliteRunStore.open(tmp_path / "r.db")
    engine = engine_at(tools, store=store)
    await engine.open()
    handle = await engine.start(engine.load(tmp_path / "main.yaml"), {})
    while not tools.called("t1"):
        await asyncio.sleep(0.01)
    asked = engine
    if elsewhere:
        asked = engine_at(ScriptedTools(), serves=False, store=SqliteRunStore.open(tmp_path / "r.db"))
        await asked.open()
    await asked.cancel(handle.run_id, "stop")
    run = await asyncio.wait_for(handle.wait(until_final=True), 5)
    assert run.status == "cancelled"
    await quiet()
    assert [call.tool for call in tools.calls] == ["t1"]
    found = await statuses(engine, run.id)
    assert (found["/child"], found["/child/t1"], found["/after"]) == ("cancelled", "cancelled", "skipped")
    if elsewhere:
        await asked.close()
    await engine.close()


@pytest.mark.parametrize(
    "steps",
    [
        [tool("t", retry={"max_attempts": 9, "initial_delay": "20s", "jitter": "none"})],
        [{"id": "t", "type": "wait", "for": "20s"}],
        [{"id": "t", "type": "wait", "for": "9h"}],
        [loop([tool("t", retry={"max_attempts": 9, "initial_delay": "20s"})], concurrency=3)],
        [{"id": "c", "type": "condition", "when": "true", "retry": {"max_attempts": 3, "initial_delay": "20s"},
          "then": [tool("t", retry={"max_attempts": 1})]}],
        [loop([tool("t", on_error="continue", retry={"initial_delay": "20s"}), tool("u")], tolerate="100%")],
    ],
    ids=["back-off", "a near timer", "a far timer", "back-off in a loop", "before a next round", "where failures pass"],
)  # fmt: skip
async def test_c062_a_cancel_wakes_a_run_from_whatever_it_sleeps_in(steps: Json) -> None:
    tools = ScriptedTools(answers={"t": [StepFailed("server_error", "503")]})
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow([*steps, tool("after")], on_failure={"steps": [tool("tell")]}), {})
        await quiet(0.2)
        calls = len(tools.calls)
        assert await cancelled_within(engine, handle.run_id, 2) == "cancelled"
        await quiet()
        assert len(tools.calls) == calls
        assert tools.called("after") == tools.called("tell") == tools.called("u") == []
        with pytest.raises(Conflict):
            await engine.resume(handle.run_id)


async def test_c062_a_run_has_one_end_when_a_cancel_meets_its_completion() -> None:
    """Whatever comes first: one last entry, and the run's state is what that entry says, also for who cancelled."""
    ends = set()
    for number in range(40):
        tools = ScriptedTools(delays={"t": 0.004})
        async with engine_with(tools) as engine:
            handle = await engine.start(workflow([tool("t")]), {})
            await asyncio.sleep(number * 0.0003)
            try:
                status = (await engine.cancel(handle.run_id)).status
            except Conflict as conflict:
                status = str(conflict.detail["status"] if isinstance(conflict.detail, dict) else conflict.detail)
            run = await engine.run(handle.run_id)
            assert run.status == status
            history = await engine.history(run.id)
            assert [entry.path for entry in history].count("") == 1
            assert read_body(history[-1]).status in {run.status, ""}
            ends.add(run.status)
    assert ends <= {"completed", "cancelled"}
