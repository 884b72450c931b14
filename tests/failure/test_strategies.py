"""What `on_error` does: fallback, compensate, suspend, goto, over the engine in memory."""

from __future__ import annotations

import pytest

from stepwell.engine.incidents import Action, Filter
from stepwell.errors import AlreadyDecided, InputError, StepFailed
from stepwell.ports import Tool
from stepwell.testing.scripted import ScriptedTools
from tests.engine_world import engine_with, statuses, workflow

ONCE = {"max_attempts": 1}
QUICK = {"max_attempts": 3, "initial_delay": "1ms", "jitter": "none"}


def tool(name, *, args=None, **more):
    return {"id": name, "type": "tool_call", "tool": name, "arguments": args or {}, "retry": dict(ONCE), **more}


def broken(kind="server_error", message="down"):
    return StepFailed(kind, message)


async def run(tools, steps, value=None, **parts):
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(steps, **parts), value or {})
        done = await handle.wait()
        tree = (await engine.tree(done.id)).as_json()
        return done, {step["path"]: step for step in tree["steps"]}


# ── fallback ──


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
async def test_c070_steps_with_fallbacks_meet_in_one_step(first, second):
    tools = ScriptedTools(
        {
            "h1": [broken() if first else {"v": "h1"}],
            "h2": [broken() if second else {"v": "h2"}],
            "f1": [{"v": "f1"}],
            "f2": [{"v": "f2"}],
        }
    )
    steps = [
        tool("h1", depends_on=[], on_error={"strategy": "fallback", "step": "f1"}),
        tool("h2", depends_on=[], on_error={"strategy": "fallback", "step": "f2"}),
        tool("f1"),
        tool("f2"),
        tool("join", args={"a": "{{step.h1.v}}", "b": "{{step.h2.v}}"}, depends_on=["h1", "h2"]),
    ]
    done, told = await run(tools, steps)
    assert done.status == "completed"
    assert tools.called("join") == [{"a": "f1" if first else "h1", "b": "f2" if second else "h2"}]
    assert len(tools.called("f1")) == first
    assert len(tools.called("f2")) == second
    assert told["/h1"].get("completed_by") == ("fallback" if first else None)


async def test_a_fallback_sees_the_answer_that_did_not_fit_and_others_see_who_completed_the_step():
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    steps = [
        tool("ask", output_schema=schema, on_error={"strategy": "fallback", "step": "mend"}),
        tool("mend", args={"said": "{{error.detail.answer.said}}", "wrong": "{{error.detail.problems}}"}),
        tool("use", args={"by": "{{steps.ask.completed_by ?? 'itself'}}"}),
    ]
    tools = ScriptedTools({"ask": [{"said": "n is 3"}], "mend": [{"n": 3}]})
    done, _ = await run(tools, steps)
    assert done.status == "completed"
    assert tools.called("mend") == [{"said": "n is 3", "wrong": ["/: 'n' is a required property"]}]
    assert tools.called("use") == [{"by": "fallback"}]


async def test_an_answer_that_does_not_fit_and_is_very_long_is_told_by_its_length():
    tools = ScriptedTools({"ask": [{"said": "x" * 100_000}]})
    done, _ = await run(tools, [tool("ask", output_schema={"type": "object", "required": ["n"]})])
    assert done.error["detail"]["answer_length"] > 100_000
    assert "answer" not in done.error["detail"]


async def test_c058_a_fallback_has_its_own_attempts_and_is_entered_once():
    steps = [
        tool("a", retry=QUICK, on_error={"strategy": "fallback", "step": "b"}),
        tool("b", retry=QUICK | {"max_attempts": 2}),
        tool("use", args={"t": "{{step.a.text}}"}),
    ]
    tools = ScriptedTools({"a": [broken()], "b": [broken("overloaded", "also down")]})
    done, told = await run(tools, steps)
    assert (len(tools.called("a")), len(tools.called("b")), tools.called("use")) == (3, 2, [])
    assert (done.status, done.error["kind"]) == ("failed", "overloaded")
    assert done.error["detail"]["cause"]["kind"] == "server_error"
    tools = ScriptedTools({"a": [broken()], "b": [broken("overloaded"), {"text": "from b"}]})
    done, told = await run(tools, steps)
    assert done.status == "completed"
    assert tools.called("use") == [{"t": "from b"}]
    assert (told["/a"]["status"], told["/a"]["completed_by"], told["/a"]["error"]["kind"]) == (
        "completed", "fallback", "server_error",
    )  # fmt: skip
    assert told["/a"]["attempts"] == 3
    assert [one["status"] for one in told["/a"]["attempt_log"]] == ["failed"] * 3
    assert told["/a/~fallback/b"]["attempts"] == 2


@pytest.mark.parametrize(
    ("kind", "called"),
    [("timeout", "backup"), ("output_invalid", "repair"), ("rate_limit", "cheaper"), ("auth_error", "last")],
)
async def test_each_kind_of_error_has_its_own_repair(kind, called):
    rules = [
        {"errors": ["timeout"], "strategy": "fallback", "steps": [tool("backup", args={"because": "{{error.kind}}"})]},
        {"errors": ["output_invalid"], "strategy": "fallback", "steps": [tool("repair"), tool("polish")]},
        {"errors": ["rate_limit"], "when": "error.message contains 'slow'", "strategy": "fail"},
        {"errors": ["rate_limit"], "strategy": "fallback", "steps": [tool("cheaper")]},
        {"strategy": "fallback", "steps": [tool("last")]},
    ]
    rules[2]["when"] = "error.message == 'slow down'"
    tools = ScriptedTools({"a": [broken(kind)], "backup": [{"by": "backup"}]})
    done, told = await run(tools, [tool("a", on_error=rules), tool("use", args={"t": "{{step.a}}"})])
    assert done.status == "completed"
    assert f"/a/~fallback/{called}" in told
    assert [name for name in ("backup", "repair", "cheaper", "last") if tools.called(name)] == [called]
    if kind == "timeout":
        assert tools.called("backup") == [{"because": "timeout"}]
        assert tools.called("use") == [{"t": {"by": "backup"}}]


async def test_a_chain_of_fallbacks_ends_with_the_last_error_and_all_causes():
    steps = [
        tool("a", on_error={"strategy": "fallback", "step": "b"}),
        tool("b", on_error={"strategy": "fallback", "step": "c"}),
        tool("c"),
    ]
    tools = ScriptedTools({"a": [broken("timeout")], "b": [broken("overloaded")], "c": [broken("not_found")]})
    done, told = await run(tools, steps)
    assert (done.status, done.error["kind"]) == ("failed", "not_found")
    causes, error = [], done.error
    while error:
        causes.append(error["kind"])
        error = (error.get("detail") or {}).get("cause")
    assert sorted(causes) == ["not_found", "overloaded", "timeout"]
    assert [len(tools.called(name)) for name in "abc"] == [1, 1, 1]
    assert "/a/~fallback/b/~fallback/c" in told


async def test_a_fallback_of_a_container_and_one_that_waits_for_a_person():
    steps = [
        {
            "id": "l", "type": "loop", "over": [1, 2], "steps": [tool("x", args={"i": "{{loop_item}}"})],
            "on_error": {"strategy": "fallback", "steps": [{"id": "g", "type": "approval", "title": "{{error.kind}}?"}]},
        },
        tool("use", args={"t": "{{step.l}}"}),
    ]  # fmt: skip
    tools = ScriptedTools({"x": [broken("not_found")]})
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(steps), {})
        assert (await handle.wait()).status == "pending_approval"
        (wait,) = await engine.waits(run_id=handle.run_id)
        assert (wait.path, wait.request["title"]) == ("/l/~fallback/g", "not_found?")
        await engine.decide(wait.id, "approved")
        done = await (await engine.resume(handle.run_id)).wait()
        assert done.status == "completed"
        assert tools.called("use")[0]["t"]["approved"] is True
        assert (await statuses(engine, done.id))["/l"] == "completed"


async def test_workflow_defaults_apply_after_the_rules_of_the_step():
    defaults = {"on_error": {"strategy": "continue", "default": {"by": "default"}}}
    steps = [
        tool("a", on_error=[{"errors": ["timeout"], "strategy": "fail"}]),
        tool("b", args={"t": "{{step.a.by ?? 'none'}}"}),
    ]
    tools = ScriptedTools({"a": [broken("auth_error")]})
    done, _ = await run(tools, steps, defaults=defaults)
    assert done.status == "completed"
    assert tools.called("b") == [{"t": "default"}]
    done, _ = await run(ScriptedTools({"a": [broken("timeout")]}), steps, defaults=defaults)
    assert (done.status, done.error["kind"]) == ("failed", "timeout")


# ── suspend ──


async def suspended(engine, steps, **parts):
    handle = await engine.start(workflow(steps, **parts), {})
    done = await handle.wait()
    assert done.status == "suspended"
    return handle.run_id, (await engine.incidents.open(Filter(run_id=done.id)))[0]


async def settled(engine, run_id, wait, action):
    await engine.incidents.settle(wait.id, action)
    done = await (await engine.resume(run_id)).wait()
    return done, {step["path"]: step for step in (await engine.tree(run_id)).as_json()["steps"]}


SUSPENDING = [tool("a", args={"n": 1}, on_error="suspend"), tool("use", args={"t": "{{step.a ?? 'none'}}"})]


async def test_an_incident_says_what_failed_and_what_can_be_done():
    async with engine_with(ScriptedTools({"a": [broken()]})) as engine:
        run_id, wait = await suspended(engine, SUSPENDING)
        assert wait.request["error"]["kind"] == "server_error"
        assert wait.request["actions"] == ["retry", "provide", "skip", "compensate", "fail"]
        assert wait.request["arguments"] == {"n": 1}
        assert (await statuses(engine, run_id))["/a"] == "suspended"


async def test_an_incident_is_retried_with_edited_arguments_and_attempts_count_on():
    tools = ScriptedTools({"a": [broken(), broken(), {"v": 3}]})
    async with engine_with(tools) as engine:
        run_id, wait = await suspended(engine, SUSPENDING)
        await engine.incidents.settle(wait.id, Action("retry", edits={"n": 2}))
        assert (await (await engine.resume(run_id)).wait()).status == "suspended"
        (second,) = await engine.incidents.open()
        assert second.id != wait.id
        assert second.request["arguments"] == {"n": 2}
        done, told = await settled(engine, run_id, second, Action("retry"))
        assert done.status == "completed"
        assert tools.called("a") == [{"n": 1}, {"n": 2}, {"n": 2}]
        assert [call.attempt for call in tools.calls if call.tool == "a"] == [1, 2, 3]
        assert len({call.key for call in tools.calls if call.tool == "a"}) == 1
        assert told["/a"]["attempts"] == 3
        assert told["/a"]["input"] == {"n": 2}
        with pytest.raises(AlreadyDecided):
            await engine.incidents.settle(wait.id, Action("fail"))


@pytest.mark.parametrize(
    ("action", "status", "step", "used"),
    [
        (Action("provide", output={"by": "hand"}), "completed", "completed", [{"t": {"by": "hand"}}]),
        (Action("skip", comment="not needed"), "completed", "skipped", [{"t": "none"}]),
        (Action("fail"), "failed", "failed", []),
        (Action("compensate"), "compensated", "failed", []),
    ],
)
async def test_an_incident_is_settled(action, status, step, used):
    tools = ScriptedTools({"a": [broken()]})
    async with engine_with(tools) as engine:
        run_id, wait = await suspended(engine, SUSPENDING)
        done, told = await settled(engine, run_id, wait, action)
        assert (done.status, told["/a"]["status"]) == (status, step)
        assert tools.called("use") == used
        assert len(tools.called("a")) == 1
        if action.word == "provide":
            assert told["/a"]["completed_by"] == "operator"
            assert told["/a"]["error"]["kind"] == "server_error"
        if action.word == "skip":
            assert told["/a"]["skip_reason"]["type"] == "operator"


async def test_the_fallback_of_an_incident_is_run_on_demand():
    tools = ScriptedTools({"a": [broken()], "b": [{"by": "b"}]})
    rules = [{"errors": ["timeout"], "strategy": "fallback", "steps": [tool("b")]}, "suspend"]
    async with engine_with(tools) as engine:
        run_id, wait = await suspended(engine, [tool("a", on_error=rules), tool("use", args={"t": "{{step.a.by}}"})])
        assert "fallback" in wait.request["actions"]
        done, told = await settled(engine, run_id, wait, Action("fallback"))
        assert done.status == "completed"
        assert tools.called("use") == [{"t": "b"}]
        assert told["/a"]["completed_by"] == "fallback"


async def test_siblings_of_an_incident_go_on_and_many_are_settled_at_once():
    steps = [
        {
            "id": "l", "type": "loop", "over": [0, 1, 2, 3], "concurrency": 4,
            "steps": [tool("x", args={"i": "{{loop_item}}"}, on_error="suspend"), tool("y", args={"i": "{{loop_item}}"})],
        }
    ]  # fmt: skip
    tools = ScriptedTools({f"/l/{i}/x": [broken("timeout"), {"ok": i}] for i in (1, 3)})
    async with engine_with(tools) as engine:
        run_id, _ = await suspended(engine, steps)
        assert sorted(call["i"] for call in tools.called("y")) == [0, 2]
        assert {wait.path for wait in await engine.incidents.open()} == {"/l/1/x/!1", "/l/3/x/!1"}
        assert await engine.incidents.settle_all(Filter(kind="rate_limit"), Action("retry")) == []
        results = await engine.incidents.settle_all(Filter(kind="timeout", workflow="w", step="x"), Action("retry"))
        assert [refused for _, refused in results] == [None, None]
        done = await (await engine.resume(run_id)).wait()
        assert done.status == "completed"
        assert sorted(call["i"] for call in tools.called("y")) == [0, 1, 2, 3]


async def test_a_loop_whose_incident_is_retried_does_again_only_what_was_not_finished():
    steps = [
        {
            "id": "l", "type": "loop", "over": [0, 1, 2], "concurrency": 3, "on_error": "suspend",
            "steps": [tool("x", args={"i": "{{loop_item}}"}), tool("y", args={"i": "{{loop_item}}"})],
        },
        tool("use", args={"t": "{{step.l}}"}),
    ]  # fmt: skip
    tools = ScriptedTools({"/l/1/y": [broken("not_found")]}, delays={"/l/1/y": 0.05})
    for reload in (False, True):
        tools.calls.clear()
        async with engine_with(tools) as engine:
            run_id, wait = await suspended(engine, steps)
            if reload:
                await engine.park(run_id)
            done, told = await settled(engine, run_id, wait, Action("retry"))
            assert done.status == "completed"
            assert sorted(call.path for call in tools.calls if call.tool in "xy") == [
                "/l#2/1/y", "/l/0/x", "/l/0/y", "/l/1/x", "/l/1/y", "/l/2/x", "/l/2/y",
            ]  # fmt: skip
            assert tools.called("use") == [{"t": [{"i": 0}, {"i": 1}, {"i": 2}]}]
            assert told["/l#2"]["status"] == "completed"
            assert "/l#2/0/x" not in told


async def test_a_container_whose_incident_is_retried_starts_another_round():
    steps = [
        {"id": "c", "type": "condition", "when": "true", "then": [tool("p"), tool("x")], "on_error": "suspend"},
        tool("use", args={"t": "{{step.x.ok}}"}),
    ]
    tools = ScriptedTools({"x": [broken("not_found")], "/c#2/x": [{"ok": 2}]})
    async with engine_with(tools) as engine:
        run_id, wait = await suspended(engine, steps)
        done, told = await settled(engine, run_id, wait, Action("retry"))
        assert done.status == "completed"
        assert tools.called("use") == [{"t": 2}]
        assert told["/c#2/x"]["status"] == "completed"


@pytest.mark.parametrize(
    "action",
    [Action("fly"), Action("fallback"), Action("skip", edits={"n": 1}), Action("provide", output={"v": "text"})],
)
async def test_an_action_that_makes_no_sense_is_refused_and_the_incident_stays_open(action):
    steps = [tool("a", on_error="suspend", output_schema={"type": "object", "properties": {"v": {"type": "integer"}}})]
    async with engine_with(ScriptedTools({"a": [broken()]})) as engine:
        _, wait = await suspended(engine, steps)
        with pytest.raises(InputError) as refused:
            await engine.incidents.settle(wait.id, action)
        assert refused.value.problems[0].hint
        assert len(await engine.incidents.open()) == 1


async def test_edits_that_the_tool_does_not_take_are_refused_before_they_are_stored():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}

    class Strict(ScriptedTools):
        def get(self, name):
            return Tool(name, "", schema)

    async with engine_with(Strict({"a": [broken()]})) as engine:
        _, wait = await suspended(engine, SUSPENDING)
        for edits in ({"m": 1}, {"n": "one"}):
            with pytest.raises(InputError, match="does not take"):
                await engine.incidents.settle(wait.id, Action("retry", edits=edits))
        await engine.incidents.settle(wait.id, Action("retry", edits={"n": 2}))


# ── goto ──


async def test_a_failed_check_returns_to_an_earlier_step_which_reads_why():
    steps = [
        tool("draft", args={"last": "{{steps.check?.error?.message ?? 'none'}}"}),
        tool("check", on_error={"goto": "draft", "max_rounds": 2}),
        tool("use"),
    ]
    tools = ScriptedTools({"/check": [broken("refused", "too long")], "/check#2": [broken("refused", "too short")],
                           "/check#3": [{"ok": True}]})  # fmt: skip
    done, told = await run(tools, steps)
    assert done.status == "completed"
    assert [call["last"] for call in tools.called("draft")] == ["none", "too long", "too short"]
    assert told["/draft#3"]["round"] == 3
    tools = ScriptedTools({"check": [broken("refused", "no")]})
    done, told = await run(tools, steps)
    assert (done.status, len(tools.called("check"))) == ("failed", 3)
