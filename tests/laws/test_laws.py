"""Laws over random definitions: crash anywhere, replay performs nothing, replay is a fixed point, order does not matter."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.ports import FINAL
from tests.laws.definitions import INPUT, definitions
from tests.laws.worlds import (
    Crash,
    CrashingStore,
    Script,
    decide_all,
    finish,
    fresh,
    one_pass,
    plan_of,
    recorded,
    replay,
    start,
)

Json = Any
LAW = settings(
    max_examples=int(os.environ.get("STEPWELL_LAW_EXAMPLES", "150")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def script_of(definition: Json, seed: int = 0) -> Script:
    return Script(
        refuses=set(definition["refusing"]),
        fails=definition["flaky"],
        returns=definition["returns"],
        breaks=definition["breaks"],
        seed=seed,
    )


async def reference(definition: Json) -> tuple[Any, dict[str, Any]]:
    store, plan = fresh(), plan_of(definition)
    await start(store, INPUT)
    run = await finish(store, plan, script_of(definition))
    return run, await recorded(store)


@LAW
@given(definitions(), st.data())
def test_crash_anywhere_resumes_to_the_same_result(definition: Json, data: Any) -> None:
    asyncio.run(_crash_law(definition, data, same_output=True))


@LAW
@given(definitions(failing=True), st.data())
def test_crash_anywhere_resumes_to_the_same_status_when_steps_fail(definition: Json, data: Any) -> None:
    asyncio.run(_crash_law(definition, data, same_output=False))


async def _crash_law(definition: Json, data: Any, *, same_output: bool) -> None:
    run, journal = await reference(definition)
    store, plan = fresh(), plan_of(definition)
    await start(store, INPUT)
    script = script_of(definition)
    done: dict[str, int] = {}
    for _ in range(data.draw(st.integers(1, 4))):
        script.seed = data.draw(st.integers(0, 99))
        outer = CrashingStore(store, at=data.draw(st.integers(1, 25)), durable=data.draw(st.booleans()))
        with contextlib.suppress(Crash):
            await one_pass(store, plan, script, outer=outer)
        for path, outcome in (await recorded(store)).items():
            if outcome.kind in {"succeeded", "failed"} and path not in done:
                done[path] = sum(count for name, count in script.calls.items() if name.startswith(f"{path}@"))
        if data.draw(st.booleans()):
            await decide_all(store)
    script.seed = 0
    end = await finish(store, plan, script)
    assert end.status == run.status
    raced = "'mode':" in repr(definition)
    if same_output or (run.status == "completed" and not raced):
        assert end.output == run.output
    if same_output and not definition["loose"]:
        assert set(await recorded(store)) - {p for p in await recorded(store) if p.endswith("/~start")} == set(
            journal
        ) - {p for p in journal if p.endswith("/~start")}
    for path, count in done.items():
        now = sum(number for name, number in script.calls.items() if name.startswith(f"{path}@"))
        assert now == count, f"{path} was performed again after it was recorded"


@LAW
@given(definitions(failing=True) | definitions(failing=True, racing=True))
def test_replay_performs_nothing_and_is_a_fixed_point(definition: Json) -> None:
    async def law() -> None:
        store, plan = fresh(), plan_of(definition)
        await start(store, INPUT)
        run = await finish(store, plan, script_of(definition))
        assert run.status in FINAL
        verdict, wanted = await replay(store, plan)
        assert verdict is not None
        assert (verdict.status, verdict.output) == (run.status, run.output)
        assert verdict.error == run.error
        assert [entry.path for entry in wanted] == []

    asyncio.run(law())


@LAW
@given(definitions(), st.data())
def test_order_and_latencies_do_not_matter(definition: Json, data: Any) -> None:
    async def law() -> None:
        run, _ = await reference(definition)
        store, plan = fresh(), plan_of(definition)
        await start(store, INPUT)
        script = script_of(definition)
        script.seed = data.draw(st.integers(0, 99))
        end = await finish(store, plan, script)
        assert (end.status, end.output) == (run.status, run.output)

    asyncio.run(law())
