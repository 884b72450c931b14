"""Laws of versions: what only people read changes nothing; the same done by another definition is no conflict."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stepwell.definition.load import LoadedWorkflow, load_text
from stepwell.engine.engine import Engine
from stepwell.errors import DefinitionError
from stepwell.interpreter.effect import ToolCall
from stepwell.kinds import discover
from stepwell.library.differences import Side, differences, is_cosmetic
from stepwell.ports import PARKED, Run, ToolCallContext
from stepwell.testing.scripted import Call, ScriptedTools
from tests.engine_world import engine_with
from tests.laws.definitions import INPUT, SHORT, definitions
from tests.laws.test_laws import LAW as OFTEN
from tests.laws.test_laws import script_of

Json = Any
LAW = settings(OFTEN, max_examples=max(OFTEN.max_examples // 3, 1))
"""Each example is two runs of an engine."""


def loaded(data: Json, file: str = "law.yaml") -> LoadedWorkflow:
    return load_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), file=file, kinds=discover())


def whole(definition: Json, **parts: Json) -> Json:
    return {"workflow": "law", "steps": definition["steps"], **definition["parts"], **parts}


def edited(value: Json, chance: Random) -> Json:
    """The same with keys in another order, and with names and descriptions for people."""
    if isinstance(value, list):
        return [edited(inner, chance) for inner in value]
    if not isinstance(value, dict):
        return value
    items = [(key, edited(inner, chance)) for key, inner in value.items()]
    if "id" in value and "type" in value:
        items += [(key, f"{key} {chance.random()}") for key in ("name", "description") if chance.random() < 0.4]
    chance.shuffle(items)
    return dict(items)


def commented(text: str, chance: Random) -> str:
    """The same with comments and empty lines between its lines; YAML that was dumped has no text over several."""
    lines = []
    for line in text.splitlines():
        if chance.random() < 0.2:
            lines.append(chance.choice(["", "# why", "      # far in"]))
        lines.append(line)
    return "\n".join(lines) + "\n"


def rewritten(definition: Json, chance: Random) -> LoadedWorkflow:
    data = edited(whole(definition, name="Law", description="Of many", tags=["x"]), chance)
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=10**6)
    return load_text(commented(text, chance), file="law.yaml", kinds=discover())


@OFTEN
@given(definitions(failing=True), st.integers(0, 999))
def test_what_only_people_read_changes_no_digest_and_is_told_as_cosmetic(definition: Json, seed: int) -> None:
    first, second = loaded(whole(definition)), rewritten(definition, Random(seed))
    assert first.digest == second.digest
    assert is_cosmetic(differences(Side("a", first.data), Side("b", second.data)))


class LawTools(ScriptedTools):
    """Tools that do what the script of a definition says: fail first, fail for good, send back."""

    def __init__(self, definition: Json) -> None:
        super().__init__()
        self.script = script_of(definition)

    async def call(self, name: str, arguments: dict[str, Json], context: ToolCallContext) -> Json:
        self.calls.append(Call(name, context.path, context.attempt, arguments, context.key))
        return (await self.script.perform(ToolCall(name, arguments), context)).value  # type: ignore[arg-type]


def timeless(value: Json) -> str:
    """A value without the instants in it."""
    return re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "then", json.dumps(value))


async def parked(engine: Engine, definition: Json) -> Run:
    """A run of the definition, at its first stop; its sub-workflows are published, those that others call first."""
    for name, child in definition["children"].items():
        data = {"workflow": name, "steps": child["steps"], **child["parts"]}
        await engine.versions.publish(loaded(data, f"{name}.yaml"))
    return await (await engine.start(loaded(whole(definition)), INPUT)).wait()


async def decided(engine: Engine, run: Run, chance: Random) -> Run:
    """The run after one of its open approvals was decided."""
    wait = chance.choice(await engine.waits(run_id=run.id))
    await engine.decide(wait.id, "approved")
    return await (await engine.resume(run.id)).wait()


@LAW
@given(definitions() | definitions(failing=True), st.integers(0, 999))
def test_a_cosmetic_edit_disturbs_no_parked_run(definition: Json, seed: int) -> None:
    async def law() -> None:
        results = []
        for edits in (False, True):
            chance = Random(seed)
            async with engine_with(tools := LawTools(definition), models=tools.script.perform) as engine:
                run = await parked(engine, definition)
                while run.status == "pending_approval":
                    if edits:
                        plan = await engine.versions.migrate(run.id, rewritten(definition, Random(seed)))
                        assert (plan.same, plan.conflicts) == (True, ())
                    run = await decided(engine, run, chance)
                results.append((run.status, timeless(run.output), run.error))
        assert results[0] == results[1]

    asyncio.run(law())


@LAW
@given(definitions() | definitions(failing=True), st.integers(0, 999))
def test_a_definition_that_does_the_same_conflicts_with_nothing_wherever_a_run_is_parked(
    definition: Json, seed: int
) -> None:
    async def law() -> None:
        results = []
        for moves in (False, True):
            chance, tools = Random(seed), LawTools(definition)
            async with engine_with(tools, models=tools.script.perform) as engine:
                run = await parked(engine, definition)
                for round_ in range(100):
                    if moves and run.status in PARKED:
                        plan = await engine.versions.migrate(run.id, loaded(whole(definition, timeout=400 + round_)))
                        assert (plan.conflicts, plan.changes, plan.done, plan.wake) == ((), (), True, False)
                    if run.status != "pending_approval":
                        break
                    run = await decided(engine, run, chance)
                results.append((run.status, timeless(run.output), run.error, sorted(call.path for call in tools.calls)))
        assert results[0] == results[1]

    asyncio.run(law())


def blocks_in(value: Json) -> Iterator[list[Json]]:
    """Every list of steps, the outer ones first."""
    if isinstance(value, list):
        if value and all(isinstance(one, dict) and "id" in one for one in value):
            yield value
        for inner in value:
            yield from blocks_in(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in {"arguments", "values", "show", "output"}:
                yield from blocks_in(inner)


def mutated(data: Json, chance: Random) -> Json:
    """The definition with one or two changes of any kind; it may be wrong."""
    data = deepcopy(data)
    for number in range(chance.choice([1, 1, 2])):
        block = chance.choice([*blocks_in(data["steps"])])
        at = chance.randrange(len(block))
        step = block[at]
        match chance.randrange(6):
            case 0 if len(block) > 1:
                del block[at]
            case 1 if len(block) > 1:
                block.insert(chance.randrange(len(block)), block.pop(at))
            case 2:
                step["condition"] = chance.choice(["workflow_input.yes", "workflow_input.no"])
            case 3:
                given = next((step[key] for key in ("arguments", "values", "show", "inputs") if key in step), {})
                given["n"] = 7
            case 4 if "branches" in step and len(step["branches"]) > 1:
                del step["branches"][chance.choice([*step["branches"]])]
            case _:
                new = {"id": f"new{number}", "type": "tool_call", "tool": "t", "arguments": {"n": 5}, "retry": SHORT}
                graph = any("depends_on" in one for one in block)
                block.insert(chance.randrange(len(block) + 1), new | ({"depends_on": []} if graph else {}))
    return data


@OFTEN
@given(definitions() | definitions(failing=True), st.integers(0, 9999))
def test_a_run_that_was_moved_without_conflict_is_never_stuck(definition: Json, seed: int) -> None:
    assume("'approval'" in str(definition["steps"]) or "'2h'" in str(definition["steps"]))

    async def law() -> None:
        chance, tools = Random(seed), LawTools(definition)
        async with engine_with(tools, models=tools.script.perform) as engine:
            run = await parked(engine, definition)
            for _ in range(chance.randrange(3)):
                if run.status == "pending_approval":
                    run = await decided(engine, run, chance)
            if run.status not in PARKED:
                return
            try:
                other = loaded(mutated(whole(definition), chance))
            except DefinitionError:
                return
            before = await engine.history(run.id)
            plan = await engine.versions.migrate(run.id, other)
            if plan.conflicts:
                assert await engine.history(run.id) == before
                return
            done = {call.path for call in tools.calls}
            tools.calls.clear()
            if plan.wake:
                run = await (await engine.resume(run.id)).wait()
            for _ in range(100):
                if run.status != "pending_approval":
                    break
                run = await decided(engine, run, chance)
            assert run.status != "stuck", run.error
            again = done & {call.path for call in tools.calls if call.attempt == 1}
            assert not again, f"done twice: {again}"

    asyncio.run(law())
