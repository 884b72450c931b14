"""Compensation: what completed is undone in reverse order, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from stepwell.engine.incidents import Action
from stepwell.errors import Conflict, InputError, StepFailed
from stepwell.testing.scripted import ScriptedTools
from tests.engine_world import engine_with, workflow
from tests.failure.test_strategies import broken, run, tool


def undo(name, **args):
    return {"steps": [tool(name, args=args)]}


def undone(tools):
    return [(call.tool, call.arguments) for call in tools.calls if call.tool.startswith("u")]


@pytest.mark.parametrize("late", ["a1", "b1"])
async def test_c081_undoing_goes_in_reverse_order_of_completion_one_at_a_time(late):
    steps = [
        {
            "id": "p", "type": "parallel",
            "branches": {
                "a": [tool("a1", compensate={"step": "ua"}), tool("ua")],
                "b": [tool("b1", compensate={"step": "ub"}), tool("ub")],
            },
        },
        tool("x", on_error="compensate"),
    ]  # fmt: skip
    for _ in range(10):
        tools = ScriptedTools({"x": [broken("not_found")]}, delays={late: 0.02, "ua": 0.01})
        done, told = await run(tools, steps)
        assert done.status == "compensated"
        assert done.error["kind"] == "not_found"
        order = ["ua", "ub"] if late == "a1" else ["ub", "ua"]
        assert [name for name, _ in undone(tools)] == order
        assert told["/p/a/a1"]["status"] == told["/p/b/b1"]["status"] == "compensated"
        assert told["/x"]["status"] == "failed"


async def test_c081_each_iteration_is_undone_with_its_own_item_and_only_if_it_completed():
    steps = [
        {
            "id": "l", "type": "loop", "over": ["x", "y", "z"], "as": "one",
            "steps": [
                tool("a", args={"i": "{{loop_item}}"},
                     compensate=undo("ua", item="{{loop_item}}", one="{{one}}", at="{{loop.index}}", got="{{step.a.id}}")),
                tool("b", args={"i": "{{loop_item}}"}),
            ],
            "on_error": "compensate",
        }
    ]  # fmt: skip
    tools = ScriptedTools(
        {"/l/0/a": [{"id": "A0"}], "/l/1/a": [{"id": "A1"}], "/l/2/a": [broken("not_found")]},
    )
    done, told = await run(tools, steps)
    assert done.status == "compensated"
    assert undone(tools) == [
        ("ua", {"item": "y", "one": "y", "at": 1, "got": "A1"}),
        ("ua", {"item": "x", "one": "x", "at": 0, "got": "A0"}),
    ]
    assert told["/l/1/a"]["status"] == "compensated"
    assert told["/l/2/a"]["status"] == "failed"


async def test_every_round_that_completed_is_undone():
    steps = [
        tool("draft", compensate=undo("undo", n="{{step.draft.n}}")),
        tool("check", on_error=[{"goto": "draft", "max_rounds": 1}, "compensate"]),
    ]
    steps[1]["on_error"] = [
        {"errors": ["refused"], "strategy": "goto", "goto": "draft", "max_rounds": 1}, {"strategy": "compensate"},
    ]  # fmt: skip
    tools = ScriptedTools({"/draft": [{"n": 1}], "/draft#2": [{"n": 2}],
                           "/check": [broken("refused")], "/check#2": [broken("not_found")]})  # fmt: skip
    done, _ = await run(tools, steps)
    assert done.status == "compensated"
    assert undone(tools) == [("undo", {"n": 2}), ("undo", {"n": 1})]


async def test_c082_a_failed_undo_halts_the_rest_until_a_person_settles_it():
    steps = [
        tool("a", compensate={"step": "ua"}),
        tool("b", compensate={"step": "ub"}),
        tool("c", on_error="compensate"),
        tool("ua"),
        tool("ub", retry={"max_attempts": 2, "initial_delay": "1ms", "jitter": "none"}),
    ]
    for action, status in (("retry", "compensated"), ("skip", "compensated"), ("fail", "failed")):
        tools = ScriptedTools({"c": [broken("server_error", "c is down")], "ub": [broken("overloaded", "ub is down")],
                               "/~undo/0#2/ub": [{"ok": True}]})  # fmt: skip
        async with engine_with(tools) as engine:
            handle = await engine.start(workflow(steps), {})
            parked = await handle.wait()
            assert parked.status == "suspended"
            assert [name for name, _ in undone(tools)] == ["ub", "ub"]
            (wait,) = await engine.incidents.open()
            assert wait.request["undoes"] == "/b"
            assert wait.request["error"]["kind"] == "overloaded"
            with pytest.raises(Conflict):
                await engine.cancel(parked.id)
            await engine.incidents.settle(wait.id, Action(action))
            done = await (await engine.resume(parked.id)).wait()
            assert done.status == status
            told = {step["path"]: step["status"] for step in (await engine.tree(done.id)).as_json()["steps"]}
            assert told["/b"] == ("compensated" if action == "retry" else "completed")
            assert told["/a"] == ("completed" if action == "fail" else "compensated")
            if action == "fail":
                assert done.error["kind"] == "compensation_failed"
                assert done.error["detail"]["cause"]["message"] == "ub is down"
            else:
                assert done.error["message"] == "c is down"


async def test_undoing_is_neither_started_nor_stopped_by_a_cancel_or_the_timeout_of_the_run():
    steps = [tool("a", compensate=undo("ua")), tool("x", on_error="compensate")]
    tools = ScriptedTools({"x": [broken("not_found")]}, delays={"ua": 0.3})
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(steps, timeout="250ms"), {})
        while not undone(tools):
            await asyncio.sleep(0.005)
        with pytest.raises(Conflict):
            await engine.cancel(handle.run_id)
        assert (await handle.wait()).status == "compensated"
    tools = ScriptedTools(delays={"x": 5.0})
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(steps), {})
        while "x" not in {call.tool for call in tools.calls}:
            await asyncio.sleep(0.005)
        assert (await engine.cancel(handle.run_id)).status == "cancelled"
        assert undone(tools) == []


async def test_what_undoes_the_run_wins_over_a_failure_that_came_before_it():
    steps = [
        tool("a", depends_on=[], compensate=undo("ua")),
        tool("x", depends_on=["a"]),
        tool("y", depends_on=["a"], on_error="compensate"),
    ]
    tools = ScriptedTools({"x": [broken("not_found")], "y": [broken("refused")]}, delays={"x": 0.01, "y": 0.05})
    done, _ = await run(tools, steps)
    assert (done.status, done.error["kind"]) == ("compensated", "refused")
    assert undone(tools) == [("ua", {})]


async def test_an_undo_sees_the_failure_and_has_steps_of_every_kind():
    steps = [
        tool("a", compensate={"steps": [
            {"id": "c", "type": "condition", "when": "error.kind == 'not_found'", "then": [tool("u1")]},
            {"id": "l", "type": "loop", "over": [1, 2], "steps": [tool("u2", args={"i": "{{loop_item}}"})]},
        ]}),
        tool("x", on_error="compensate"),
    ]  # fmt: skip
    tools = ScriptedTools({"x": [StepFailed("not_found", "gone")]})
    done, told = await run(tools, steps)
    assert done.status == "compensated"
    assert [name for name, _ in undone(tools)] == ["u1", "u2", "u2"]
    assert told["/~undo/0/l/1/u2"]["status"] == "completed"


async def test_what_undoes_a_step_has_no_arguments_to_edit():
    tools = ScriptedTools({"z": [broken()], "refund": [broken()]})
    steps = [tool("a", compensate={"steps": [tool("refund")]}), tool("z", on_error="compensate")]
    async with engine_with(tools) as engine:
        await (await engine.start(workflow(steps), {})).wait()
        (wait,) = await engine.incidents.open()
        with pytest.raises(InputError, match="no arguments to edit"):
            await engine.incidents.settle(wait.id, Action("retry", edits={"x": 1}))
