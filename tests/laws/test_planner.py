"""Plan, perform one thing of the frontier, plan again: it comes to where the live runtime comes."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from stepwell.interpreter.planning import frontier
from tests.laws.definitions import INPUT, definitions
from tests.laws.planner import Driver, run_of, started
from tests.laws.test_laws import LAW, reference, script_of
from tests.laws.worlds import ACCOUNT, finish, fresh, plan_of, replay_journal, start

Json = Any


def driver_of(definition: Json, seed: int) -> Driver:
    return Driver(plan_of(definition), script_of(definition), INPUT, Random(seed))


@LAW
@given(definitions(), st.integers(0, 99))
def test_the_planner_comes_to_the_result_and_the_journal_of_the_runner(definition: Json, seed: int) -> None:
    async def law() -> None:
        run, journal = await reference(definition)
        driver = driver_of(definition, seed)
        outcome = await driver.to_the_end()
        assert (outcome.status, outcome.output) == (run.status, run.output)
        done = {path for path, outcome in journal.items() if path and outcome.kind != "cancelled"}
        if not definition["loose"] and not definition["breaks"]:  # how far siblings of a failed step came is timing
            assert {path for path in driver.paths() if not started(path)} == {one for one in done if not started(one)}

    asyncio.run(law())


@LAW
@given(definitions(failing=True) | definitions(failing=True, racing=True), st.integers(0, 99))
def test_a_journal_written_by_plans_is_replayed_by_the_runner(definition: Json, seed: int) -> None:
    async def law() -> None:
        driver = driver_of(definition, seed)
        outcome = await driver.to_the_end()
        verdict, wanted = await replay_journal(run_of(INPUT), driver.entries, driver.pinned, driver.blobs.__getitem__)
        assert verdict is not None
        assert (verdict.status, verdict.output, verdict.error) == (outcome.status, outcome.output, outcome.error)
        assert [entry.path for entry in wanted] == []

    asyncio.run(law())


@LAW
@given(definitions(failing=True) | definitions(failing=True, racing=True), st.integers(0, 99))
def test_a_journal_written_by_the_runner_is_concluded_by_the_planner(definition: Json, seed: int) -> None:
    assume("'0.004'" not in str(definition))  # the planner does not measure the time that a container has used up

    async def law() -> None:
        store, pinned = fresh(), plan_of(definition)
        await start(store, INPUT)
        script = script_of(definition)
        script.seed = seed
        run = await finish(store, pinned, script)
        driver = driver_of(definition, seed)
        driver.entries = [entry for entry in await store.history(ACCOUNT, "r1") if entry.path]
        driver.blobs = {digest: text for (_, digest), text in store._blobs.items()}  # type: ignore[attr-defined]
        driver.now = run.ended + 1
        plan = await frontier(driver.known())
        assert plan.outcome is not None
        assert (plan.outcome.status, plan.outcome.output, plan.outcome.error) == (run.status, run.output, run.error)
        assert [entry.path for entry in plan.entries] == []

    asyncio.run(law())
