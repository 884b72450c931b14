"""Neighbours of the cases of loop, loop_scope, falsy and keys, on the engine."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from tests.cases.test_container_cases import Flaky, engine_at, project
from tests.cases.test_more_cases import loop, refusing
from tests.cases.test_pause_cases import approve, gate
from tests.cases.test_step_cases import run_to_end, tool
from tests.engine_world import engine_with, workflow

from stepwell.errors import StepFailed
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.testing.scripted import ScriptedTools

Json = Any
FALSY = [0, 0.0, False, "", None, [], {}]


def same(left: Json, right: Json) -> bool:
    return type(left) is type(right) and left == right


# ── loop ──


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize(("value", "shown"), [
    (None, "null"), ("abc", "text"), (7, "a number"), ({"a": 1}, "an object"), ("[1,2]", "text"), (True, "a boolean"),
])  # fmt: skip
async def test_c086_the_message_names_the_loop_the_source_and_the_type(
    value: Json, shown: str, concurrency: int
) -> None:
    tools = ScriptedTools()
    steps = [loop([tool("t")], "workflow_input.items", concurrency=concurrency), tool("after")]
    run, found = await run_to_end(steps, tools, {"items": value})
    assert run.error is not None
    assert run.error["path"] == "/L"
    assert f"loop L goes over a list, but workflow_input.items is {shown}" in run.error["message"]
    assert ("parse_json()" in run.error["message"]) == isinstance(value, str)
    assert (found["/after"], tools.calls) == ("skipped", [])


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_c086_json_text_and_objects_are_gone_over_by_saying_so(concurrency: int) -> None:
    steps = [
        loop([tool("t", arguments={"n": "{{loop_item}}"})], "parse_json(workflow_input.text)", concurrency=concurrency),
        tool("after", arguments={"all": "{{step.L}}"}),
    ]
    tools = ScriptedTools()
    run, _ = await run_to_end(steps, tools, {"text": "[1, [2], null]"})
    assert run.status == "completed"
    assert tools.called("after") == [{"all": [{"n": 1}, {"n": [2]}, {"n": None}]}]
    run, _ = await run_to_end(steps, tools, {"text": "not json"})
    assert run.error is not None
    assert run.error["kind"] == "expression_error"


async def test_c086_a_list_with_more_items_than_the_limit_fails_before_the_first_iteration() -> None:
    tools = ScriptedTools()
    run, _ = await run_to_end([loop([tool("t")], "workflow_input.a", max_items=3)], tools, {"a": [1, 2, 3, 4]})
    assert run.error is not None
    assert (run.error["kind"], tools.calls) == ("validation_error", [])
    assert "4 items, more than max_items: 3" in run.error["message"]


async def test_c088_items_and_variables_survive_a_restart_in_the_middle_of_concurrent_iterations(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    body = [
        tool("a", arguments={"i": "{{n.i}}"}),
        tool("b", arguments={"prev": "{{step.a.i}}", "i": "{{n.i}}", "at": "{{loop.index}}"}),
    ]
    over = "workflow_input.items"
    delays = {f"/L/{index}/{step}": chance.random() * 0.03 for index in range(49) for step in "ab"}
    tools = ScriptedTools(delays=delays)
    run_id, passes = "", 0
    while True:
        async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
            loaded = workflow([loop(body, over, concurrency=4, **{"as": "n"})])
            given = {"items": [{"i": index} for index in range(49)]}
            handle = await (engine.resume(run_id) if run_id else engine.start(loaded, given))
            run_id, passes = handle.run_id, passes + 1
            await asyncio.sleep(0.08)
            await handle.park()
            run = await engine.run(run_id)
            if run.status == "completed":
                break
    assert passes > 2
    assert run.output == [{"prev": index, "i": index, "at": index} for index in range(49)]


async def test_c091_a_loop_in_a_parallel_in_a_loop_with_a_pause_in_the_innermost() -> None:
    innermost = {
        "id": "i", "type": "loop", "over": "loop_item", "concurrency": 2,
        "steps": [gate("g"), tool("t", arguments={"v": "{{loop_item}}", "at": ["{{loop.parent.index}}", "{{loop.index}}"]})],
        "output": "{{step.t.v}}",
    }  # fmt: skip
    steps = [loop([{"id": "p", "type": "parallel", "branches": {"x": [innermost], "y": [tool("other")]}}],
                  [[1, 2], [], [[3]]], concurrency=2)]  # fmt: skip
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        for place in ("0/p/x/i/1", "2/p/x/i/0", "0/p/x/i/0"):
            await approve(engine, handle.run_id, f"/L/{place}/g")
        run = await handle.wait(until_final=True)
        assert [one["x"]["output"] for one in run.output] == [[1, 2], [], [[3]]]
        assert sorted(call["at"] for call in tools.called("t")) == [[0, 0], [0, 1], [2, 0]]
        assert len(tools.called("other")) == 3


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_c091_a_child_that_loops_inside_a_loop_sees_its_own_items_alone(tmp_path: Path, concurrency: int) -> None:
    child = {"steps": [loop([tool("t", arguments={"v": "{{loop_item}}", "p": "{{loop.parent ?? 'none'}}"})], "workflow_input.part")],
             "output": "{{step.L}}"}  # fmt: skip
    call = {"id": "kid", "type": "sub_workflow", "workflow": "kid", "inputs": {"part": "{{loop_item}}"}}
    outer = {"id": "O", "type": "loop", "over": [[1, 2], [], [3]], "concurrency": concurrency, "steps": [call]}
    project(tmp_path, main={"steps": [outer]}, kid=child)
    engine = engine_at(ScriptedTools())
    await engine.open()
    run = await (await engine.start(engine.load(tmp_path / "main.yaml"), {})).wait(until_final=True)
    assert run.output == [[{"v": 1, "p": "none"}, {"v": 2, "p": "none"}], [], [{"v": 3, "p": "none"}]]
    await engine.close()


@pytest.mark.parametrize(("tolerate", "failing", "ends"), [
    (0, [2], "failed"), (1, [2], "completed"), (1, [2, 3], "failed"), ("25%", [2], "completed"),
    ("25%", [2, 3], "failed"), ("24%", [2], "failed"), ("100%", [1, 2, 3, 4], "completed"), ("0%", [4], "failed"),
])  # fmt: skip
async def test_c092_a_loop_fails_with_the_first_failure_over_what_is_tolerated(
    tolerate: Json, failing: list[int], ends: str
) -> None:
    steps = [loop([tool("t", arguments={"n": "{{loop_item}}"})], tolerate=tolerate), tool("after")]
    tools = ScriptedTools(answers={"t": refusing(*failing)})
    run, _ = await run_to_end(steps, tools, output={"l": "{{step.L}}"})
    assert run.status == ends
    if ends == "completed":
        assert run.output["l"] == [None if n in failing else {"n": n} for n in (1, 2, 3, 4)]
        assert len(tools.called("after")) == 1
    else:
        assert run.error is not None
        assert [cause["index"] + 1 for cause in run.error["detail"]["causes"]] == failing
        assert [call["n"] for call in tools.called("t")] == [*range(1, failing[-1] + 1)]
        assert tools.called("after") == []


async def test_c092_what_is_let_pass_in_the_body_is_no_failure_of_the_iteration() -> None:
    rule = {"strategy": "continue", "default": {"n": "none"}}
    body = [tool("t", arguments={"n": "{{loop_item}}"}, on_error=rule), tool("u", arguments={"n": "{{step.t.n}}"})]
    tools = ScriptedTools(answers={"t": refusing(3)})
    run, _ = await run_to_end([loop(body)], tools)
    assert [one["n"] for one in run.output] == [1, 2, "none", 4]


async def test_c092_the_last_iteration_may_fail_alone() -> None:
    for concurrency in (1, 2, 4, 9):
        steps = [loop([tool("t", arguments={"n": "{{loop_item}}"})], concurrency=concurrency), tool("after")]
        tools = ScriptedTools(answers={"t": refusing(4)})
        run, _ = await run_to_end(steps, tools)
        assert run.error is not None
        assert (run.status, run.error["path"], tools.called("after")) == ("failed", "/L/3/t", [])


# ── scope ──


@pytest.mark.parametrize("form", ["over", "concurrent", "until", "nested"])
async def test_c094_no_iteration_sees_a_step_of_another_one(form: str) -> None:
    first = "loop.index == 0"
    body = [
        tool("maybe", condition=first, arguments={"v": "stale"}),
        {"id": "c", "type": "condition", "when": first, "then": [tool("inner", arguments={"v": "stale"})]},
        {"id": "p", "type": "parallel", "branches": {"x": [tool("branch", condition=first, arguments={"v": "stale"})]}},
        tool("use", arguments={name: f"{{{{step.{name}.v ?? 'absent'}}}}" for name in ("maybe", "inner", "branch")}),
    ]  # fmt: skip
    steps = {
        "over": [loop(body, (1, 2, 3))],
        "concurrent": [loop(body, (1, 2, 3), concurrency=3)],
        "until": [{"id": "L", "type": "loop", "until": "loop.index == 2", "max_iterations": 3, "steps": body}],
        "nested": [{"id": "O", "type": "loop", "over": [1, 2], "steps": [loop(body, (1, 2, 3))]}],
    }[form]
    tools = ScriptedTools(delays={"/L/0/maybe": 0.02})
    run, _ = await run_to_end(steps, tools)
    assert run.status == "completed"
    seen = [tuple(call.values()) for call in tools.called("use")]
    times = 2 if form == "nested" else 1
    assert sorted(seen) == sorted([("stale",) * 3, *[("absent",) * 3] * 2] * times)


async def test_c094_a_new_round_of_a_container_sees_nothing_of_the_round_before() -> None:
    body = [
        tool("count"),
        tool("maybe", condition="step.count.first", arguments={"v": "stale"}),
        tool("use", arguments={"v": "{{step.maybe.v ?? 'absent'}}"}),
        tool("end", retry={"max_attempts": 1}),
    ]
    retry = {"max_attempts": 2, "initial_delay": "1ms"}
    steps = [{"id": "c", "type": "condition", "when": "true", "then": body, "retry": retry}]
    tools = ScriptedTools(answers={"/c/count": [{"first": True}], "/c#2/count": [{"first": False}], "end": [Flaky(1)]})
    run, _ = await run_to_end(steps, tools)
    assert run.status == "completed"
    assert tools.called("use") == [{"v": "stale"}, {"v": "absent"}]


async def test_c094_an_iteration_sees_nothing_of_another_one_after_a_restart(tmp_path: Path) -> None:
    body = [tool("maybe", condition="loop_item == 1", arguments={"v": "stale"}), gate("g"),
            tool("use", arguments={"v": "{{step.maybe.v ?? 'absent'}}"})]  # fmt: skip
    tools = ScriptedTools()
    run_id = ""
    for number in range(4):
        async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
            if number:
                await approve(engine, run_id, f"/L/{number - 1}/g")
                handle = await engine.resume(run_id)
            else:
                handle = await engine.start(workflow([loop(body, (1, 2, 3))]), {})
            run_id = handle.run_id
            run = await handle.wait()
    assert run.status == "completed"
    assert tools.called("use") == [{"v": "stale"}, {"v": "absent"}, {"v": "absent"}]


# ── falsy ──


@pytest.mark.parametrize("value", FALSY)
async def test_c095_a_falsy_default_stands_in_for_a_failed_step(value: Json) -> None:
    steps = [
        tool("bad", on_error={"strategy": "continue", "default": value}),
        tool("use", arguments={"v": "{{step.bad}}", "r": "{{steps.bad.result}}"}),
    ]
    tools = ScriptedTools(answers={"bad": [StepFailed("refused", "no")]})
    run, _ = await run_to_end(steps, tools, output={"v": "{{step.bad}}"})
    assert run.status == "completed"
    assert same(run.output["v"], value)
    (call,) = tools.called("use")
    assert same(call["v"], value)
    assert same(call["r"], value)


@pytest.mark.parametrize("value", FALSY)
async def test_c095_a_falsy_value_comes_through_every_kind_of_step_and_a_restart(tmp_path: Path, value: Json) -> None:
    steps = [
        tool("made"),
        {"id": "kept", "type": "set", "values": {"v": "{{step.made}}"}},
        {"id": "c", "type": "condition", "when": "true", "then": [tool("then", arguments={"v": "{{step.kept.v}}"})]},
        loop([{"id": "one", "type": "set", "values": {"v": "{{loop_item}}"}}], "[step.made, step.then.v]",
             output="{{step.one.v}}"),
        {"id": "p", "type": "parallel", "branches": {"a": [tool("in_branch", tool="made")]}},
        gate("g", show={"v": "{{step.made}}"}),
        tool("use", arguments={"c": "{{step.then.v}}", "l": "{{step.L}}", "p": "{{step.p.a.output}}"}),
        {"id": "stop", "type": "end", "output": "{{step.made}}"},
    ]  # fmt: skip
    tools = ScriptedTools(answers={"made": [value]})
    async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
        handle = await engine.start(workflow(steps), {})
        assert (await handle.wait()).status == "pending_approval"
    async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
        (wait,) = await engine.waits(run_id=handle.run_id)
        assert same(wait.request["show"]["v"], value)
        await engine.decide(wait.id, "approved")
        run = await (await engine.resume(handle.run_id)).wait()
    assert run.status == "completed", run.error
    assert same(run.output, value)
    (call,) = tools.called("use")
    assert same(call["c"], value)
    assert same(call["p"], value)
    assert all(same(one, value) for one in call["l"])


@pytest.mark.parametrize("value", FALSY)
async def test_c095_required_inputs_of_a_child_are_about_absence_and_falsy_ones_are_passed_on(
    tmp_path: Path, value: Json
) -> None:
    child = {
        "input": {"type": "object", "required": ["a"], "properties": {"a": {"default": 99}, "b": {"default": 99}}},
        "steps": [tool("t", arguments={"a": "{{workflow_input.a}}", "b": "{{workflow_input.b}}"})],
    }
    call = {"id": "kid", "type": "sub_workflow", "workflow": "kid", "inputs": {"a": "{{workflow_input.v}}"}}
    project(tmp_path, main={"steps": [call]}, kid=child)
    tools = ScriptedTools()
    engine = engine_at(tools)
    await engine.open()
    run = await (await engine.start(engine.load(tmp_path / "main.yaml"), {"v": value})).wait(until_final=True)
    assert run.status == "completed", run.error
    (got,) = tools.called("t")
    assert same(got["a"], value)
    assert got["b"] == 99
    await engine.close()


async def test_c095_falsy_answers_in_a_form_and_falsy_loop_results_are_kept() -> None:
    form = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}, "ok": {"type": "boolean", "default": True}}}  # fmt: skip
    steps = [gate("g", form=form), tool("use", arguments={"n": "{{step.g.data.n}}", "ok": "{{step.g.data.ok}}"}),
             loop([tool("t")], (1, 2), output="{{loop.index == 7}}")]  # fmt: skip
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        await approve(engine, handle.run_id, "/g", data={"n": 0, "ok": False})
        run = await handle.wait(until_final=True)
        assert tools.called("use") == [{"n": 0, "ok": False}]
        assert run.output == [False, False]


# ── keys ──


async def test_c097_a_step_with_a_hyphen_is_read_in_conditions_and_arguments_of_a_run() -> None:
    steps = [
        tool("fetch-lead"),
        tool("use", depends_on=["fetch-lead"], condition="steps['fetch-lead'].result.score > 0.5",
             arguments={"v": '{{step.fetch-lead["full-name"]}}', "s": "{{step.fetch-lead.score}}"}),
        tool("minus", depends_on=["fetch-lead"], arguments={"v": "{{step.fetch-lead.score - 1}}"}),
    ]  # fmt: skip
    tools = ScriptedTools(answers={"fetch-lead": [{"score": 0.75, "full-name": "Zoé"}]})
    run, found = await run_to_end(steps, tools)
    assert (run.status, set(found.values())) == ("completed", {"completed"})
    assert tools.called("use") == [{"v": "Zoé", "s": 0.75}]
    assert tools.called("minus") == [{"v": -0.25}]


@pytest.mark.parametrize(
    "key", ["a.b", "1st", "步骤一", "é", "true", "__class__", "", " x ", "x" * 200, "a-b", "{{x}}", "'", "\n"]
)
async def test_c097_a_key_of_data_may_be_anything_and_is_found_by_its_name(key: str) -> None:
    written = "step.s[workflow_input.key]"
    steps = [tool("s"), tool("use", condition=f"has({written})", arguments={"v": f"{{{{ {written} }}}}"})]
    tools = ScriptedTools(answers={"s": [{key: "found"}]})
    run, _ = await run_to_end(steps, tools, {"key": key})
    assert run.status == "completed", run.error
    assert tools.called("use") == [{"v": "found"}]
