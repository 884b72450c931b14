"""Plans: what is wanted, what follows without a deed, and what one planner must know of another."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.laws.worlds import plan_of

from stepwell.interpreter.plan import Known
from stepwell.interpreter.planning import frontier
from stepwell.interpreter.runtime import Attempt

Json = Any


def tool(step: str, **parts: Json) -> Json:
    return {"id": step, "type": "tool_call", "tool": "t", **parts}


def known(*steps: Json, **parts: Json) -> Known:
    children = parts.pop("children", {})
    pinned = plan_of({"steps": list(steps), "parts": parts, "children": children})
    return Known("r1", pinned.main, {}, {}, (), 1000.0, workflows=pinned.children.plans)


def answer(value: Json = None, number: int = 1) -> Attempt:
    attempt = Attempt(number, 1000.0)
    attempt.value = value
    return attempt


GATE = {"id": "g", "type": "approval", "title": "go?"}
BRANCHES = {"id": "p", "type": "parallel", "branches": {"a": [tool("t1"), tool("t2")], "b": [GATE]}}


async def test_a_plan_names_every_effect_and_wait_that_could_be_taken_up_now() -> None:
    plan = await frontier(known(BRANCHES))
    assert plan.outcome is None
    assert [(one.path, one.number, one.effect.word) for one in plan.effects] == [("/p/a/t1", 1, "tool")]
    assert [(one.path, one.kind, one.request["title"]) for one in plan.waits] == [("/p/b/g", "approval", "go?")]
    assert [entry.path for entry in plan.entries] == ["/p/~start"]


async def test_what_follows_from_an_answer_is_an_entry_of_the_next_plan() -> None:
    first = known(BRANCHES)
    plan = await frontier(first)
    second = replace(first, entries=plan.entries, answers={("/p/a/t1", 1): answer("one")})
    plan = await frontier(second)
    assert [(entry.path, entry.kind, entry.order) for entry in plan.entries] == [("/p/a/t1", "succeeded", 2)]
    assert [one.path for one in plan.effects] == ["/p/a/t2"]


async def test_a_run_whose_steps_only_compute_is_planned_to_its_end() -> None:
    plan = await frontier(known({"id": "s", "type": "set", "values": {"n": 1}}))
    assert plan.outcome is not None
    assert (plan.outcome.status, plan.outcome.output) == ("completed", {"n": 1})
    assert (plan.effects, plan.waits) == ((), ())


async def test_a_call_that_may_not_be_repeated_comes_with_its_intent_and_is_in_doubt_without_an_answer() -> None:
    asked = known(tool("t", idempotent=False))
    wanted = (await frontier(asked)).effects[0]
    assert wanted.intent is not None
    assert wanted.intent.path == "/t/@1/~start"
    entries = (replace(wanted.intent, order=1),)
    lost = await frontier(replace(asked, entries=entries))
    assert lost.outcome is None
    assert [(one.path, one.kind, one.request["error"]["kind"]) for one in lost.waits] == [
        ("/t/!1", "incident", "in_doubt")
    ]
    done = await frontier(replace(asked, entries=entries, answers={("/t", 1): answer("charged")}))
    assert done.outcome is not None
    assert done.outcome.output == "charged"


@pytest.mark.parametrize(("delay", "kind"), [("10s", "sleep"), ("2h", "timer")])
async def test_a_time_is_slept_through_when_it_is_near_and_a_wait_when_it_is_far(delay: str, kind: str) -> None:
    asked = known({"id": "w", "type": "wait", "for": delay})
    plan = await frontier(asked)
    assert [(one.path, one.kind) for one in plan.waits] == [("/w/~sleep", kind)]
    late = await frontier(replace(asked, entries=plan.entries, now=plan.waits[0].at))
    assert late.outcome is not None
    assert late.outcome.status == "completed"


async def test_an_event_satisfies_one_wait_and_only_one_that_takes_it() -> None:
    steps = [
        {"id": name, "type": "wait", "event": "paid", "match": "event.data.sum > 1", "depends_on": []}
        for name in ("w1", "w2")
    ]
    events = [{"id": str(number), "name": "paid", "data": {"sum": number}, "at": ""} for number in (1, 2)]
    plan = await frontier(replace(known(*steps), events=events))
    assert [entry.path for entry in plan.entries] == ["/w1/?", "/w1"]
    assert [(one.path, one.kind, one.request) for one in plan.waits] == [("/w2", "event", {"event": "paid"})]


async def test_a_sub_workflow_that_a_text_names_is_asked_for_by_its_name() -> None:
    child = {"child": {"steps": [tool("t")], "parts": {}}}
    asked = known({"id": "w", "type": "sub_workflow", "workflow": "{{workflow_input.which}}"}, children=child)
    asked = replace(asked, definition=replace(asked.definition, workflows={}), workflow_input={"which": "child"})
    plan = await frontier(asked)
    assert plan.names == ("child",)
    plan = await frontier(replace(asked, names={"child": "child"}))
    assert [one.path for one in plan.effects] == ["/w/t"]


async def test_branches_that_name_the_same_unknown_workflow_ask_for_it_together() -> None:
    step = {"type": "sub_workflow", "workflow": "child"}
    branches = {"a": [{"id": "w1", **step}], "b": [{"id": "w2", **step}]}
    asked = known(
        {"id": "p", "type": "parallel", "branches": branches}, children={"child": {"steps": [tool("t")], "parts": {}}}
    )
    asked = replace(asked, definition=replace(asked.definition, workflows={}))
    plan = await asyncio.wait_for(frontier(asked), 5)
    assert plan.names == ("child",)
    plan = await frontier(replace(asked, names={"child": "child"}))
    assert [one.path for one in plan.effects] == ["/p/a/w1/t", "/p/b/w2/t"]


async def test_a_journal_of_another_definition_makes_the_plan_stuck() -> None:
    asked = known(tool("t", arguments={"n": 1}))
    entries = (await frontier(replace(asked, answers={("/t", 1): answer()}))).entries
    plan = await frontier(replace(known(tool("t", arguments={"n": 2})), entries=entries))
    assert plan.outcome is not None
    assert plan.outcome.status == "stuck"
    assert plan.outcome.error is not None
    assert plan.outcome.error["path"] == "/t"
