"""Cases of the topics retry, timeout, skip_join, loop, loop_scope, falsy and id_collision, on the engine."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from typing import Any

import pytest
from tests.engine_world import engine_with, statuses, workflow

from stepwell.definition.policy import RetryPolicy
from stepwell.errors import InputError, StepFailed
from stepwell.interpreter import backoff
from stepwell.ports import Run
from stepwell.testing.scripted import ScriptedTools

Json = Any
QUICK = {"max_attempts": 4, "initial_delay": "1ms", "max_delay": "2ms"}


def tool(id_: str, **more: Json) -> Json:
    return {"id": id_, "type": "tool_call", "tool": id_, "idempotent": True, **more}


async def run_to_end(
    steps: Json, tools: ScriptedTools, value: Json = None, **parts: Json
) -> tuple[Run, dict[str, str]]:
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps, **parts), value or {})
        run = await handle.wait(until_final=True)
        return run, await statuses(engine, run.id)


# ── retry ──


@pytest.mark.parametrize(
    "kind", ["invalid_request", "auth_error", "not_found", "validation_error", "refused", "tool_error"]
)
async def test_c052_a_failure_that_cannot_pass_is_tried_once(kind: str) -> None:
    tools = ScriptedTools(answers={"t": [StepFailed(kind, "no")]})
    run, _ = await run_to_end([tool("t", retry=QUICK)], tools)
    assert len(tools.calls) == 1
    assert run.error is not None
    assert (run.status, run.error["kind"]) == ("failed", kind)


@pytest.mark.parametrize("kind", ["rate_limit", "server_error", "timeout", "connection_error", "overloaded"])
async def test_c052_a_failure_that_can_pass_is_tried_again(kind: str) -> None:
    tools = ScriptedTools(answers={"t": [StepFailed(kind, "no", detail={"status": 503})]})
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow([tool("t", retry=QUICK)]), {})
        run = await handle.wait()
        assert run.status == "failed"
        assert [call.attempt for call in tools.calls] == [1, 2, 3, 4]
        (step,) = (await engine.tree(run.id)).as_json()["steps"]
        assert step["attempts"] == 4
        assert [attempt["error"]["kind"] for attempt in step["attempt_log"]] == [kind] * 4
        assert len({call.key for call in tools.calls}) == 1


def test_c054_the_configured_delay_is_waited() -> None:
    policy = RetryPolicy(max_attempts=5, initial_delay=0.2, multiplier=2, max_delay=1.0)
    failure = StepFailed("server_error", "503")
    seen: dict[int, set[float]] = {}
    for run in range(300):
        for number, base in enumerate([0.2, 0.4, 0.8, 1.0], start=1):
            found = backoff.delay(policy, number, failure, f"r{run}/t")
            assert base <= found <= base * 1.25
            seen.setdefault(number, set()).add(found)
    assert all(len(gaps) > 250 for gaps in seen.values())
    assert backoff.delay(policy, 2**1100, failure, "x") <= 1.25
    assert backoff.delay(policy, 3, failure, "x") == backoff.delay(policy, 3, failure, "x")


def test_a_valid_retry_after_replaces_the_delay_and_an_invalid_one_is_ignored() -> None:
    policy = RetryPolicy(initial_delay=0.2, jitter=0.0)
    assert 7 <= backoff.delay(policy, 1, StepFailed("rate_limit", "", retry_after=7), "x") <= 7.7
    for hint in (0, -3, float("nan"), float("inf")):
        assert backoff.delay(policy, 1, StepFailed("rate_limit", "", retry_after=hint), "x") == 0.2


async def test_a_retry_after_beyond_a_quarter_of_an_hour_fails_at_once() -> None:
    tools = ScriptedTools(answers={"t": [StepFailed("rate_limit", "later", retry_after=3600)]})
    run, _ = await run_to_end([tool("t", retry=QUICK)], tools)
    assert len(tools.calls) == 1
    assert run.error is not None
    assert run.error["retry_after"] == 3600


async def test_c055_attempts_are_counted_across_processes() -> None:
    from stepwell.stores.memory import MemoryRunStore

    store = MemoryRunStore()
    tools = ScriptedTools(answers={"t": [StepFailed("server_error", "503")]})
    loaded = workflow([tool("t", retry={"max_retries": 3, "initial_delay": "60ms", "jitter": "none", "multiplier": 1})])
    run_id = ""
    for _ in range(8):
        async with engine_with(tools, store) as engine:
            if not run_id:
                handle = await engine.start(loaded, {})
                run_id = handle.run_id
            else:
                handle = await engine.resume(run_id)
            await asyncio.sleep(0.03)
            await handle.park()
            if (await engine.run(run_id)).status == "failed":
                break
            await asyncio.sleep(0.05)
    assert [call.attempt for call in tools.calls] == [1, 2, 3, 4]


async def test_a_successful_result_may_be_turned_down() -> None:
    tools = ScriptedTools(answers={"t": [{"text": ""}, {"text": ""}, {"text": "ok"}]})
    retry = {**QUICK, "when": "result.text == ''"}
    run, _ = await run_to_end([tool("t", retry=retry)], tools)
    assert (run.status, run.output) == ("completed", {"text": "ok"})
    tools = ScriptedTools(answers={"t": [{"text": ""}]})
    run, _ = await run_to_end([tool("t", retry=retry)], tools)
    assert run.error is not None
    assert run.error["kind"] == "result_rejected"
    assert len(tools.calls) == 4


async def test_what_is_not_idempotent_is_not_tried_again() -> None:
    tools = ScriptedTools(answers={"pay": [StepFailed("timeout", "?")]}, once=frozenset({"pay"}))
    doubt = [{"errors": ["in_doubt"], "strategy": "fail"}]
    step = {"id": "pay", "type": "tool_call", "tool": "pay", "retry": QUICK, "on_error": doubt}
    run, _ = await run_to_end([step], tools)
    assert (run.status, len(tools.calls)) == ("failed", 1)
    sent = StepFailed("connection_error", "refused", detail={"sent": False})
    tools = ScriptedTools(answers={"pay": [sent, sent, {"ok": True}]}, once=frozenset({"pay"}))
    run, _ = await run_to_end([step], tools)
    assert (run.status, len(tools.calls)) == ("completed", 3)


# ── timeout ──


async def test_c060_the_runs_deadline_stops_everything() -> None:
    steps = [{"id": "p", "type": "parallel", "branches": {"a": [tool("t1")], "b": [tool("t2"), tool("t3")]}}]
    tools = ScriptedTools(delays={"t1": 5, "t2": 5})
    begun = time.monotonic()
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(steps, timeout="0.3s"), {})
        run = await handle.wait()
        assert run.status == "timed_out"
        assert time.monotonic() - begun < 4
        assert tools.called("t3") == []
        entries = await engine.history(run.id)
        assert entries[-1].path == ""
        found = await statuses(engine, run.id)
        assert found["/p/a/t1"] == found["/p/b/t2"] == "cancelled"
        assert found["/p/b/t3"] == "skipped"
        await asyncio.sleep(0.1)
        assert len(await engine.history(run.id)) == len(entries)


async def test_a_steps_timeout_bounds_one_attempt() -> None:
    tools = ScriptedTools(delays={"t": 5})
    begun = time.monotonic()
    run, _ = await run_to_end([tool("t", timeout="0.1s", retry={**QUICK, "max_attempts": 2})], tools)
    assert run.error is not None
    assert (run.error["kind"], len(tools.calls)) == ("timeout", 2)
    assert time.monotonic() - begun < 4


async def test_c062_cancel_stops_what_runs_and_starts_nothing_new() -> None:
    tools = ScriptedTools(delays={"t1": 5})
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow([tool("t1"), tool("t2")]), {})
        await asyncio.sleep(0.1)
        run = await engine.cancel(handle.run_id, "stop")
        assert run.status == "cancelled"
        assert run.error is not None
        assert run.error["message"] == "stop"
        assert [call.tool for call in tools.calls] == ["t1"]
        assert await statuses(engine, run.id) == {"/t1": "cancelled", "/t2": "skipped"}


# ── skips and joins ──

_ARMS = ("completed", "skipped", "failed")


@pytest.mark.parametrize("join", ["any_completed", "all_completed", "all_settled"])
@pytest.mark.parametrize(("left", "right"), list(itertools.product(_ARMS, _ARMS)))
async def test_c067_the_join_follows_its_table(left: str, right: str, join: str) -> None:
    def arm(id_: str, state: str) -> Json:
        step = tool(id_, depends_on=["o"], on_error="continue")
        return {**step, "condition": "false"} if state == "skipped" else step

    tools = ScriptedTools(
        answers={id_: [StepFailed("refused", "no")] for id_, state in (("a", left), ("b", right)) if state == "failed"}
    )
    steps = [tool("o"), arm("a", left), arm("b", right), tool("e", depends_on=["a", "b"], join=join)]
    run, found = await run_to_end(steps, tools)
    states = [left, right]
    runs = {
        "any_completed": any(state != "skipped" for state in states),
        "all_completed": all(state == "completed" for state in states),
        "all_settled": True,
    }[join]
    assert run.status == "completed"
    assert (found["/a"], found["/b"]) == (left, right)
    assert found["/e"] == ("completed" if runs else "skipped")


async def test_c067_a_diamond_with_a_skipped_arm_and_its_child_ends() -> None:
    steps = [
        tool("o"),
        tool("a", depends_on=["o"]),
        tool("b", depends_on=["o"], condition="false"),
        tool("d", depends_on=["b"]),
        tool("e", depends_on=["a", "d"]),
    ]
    run, found = await run_to_end(steps, ScriptedTools())
    assert run.status == "completed"
    assert found == {"/o": "completed", "/a": "completed", "/b": "skipped", "/d": "skipped", "/e": "completed"}


async def test_c068_an_empty_loop_completes_with_an_empty_list() -> None:
    steps = [
        {"id": "a", "type": "loop", "over": "{{workflow_input.none}}", "steps": [tool("x")]},
        tool("b", arguments={"all": "{{step.a}}"}),
        tool("c", condition="size(step.a) > 0"),
    ]
    tools = ScriptedTools()
    run, found = await run_to_end(steps, tools, {"none": []})
    assert run.status == "completed"
    assert found == {"/a": "completed", "/b": "completed", "/c": "skipped"}
    assert tools.called("b") == [{"all": []}]


@pytest.mark.parametrize("taken", [True, False])
async def test_c071_what_follows_a_parallel_waits_for_every_branch(taken: bool) -> None:
    steps = [
        {
            "id": "p",
            "type": "parallel",
            "branches": {
                "a": [tool("quick")],
                "b": [
                    {
                        "id": "c",
                        "type": "condition",
                        "when": "workflow_input.taken",
                        "then": [tool("t")],
                        "else": [tool("e")],
                    }
                ],
            },
        },
        tool("after"),
    ]
    tools = ScriptedTools(delays={"t": 0.2, "e": 0.1})
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(steps), {"taken": taken})
        run = await handle.wait()
        steps_by_path = {step["path"]: step for step in (await engine.tree(run.id)).as_json()["steps"]}
        after = steps_by_path["/after"]["started_at"]
        inside = [
            step["ended_at"] for path, step in steps_by_path.items() if path.startswith("/p/") and step["ended_at"]
        ]
        assert len(inside) >= 3
        assert all(ended <= after for ended in inside)


@pytest.mark.parametrize("failing", [["f"], ["f", "g"]])
async def test_c073_a_failing_branch_fails_the_parallel(failing: list[str]) -> None:
    steps = [
        {"id": "p", "type": "parallel", "branches": {"a": [tool("f")], "b": [tool("g")], "c": []}},
        tool("unreachable"),
    ]
    tools = ScriptedTools(answers={name: [StepFailed("invalid_request", f"400 {name}")] for name in failing})
    run, found = await run_to_end(steps, tools)
    assert run.status == "failed"
    assert run.error is not None
    assert [cause["branch"] for cause in run.error["detail"]["causes"]] == ["a", "b"][: len(failing)]
    assert run.error["kind"] == "invalid_request"
    assert tools.called("unreachable") == []
    assert found["/p"] == "failed"
    assert found["/unreachable"] == "skipped"


async def test_c073_empty_branches_complete_with_null() -> None:
    run, _ = await run_to_end([{"id": "p", "type": "parallel", "branches": {"a": [], "b": []}}], ScriptedTools())
    empty = {"status": "completed", "output": None, "error": None}
    assert run.output == {"a": empty, "b": empty}


# ── loops ──


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("value", [None, "abc", 7, {"a": 1, "b": 2}, "[1,2]", True, "absent"])
async def test_c086_only_a_list_is_gone_over(value: Json, concurrency: int) -> None:
    steps = [
        {"id": "L", "type": "loop", "over": "workflow_input.items", "concurrency": concurrency, "steps": [tool("t")]}
    ]
    tools = ScriptedTools()
    run, found = await run_to_end(steps, tools, {} if value == "absent" else {"items": value})
    assert run.status == "failed"
    assert run.error is not None
    assert found["/L"] == "failed"
    assert tools.calls == []
    assert "items" in run.error["message"]
    if value != "absent":
        assert "loop L" in run.error["message"]


@pytest.mark.parametrize("count", [1, 3, 4, 5, 48, 49, 101])
async def test_c088_every_iteration_keeps_its_own_values(count: int) -> None:
    steps = [
        {
            "id": "L",
            "type": "loop",
            "over": "workflow_input.items",
            "concurrency": 4,
            "steps": [
                tool("a", arguments={"i": "{{loop_item.i}}"}),
                tool("b", arguments={"prev": "{{step.a.i}}", "i": "{{loop_item.i}}"}),
            ],
        }
    ]
    chance = random.Random(count)
    delays = {f"/L/{index}/{step}": chance.random() * 0.01 for index in range(count) for step in "ab"}
    tools = ScriptedTools(delays=delays)
    run, _ = await run_to_end(steps, tools, {"items": [{"i": index} for index in range(count)]})
    assert run.output == [{"prev": index, "i": index} for index in range(count)]
    assert all(call["prev"] == call["i"] for call in tools.called("b"))


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_c091_loops_nest(concurrency: int) -> None:
    steps = [
        {
            "id": "o",
            "type": "loop",
            "over": "{{workflow_input.m}}",
            "concurrency": concurrency,
            "steps": [
                {
                    "id": "i",
                    "type": "loop",
                    "over": "{{loop_item}}",
                    "concurrency": concurrency,
                    "steps": [
                        tool(
                            "t",
                            arguments={"v": "{{loop_item}}", "at": "{{loop.index}}", "outer": "{{loop.parent.index}}"},
                        )
                    ],
                    "output": "{{step.t.v}}",
                }
            ],
        }
    ]
    tools = ScriptedTools()
    run, _ = await run_to_end(steps, tools, {"m": [[1, 2, 3], [], [4, [5]]]})
    assert run.output == [[1, 2, 3], [], [4, [5]]]
    called = tools.called("t")
    if concurrency == 1:
        assert [call["v"] for call in called] == [1, 2, 3, 4, [5]]
    assert sorted((call["outer"], call["at"]) for call in called) == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]


async def test_c092_a_failed_iteration_fails_a_sequential_loop_and_stops_it() -> None:
    answer = [
        lambda arguments: arguments if arguments["n"] != 3 else (_ for _ in ()).throw(StepFailed("refused", "400"))
    ]
    steps = [
        {"id": "L", "type": "loop", "over": [1, 2, 3, 4], "steps": [tool("t", arguments={"n": "{{loop_item}}"})]},
        tool("after"),
    ]
    tools = ScriptedTools(answers={"t": answer})
    run, found = await run_to_end(steps, tools)
    assert [call["n"] for call in tools.called("t")] == [1, 2, 3]
    assert run.error is not None
    assert run.error["detail"]["causes"][0]["index"] == 2
    assert run.error["path"] == "/L/2/t"
    assert (found["/L"], found["/after"]) == ("failed", "skipped")


@pytest.mark.parametrize("how", [{"tolerate": 1}, {"tolerate": "100%"}])
async def test_c092_a_tolerated_failure_leaves_its_place_empty(how: Json) -> None:
    answer = [
        lambda arguments: arguments if arguments["n"] != 3 else (_ for _ in ()).throw(StepFailed("refused", "400"))
    ]
    steps = [
        {
            "id": "L",
            "type": "loop",
            "over": [1, 2, 3, 4],
            "steps": [tool("t", arguments={"n": "{{loop_item}}"})],
            **how,
        },
        tool("after", arguments={"errors": "{{steps.L.errors}}", "count": "{{steps.L.count}}"}),
    ]
    tools = ScriptedTools(answers={"t": answer})
    run, _ = await run_to_end(steps, tools, output={"l": "{{step.L}}"})
    assert run.output == {"l": [{"n": 1}, {"n": 2}, None, {"n": 4}]}
    (after,) = tools.called("after")
    assert list(after["errors"]) == ["2"]
    assert after["count"] == 1


async def test_c092_nothing_starts_after_a_failure_of_a_concurrent_loop() -> None:
    answer = [
        lambda arguments: arguments if arguments["n"] != 1 else (_ for _ in ()).throw(StepFailed("refused", "400"))
    ]
    steps = [
        {"id": "L", "type": "loop", "over": [1, 2, 3, 4], "concurrency": 2,
         "steps": [tool("t", arguments={"n": "{{loop_item}}"}), tool("u", arguments={"n": "{{loop_item}}"})]},
    ]  # fmt: skip
    tools = ScriptedTools(answers={"t": answer}, delays={"/L/0/t": 0.02, "/L/1/t": 0.1})
    run, _ = await run_to_end(steps, tools)
    assert run.status == "failed"
    assert sorted(call["n"] for call in tools.called("t")) == [1, 2]
    assert [call["n"] for call in tools.called("u")] == [2]


async def test_c094_a_skipped_step_shows_nothing_of_the_iteration_before() -> None:
    steps = [
        {
            "id": "L",
            "type": "loop",
            "over": [{"go": True}, {"go": False}],
            "steps": [
                tool("maybe", condition="loop_item.go", arguments={"v": 1}),
                tool("use", arguments={"v": "{{step.maybe.v ?? 'absent'}}", "s": "{{steps.maybe.status}}"}),
            ],
        }
    ]
    tools = ScriptedTools()
    run, _ = await run_to_end(steps, tools)
    assert run.status == "completed"
    assert tools.called("use") == [{"v": 1, "s": "completed"}, {"v": "absent", "s": "skipped"}]
    steps[0]["steps"][1]["arguments"] = {"v": "{{step.maybe.v}}"}
    run, _ = await run_to_end(steps, ScriptedTools())
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["kind"] == "expression_error"


@pytest.mark.parametrize("value", [0, 0.0, False, "", None, [], {}])
async def test_c095_a_falsy_value_is_a_value(value: Json) -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"default": 99}, "d": {"default": 99}}}
    steps = [
        tool("prev", arguments={"b": "{{workflow_input.a}}"}),
        {
            "id": "L",
            "type": "loop",
            "over": [{"c": value}],
            "steps": [
                tool("t", arguments={"a": "{{workflow_input.a}}", "b": "{{step.prev.b}}", "c": "{{loop_item.c}}", "s": value,
                                     "d": "{{workflow_input.d}}", "e": "{{step.prev.b ?? 'null'}}"}),
            ],
        },
    ]  # fmt: skip
    tools = ScriptedTools()
    run, _ = await run_to_end(steps, tools, {"a": value}, input=schema)
    assert run.status == "completed"
    (call,) = tools.called("t")
    assert [call["a"], call["b"], call["c"], call["s"]] == [value] * 4
    assert all(type(call[name]) is type(value) for name in "abcs")
    assert call["d"] == 99
    assert call["e"] == ("null" if value is None else value)


async def test_an_until_loop_ends_when_it_holds_and_fails_when_it_never_does() -> None:
    loop = {
        "id": "L",
        "type": "loop",
        "until": "step.t.done",
        "max_iterations": 5,
        "steps": [tool("t", arguments={"before": "{{loop.previous}}", "done": "{{loop.index >= workflow_input.n}}"})],
    }
    run, _ = await run_to_end([loop], ScriptedTools(), {"n": 2})
    assert [one["done"] for one in run.output] == [False, False, True]
    assert run.output[1]["before"] == run.output[0]
    run, _ = await run_to_end([loop], ScriptedTools(), {"n": 9})
    assert run.error is not None
    assert run.error["kind"] == "max_iterations_reached"
    run, _ = await run_to_end([{**loop, "on_exhausted": "continue"}], ScriptedTools(), {"n": 9})
    assert len(run.output) == 5


async def test_an_end_step_lets_branches_finish_and_ends_the_run() -> None:
    steps = [
        {
            "id": "p",
            "type": "parallel",
            "branches": {
                "a": [
                    tool("quick"),
                    {"id": "stop", "type": "end", "output": {"why": "{{workflow_input.why}}"}},
                    tool("never"),
                ],
                "b": [tool("slow")],
            },
        },
        tool("after"),
    ]
    tools = ScriptedTools(delays={"quick": 0.02, "slow": 0.1})
    run, found = await run_to_end(steps, tools, {"why": "done"})
    assert (run.status, run.output) == ("completed", {"why": "done"})
    assert [call.tool for call in tools.calls] == ["quick", "slow"]
    assert found["/p/b/slow"] == "completed"
    assert found["/p/a/never"] == found["/after"] == "skipped"
    run, _ = await run_to_end(
        [{"id": "stop", "type": "end", "status": "failed", "message": "no stock"}], ScriptedTools()
    )
    assert run.error is not None
    assert (run.status, run.error["message"]) == ("failed", "no stock")


async def test_c050_ids_that_look_like_paths_collide_with_nothing() -> None:
    steps = [
        {
            "id": "L",
            "type": "loop",
            "over": ["0", "1"],
            "steps": [
                tool("s0", arguments={"i": "{{loop_item}}"}),
                {"id": "s", "type": "loop", "over": ["a"], "steps": [tool("x", arguments={"i": "{{loop_item}}"})]},
                {"id": "p", "type": "parallel", "branches": {"s": [tool("y")], "L": [tool("z")], "x-1": [tool("w")]}},
            ],
        },
        tool("s-0"),
        tool("L0"),
    ]
    tools = ScriptedTools()
    run, found = await run_to_end(steps, tools)
    assert run.status == "completed"
    assert len({call.path for call in tools.calls}) == len(tools.calls) == 12
    assert set(found.values()) == {"completed"}


# ── races ──


def fan(mode: Json, branches: Json, **more: Json) -> Json:
    return {"id": "p", "type": "parallel", "mode": mode, "branches": branches, **more}


async def test_fail_fast_cancels_the_siblings() -> None:
    steps = [
        fan("fail_fast", {"a": [tool("bad")], "b": [tool("slow"), tool("never")], "c": [gate_step("g"), tool("n2")]})
    ]
    tools = ScriptedTools(answers={"bad": [StepFailed("refused", "no")]}, delays={"bad": 0.05, "slow": 5})
    begun = time.monotonic()
    run, found = await run_to_end(steps, tools)
    assert time.monotonic() - begun < 4
    assert run.error is not None
    assert (run.status, run.error["kind"], run.error["path"]) == ("failed", "refused", "/p/a/bad")
    assert {call.tool for call in tools.calls} == {"bad", "slow"}
    assert found["/p/b/slow"] == "cancelled"


def gate_step(id_: str) -> Json:
    return {"id": id_, "type": "approval", "title": id_}


async def test_first_success_takes_the_first_and_cancels_the_rest() -> None:
    branches = {"a": [tool("bad")], "b": [tool("quick", arguments={"n": 1})], "c": [tool("slow")]}
    tools = ScriptedTools(answers={"bad": [StepFailed("refused", "no")]}, delays={"quick": 0.05, "slow": 5})
    run, _ = await run_to_end([fan("first_success", branches)], tools)
    assert run.status == "completed"
    assert {name: branch["status"] for name, branch in run.output.items()} == {
        "a": "failed",
        "b": "completed",
        "c": "cancelled",
    }
    assert run.output["b"]["output"] == {"n": 1}
    tools = ScriptedTools(answers={name: [StepFailed("refused", name)] for name in ("bad", "quick", "slow")})
    run, _ = await run_to_end([fan("first_success", branches)], tools)
    assert run.error is not None
    assert [cause["branch"] for cause in run.error["detail"]["causes"]] == ["a", "b", "c"]


@pytest.mark.parametrize(("failing", "ends"), [(0, "completed"), (1, "completed"), (2, "failed")])
async def test_a_quorum_completes_or_fails_as_soon_as_it_is_certain(failing: int, ends: str) -> None:
    branches = {name: [tool(name)] for name in "abc"}
    tools = ScriptedTools(
        answers={name: [StepFailed("refused", name)] for name in "abc"[:failing]},
        delays={"a": 0.01, "b": 0.03, "c": 5 if failing in (0, 2) else 0.05},
    )
    begun = time.monotonic()
    run, _ = await run_to_end([fan({"quorum": 2}, branches)], tools)
    assert run.status == ends
    assert time.monotonic() - begun < 4


async def test_a_call_that_may_not_be_repeated_is_awaited_when_it_loses_a_race() -> None:
    branches = {"a": [tool("quick")], "b": [{"id": "pay", "type": "tool_call", "tool": "pay"}, tool("never")]}
    tools = ScriptedTools(delays={"quick": 0.02, "pay": 0.3}, once=frozenset({"pay"}))
    run, found = await run_to_end([fan("first_success", branches), tool("after")], tools)
    assert run.status == "completed"
    assert found["/p/b/pay"] == "completed"
    assert sorted(call.tool for call in tools.calls) == ["after", "pay", "quick"]


async def test_a_call_that_may_not_be_repeated_is_in_doubt_when_its_run_is_cancelled_before_it_ends() -> None:
    tools = ScriptedTools(delays={"pay": 30}, once=frozenset({"pay"}))
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow([{"id": "pay", "type": "tool_call", "tool": "pay"}]), {})
        await asyncio.sleep(0.1)
        run = await engine.cancel(handle.run_id)
        assert run.status == "cancelled"
        (step,) = (await engine.tree(run.id)).as_json()["steps"]
        assert step["status"] == "cancelled"
        entries = [entry for entry in await engine.history(run.id) if entry.path == "/pay"]
        assert [b"in_doubt" in entry.body for entry in entries] == [True]


async def test_a_result_that_does_not_fit_its_schema_fails_the_step() -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    tools = ScriptedTools(answers={"t": [{"n": "three"}]})
    run, _ = await run_to_end([tool("t", output_schema=schema, retry=QUICK)], tools)
    assert run.error is not None
    assert (run.status, run.error["kind"], len(tools.calls)) == ("failed", "output_invalid", 1)
    assert "/n" in run.error["message"]
    run, _ = await run_to_end([tool("t", output_schema=schema)], ScriptedTools(answers={"t": [{"n": 3}]}))
    assert run.output == {"n": 3}


async def test_a_call_that_may_not_be_repeated_is_never_repeated_blindly() -> None:
    doubt = [{"errors": ["in_doubt"], "strategy": "fail"}]
    pay = {"id": "pay", "type": "tool_call", "tool": "pay", "timeout": "0.1s", "retry": QUICK, "on_error": doubt}
    fan = {"id": "p", "type": "parallel", "retry": QUICK, "branches": {"a": [pay]}}
    tools = ScriptedTools(delays={"pay": 1}, once=frozenset({"pay"}))
    run, _ = await run_to_end([fan], tools)
    assert run.error is not None
    assert (run.error["kind"], len(tools.calls)) == ("in_doubt", 1)
    assert run.error["detail"]["causes"][0]["kind"] == "in_doubt"
    tools = ScriptedTools(answers={"pay": [{"ok": False}]}, once=frozenset({"pay"}))
    run, _ = await run_to_end([{**pay, "retry": {**QUICK, "when": "result.ok == false"}}], tools)
    assert run.error is not None
    assert (run.error["kind"], len(tools.calls)) == ("result_rejected", 1)


async def test_continue_on_a_loop_tolerates_and_on_a_parallel_goes_on() -> None:
    answer = [lambda arguments: arguments if arguments["n"] else (_ for _ in ()).throw(StepFailed("refused", "400"))]
    loop = {"id": "L", "type": "loop", "over": [0, 1, 0, 1], "on_error": "continue",
            "steps": [tool("t", arguments={"n": "{{loop_item}}"})]}  # fmt: skip
    run, found = await run_to_end([loop], ScriptedTools(answers={"t": answer}))
    assert (run.status, run.output, found["/L"]) == ("completed", [None, {"n": 1}, None, {"n": 1}], "completed")
    fan = {"id": "p", "type": "parallel", "on_error": "continue", "branches": {"a": [tool("bad")], "b": [tool("good")]}}
    run, found = await run_to_end([fan], ScriptedTools(answers={"bad": [StepFailed("refused", "400")]}))
    assert found["/p"] == "completed"
    assert {name: branch["status"] for name, branch in run.output.items()} == {"a": "failed", "b": "completed"}


async def test_client_error_is_another_word_for_invalid_request() -> None:
    answers = {"t": [StepFailed("invalid_request", "400"), {"ok": True}]}
    run, _ = await run_to_end([tool("t", retry={**QUICK, "on": ["client_error"]})], ScriptedTools(answers=answers))
    assert run.status == "completed"
    rules = [{"errors": ["client_error"], "strategy": "continue", "default": 7}]
    run, _ = await run_to_end(
        [tool("t", on_error=rules)], ScriptedTools(answers={"t": [answers["t"][0]]}), output="{{step.t}}"
    )
    assert run.output == 7


async def test_the_output_of_a_skipped_step_is_null_behind_a_question_mark() -> None:
    steps = [tool("a", condition="false"), tool("b", arguments={"x": "{{step.a?.v}}", "y": "{{steps.a.result?.v}}"})]
    tools = ScriptedTools()
    run, _ = await run_to_end(steps, tools)
    assert run.status == "completed"
    assert tools.called("b") == [{"x": None, "y": None}]


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": float("inf")}, {1: 2}, {"a": {1, 2}}, {"a": object()}])
async def test_an_input_that_is_not_json_is_refused(value: Json) -> None:
    async with engine_with(ScriptedTools()) as engine:
        with pytest.raises(InputError):
            await engine.start(workflow([tool("t")]), value)
        assert await engine.runs() == []


async def test_a_lone_surrogate_of_an_input_is_replaced() -> None:
    run, _ = await run_to_end([tool("t", arguments={"v": "{{workflow_input.v}}"})], ScriptedTools(), {"v": "x\ud800"})
    assert run.output == {"v": "x\ufffd"}
