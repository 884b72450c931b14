"""Calls that may not be repeated: the intent is recorded first, and doubt is settled by `verify` or by a person."""

from __future__ import annotations

import asyncio
import time

import pytest

from stepwell.engine.incidents import Action
from stepwell.errors import StepFailed
from stepwell.stores.memory import MemoryRunStore
from stepwell.testing.scripted import ScriptedTools
from tests.engine_world import engine_with, workflow
from tests.failure.test_strategies import broken, tool


class Uptime:
    """Seconds since the start of a machine whose processes may be declared dead by letting their leases lapse."""

    ahead = 0.0

    def __call__(self):
        return time.monotonic() + self.ahead


class Bank:
    """Charges by key; it answers late where it is told to."""

    def __init__(self):
        self.charges = []

    def look_up(self, arguments):
        found = [one for one in self.charges if one["key"] == arguments["key"]]
        return {"found": bool(found), "reference": f"R{len(found)}" if found else None}


def charging(verify=True, **more):
    step = tool("charge", args={"amount": 5}, idempotent=False, timeout="1s", **more)
    if verify:
        step["verify"] = {
            "steps": [tool("look_up", args={"key": "{{call.key}}", "amount": "{{call.arguments.amount}}"})],
            "took_effect": "step.look_up.found",
            "output": {"reference": "{{step.look_up.reference}}"},
        }
    return [step, tool("use", args={"r": "{{step.charge.reference ?? 'none'}}"})]


async def crashed(tools, store, steps):
    """A process that dies in the middle of the charge: its engine is left, and another one takes the run over."""
    async with engine_with(tools, store) as engine:
        handle = await engine.start(workflow(steps), {})
        while not tools.called("charge"):
            await asyncio.sleep(0.005)
        task = engine._worker.task(handle.run_id)
        pass_ = engine._worker._passes[handle.run_id]
        pass_.runtime.fail(RuntimeError("the process dies here"))
        await asyncio.wait([task])
        store._uptime.ahead += 60.0
        return handle.run_id


@pytest.mark.parametrize("made", [False, True])
async def test_verify_settles_what_a_crash_left_in_doubt(made):
    bank, store = Bank(), MemoryRunStore(uptime=Uptime())
    tools = ScriptedTools({"look_up": [bank.look_up]}, delays={"charge": 0.3}, once=frozenset({"charge"}))
    run_id = await crashed(tools, store, charging())
    if made:
        bank.charges.append({"key": tools.calls[0].key})
    tools.delays = {}
    tools.answers = dict(tools.answers) | {"charge": [{"reference": "second"}]}
    async with engine_with(tools, store) as engine:
        done = await (await engine.resume(run_id)).wait()
        assert done.status == "completed"
        told = {step["path"]: step for step in (await engine.tree(run_id)).as_json()["steps"]}
    assert tools.called("look_up") == [{"key": tools.calls[0].key, "amount": 5}]
    assert len(tools.called("charge")) == (1 if made else 2)
    assert tools.called("use") == [{"r": "R1" if made else "second"}]
    assert told["/charge"].get("completed_by") == ("verify" if made else None)
    assert told["/charge"]["attempts"] == (1 if made else 2)
    assert told["/charge/~verify/look_up"]["status"] == "completed"
    assert len({call.key for call in tools.calls if call.tool == "charge"}) == 1


async def test_without_verify_a_person_settles_it_whatever_on_error_says():
    store = MemoryRunStore(uptime=Uptime())
    tools = ScriptedTools(delays={"charge": 0.3}, once=frozenset({"charge"}))
    steps = charging(verify=False, on_error={"strategy": "fallback", "steps": [tool("other_bank")]})
    run_id = await crashed(tools, store, steps)
    async with engine_with(tools, store) as engine:
        parked = await (await engine.resume(run_id)).wait()
        assert parked.status == "suspended"
        (wait,) = await engine.incidents.open()
        assert wait.request["error"]["kind"] == "in_doubt"
        assert (len(tools.called("charge")), tools.called("other_bank")) == (1, [])
        await engine.incidents.settle(wait.id, Action("provide", output={"reference": "by hand"}))
        done = await (await engine.resume(run_id)).wait()
        assert done.status == "completed"
        assert tools.called("use") == [{"r": "by hand"}]


@pytest.mark.parametrize(("found", "attempts", "status"), [(True, 1, "completed"), (False, 2, "completed")])
async def test_a_timeout_in_flight_is_in_doubt_and_verified(found, attempts, status):
    tools = ScriptedTools(
        {
            "/charge": [broken("timeout"), {"reference": "late"}],
            "look_up": [{"found": found, "reference": "looked up"}],
        },
        once=frozenset({"charge"}),
    )
    steps = charging(retry={"max_attempts": 2})
    steps[0]["retry"] = {"max_attempts": 2, "initial_delay": "1ms"}
    async with engine_with(tools) as engine:
        done = await (await engine.start(workflow(steps), {})).wait()
        assert done.status == status
        assert len(tools.called("charge")) == attempts
        assert tools.called("use") == [{"r": "looked up" if found else "late"}]


async def test_a_call_that_surely_was_not_made_and_has_no_attempts_left_fails_plainly():
    tools = ScriptedTools(
        {"charge": [broken("timeout")], "look_up": [{"found": False, "reference": None}]}, once=frozenset({"charge"})
    )
    async with engine_with(tools) as engine:
        done = await (await engine.start(workflow(charging()), {})).wait()
        assert (done.status, done.error["kind"]) == ("failed", "timeout")
        assert len(tools.called("charge")) == 1


async def test_what_surely_was_not_made_is_for_the_rules_of_the_step():
    tools = ScriptedTools(
        {"charge": [broken("timeout")], "look_up": [{"found": False, "reference": None}]}, once=frozenset({"charge"})
    )
    rules = [{"errors": ["timeout"], "strategy": "fallback", "steps": [tool("other_bank")]}]
    tools.answers = dict(tools.answers) | {"other_bank": [{"reference": "other"}]}
    async with engine_with(tools) as engine:
        done = await (await engine.start(workflow(charging(on_error=rules)), {})).wait()
        assert done.status == "completed"
        assert tools.called("use") == [{"r": "other"}]
        assert len(tools.called("charge")) == 1


async def test_a_look_up_that_fails_leaves_it_to_a_person_with_both_errors():
    tools = ScriptedTools(
        {"charge": [broken("timeout")], "look_up": [StepFailed("not_found", "no bank")]}, once=frozenset({"charge"})
    )
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(charging()), {})
        assert (await handle.wait()).status == "suspended"
        (wait,) = await engine.incidents.open()
        assert (wait.request["error"]["kind"], wait.request["verify"]["kind"]) == ("in_doubt", "not_found")
        tools.answers = dict(tools.answers) | {"/charge": [broken(), {"reference": "again"}]}
        await engine.incidents.settle(wait.id, Action("retry"))
        done = await (await engine.resume(handle.run_id)).wait()
        assert done.status == "completed"
        assert tools.called("use") == [{"r": "again"}]


async def test_a_rule_that_names_in_doubt_is_followed():
    tools = ScriptedTools({"charge": [broken("timeout")]}, once=frozenset({"charge"}))
    rule = {"errors": ["in_doubt"], "strategy": "continue", "default": {"reference": "unknown"}}
    async with engine_with(tools) as engine:
        done = await (await engine.start(workflow(charging(verify=False, on_error=rule)), {})).wait()
        assert done.status == "completed"
        assert tools.called("use") == [{"r": "unknown"}]


async def test_only_the_call_itself_is_in_doubt_and_nothing_around_it():
    tools = ScriptedTools({"charge": [broken("timeout")]}, once=frozenset({"charge"}))
    steps = [{"id": "p", "type": "parallel", "branches": {"a": charging(verify=False)[:1]}}]
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(steps), {})
        assert (await handle.wait()).status == "suspended"
        (wait,) = await engine.incidents.open()
        assert wait.path == "/p/a/charge/!1"
        await engine.incidents.settle(wait.id, Action("fail"))
        done = await (await engine.resume(handle.run_id)).wait()
        assert (done.status, done.error["kind"]) == ("failed", "in_doubt")


FALLBACK = {"errors": ["in_doubt"], "strategy": "fallback", "steps": [tool("other_bank")]}
RULES = [
    {"errors": ["in_doubt", "timeout"], "strategy": "suspend"},
    {"errors": ["in_doubt"], "strategy": "continue", "default": {"reference": "unknown"}},
    FALLBACK,
    {"errors": ["in_doubt"], "strategy": "fail"},
]


@pytest.mark.parametrize("rule", RULES)
async def test_verify_comes_before_a_rule_that_names_in_doubt(rule):
    tools = ScriptedTools(
        {"charge": [broken("timeout")], "look_up": [{"found": True, "reference": "looked up"}]},
        once=frozenset({"charge"}),
    )
    async with engine_with(tools) as engine:
        done = await (await engine.start(workflow(charging(on_error=rule)), {})).wait()
        assert done.status == "completed"
        assert tools.called("use") == [{"r": "looked up"}]
        assert tools.called("other_bank") == []


@pytest.mark.parametrize(("rule", "used"), [(RULES[1], "unknown"), (FALLBACK, "other")])
async def test_a_look_up_that_fails_leaves_it_to_a_rule_that_names_in_doubt(rule, used):
    answers = {"charge": [broken("timeout")], "look_up": [StepFailed("not_found", "no bank")]}
    tools = ScriptedTools(answers | {"other_bank": [{"reference": "other"}]}, once=frozenset({"charge"}))
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(charging(on_error=rule)), {})
        assert (await handle.wait()).status == "completed"
        assert tools.called("use") == [{"r": used}]
        assert len(tools.called("look_up")) == len(tools.called("charge")) == 1
        told = {step["path"]: step for step in (await engine.tree(handle.run_id)).as_json()["steps"]}
        assert told["/charge"]["error"]["detail"]["verify"]["kind"] == "not_found"


async def test_a_look_up_that_fails_and_a_rule_that_suspends_ask_with_both_errors():
    answers = {"charge": [broken("timeout")], "look_up": [StepFailed("not_found", "no bank")]}
    tools = ScriptedTools(answers, once=frozenset({"charge"}))
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(charging(on_error=RULES[0])), {})
        assert (await handle.wait()).status == "suspended"
        (wait,) = await engine.incidents.open()
        assert (wait.request["error"]["kind"], wait.request["verify"]["kind"]) == ("in_doubt", "not_found")


RETRIED = {"max_attempts": 2, "initial_delay": "1ms", "jitter": "none"}


async def test_a_container_that_is_tried_again_makes_no_call_again_that_is_in_doubt():
    tools = ScriptedTools(
        {"/p/a/charge": [broken("timeout")], "/p/b/bad": [broken()]}, delays={"bad": 0.1}, once=frozenset({"charge"})
    )
    branches = {"a": [tool("charge", idempotent=False)], "b": [tool("bad")]}
    async with engine_with(tools) as engine:
        steps = [{"id": "p", "type": "parallel", "retry": RETRIED, "branches": branches}, tool("after")]
        handle = await engine.start(workflow(steps), {})
        assert (await handle.wait()).status == "suspended"
        assert len(tools.called("charge")) == 1
        (wait,) = await engine.incidents.open()
        assert (wait.path, wait.request["error"]["kind"]) == ("/p#2/a/charge/!1", "in_doubt")
        await engine.incidents.settle(wait.id, Action("provide", output="looked up"))
        done = await (await engine.resume(handle.run_id)).wait()
        assert (done.status, len(tools.called("charge"))) == ("completed", 1)


async def test_a_block_that_goes_back_makes_no_call_again_that_is_in_doubt():
    tools = ScriptedTools(
        {"/charge": [broken("timeout")], "/check": [broken("refused")]},
        delays={"/check": 0.1},
        once=frozenset({"charge"}),
    )
    steps = [
        tool("d", depends_on=[]),
        tool("charge", depends_on=["d"], idempotent=False),
        tool("check", depends_on=["d"], on_error={"goto": "d", "max_rounds": 1}),
    ]
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(steps), {})
        assert (await handle.wait()).status == "suspended"
        assert len(tools.called("charge")) == 1
        (wait,) = await engine.incidents.open()
        assert (wait.path, wait.request["error"]["kind"]) == ("/charge#2/!1", "in_doubt")


async def test_a_cancel_in_flight_tells_what_is_in_doubt():
    tools = ScriptedTools(delays={"charge": 30.0}, once=frozenset({"charge"}))
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow(charging()), {})
        while not tools.called("charge"):
            await asyncio.sleep(0.005)
        done = await engine.cancel(handle.run_id)
        assert done.status == "cancelled"
        (entry,) = [one for one in await engine.history(done.id) if one.path == "/charge"]
        assert b"in_doubt" in entry.body


@pytest.mark.parametrize("verify", [False, True])
async def test_a_container_that_is_retried_does_not_repeat_a_call_that_was_left_in_doubt(verify):
    tools = ScriptedTools(
        {"/l/0/charge": [broken("timeout")], "/l/1/ship": [broken()], "look_up": [broken("not_found")]},
        delays={"/l/1/ship": 0.1},
        once=frozenset({"charge"}),
    )
    steps = [charging(verify=verify)[0], tool("ship", args={"r": "{{step.charge.reference}}"})]
    loop = {"id": "l", "type": "loop", "over": [0, 1], "concurrency": 2, "on_error": "suspend", "steps": steps}
    tools.answers = dict(tools.answers) | {"/l/1/charge": [{"reference": "R1"}]}
    async with engine_with(tools) as engine:
        run = await (await engine.start(workflow([loop]), {})).wait()
        (wait,) = await engine.incidents.open()
        assert (wait.path, wait.request["error"]["kind"]) == ("/l/!1", "server_error")
        tools.answers = {"look_up": [{"found": True, "reference": "R0"}]}
        await engine.incidents.settle(wait.id, Action("retry"))
        done = await (await engine.resume(run.id)).wait()
        if not verify:
            assert done.status == "suspended"
            (wait,) = await engine.incidents.open()
            assert (wait.path, wait.request["error"]["kind"]) == ("/l#2/0/charge/!1", "in_doubt")
            await engine.incidents.settle(wait.id, Action("provide", output={"reference": "R0"}))
            done = await (await engine.resume(run.id)).wait()
        assert done.status == "completed"
        assert [call.path for call in tools.calls if call.tool == "charge"] == ["/l/0/charge", "/l/1/charge"]
        assert {"r": "R0"} in tools.called("ship")
        if verify:
            assert {one["key"] for one in tools.called("look_up")} == {f"{run.id}/l/0/charge"}


async def test_a_call_with_large_arguments_is_retried_with_others():
    tools = ScriptedTools({"send": [broken()]})
    async with engine_with(tools) as engine:
        step = tool("send", args={"text": "x" * 100_000}, on_error="suspend")
        run = await (await engine.start(workflow([step]), {})).wait()
        (wait,) = await engine.incidents.open()
        await engine.incidents.settle(wait.id, Action("retry", edits={"text": "short"}))
        await (await engine.resume(run.id)).wait()
        assert tools.called("send")[-1] == {"text": "short"}
