"""What is left of a run that went wrong, as it is told."""

from __future__ import annotations

import asyncio

from tests.engine_world import engine_with, workflow
from tests.failure.test_strategies import broken, tool

from stepwell.cli.aftermath import doubt_lines, return_lines, undone_lines
from stepwell.journal.explain import explain
from stepwell.testing.scripted import ScriptedTools

CHARGE = {"id": "charge", "type": "tool_call", "tool": "charge", "idempotent": False, "arguments": {"cents": 5}}


async def test_a_call_in_flight_of_a_cancelled_run_is_told_with_key_and_arguments() -> None:
    tools = ScriptedTools(delays={"charge": 30.0}, once=frozenset({"charge"}))
    async with engine_with(tools) as engine:
        handle = await engine.start(workflow([CHARGE]), {})
        while not tools.called("charge"):
            await asyncio.sleep(0.005)
        run = await engine.cancel(handle.run_id)
        tree = await engine.tree(run.id)
        assert run.status == "cancelled"
        assert list(undone_lines(tree)) == list(return_lines(tree)) == []
        told = "\n".join(doubt_lines(tree))
        assert "/charge  the call was made, and nobody knows whether it took effect" in told
        assert f"its key: {run.id}/charge" in told
        assert 'its arguments: {"cents": 5}' in told
        (why,) = [step.why for step in explain(tree).steps]
        assert f"Nobody knows whether the call took effect; its key is {run.id}/charge" in why


async def test_a_call_of_the_loser_of_a_race_that_is_still_in_flight_is_told() -> None:
    tools = ScriptedTools(delays={"charge": 30.0}, once=frozenset({"charge"}))
    steps = [
        {
            "id": "race",
            "type": "parallel",
            "mode": "first_success",
            "branches": {"slow": [CHARGE | {"timeout": "200ms"}], "quick": [tool("quick")]},
        }
    ]
    async with engine_with(tools) as engine:
        run = await (await engine.start(workflow(steps), {})).wait()
        tree = await engine.tree(run.id)
        assert run.status == "completed"
        assert f"its key: {run.id}/race/slow/charge" in "\n".join(doubt_lines(tree))


async def test_what_could_not_be_undone_is_told_beside_what_was() -> None:
    from stepwell.engine.incidents import Action

    undo = {"compensate": {"steps": [tool("u")]}}
    steps = [tool("a", **undo), tool("b"), tool("x", on_error="compensate")]
    async with engine_with(ScriptedTools({"x": [broken()], "u": [broken("refused")]})) as engine:
        handle = await engine.start(workflow(steps), {})
        assert (await handle.wait()).status == "suspended"
        told = explain(await engine.tree(handle.run_id))
        assert told.why == "It is parked while it is being undone: an operator has to say what becomes of /a."
        (wait,) = await engine.incidents.open()
        await engine.incidents.settle(wait.id, Action("skip"), by="ana")
        run = await (await engine.resume(handle.run_id)).wait()
        assert run.status == "compensated"
        assert list(undone_lines(await engine.tree(run.id))) == [
            "undone:     nothing",
            "not undone: /a  ana left it as it is",
            "not undone: /b  (no compensate says how)",
        ]
