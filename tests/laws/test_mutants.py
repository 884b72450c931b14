"""Each mutant is noticed by the law that is named beside it, and the interpreter as it is passes there.

The table of `docs/explanation/laws.md` is this one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stepwell.errors import DefinitionError
from stepwell.journal.lease import LeaseLost
from stepwell.ports import FINAL, Batch, Lease, Verdict
from tests.engine_world import workflow
from tests.laws import mutants
from tests.laws.definitions import INPUT
from tests.laws.test_laws import script_of
from tests.laws.test_rounds import journal_of, only_stale_steps_run_again, rounds_only_grow
from tests.laws.worlds import (
    Crash,
    CrashingStore,
    Performance,
    finish,
    fresh,
    one_pass,
    plan_of,
    recorded,
    replay,
    start,
)

Json = Any
Law = Callable[[Json], Awaitable[None]]


def tool(step: str, **parts: Json) -> Json:
    return {"id": step, "type": "tool_call", "tool": "t", "retry": {"initial_delay": 0.0005, "jitter": "none"}, **parts}


def uses(*steps: str) -> Json:
    return {step: f"{{{{ step.{step} ?? 'none' }}}}" for step in steps}


def of(*steps: Json, **parts: Json) -> Json:
    found = {"steps": list(steps), "parts": {}, "refusing": [], "flaky": {}, "returns": {}, "breaks": {}}
    return {**found, "children": {}, **parts}


# ── the laws, of one definition ──


async def replay_is_a_fixed_point(definition: Json) -> None:
    """A finished journal is replayed without a deed, to the same end."""
    for seed in range(5):
        store, pinned = fresh(), plan_of(definition)
        await start(store, INPUT)
        script = script_of(definition)
        script.seed = seed
        run = await finish(store, pinned, script)
        assert run.status in FINAL
        verdict, wanted = await replay(store, pinned)
        assert verdict is not None
        assert (verdict.status, verdict.output, verdict.error) == (run.status, run.output, run.error)
        assert [entry.path for entry in wanted] == []


async def crash_anywhere(definition: Json) -> None:
    """A pass that dies at any of its writes is carried on to the same result; nothing recorded is performed again."""
    store, pinned = fresh(), plan_of(definition)
    await start(store, INPUT)
    reference = await finish(store, pinned, script_of(definition))
    for at in range(1, 30):
        store = fresh()
        await start(store, INPUT)
        script = script_of(definition)
        with contextlib.suppress(Crash):
            await one_pass(store, pinned, script, outer=CrashingStore(store, at=at // 2 + 1, durable=at % 2 == 0))
        before = await recorded(store)
        calls = dict(script.calls)
        run = await finish(store, pinned, script)
        assert (run.status, run.output) == (reference.status, reference.output)
        for path in before:
            attempt = path.replace("/@", "@") if "/@" in path else f"{path}@{before[path].attempts}"
            assert script.calls[attempt] == calls.get(attempt, 0), f"{path} was performed again"


async def races_stay_decided(definition: Json) -> None:
    """Once the journal says that a race was decided, no branch that lost is started again."""
    pinned = plan_of(definition)
    for at in range(1, 12):
        store = fresh()
        await start(store, INPUT)
        script = script_of(definition)
        script.seed = 1
        with contextlib.suppress(Crash):
            await one_pass(store, pinned, script, outer=CrashingStore(store, at=at, durable=True))
        decided = [path for path in await recorded(store) if "~decided" in path]
        calls = {name: count for name, count in script.calls.items() if "/race/" in name}
        await finish(store, pinned, script)
        if decided:
            assert {name: count for name, count in script.calls.items() if "/race/" in name} == calls


async def order_does_not_matter(definition: Json) -> None:
    """Whatever the latencies, the result is the same: of every definition that is not refused."""
    with contextlib.suppress(DefinitionError):
        workflow(definition["steps"])
        outputs = []
        for seed in range(12):
            store, pinned = fresh(), plan_of(definition)
            await start(store, INPUT)
            script = script_of(definition)
            script.seed = seed
            run = await finish(store, pinned, script)
            outputs.append((run.status, run.output))
        assert all(output == outputs[0] for output in outputs)


async def rounds_are_asked_for(definition: Json) -> None:
    """Only stale steps run again, rounds only grow, and the run ends."""
    entries, script = await journal_of(definition, 1)
    assert entries[-1].path
    only_stale_steps_run_again(entries, script)
    rounds_only_grow(entries)
    await replay_is_a_fixed_point(definition)


class Taken:
    """A store in which the lease is lost while a step's result is being written, and nothing may be asked of after."""

    def __init__(self, inner: Any, path: str) -> None:
        self._inner = inner
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, lease: Lease, batch: Batch) -> Any:
        if any(entry.path == self._path for entry in batch.entries):
            return self._lost()
        return self._inner.append(lease, batch)

    async def _lost(self) -> int:
        raise LeaseLost

    async def release(self, lease: Lease, batch: Batch, verdict: Verdict) -> bool:
        raise AssertionError(f"a pass without a lease ends the run as {verdict.status}")


async def a_lost_lease_ends_nothing(definition: Json) -> None:
    """A pass that has lost its lease says nothing about the run, whatever else has failed in it."""
    store = fresh()
    await start(store, INPUT)
    with contextlib.suppress(LeaseLost):
        await one_pass(store, plan_of(definition), script_of(definition), outer=Taken(store, "/late"))


# ── which law notices which mutant ──

SLOW_THEN_FAST = of(
    tool("t1", depends_on=[]), tool("t2", depends_on=[]), tool("t3", depends_on=[]), refusing=["t1", "t2", "t3"]
)
BACK = of(tool("t1"), tool("t2", arguments=uses("t1")), tool("t3", arguments=uses("t2"),
          on_error={"errors": ["refused"], "strategy": "goto", "goto": "t1"}), tool("t4"), returns={"t3": 1})  # fmt: skip
SIBLING = of(
    tool("t0", depends_on=[]),
    tool("t1", depends_on=[]),
    tool("t2", depends_on=["t0"], arguments=uses("t1")),
)
INSIDE = of({"id": "c", "type": "condition", "when": "true", "then": [tool("t1"), {"id": "s", "type": "set", "values": {}}]},
            tool("t2", arguments=uses("t1")))  # fmt: skip
LATE = of(
    {"id": "c", "type": "condition", "when": "true", "timeout": "0.003", "on_error": "continue",
     "then": [{"id": "w", "type": "wait", "for": "0.006"}, tool("t1")]},
    {"id": "later", "type": "wait", "for": "0.02"},
)  # fmt: skip
RACE = of(
    {"id": "all", "type": "parallel", "branches": {
        "a": [{"id": "race", "type": "parallel", "mode": "first_success", "branches": {
            "x": [tool("t1")], "y": [{"id": "w", "type": "wait", "for": "0.01"}, tool("t2")]}}, tool("t5")],
        "b": [tool("t3"), tool("t4")]}},
)  # fmt: skip
LOST = of(tool("early", depends_on=[]), tool("late", depends_on=[]), refusing=["early"])
FLAKY = of(tool("t1"), tool("t2"), flaky={"t1": 2})
KILLED: list[tuple[Callable[[pytest.MonkeyPatch], None], Law, Json]] = [
    (mutants.bindings_of_all_finished_steps, order_does_not_matter, SIBLING),
    (mutants.failure_by_definition_order, replay_is_a_fixed_point, SLOW_THEN_FAST),
    (mutants.unsettled_failed_container, replay_is_a_fixed_point, LATE),
    (mutants.missing_exports, replay_is_a_fixed_point, INSIDE),
    (mutants.lost_lease_below_failure, a_lost_lease_ends_nothing, LOST),
    (mutants.rewind_without_closure, rounds_are_asked_for, BACK),
    (mutants.losers_run_again, races_stay_decided, RACE),
    (mutants.round_from_memory, crash_anywhere, BACK),
    (mutants.attempts_from_memory, crash_anywhere, FLAKY),
    (mutants.recorded_value_not_read_back, crash_anywhere, BACK),
]


@pytest.mark.parametrize(("mutant", "law", "definition"), KILLED, ids=[mutant.__name__ for mutant, _, _ in KILLED])
def test_a_mutant_is_noticed_by_its_law(
    mutant: Callable[[pytest.MonkeyPatch], None], law: Law, definition: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(law(definition))
    mutant(monkeypatch)
    with pytest.raises((AssertionError, Performance)):
        asyncio.run(law(definition))
