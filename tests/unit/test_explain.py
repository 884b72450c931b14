"""Why a run stands where it stands."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.engine_world import engine_with, workflow

from stepwell.engine.engine import Engine
from stepwell.errors import StepFailed
from stepwell.journal.entry import Body, Entry
from stepwell.journal.explain import Explanation, explain
from stepwell.journal.view import build, instant
from stepwell.journal.wording import listed, waiting
from stepwell.ports import Run, Wait
from stepwell.testing.scripted import ScriptedTools

Json = Any
T = 1_700_000_000.0


def tool(id_: str, **more: Json) -> Json:
    return {"id": id_, "type": "tool_call", "tool": id_, **more}


async def explained(steps: Json, answers: Json | None = None, value: Json = None, **parts: Json) -> Explanation:
    """The explanation of a run of these steps, once it has ended or parked."""
    async with engine_with(ScriptedTools(answers or {})) as engine:
        handle = await engine.start(workflow(steps, **parts), value or {"n": 1})
        run = await handle.wait()
        return explain(await engine.tree(run.id))


def whys(told: Explanation) -> dict[str, str]:
    return {step.path: step.why for step in told.steps}


async def test_a_false_condition_is_told_with_its_values_and_what_died_with_it() -> None:
    told = await explained(
        [
            {"id": "a", "type": "set", "values": {"n": 1}},
            tool("b", depends_on=["a"], condition="step.a.n > 3"),
            tool("c", depends_on=["b"]),
            tool("d", depends_on=["a", "b"], join="all_completed"),
        ]
    )
    assert told.status == "completed"
    assert told.goes_on == ()
    assert whys(told) == {
        "/b": "Its condition `step.a.n > 3` was false: step.a.n is 1.",
        "/c": "It depends on b (skipped), which must have completed (join: any_completed).",
        "/d": "It depends on a (completed) and b (skipped), and all of them must have completed (join: all_completed).",
    }


async def test_a_branch_that_was_not_taken_is_told_with_the_one_that_was() -> None:
    told = await explained(
        [
            {
                "id": "choose",
                "type": "condition",
                "when": "workflow_input.n == 1",
                "then": [tool("x")],
                "else": [
                    {
                        "id": "inner",
                        "type": "condition",
                        "when": "workflow_input.n == 2",
                        "then": [tool("y")],
                        "else": [],
                    }
                ],
            }
        ]
    )
    assert whys(told)["/choose/inner"] == "choose took the branch 'then'."
    assert whys(told)["/choose/inner/y"].startswith("It lies in inner, which was skipped: choose took")


async def test_what_is_inside_a_skipped_container_says_so() -> None:
    told = await explained(
        [
            {
                "id": "c",
                "type": "condition",
                "condition": "workflow_input.n == 2",
                "when": "workflow_input.n == 1",
                "then": [tool("x")],
                "else": [],
            }
        ]
    )
    assert (
        whys(told)["/c/x"]
        == "It lies in c, which was skipped: its condition `workflow_input.n == 2` was false: workflow_input.n is 1."
    )


async def test_a_failure_is_told_with_its_attempts_and_what_it_kept_from_beginning() -> None:
    failing = [StepFailed("rate_limit", "slow down")]
    told = await explained([tool("a", retry={"max_attempts": 2, "initial_delay": "1ms"}), tool("b")], {"a": failing})
    assert told.status == "failed"
    assert told.why == "It failed at /a: rate_limit: slow down."
    assert whys(told) == {
        "/a": "It failed after 2 attempts: rate_limit: slow down.",
        "/b": "a failed before it was reached: rate_limit: slow down.",
    }


async def test_an_approval_says_for_whom_since_when_and_until_when_and_what_waits_behind_it() -> None:
    approvers = {"roles": ["boss"], "departments": ["care", "sales"]}
    told = await explained(
        [{"id": "ask", "type": "approval", "title": "Pay?", "approvers": approvers, "expires_in": "2d"}, tool("b")]
    )
    assert told.status == "pending_approval"
    ask, after = told.steps
    assert ask.why.startswith('It waits for a decision on "Pay?" by role boss or departments care or sales')
    assert "but not who started the run" in ask.why
    assert f"since {ask.facts['since'][:10]}" in ask.why
    assert f"until {ask.facts['until'][:10]}" in ask.why
    assert "counts as rejected" in ask.why
    assert told.goes_on == (("decide", ask.facts["wait"]),)
    assert (after.path, after.status, after.why) == ("/b", "not begun", "It comes after ask, which has not settled.")


async def test_what_comes_after_a_round_that_is_open_has_not_begun() -> None:
    async with engine_with(ScriptedTools()) as engine:
        steps = [
            {"id": "draft", "type": "set", "values": {}},
            {"id": "ask", "type": "approval", "on_changes": {"goto": "draft"}},
            tool("b"),
            tool("c"),
        ]
        handle = await engine.start(workflow(steps), {})
        await handle.wait()
        (wait,) = await engine.waits(run_id=handle.run_id)
        await engine.decide(wait.id, "changes_requested", comment="shorter")
        await (await engine.resume(handle.run_id)).wait()
        told = explain(await engine.tree(handle.run_id))
    assert [(one.path, one.status) for one in told.steps] == [
        ("/ask", "failed"),
        ("/ask#2", "pending_approval"),
        ("/b", "not begun"),
        ("/c", "not begun"),
    ]
    assert whys(told)["/b"] == "It comes after ask, which has not settled."


def test_a_step_whose_turn_has_come_is_told_although_nothing_of_it_is_recorded() -> None:
    import msgspec

    entries = [Entry("/a", "settled", msgspec.json.encode(Body(status="completed")), order=1, at=T)]
    steps = workflow([tool("a"), tool("b"), tool("c")]).workflow
    assert whys(explain(build(row("running"), steps, entries, []))) == {
        "/b": "Its turn has come; nothing of it is recorded yet.",
        "/c": "It comes after b, which has not settled.",
    }


async def test_a_container_says_what_inside_it_is_waited_for() -> None:
    told = await explained(
        [
            {"id": "each", "type": "loop", "over": [1, 2], "concurrency": 2,
             "steps": [{"id": "nap", "type": "wait", "for": "2h"}, tool("x")]},
            tool("after", depends_on=["each"]),
        ]
    )  # fmt: skip
    found = whys(told)
    assert told.status == "waiting"
    assert told.goes_on[-1][0] == "wait"
    assert found["/each"] == "It waits for what is inside it (2 items): 0/nap and 1/nap."
    assert found["/each/1/nap"].startswith("It waits for a time since ")
    assert ", until " in found["/each/1/nap"]
    assert found["/each/0/x"] == "It comes after nap, which has not settled."
    assert found["/after"] == "It depends on each, which has not settled."


async def test_a_lost_race_and_a_withdrawn_wait_are_told_apart() -> None:
    race = {
        "id": "race", "type": "parallel", "mode": "first_success",
        "branches": {"quick": [tool("q")], "slow": [{"id": "nap", "type": "wait", "for": "2h"}]},
    }  # fmt: skip
    told = await explained([race])
    assert told.status == "completed"
    assert whys(told)["/race/slow/nap"] == "It was cut off: the race in race was decided without its branch."
    late = [tool("bad")], {"bad": [StepFailed("tool_error", "no")]}
    fan = {
        "id": "fan",
        "type": "parallel",
        "branches": {"a": late[0], "b": [{"id": "nap", "type": "wait", "for": "2h"}]},
    }
    told = await explained([fan], late[1])
    assert told.status == "failed"
    assert whys(told)["/fan/b/nap"] == "It was given up, since fan could only fail: tool_error: no."


async def test_a_cancelled_run_says_so_of_every_step_that_was_open_or_not_reached() -> None:
    async with engine_with(ScriptedTools()) as engine:
        handle = await engine.start(workflow([{"id": "ask", "type": "approval", "title": "x"}, tool("b")]), {})
        await handle.wait()
        await engine.cancel(handle.run_id, reason="wrong customer")
        told = await told_once(engine, handle.run_id, "cancelled")
    assert told.why.startswith("It was cancelled at ")
    assert whys(told) == {
        "/ask": "The run was cancelled while it was open.",
        "/b": "The run was cancelled before it was reached.",
    }


async def told_once(engine: Engine, run_id: str, status: str) -> Explanation:
    for _ in range(200):
        tree = await engine.tree(run_id)
        if tree.run.status == status:
            return explain(tree)
        await asyncio.sleep(0.01)
    raise AssertionError(f"the run is {tree.run.status}")


def row(status: str, **more: Json) -> Run:
    return Run(**{"id": "r", "account": "a", "workflow": "w", "version": "", "definition": "d", "input": {},
                  "status": status, "created": T, "started": T} | more)  # fmt: skip


def test_a_retry_says_when_it_is_due() -> None:
    import msgspec

    body = Body(
        status="failed", error={"kind": "timeout", "message": "too slow"}, started=T, ended=T + 1, retry_at=T + 60
    )
    entries = [Entry("/a/@1", "failed", msgspec.json.encode(body), order=1, at=T + 1)]
    told = explain(build(row("running", owner="me"), workflow([tool("a")]).workflow, entries, []))
    assert whys(told)["/a"] == ("Attempt 1 failed (timeout: too slow); the next is due at 2023-11-14 22:14:20 UTC.")
    assert told.steps[0].facts["retry_at"] == instant(T + 60)
    assert told.why == "It is carried on by me."


def test_every_status_of_a_run_has_a_sentence_and_a_way_on() -> None:
    ways = {}
    for status in (
        "queued", "running", "pending_approval", "waiting", "suspended", "stuck", "completed", "failed", "compensated",
        "cancelled", "timed_out",
    ):  # fmt: skip
        told = explain(build(row(status, ended=T, error={"kind": "k", "message": "m."}), None, [], []))
        assert told.why.endswith("."), told.why
        assert ".." not in told.why
        ways[status] = [action for action, _ in told.goes_on]
    assert ways["queued"] == ways["running"] == ways["stuck"] == ["resume"]
    assert ways["waiting"] == ["wait"]
    assert ways["completed"] == ways["failed"] == ways["cancelled"] == []


def test_waits_of_every_kind_have_a_sentence() -> None:
    event = Wait("w1", "/a", "event", None, opened=T, deadline=T + 9, topic="paid")
    assert waiting(event)[0] == (
        "It waits for the event 'paid' since 2023-11-14 22:13:20 UTC, until 2023-11-14 22:13:29 UTC."
    )
    incident = Wait(
        "w2", "/a", "incident", {"error": {"kind": "tool_error", "message": "broke"}, "actions": ["fail"]}, opened=T
    )
    assert (
        waiting(incident)[0] == "It wants an operator since 2023-11-14 22:13:20 UTC: tool_error: broke. Actions: fail."
    )
    anyone = Wait("w3", "/a", "approval", {"title": "x", "allow_requester": True}, opened=T)
    assert waiting(anyone)[0].startswith('It waits for a decision on "x" by anyone who may approve since ')


def test_of_many_names_the_first_are_told_and_the_rest_counted() -> None:
    assert listed([]) == ""
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed([str(number) for number in range(20)]) == "0, 1, 2, 3, 4, 5, 6 and 13 more"


def test_an_unknown_reason_is_told_as_it_is_written() -> None:
    import msgspec

    entries = [
        Entry("/a", "settled", msgspec.json.encode(Body(status="skipped", reason={"type": "moon"})), order=1, at=T)
    ]
    told = explain(build(row("completed", ended=T), workflow([tool("a")]).workflow, entries, []))
    assert whys(told) == {"/a": "It was skipped: moon."}
