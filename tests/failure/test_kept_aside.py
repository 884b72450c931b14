"""A step that is kept for one further in runs where that one is, and sees what it sees."""

from __future__ import annotations

import pytest

from stepwell.testing.scripted import ScriptedTools
from tests.failure.test_strategies import broken, run, tool


@pytest.mark.parametrize("late", ["a1", "b1"])
async def test_c081_steps_of_branches_are_undone_by_steps_that_lie_beside_the_branches(late):
    steps = [
        {
            "id": "p", "type": "parallel",
            "branches": {
                "a": [tool("a1", compensate={"step": "ua"})],
                "b": [{"id": "l", "type": "loop", "over": ["x", "y"], "as": "seat",
                       "steps": [tool("b1", compensate={"step": "ub"})]}],
            },
        },
        tool("x", on_error="compensate"),
        tool("ua", args={"id": "{{step.a1.id}}"}),
        tool("ub", args={"seat": "{{seat}}", "at": "{{loop.index}}", "id": "{{step.b1.id}}"}),
    ]  # fmt: skip
    tools = ScriptedTools(
        {"x": [broken("refused")], "a1": [{"id": "A"}], "/p/b/l/0/b1": [{"id": "B0"}], "/p/b/l/1/b1": [{"id": "B1"}]},
        delays={late: 0.05},
    )
    done, told = await run(tools, steps)
    assert done.status == "compensated"
    calls = [(call.tool, call.arguments) for call in tools.calls]
    first, seats = ("ua", {"id": "A"}), [
        ("ub", {"seat": "y", "at": 1, "id": "B1"}),
        ("ub", {"seat": "x", "at": 0, "id": "B0"}),
    ]  # fmt: skip
    assert calls[-3:] == ([first, *seats] if late == "a1" else [*seats, first])
    assert "/ua" not in told
    assert told["/p/b/l/1/b1"]["status"] == "compensated"


async def test_a_fallback_beside_a_loop_stands_in_for_a_step_of_each_iteration():
    steps = [
        {
            "id": "l", "type": "loop", "over": ["x", "y"], "as": "seat",
            "steps": [tool("a", on_error={"fallback": "b"}), tool("c", args={"got": "{{step.a.v}}"})],
        },
        tool("b", args={"seat": "{{seat}}", "why": "{{error.kind}}"}, on_error={"fallback": "d"}),
        tool("d", args={"seat": "{{seat}}", "why": "{{error.kind}}"}),
    ]  # fmt: skip
    tools = ScriptedTools(
        {
            "/l/0/a": [broken("refused")],
            "/l/1/a": [broken("not_found")],
            "/l/0/a/~fallback/b": [{"v": "B"}],
            "/l/1/a/~fallback/b": [broken("auth_error")],
            "d": [{"v": "D"}],
        }
    )
    done, told = await run(tools, steps)
    assert done.status == "completed"
    assert [(call.tool, call.arguments) for call in tools.calls if call.tool != "a"] == [
        ("b", {"seat": "x", "why": "refused"}),
        ("c", {"got": "B"}),
        ("b", {"seat": "y", "why": "not_found"}),
        ("d", {"seat": "y", "why": "auth_error"}),
        ("c", {"got": "D"}),
    ]
    assert told["/l/1/a"]["status"] == "completed"
