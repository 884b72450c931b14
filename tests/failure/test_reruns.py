"""Redrive and rerun: planned first, done as planned, and only what is stale is done again."""

from __future__ import annotations

from itertools import count

import pytest

from stepwell.engine.incidents import Action
from stepwell.engine.reruns import Wish
from stepwell.errors import Conflict, Forbidden, InputError, NotFound
from stepwell.ports import Person
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.testing.scripted import ScriptedTools
from tests.engine_world import engine_with, workflow
from tests.failure.test_strategies import broken, tool


async def ended(engine, steps, **parts):
    handle = await engine.start(workflow(steps, **parts), {"n": 1})
    return await handle.wait()


async def again(engine, run_id, wish=None):
    plan = await engine.reruns.plan(run_id, wish or Wish())
    run = await engine.reruns.carry_out(plan, plan.hash)
    return plan, await (await engine.resume(run.id)).wait()


def calls(tools):
    return [call.path for call in tools.calls]


async def told(engine, run_id):
    return {step["path"]: step for step in (await engine.tree(run_id)).as_json()["steps"]}


async def test_a_redrive_does_only_what_was_not_finished():
    steps = [
        tool("a"),
        {
            "id": "l", "type": "loop", "over": [0, 1, 2, 3], "concurrency": 2, "tolerate": 3,
            "steps": [tool("x", args={"i": "{{loop_item}}"}), tool("y", args={"i": "{{loop_item}}"})],
        },
        {
            "id": "m", "type": "loop", "over": [0, 1, 2], "concurrency": 3,
            "steps": [tool("p", args={"i": "{{loop_item}}"}), tool("q", args={"i": "{{loop_item}}"})],
        },
        {"id": "g", "type": "set", "values": {"all": "{{step.m}}"}},
        tool("z"),
    ]  # fmt: skip
    tools = ScriptedTools({"/l/1/x": [broken("refused")], "/m/1/q": [broken("refused")]}, delays={"q": 0.02})
    async with engine_with(tools) as engine:
        run = await ended(engine, steps)
        assert run.status == "failed"
        tools.answers = {}
        tools.calls.clear()
        plan, run = await again(engine, run.id)
        assert run.status == "completed"
        assert run.generation == 1
        assert calls(tools) == ["/m/1/q", "/z"]
        assert {one["path"]: one["because"] for one in plan.executes} == {
            "/m/1/q": "failed: refused", "/g": "was not reached", "/z": "was not reached",
        }  # fmt: skip
        assert {"/a", "/l", "/m/0", "/m/2", "/m/1/p"} <= set(plan.reuses)
        steps_now = await told(engine, run.id)
        assert steps_now["/m"]["status"] == steps_now["/m/1/q"]["status"] == "completed"
        assert steps_now["/l/1/x"]["status"] == "failed"


async def test_a_redrive_keeps_the_idempotency_key_and_a_rerun_has_another():
    tools = ScriptedTools({"a": [broken("refused")]})
    async with engine_with(tools) as engine:
        run = await ended(engine, [tool("a")])
        tools.answers = {}
        _, run = await again(engine, run.id)
        _, run = await again(engine, run.id, Wish("/a"))
        assert run.status == "completed"
        keys = [call.key for call in tools.calls]
        assert keys[0] == keys[1] != keys[2]
        assert calls(tools) == ["/a", "/a", "/a#2"]


async def test_a_rerun_does_again_the_step_and_all_that_comes_after_it_and_nothing_else():
    steps = [
        tool("a", depends_on=[]),
        tool("b", args={"t": "{{step.a}}"}, depends_on=["a"]),
        tool("c", args={"t": "{{step.b}}"}, depends_on=["b"]),
        tool("d", depends_on=["a"]),
        {"id": "e", "type": "set", "values": {"v": "{{step.c}}{{step.d}}"}, "depends_on": ["c", "d"]},
    ]
    tools = ScriptedTools()
    async with engine_with(tools) as engine:
        run = await ended(engine, steps)
        tools.calls.clear()
        plan, run = await again(engine, run.id, Wish("/b", edits={"t": "edited"}))
        assert run.status == "completed"
        assert calls(tools) == ["/b#2", "/c#2"]
        assert tools.called("b") == [{"t": "edited"}]
        assert tools.called("c") == [{"t": {"t": "edited"}}]
        assert [one["path"] for one in plan.executes] == ["/b", "/c", "/e"]
        assert set(plan.reuses) == {"/a", "/d"}
        steps_now = await told(engine, run.id)
        assert steps_now["/b"]["output"] == {"t": {}}
        assert steps_now["/b#2"]["output"] == {"t": "edited"}


async def test_a_rerun_inside_an_iteration_of_a_loop_leaves_the_others():
    steps = [
        {
            "id": "l", "type": "loop", "over": [0, 1, 2], "concurrency": 3,
            "steps": [
                tool("x", args={"i": "{{loop_item}}"}),
                {"id": "c", "type": "condition", "when": "true", "then": [tool("y"), tool("w")]},
            ],
        },
        tool("z", args={"all": "{{step.l}}"}),
    ]  # fmt: skip
    tools = ScriptedTools()
    async with engine_with(tools) as engine:
        run = await ended(engine, steps)
        tools.calls.clear()
        _, run = await again(engine, run.id, Wish("/l/1/c/w"))
        assert run.status == "completed"
        assert calls(tools) == ["/l/1/c/w#2", "/z#2"]
        tools.calls.clear()
        _, run = await again(engine, run.id, Wish("/l/2/x"))
        assert calls(tools) == ["/l/2/x#2", "/l/2/c#2/y", "/l/2/c#2/w", "/z#3"]


@pytest.mark.parametrize("path", ["/l/3/x", "/l/01/x", "/u/2/y"])
async def test_an_iteration_that_the_run_never_had_is_refused(path):
    steps = [
        {"id": "l", "type": "loop", "over": [0, 1, 2], "steps": [tool("x")]},
        {"id": "u", "type": "loop", "until": "loop.index == 1", "max_iterations": 5, "steps": [tool("y")]},
        tool("z"),
    ]
    tools = ScriptedTools()
    async with engine_with(tools) as engine:
        run = await ended(engine, steps)
        assert run.status == "completed"
        with pytest.raises(InputError, match=f"there is no step at {path[:-2]}"):
            await engine.reruns.plan(run.id, Wish(path))
        assert (await engine.reruns.plan(run.id, Wish("/u/1/y"))).executes[0]["path"] == "/u/1/y"


@pytest.mark.parametrize("back", [False, True])
async def test_iterations_that_look_back_are_done_again_too(back):
    args = {"before": "{{loop.previous ?? 'none'}}"} if back else {}
    steps = [{"id": "l", "type": "loop", "over": [0, 1, 2], "steps": [tool("x", args=args)]}]
    tools = ScriptedTools()
    async with engine_with(tools) as engine:
        run = await ended(engine, steps)
        tools.calls.clear()
        _, run = await again(engine, run.id, Wish("/l/1/x"))
        assert run.status == "completed"
        assert calls(tools) == (["/l/1/x#2", "/l/2/x"] if back else ["/l/1/x#2"])


async def test_a_rerun_as_a_new_run_leaves_the_old_one_as_it_is():
    steps = [tool("a"), tool("b", args={"t": "{{step.a}}"}), tool("c", args={"t": "{{step.b}}"})]
    tools = ScriptedTools({"a": [{"v": 1}]})
    async with engine_with(tools) as engine:
        run = await ended(engine, steps)
        before = await told(engine, run.id)
        tools.calls.clear()
        _, new = await again(engine, run.id, Wish("/b", edits={"t": 2}, new_run=True))
        assert new.id != run.id
        assert (new.status, new.output) == ("completed", {"t": {"t": 2}})
        assert calls(tools) == ["/b", "/c"]
        assert await told(engine, run.id) == before
        assert (await told(engine, new.id))["/a"]["output"] == {"v": 1}


async def test_open_approvals_of_what_is_done_again_are_withdrawn_and_asked_anew():
    steps = [tool("draft"), {"id": "g", "type": "approval", "show": "{{step.draft}}"}, tool("z")]
    tools = ScriptedTools()
    async with engine_with(tools) as engine:
        run = await ended(engine, steps)
        assert run.status == "pending_approval"
        (old,) = await engine.waits(run_id=run.id)
        plan, run = await again(engine, run.id, Wish("/draft"))
        assert run.status == "pending_approval"
        (new,) = await engine.waits(run_id=run.id)
        assert (old.path, new.path) == ("/g", "/g#2")
        assert (await engine.wait(old.id)).status == "withdrawn"
        await engine.decide(new.id, "approved")
        run = await (await engine.resume(run.id)).wait()
        assert run.status == "completed"
        with pytest.raises(Conflict):
            await engine.reruns.carry_out(plan, plan.hash)


async def test_a_plan_that_is_old_or_another_is_not_carried_out():
    tools = ScriptedTools({"a": [broken("refused")]})
    async with engine_with(tools) as engine:
        run = await ended(engine, [tool("a")])
        plan = await engine.reruns.plan(run.id)
        assert plan.hash == (await engine.reruns.plan(run.id)).hash
        with pytest.raises(Conflict, match=plan.hash):
            await engine.reruns.carry_out(plan, "another")
        await engine.reruns.carry_out(plan, plan.hash)
        await (await engine.resume(run.id)).wait()
        with pytest.raises(Conflict, match="plan again"):
            await engine.reruns.carry_out(plan, plan.hash)
        assert len(tools.calls) == 2


async def test_calls_that_may_not_be_repeated_are_named_in_the_plan():
    steps = [tool("charge", idempotent=False), tool("b")]
    tools = ScriptedTools({"b": [broken("refused")]})
    async with engine_with(tools) as engine:
        run = await ended(engine, steps)
        assert (await engine.reruns.plan(run.id)).repeats == ()
        plan = await engine.reruns.plan(run.id, Wish("/charge"))
        assert [(one["path"], one["status"]) for one in plan.repeats] == [("/charge", "completed")]


async def test_a_plan_says_which_decisions_are_used_again_and_who_is_asked_again():
    steps = [tool("a"), {"id": "g", "type": "approval"}, tool("pay")]
    async with engine_with(ScriptedTools()) as engine:
        run = await ended(engine, steps)
        (wait,) = await engine.waits(run_id=run.id)
        await engine.decide(wait.id, "approved", by="ana")
        run = await (await engine.resume(run.id)).wait()
        plan = await engine.reruns.plan(run.id, Wish("/pay", edits={"amount": 9}))
        assert plan.approvals == ({"path": "/g", "decision": "approved", "by": "ana"},)
        plan = await engine.reruns.plan(run.id, Wish("/a"))
        assert plan.approvals == ()
        assert [(one["path"], one["type"]) for one in plan.executes] == [
            ("/a", "tool_call"), ("/g", "approval"), ("/pay", "tool_call"),
        ]  # fmt: skip


async def test_a_new_run_undoes_nothing_that_the_old_one_did():
    undo = {"steps": [tool("refund", args={"r": "{{step.charge}}"})]}
    steps = [
        tool("charge", compensate=undo),
        tool("b", compensate={"steps": [tool("undo_b")]}),
        tool("x", on_error="compensate"),
    ]
    async with engine_with(ScriptedTools({"/x": [{"ok": True}, broken()]})) as engine:
        run = await ended(engine, steps)
        assert run.status == "completed"
        tools = engine.tools
        tools.calls.clear()
        tools.answers = {"x": [broken()]}
        _, new = await again(engine, run.id, Wish("/b", new_run=True))
        assert new.status == "compensated"
        assert calls(tools) == ["/b", "/x", "/~undo/0/undo_b"]


async def test_what_cannot_go_back_says_why():
    async with engine_with(ScriptedTools({"x": [broken("refused")]})) as engine:
        done = await ended(engine, [tool("a")])
        with pytest.raises(Conflict, match="completed"):
            await engine.reruns.plan(done.id)
        for path in ("/nowhere", "/a/b", "a", "/a/~fallback/b", "/a/@1"):
            with pytest.raises(InputError):
                await engine.reruns.plan(done.id, Wish(path))
        with pytest.raises(InputError):
            await engine.reruns.plan(done.id, Wish(edits={"n": 1}))
        undone = await ended(engine, [tool("a"), tool("x", on_error="compensate")])
        for wish in (Wish(), Wish("/a"), Wish("/a", new_run=True)):
            with pytest.raises(Conflict, match="start a new run"):
                await engine.reruns.plan(undone.id, wish)
        steps = [{"id": "c", "type": "condition", "when": "workflow_input.n == 2", "then": [tool("t")]}]
        done = await ended(engine, steps)
        with pytest.raises(NotFound, match="took the branch"):
            await engine.reruns.plan(done.id, Wish("/c/t"))


async def test_the_steps_of_on_failure_run_again_when_it_fails_again():
    tools = ScriptedTools({"a": [broken("refused")]})
    async with engine_with(tools) as engine:
        run = await ended(engine, [tool("a")], on_failure={"steps": [tool("tell", args={"k": "{{error.kind}}"})]})
        assert calls(tools) == ["/a", "/on_failure/tell"]
        _, run = await again(engine, run.id)
        assert run.status == "failed"
        assert calls(tools) == ["/a", "/on_failure/tell"] * 2


async def test_a_run_that_timed_out_gets_its_time_anew():
    tools = ScriptedTools(delays={"b": 5.0})
    async with engine_with(tools) as engine:
        run = await ended(engine, [tool("a"), tool("b")], timeout="300ms")
        assert run.status == "timed_out"
        tools.delays = {}
        tools.calls.clear()
        _, run = await again(engine, run.id)
        assert run.status == "completed"
        assert calls(tools) == ["/b"]


async def test_a_container_that_was_retried_gets_a_round_of_its_own_when_the_block_goes_back():
    quick = {"max_attempts": 2, "initial_delay": "1ms", "jitter": "none"}
    steps = [
        tool("a"),
        {"id": "c", "type": "condition", "when": "true", "then": [tool("x")], "retry": quick},
        tool("check", on_error={"goto": "a", "max_rounds": 1}),
    ]
    tools = ScriptedTools({"/c/x": [broken()], "/check": [broken("refused")]})
    async with engine_with(tools) as engine:
        run = await ended(engine, steps)
        assert run.status == "completed"
        assert calls(tools) == ["/a", "/c/x", "/c#2/x", "/check", "/a#2", "/c#3/x", "/check#2"]


async def test_a_new_run_by_another_keeps_who_asked_first_and_the_trail_has_the_edits():
    gate = {"id": "gate", "type": "approval", "approvers": {"roles": ["boss"]}}
    async with engine_with(ScriptedTools({"a": [{"v": 1}]})) as engine:
        roles = {"sam": "boss", "eva": "boss", "olga": "operator"}
        await engine.people.add([Person(name, roles=(role,)) for name, role in roles.items()])
        run = await (await engine.start(workflow([tool("a"), gate]), {}, requester="sam")).wait()
        (wait,) = await engine.waits(run_id=run.id)
        await engine.decide(wait.id, "approved", by="eva")
        await (await engine.resume(run.id)).wait()
        plan = await engine.reruns.plan(run.id, Wish("/a", edits={"v": 2}, new_run=True))
        new = await engine.reruns.carry_out(plan, plan.hash, by="olga")
        assert new.requester == "sam"
        await (await engine.resume(new.id)).wait()
        (again,) = await engine.waits(run_id=new.id)
        with pytest.raises(Forbidden, match="sam started the run"):
            await engine.decide(again.id, "approved", by="sam")
        noted = next(one for one in await engine.people.trail() if one.action == "run.rerun")
        assert (noted.by, noted.detail["edits"], noted.detail["new_run"]) == ("olga", {"v": 2}, True)


@pytest.mark.parametrize("in_file", [False, True])
async def test_a_new_run_begins_with_what_the_last_of_several_reruns_left(in_file, tmp_path):
    steps = [tool("a"), tool("b", args={"t": "{{step.a.n}}"}), tool("c", args={"t": "{{step.a.n}}{{step.b.n}}"})]
    numbers = count(1)
    tools = ScriptedTools({name: [lambda _: {"n": next(numbers)}] for name in "abc"})
    store = SqliteRunStore.open(tmp_path / "runs.db") if in_file else None
    async with engine_with(tools, store) as engine:
        run = await ended(engine, steps)
        _, run = await again(engine, run.id, Wish("/a"))
        _, run = await again(engine, run.id, Wish("/c"))
        assert tools.called("c")[-1] == {"t": "45"}
        _, new = await again(engine, run.id, Wish("/c", new_run=True))
        assert (new.status, tools.called("c")[-1]) == ("completed", {"t": "45"})
        _, new = await again(engine, new.id, Wish("/b", edits={"t": "edited"}, new_run=True))
        assert (new.status, tools.called("b")[-1]) == ("completed", {"t": "edited"})
        tools.calls.clear()
        _, new = await again(engine, new.id, Wish("/c", new_run=True))
        assert (new.status, [call.tool for call in tools.calls]) == ("completed", ["c"])


async def test_a_redrive_asks_again_about_a_step_whose_incident_was_withdrawn():
    once = frozenset({"charge"})
    tools = ScriptedTools({"/p/a/charge": [broken("timeout")], "bad": [broken()]}, delays={"bad": 0.1}, once=once)
    branches = {"a": [tool("charge", idempotent=False)], "b": [tool("bad")]}
    async with engine_with(tools) as engine:
        run = await ended(engine, [{"id": "p", "type": "parallel", "branches": branches}])
        assert run.status == "failed"
        tools.answers = {}
        _, run = await again(engine, run.id)
        assert run.status == "suspended"
        (wait,) = await engine.incidents.open()
        assert (wait.path, wait.request["error"]["kind"]) == ("/p/a/charge/!1", "in_doubt")
        await engine.incidents.settle(wait.id, Action("provide", output="R1"))
        run = await (await engine.resume(run.id)).wait()
        assert run.status == "completed"
        assert run.output["a"] == {"status": "completed", "output": "R1", "error": None}
        assert len(tools.called("charge")) == 1


async def test_a_redrive_asks_again_what_a_fallback_had_asked_and_sleeps_again():
    ask = {"strategy": "fallback", "steps": [{"id": "ask", "type": "approval"}]}
    branches = {
        "a": [tool("x", on_error=ask)],
        "b": [{"id": "w", "type": "wait", "for": "1h"}],
        "c": [tool("bad")],
    }
    tools = ScriptedTools({"x": [broken()], "bad": [broken()]}, delays={"bad": 0.1})
    async with engine_with(tools) as engine:
        run = await ended(engine, [{"id": "p", "type": "parallel", "branches": branches}])
        assert run.status == "failed"
        tools.answers = {}
        _, run = await again(engine, run.id)
        assert run.status == "pending_approval"
        waits = await engine._store.waits("default", run_id=run.id)
        assert {wait.path for wait in waits} == {"/p/a/x/~fallback/ask", "/p/b/w/~sleep"}


@pytest.mark.parametrize("new_run", [False, True])
async def test_edits_may_be_large(new_run):
    tools = ScriptedTools()
    async with engine_with(tools) as engine:
        run = await ended(engine, [tool("a", args={"t": 1})])
        _, run = await again(engine, run.id, Wish("/a", edits={"t": "x" * 100_000}, new_run=new_run))
        assert run.status == "completed"
        assert tools.called("a")[-1] == {"t": "x" * 100_000}
