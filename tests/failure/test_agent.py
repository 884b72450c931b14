"""Agent steps: each turn of the model and each call of a tool is journalled, and none is made twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import yaml

from stepwell.engine.incidents import Action
from stepwell.engine.model_performer import ModelPerformer
from stepwell.engine.reruns import Wish
from stepwell.errors import InputError, StepFailed
from stepwell.ports import ModelReply, ToolRequest
from stepwell.stores.memory import MemoryRunStore
from stepwell.testing import every_crash, run_to_end
from stepwell.testing.recorded import as_test
from stepwell.testing.scripted import ScriptedTools
from tests.engine_world import engine_with, workflow
from tests.failure.test_doubt import Uptime
from tests.failure.test_strategies import ONCE, QUICK, broken


class Model:
    """Says what it is told to, one reply a request, and remembers what it was asked."""

    def __init__(self, *says):
        self.says = list(says)
        self.asked = []

    async def complete(self, request):
        self.asked.append(request)
        said = self.says[min(len(self.asked), len(self.says)) - 1]
        if isinstance(said, StepFailed):
            raise StepFailed(said.kind, said.message)
        return said


def asks(*calls, text="", tokens=10):
    wanted = [ToolRequest(f"c{index}", name, arguments) for index, (name, arguments) in enumerate(calls)]
    return ModelReply(text, "m", "tool_calls", input_tokens=tokens, output_tokens=1, calls=wanted)


def says(text, tokens=10):
    return ModelReply(text, "m", input_tokens=tokens, output_tokens=2)


def agent(**more):
    step = {"id": "answer", "type": "llm_call", "prompt": "Where is {{workflow_input.order ?? 'it'}}?"}
    return step | {"tools": ["look_up", "charge"], "retry": dict(ONCE)} | more


def engine_of(model, tools, store=None):
    return engine_with(tools, store, models=ModelPerformer({"m": model}, "m"))


async def run(model, tools, steps, value=None, **parts):
    async with engine_of(model, tools) as engine:
        handle = await engine.start(workflow(steps, **parts), value or {"order": "O-1"})
        done = await handle.wait()
        return done, (await engine.tree(done.id)).as_json()["steps"]


async def test_a_model_uses_tools_until_it_answers_and_is_told_what_came_of_each_call():
    model = Model(
        asks(("look_up", {"id": "O-1"}), ("look_up", {"id": "O-2"}), text="I look"),
        asks(("charge", {"cents": 5})),
        says("in Vienna"),
    )
    tools = ScriptedTools({"/answer/$t1.0": [{"at": "Linz"}], "look_up": [{"at": "Vienna"}], "charge": [{"ok": True}]})
    done, (step,) = await run(model, tools, [agent()])
    assert done.output == {"text": "in Vienna"}
    assert tools.called("look_up") == [{"id": "O-1"}, {"id": "O-2"}]
    assert [offer.name for offer in model.asked[0].tools] == ["look_up", "charge"]
    first, second = model.asked[2].turns
    assert (first.text, [call.arguments for call in first.calls]) == ("I look", [{"id": "O-1"}, {"id": "O-2"}])
    assert [answer.value for answer in first.answers] == [{"at": "Linz"}, {"at": "Vienna"}]
    assert [answer.value for answer in second.answers] == [{"ok": True}]
    assert [(turn["status"], [call["output"] for call in turn["calls"]]) for turn in step["turns"]] == [
        ("completed", [{"at": "Linz"}, {"at": "Vienna"}]), ("completed", [{"ok": True}]), ("completed", []),
    ]  # fmt: skip
    assert done.usage["input_tokens"] == 30
    assert len({call.key for call in tools.calls}) == 3, "each call has an idempotency key of its own"


async def test_what_a_tool_refuses_is_told_to_the_model_and_fails_nothing():
    model = Model(
        asks(("look_up", {"id": 1}), ("launch", {}), ("charge", "{not json")), says("sorry"),
    )  # fmt: skip
    tools = ScriptedTools({"look_up": [broken("not_found", "no order 1")]})
    done, (step,) = await run(model, tools, [agent()])
    assert done.status == "completed"
    told = model.asked[1].turns[0].answers
    assert [(one.failed, one.value) for one in told] == [
        (True, "not_found: no order 1"),
        (True, "not_found: there is no tool 'launch'; there are look_up, charge"),
        (True, "validation_error: the arguments are not a JSON object"),
    ]
    assert [call["status"] for call in step["turns"][0]["calls"]] == ["failed"] * 3


async def test_turns_and_calls_are_retried_by_the_step_s_own_policy():
    model = Model(broken("overloaded"), asks(("look_up", {})), broken("rate_limit"), says("done"))
    tools = ScriptedTools({"look_up": [broken(), broken(), {"at": "Linz"}]})
    done, (step,) = await run(model, tools, [agent(retry=QUICK)])
    assert done.status == "completed"
    assert [turn["attempts"] for turn in step["turns"]] == [2, 2]
    assert step["turns"][0]["calls"][0]["attempts"] == 3
    assert len({call.key for call in tools.calls}) == 1


async def test_an_answer_under_a_schema_is_parsed_and_put_right_once():
    schema = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
    model = Model(asks(("look_up", {})), says("it is Linz"), says('{"city": "Linz"}'))
    done, _ = await run(model, ScriptedTools({"look_up": [{"at": "Linz"}]}), [agent(output_schema=schema)])
    assert done.output == {"city": "Linz"}
    assert len(model.asked) == 3


async def test_a_model_that_never_answers_is_stopped_and_a_redrive_asks_for_its_last_turn_again():
    model = Model(asks(("look_up", {})))
    tools = ScriptedTools({"look_up": [{}]})
    async with engine_of(model, tools) as engine:
        done = await (await engine.start(workflow([agent(max_turns=3)]), {})).wait()
        assert done.error["kind"] == "max_turns_reached"
        assert "look_up" in done.error["message"]
        assert len(tools.calls) == 2, "the calls of the last turn would be read by nobody"
        (step,) = (await engine.tree(done.id)).as_json()["steps"]
        assert [turn["calls"][0]["status"] for turn in step["turns"]] == ["completed", "completed", "not_made"]
        model.says = [says("in Linz")]
        plan = await engine.reruns.plan(done.id, Wish())
        assert plan.executes == ({"path": "/answer", "because": "goes on at turn 3", "type": "llm_call"},)
        run = await engine.reruns.carry_out(plan, plan.hash)
        done = await (await engine.resume(run.id)).wait()
        assert done.output == {"text": "in Linz"}
        assert len(tools.calls) == 2
        assert len(model.asked) == 4


async def test_a_redrive_goes_on_at_the_turn_that_failed_and_a_rerun_begins_anew():
    model = Model(asks(("charge", {"cents": 5})), broken("auth_error"))
    tools = ScriptedTools({"charge": [{"ok": True}]})
    async with engine_of(model, tools) as engine:
        done = await (await engine.start(workflow([agent()]), {})).wait()
        assert done.error["kind"] == "auth_error"
        assert done.error["message"].startswith("turn 2: ")
        model.says = [says("paid")]
        plan = await engine.reruns.plan(done.id, Wish())
        run = await engine.reruns.carry_out(plan, plan.hash)
        done = await (await engine.resume(run.id)).wait()
        assert (done.status, len(tools.calls)) == ("completed", 1)
        model.says, model.asked = [asks(("charge", {"cents": 5})), says("paid again")], []
        plan = await engine.reruns.plan(done.id, Wish("/answer"))
        run = await engine.reruns.carry_out(plan, plan.hash)
        done = await (await engine.resume(run.id)).wait()
        assert done.output == {"text": "paid again"}
        assert len({call.key for call in tools.calls}) == 2


@pytest.mark.parametrize("says_what", ["retry", "provide"])
async def test_a_turn_that_fails_under_suspend_is_an_incident_of_the_step(says_what):
    model = Model(asks(("charge", {"cents": 5})), broken("auth_error", "bad key"), says("paid"))
    tools = ScriptedTools({"charge": [{"ok": True}]})
    async with engine_of(model, tools) as engine:
        handle = await engine.start(workflow([agent(on_error="suspend")]), {})
        assert (await handle.wait()).status == "suspended"
        (incident,) = await engine.incidents.open()
        assert incident.request["arguments"]["prompt"] == "Where is it?"
        action = Action(says_what, output={"text": "by hand"} if says_what == "provide" else None)
        await engine.incidents.settle(incident.id, action)
        done = await (await engine.resume(handle.run_id)).wait()
        assert done.output == {"text": "paid" if says_what == "retry" else "by hand"}
        assert len(tools.calls) == 1


async def test_a_call_that_may_not_be_repeated_is_in_doubt_after_a_crash_and_is_asked_about():
    model = Model(asks(("look_up", {"id": 7}), ("charge", {"cents": 5})), says("paid"))
    tools = ScriptedTools(
        {"look_up": [{}], "charge": [{"ok": True}]}, delays={"charge": 30}, once=frozenset({"charge"})
    )
    uptime = Uptime()
    store = MemoryRunStore(uptime=uptime)
    async with engine_of(model, tools, store) as engine:
        handle = await engine.start(workflow([agent(timeout="60s")]), {})
        while not tools.called("charge") or not tools.called("look_up"):
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        task = engine._worker.task(handle.run_id)
        engine._worker._passes[handle.run_id].runtime.fail(RuntimeError("the process dies here"))
        await asyncio.wait([task])
        uptime.ahead += 60.0
    tools.delays = {}
    async with engine_of(model, tools, store) as engine:
        assert (await (await engine.resume(handle.run_id)).wait()).status == "suspended"
        assert len(tools.called("charge")) == 1
        (incident,) = await engine.incidents.open()
        error = incident.request["error"]
        assert (error["kind"], error["path"]) == ("in_doubt", "/answer/$t1.1")
        assert error["detail"]["arguments"] == {"cents": 5}
        with pytest.raises(InputError):
            await engine.incidents.settle(incident.id, Action("retry", edits={"nothing": 1}))
        await engine.incidents.settle(incident.id, Action("retry"))
        done = await (await engine.resume(handle.run_id)).wait()
        assert done.output == {"text": "paid"}
        assert len(tools.called("charge")) == 2, "a person said so"
        assert len(tools.called("look_up")) == 1
        assert len(model.asked) == 2


async def test_a_container_tried_again_goes_on_with_the_turns_that_were_taken():
    model = Model(asks(("charge", {"cents": 5})), broken("server_error"), says("paid"))
    tools = ScriptedTools({"charge": [{"ok": True}]})
    steps = [{"id": "all", "type": "parallel", "branches": {"a": [agent(on_error="suspend")]}, "on_error": "suspend"}]
    async with engine_of(model, tools) as engine:
        handle = await engine.start(workflow(steps), {})
        await handle.wait()
        (incident,) = await engine.incidents.open()
        await engine.incidents.settle(incident.id, Action("fail"))
        await (await engine.resume(handle.run_id)).wait()
        (incident,) = await engine.incidents.open()
        assert incident.request["step"] == "all"
        await engine.incidents.settle(incident.id, Action("retry"))
        done = await (await engine.resume(handle.run_id)).wait()
        assert done.status == "completed"
        assert len(tools.calls) == 1


SCRIPTS = {
    "answer": [
        {"output": {"text": "let me see", "calls": [{"tool": "look_up", "arguments": {"id": 1}}, {"tool": "charge"}]}},
        {"output": {"calls": [{"tool": "charge", "arguments": {"cents": 2}}]}},
        {"error": {"kind": "overloaded", "message": "later"}},
        {"output": "it is in Linz"},
    ],
    "look_up": {"output": {"at": "Linz"}},
    "charge": {"output": {"n": 0}},
    "answer.charge": [{"output": {"n": 1}}, {"output": {"n": 2}}],
}


def test_a_crash_after_any_write_repeats_no_turn_and_no_call():
    loop = {
        "id": "each", "type": "loop", "over": [1, 2], "concurrency": 2, "steps": [agent(retry=QUICK)],
    }  # fmt: skip
    results = every_crash(workflow([agent(id="first", retry=QUICK), loop]), {}, SCRIPTS | {"first": SCRIPTS["answer"]})
    assert len(results) > 20
    assert all(result.output == [{"text": "it is in Linz"}] * 2 for result in results)


def test_a_script_answers_turn_by_turn_and_by_tool():
    result = run_to_end(workflow([agent(retry=QUICK)]), {}, SCRIPTS)
    calls = [(call.path, call.tool) for call in result.calls if call.tool]
    assert sorted(calls) == [
        ("/answer/$t1.0", "look_up"), ("/answer/$t1.1", "charge"), ("/answer/$t2.0", "charge"),
    ]  # fmt: skip


async def test_a_run_saved_as_a_test_answers_turn_by_turn_as_it_went(tmp_path):
    model = Model(asks(("look_up", {"id": 1}), ("charge", {}), text="I look"), broken("overloaded"), says("in Linz"))
    tools = ScriptedTools({"look_up": [broken("not_found"), {"at": "Linz"}], "charge": [broken(), {"n": 1}]})
    async with engine_of(model, tools) as engine:
        done = await (await engine.start(workflow([agent(retry=QUICK)]), {})).wait()
        saved = yaml.safe_load(await as_test(engine, done.id, tmp_path / "test.yaml"))
    (test,) = saved["tests"]
    assert test["mock"]["answer"][1]["error"]["kind"] == "overloaded"
    result = await asyncio.to_thread(run_to_end, workflow([agent(retry=QUICK)]), {}, test["mock"])
    assert result.output == done.output
    assert [call.arguments for call in result.calls if call.tool == "look_up"] == [{"id": 1}]
    assert len(result.calls) == 6


async def test_tools_whose_names_no_provider_takes_are_called_by_others_towards_the_model():
    names = ["shop.look up", "shop/look up", "x" * 80]
    model = Model(asks(("shop_look_up_2", {}), ("x" * 64, {})), says("ok"))
    tools = ScriptedTools({})
    done, _ = await run(model, tools, [agent(tools=names)])
    assert done.status == "completed"
    assert [offer.name for offer in model.asked[0].tools] == ["shop_look_up", "shop_look_up_2", "x" * 64]
    assert [call.tool for call in tools.calls] == names[1:]
    assert [call.name for call in model.asked[1].turns[0].calls] == ["shop_look_up_2", "x" * 64]


async def test_a_long_result_is_cut_for_the_model_and_kept_whole_in_the_journal():
    model = Model(asks(("look_up", {})), says("long"))
    _, (step,) = await run(model, ScriptedTools({"look_up": [{"text": "x" * 200_000}]}), [agent()])
    (answer,) = model.asked[1].turns[0].answers
    assert len(answer.value) < 51_000
    assert "[cut: the result has 200011 characters]" in answer.value
    assert len(step["turns"][0]["calls"][0]["output"]["text"]) == 200_000


class NoTools(ScriptedTools):
    def get(self, name):
        return None


def test_tools_that_are_not_registered_are_told_before_the_run():
    async def start():
        tools = NoTools()
        async with engine_of(Model(says("x")), tools) as engine:
            await engine.start(workflow([agent()]), {})

    with pytest.raises(InputError, match="no tool 'look_up' is registered"):
        asyncio.run(start())


async def test_retrying_an_incident_of_too_many_turns_gives_it_as_many_again():
    model = Model(
        asks(("look_up", {"n": 1})), asks(("look_up", {"n": 2})), asks(("look_up", {"n": 3})), says("in Linz")
    )
    tools = ScriptedTools({"look_up": [{}]})
    async with engine_of(model, tools) as engine:
        handle = await engine.start(workflow([agent(max_turns=2, on_error="suspend")]), {})
        assert (await handle.wait()).status == "suspended"
        assert (tools.called("look_up"), len(model.asked)) == ([{"n": 1}], 2)
        (incident,) = await engine.incidents.open()
        await engine.incidents.settle(incident.id, Action("retry"))
        done = await (await engine.resume(handle.run_id)).wait()
        assert (done.status, done.output) == ("completed", {"text": "in Linz"})
        assert tools.called("look_up") == [{"n": 1}, {"n": 2}, {"n": 3}]
        assert len(model.asked) == 4


async def test_a_turn_whose_calls_are_not_to_be_made_is_asked_for_again():
    many = asks(*[("charge", {"cents": number}) for number in range(51)])
    cut = replace(asks(("charge", {"cents": 5})), finish_reason="length")
    model = Model(many, cut, many, says("done"))
    tools = ScriptedTools({"charge": [{"ok": True}]})
    async with engine_of(model, tools) as engine:
        handle = await engine.start(workflow([agent(retry=QUICK | {"max_attempts": 3}, on_error="suspend")]), {})
        assert (await handle.wait()).status == "suspended"
        (incident,) = await engine.incidents.open()
        assert "51 calls at once" in incident.request["error"]["message"]
        await engine.incidents.settle(incident.id, Action("retry"))
        done = await (await engine.resume(handle.run_id)).wait()
        assert (done.output, tools.calls) == ({"text": "done"}, [])
        attempts = (await engine.tree(done.id)).as_json()["steps"][0]["turns"][0]["attempt_log"]
        assert [one["error"]["kind"] for one in attempts[:3]] == [
            "output_invalid",
            "truncated_output",
            "output_invalid",
        ]


async def test_ids_that_a_model_uses_twice_are_told_apart_towards_providers():
    twice = [
        ToolRequest("c", "look_up", {"n": 1}),
        ToolRequest("c", "look_up", {"n": 2}),
        ToolRequest("", "look_up", {}),
    ]
    model = Model(
        ModelReply("", "m", "tool_calls", calls=twice), ModelReply("", "m", "tool_calls", calls=twice), says("x")
    )
    await run(model, ScriptedTools({"look_up": [{"a": 1}, {"a": 2}, {"a": 3}]}), [agent()])
    first, second = model.asked[2].turns
    ids = [call.id for turn in (first, second) for call in turn.calls]
    assert ids == ["c", "c_2", "call", "c_3", "c_4", "call_2"]
    assert [answer.id for turn in (first, second) for answer in turn.answers] == ids


async def test_an_answer_after_calls_is_put_right_with_the_tools_at_hand():
    schema = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}

    def strict(request):
        """As Anthropic is: a history of calls needs the tools."""
        if request.turns and not request.tools:
            raise StepFailed("invalid_request", "requests which include tool_use blocks must define tools")
        if not request.turns:
            return asks(("look_up", {}))
        return says('{"city": "Linz"}' if "cannot be used" in request.prompt else "it is Linz")

    class Strict(Model):
        async def complete(self, request):
            return strict(request)

    done, _ = await run(Strict(), ScriptedTools({"look_up": [{"at": "Linz"}]}), [agent(output_schema=schema)])
    assert done.output == {"city": "Linz"}
