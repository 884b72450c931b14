"""Containers tried again as a whole, their timeouts, sub-workflows and what runs after a failure."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.cases.test_pause_cases import approve, until_waiting
from tests.cases.test_step_cases import gate_step, run_to_end, tool
from tests.engine_world import engine_with, statuses, workflow
from tests.failure.test_agent import Model, asks, engine_of
from tests.failure.test_strategies import ONCE

from stepwell.engine.engine import Engine
from stepwell.engine.events import Listeners
from stepwell.engine.parts import Parts
from stepwell.engine.tool_performer import ToolPerformer
from stepwell.engine.world import World
from stepwell.errors import DefinitionError, Gone, StepFailed
from stepwell.interpreter.effect import ToolCall
from stepwell.library.workflows import workflow_file
from stepwell.stores.knowledge_memory import MemoryKnowledge
from stepwell.stores.memory import MemoryRunStore
from stepwell.testing.scripted import ScriptedTools

Json = Any


class Flaky:
    """Fails the first `times` calls of a tool, whatever the step."""

    def __init__(self, times: int, kind: str = "server_error") -> None:
        self.left = times
        self.kind = kind

    def __call__(self, arguments: Json) -> Json:
        self.left -= 1
        if self.left >= 0:
            raise StepFailed(self.kind, "not yet")
        return arguments


async def test_a_container_is_tried_again_as_a_whole_in_new_rounds() -> None:
    once = {"max_attempts": 1}
    steps = [
        {
            "id": "c",
            "type": "condition",
            "when": "true",
            "retry": {"max_attempts": 3, "initial_delay": "1ms"},
            "then": [tool("a"), tool("b", retry=once)],
        },
        tool("after", arguments={"b": "{{step.b}}"}),
    ]
    tools = ScriptedTools(answers={"b": [Flaky(2)]})
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(steps), {})
        run = await handle.wait()
        assert run.status == "completed"
        assert [len(tools.called(name)) for name in ("a", "b", "after")] == [3, 3, 1]
        assert {call.path for call in tools.calls if call.tool == "a"} == {"/c/a", "/c#2/a", "/c#3/a"}
    tools = ScriptedTools(answers={"b": [Flaky(9)]})
    run, _ = await run_to_end(steps, tools)
    assert run.status == "failed"
    assert len(tools.called("b")) == 3
    tools = ScriptedTools(answers={"b": [Flaky(9, "refused")]})
    run, _ = await run_to_end(steps, tools)
    assert len(tools.called("b")) == 1


async def test_a_containers_timeout_bounds_its_active_time() -> None:
    steps = [
        {
            "id": "L",
            "type": "loop",
            "over": [1, 2, 3, 4, 5, 6],
            "timeout": "0.25s",
            "on_error": "continue",
            "steps": [tool("t")],
        },
        tool("after"),
    ]
    steps[0]["on_error"] = {"strategy": "continue", "default": []}
    tools = ScriptedTools(delays={"t": 0.1})
    begun = time.monotonic()
    run, found = await run_to_end(steps, tools)
    assert run.status == "completed"
    assert time.monotonic() - begun < 3
    assert len(tools.called("t")) < 6
    assert found["/L"] == "failed"
    assert len(tools.called("after")) == 1


async def test_waiting_for_a_person_does_not_count_against_a_containers_timeout() -> None:
    steps = [
        {"id": "c", "type": "condition", "when": "true", "timeout": "0.3s", "then": [gate_step("g"), tool("t")]},
    ]
    async with engine_with(ScriptedTools(), serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        await until_waiting(engine, handle.run_id, "/c/g")
        await asyncio.sleep(0.5)
        await approve(engine, handle.run_id, "/c/g")
        run = await handle.wait(until_final=True)
        assert run.status == "completed"


async def test_on_failure_runs_once_with_the_error() -> None:
    after = {"steps": [tool("tell", arguments={"kind": "{{error.kind}}", "a": "{{step.a ?? 'none'}}"})]}
    tools = ScriptedTools(answers={"b": [StepFailed("refused", "no")]})
    run, found = await run_to_end([tool("a"), tool("b"), tool("c")], tools, on_failure=after)
    assert run.status == "failed"
    assert tools.called("tell") == [{"kind": "refused", "a": {}}]
    assert [status for path, status in found.items() if path.endswith("tell")] == ["completed"]
    tools = ScriptedTools()
    run, _ = await run_to_end([tool("a")], tools, on_failure=after)
    assert (run.status, tools.called("tell")) == ("completed", [])
    tools = ScriptedTools(answers={"b": [StepFailed("refused", "no")], "tell": [StepFailed("not_found", "nobody")]})
    run, _ = await run_to_end([tool("b")], tools, on_failure={"steps": [tool("tell")]})
    assert run.error is not None
    assert run.error["kind"] == "refused"
    assert run.error["detail"]["on_failure"]["kind"] == "not_found"


# ── sub-workflows ──


def project(folder: Path, **workflows: Json) -> None:
    for name, content in workflows.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"workflow": name, **content}, sort_keys=False))


def engine_at(tools: ScriptedTools, *, serves: bool = True, store: Any = None) -> Engine:
    store = store or MemoryRunStore()
    world = World(store, {ToolCall: ToolPerformer(tools)}, tools, Listeners())
    parts = Parts(store, world, tools, MemoryKnowledge(), workflow_file=workflow_file)
    return Engine(parts, SimpleNamespace(root=Path("/")), serves=serves)  # type: ignore[arg-type]


GATED = {
    "input": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    "steps": [gate_step("ask"), tool("score", arguments={"name": "{{workflow_input.name}}", "score": 42})],
    "output": {"score": "{{step.score.score}}"},
}


async def test_c012_the_parent_gets_the_childs_output(tmp_path: Path) -> None:
    main = {
        "steps": [
            {
                "id": "child",
                "type": "sub_workflow",
                "workflow": "enrich",
                "inputs": {"name": "{{workflow_input.name}}"},
            },
            tool("use", arguments={"v": "{{step.child.score}}"}),
        ]
    }
    project(tmp_path, main=main, enrich=GATED)
    tools = ScriptedTools()
    engine = engine_at(tools)
    await engine.open()
    handle = await engine.start(engine.load(tmp_path / "main.yaml"), {"name": "acme"})
    await approve(engine, handle.run_id, "/child/ask")
    run = await handle.wait(until_final=True)
    assert run.status == "completed"
    assert tools.called("score") == [{"name": "acme", "score": 42}]
    assert tools.called("use") == [{"v": 42}]
    assert (await statuses(engine, run.id))["/child/score"] == "completed"
    await engine.close()


async def test_c012_a_child_for_each_item_gives_each_its_own_output(tmp_path: Path) -> None:
    child = {"id": "child", "type": "sub_workflow", "workflow": "enrich", "inputs": {"name": "{{loop_item}}"}}
    gated = {**GATED, "output": {"name": "{{step.score.name}}"}}
    loop = {"id": "L", "type": "loop", "over": ["a", "b", "c"], "concurrency": 3, "steps": [child]}
    project(tmp_path, main={"steps": [loop]}, enrich=gated)
    tools = ScriptedTools()
    store = MemoryRunStore()
    engine = engine_at(tools, serves=False, store=store)
    await engine.open()
    handle = await engine.start(engine.load(tmp_path / "main.yaml"), {})
    for index in (2, 0, 1):
        await approve(engine, handle.run_id, f"/L/{index}/child/ask")
    await handle.wait()
    await engine.close()
    engine = engine_at(tools, store=store)  # another process goes on
    await engine.open()
    run = await engine.settled(handle.run_id, until_final=True)
    assert run.output == [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    assert len(tools.called("score")) == 3
    await engine.close()


async def test_c013_a_child_that_fails_after_its_gate_fails_its_parent(tmp_path: Path) -> None:
    child = {"steps": [gate_step("ask"), tool("bad")]}
    main = {"steps": [{"id": "child", "type": "sub_workflow", "workflow": "gate_then_fail"}, tool("after")]}
    project(tmp_path, main=main, gate_then_fail=child)
    tools = ScriptedTools(answers={"bad": [StepFailed("invalid_request", "400 bad name")]})
    engine = engine_at(tools)
    await engine.open()
    handle = await engine.start(engine.load(tmp_path / "main.yaml"), {})
    await approve(engine, handle.run_id, "/child/ask")
    run = await handle.wait(until_final=True)
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["kind"] == "child_failed"
    assert "400 bad name" in run.error["message"]
    assert run.error["detail"]["cause"]["kind"] == "invalid_request"
    assert tools.called("after") == []
    found = await statuses(engine, run.id)
    assert (found["/child"], found["/child/bad"], found["/after"]) == ("failed", "failed", "skipped")
    await engine.close()


async def test_c062_cancel_reaches_the_grandchild_and_closes_its_approvals(tmp_path: Path) -> None:
    main = {"steps": [{"id": "child", "type": "sub_workflow", "workflow": "outer"}, tool("after")]}
    outer = {"steps": [tool("t1"), {"id": "inner", "type": "sub_workflow", "workflow": "inner"}]}
    project(tmp_path, main=main, outer=outer, inner={"steps": [gate_step("ask"), tool("t3")]})
    tools = ScriptedTools()
    engine = engine_at(tools)
    await engine.open()
    handle = await engine.start(engine.load(tmp_path / "main.yaml"), {})
    waits = await until_waiting(engine, handle.run_id, "/child/inner/ask")
    run = await engine.cancel(handle.run_id, "stop")
    assert run.status == "cancelled"
    assert [call.tool for call in tools.calls] == ["t1"]
    with pytest.raises(Gone):
        await engine.decide(waits["/child/inner/ask"].id, "approved")
    found = await statuses(engine, run.id)
    assert found["/child"] == found["/child/inner"] == "cancelled"
    assert found["/child/inner/t3"] == "skipped"
    types = {step["path"]: step["type"] for step in (await engine.tree(run.id)).as_json()["steps"]}
    assert types["/child/inner/ask"] == "approval"
    await engine.close()


def test_workflows_that_call_each_other_in_a_circle_are_refused(tmp_path: Path) -> None:
    call = {"id": "c", "type": "sub_workflow"}
    project(tmp_path, a={"steps": [{**call, "workflow": "b"}]}, b={"steps": [{**call, "workflow": "a"}]})
    engine = engine_at(ScriptedTools())
    loaded = engine.load(tmp_path / "a.yaml")
    with pytest.raises(DefinitionError, match="a > b > a"):
        engine._parts.children_of(loaded)


async def test_c079_depth_is_bounded_when_the_workflow_is_named_at_run_time(tmp_path: Path) -> None:
    again = {"id": "c", "type": "sub_workflow", "workflow": "{{workflow_input.again}}", "inputs": {"again": "self"}}
    project(tmp_path, self={"steps": [tool("t"), again]})
    tools = ScriptedTools()
    engine = engine_at(tools)
    await engine.open()
    handle = await engine.start(engine.load(tmp_path / "self.yaml"), {"again": "self"})
    run = await handle.wait(until_final=True)
    assert run.error is not None
    assert (run.status, run.error["kind"]) == ("failed", "depth_exceeded")
    assert "self > self" in run.error["message"]
    assert len(tools.calls) == 8
    await engine.close()


async def test_a_child_ends_early_without_ending_its_parent(tmp_path: Path) -> None:
    child = {"steps": [{"id": "stop", "type": "end", "output": {"early": True}}, tool("never")]}
    project(
        tmp_path, main={"steps": [{"id": "c", "type": "sub_workflow", "workflow": "child"}, tool("after")]}, child=child
    )
    tools = ScriptedTools()
    engine = engine_at(tools)
    await engine.open()
    run = await (await engine.start(engine.load(tmp_path / "main.yaml"), {})).wait(until_final=True)
    assert run.status == "completed"
    assert [call.tool for call in tools.calls] == ["after"]
    await engine.close()


async def test_c079_depth_is_bounded_when_a_tool_starts_the_workflow_again() -> None:
    loaded = workflow([tool("again")])
    started = 0

    class Starting(ScriptedTools):
        async def call(self, name: str, arguments: Json, context: Any) -> Json:
            nonlocal started
            started += 1
            run = await (await engine.start(loaded, {})).wait(until_final=True)
            if run.error is not None:
                raise StepFailed.of(run.error)
            return {"run": run.id}

    async with engine_with(Starting()) as engine:
        run = await (await engine.start(loaded, {})).wait()
        assert run.error is not None
        assert run.error["kind"] == "depth_exceeded"
        assert "w > w" in run.error["message"]
        assert started == 8


async def test_c079_depth_is_bounded_when_a_model_s_tool_starts_the_workflow_again() -> None:
    loaded = workflow([{"id": "ask", "type": "llm_call", "prompt": "go", "tools": ["again"], "retry": ONCE}])
    refusals: list[Json] = []

    class Starting(ScriptedTools):
        async def call(self, name: str, arguments: Json, context: Any) -> Json:
            try:
                run = await (await engine.start(loaded, {})).wait(until_final=True)
            except StepFailed as failure:
                refusals.append(failure.kind)
                raise
            if run.error is not None:
                refusals.append(run.error["kind"])
                raise StepFailed.of(run.error)
            return {"run": run.id}

    async with engine_of(Model(asks(("again", {}))), Starting()) as engine:
        run = await (await engine.start(loaded, {})).wait()
        assert run.error is not None
        assert run.error["kind"] == "depth_exceeded"
        assert refusals == ["depth_exceeded"] * 8
