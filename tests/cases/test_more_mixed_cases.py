"""Where two cases meet: pauses inside rounds, races, tolerance and what follows a failure."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.cases.test_container_cases import Flaky, engine_at, project
from tests.cases.test_more_cases import loop, refusing
from tests.cases.test_pause_cases import approve, gate, tool, until_waiting
from tests.engine_world import engine_with, open_waits, statuses, workflow

from stepwell.errors import Gone, StepFailed
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.testing.scripted import ScriptedTools

Json = Any


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_c092_a_rejected_iteration_is_tolerated_and_the_other_gates_stay_open(concurrency: int) -> None:
    steps = [
        loop([gate("g"), tool("t", arguments={"n": "{{loop_item}}"})], (1, 2, 3), tolerate=1, concurrency=concurrency)
    ]
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        wait = (await until_waiting(engine, handle.run_id, "/L/0/g"))["/L/0/g"]
        await engine.decide(wait.id, "rejected")
        for index in (1, 2):
            await approve(engine, handle.run_id, f"/L/{index}/g")
        run = await handle.wait(until_final=True)
        assert run.status == "completed"
        assert run.output == [None, {"n": 2}, {"n": 3}]


async def test_c092_one_rejection_too_many_closes_the_gates_of_the_other_iterations() -> None:
    steps = [loop([gate("g"), tool("t")], (1, 2, 3, 4), tolerate=1, concurrency=4), tool("after")]
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        waits = await until_waiting(engine, handle.run_id, *(f"/L/{index}/g" for index in range(4)))
        await engine.decide(waits["/L/3/g"].id, "rejected")
        await asyncio.sleep(0.1)
        assert len(await open_waits(engine, handle.run_id)) == 3
        await engine.decide(waits["/L/1/g"].id, "rejected")
        run = await handle.wait(until_final=True)
        assert run.error is not None
        assert (run.status, run.error["kind"], tools.calls) == ("failed", "rejected", [])
        assert [cause["index"] for cause in run.error["detail"]["causes"]] == [1, 3]
        for index in (0, 2):
            with pytest.raises(Gone):
                await engine.decide(waits[f"/L/{index}/g"].id, "approved")


async def test_c013_a_child_that_is_tried_again_asks_again_and_gives_the_output_of_its_last_round(
    tmp_path: Path,
) -> None:
    child = {"steps": [gate("ask"), tool("work", arguments={"by": "{{step.ask.by}}"}, retry={"max_attempts": 1})]}
    call = {
        "id": "kid",
        "type": "sub_workflow",
        "workflow": "kid",
        "retry": {"max_attempts": 3, "initial_delay": "1ms"},
    }
    project(tmp_path, main={"steps": [call, tool("use", arguments={"by": "{{step.kid.by}}"})]}, kid=child)
    tools = ScriptedTools(answers={"work": [Flaky(2)]})
    store, run_id = tmp_path / "r.db", ""
    for number, path in enumerate(["", "/kid/ask", "/kid#2/ask", "/kid#3/ask"]):
        engine = engine_at(tools, serves=False, store=SqliteRunStore.open(store))
        await engine.open()
        if number:
            await approve(engine, run_id, path, by=f"person {number}")
            handle = await engine.resume(run_id)
        else:
            handle = await engine.start(engine.load(tmp_path / "main.yaml"), {})
        run_id = handle.run_id
        run = await handle.wait()
        assert run.status == ("completed" if number == 3 else "pending_approval")
        await engine.close()
    assert [call["by"] for call in tools.called("work")] == ["person 1", "person 2", "person 3"]
    assert tools.called("use") == [{"by": "person 3"}]


async def test_c017_a_failure_beside_an_open_gate_closes_it_in_every_kind_of_block() -> None:
    blocks = {
        "graph": [gate("g", depends_on=[]), tool("bad", depends_on=[]), tool("after", depends_on=["g", "bad"])],
        "parallel": [
            {"id": "p", "type": "parallel", "branches": {"a": [gate("g")], "b": [tool("bad")]}}, tool("after")],
        "loop": [loop([gate("g", condition="loop.index == 0"), tool("bad", condition="loop.index == 1")], (1, 2),
                      concurrency=2), tool("after")],
    }  # fmt: skip
    for name, steps in blocks.items():
        tools = ScriptedTools(answers={"bad": [StepFailed("refused", "no")]}, delays={"bad": 0.15})
        async with engine_with(tools, serves=True) as engine:
            handle = await engine.start(workflow(steps), {})
            while not (waits := await open_waits(engine, handle.run_id)):
                await asyncio.sleep(0.005)
            (wait,) = waits.values()
            run = await asyncio.wait_for(handle.wait(until_final=True), 5)
            assert run.error is not None
            assert (run.status, run.error["kind"], name) == ("failed", "refused", name)
            assert tools.called("after") == []
            with pytest.raises(Gone):
                await engine.decide(wait.id, "approved")


async def test_c015_a_gate_after_a_failure_is_waited_for_and_the_run_stays_failed(tmp_path: Path) -> None:
    after = {"steps": [gate("sorry"), tool("tell", arguments={"by": "{{step.sorry.by}}", "kind": "{{error.kind}}"})]}
    tools = ScriptedTools(answers={"bad": [StepFailed("refused", "no")]})
    async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
        handle = await engine.start(workflow([tool("bad"), tool("never")], on_failure=after), {})
        assert (await handle.wait()).status == "pending_approval"
    async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
        await approve(engine, handle.run_id, "/on_failure/sorry", by="ana")
        run = await (await engine.resume(handle.run_id)).wait()
        assert run.error is not None
        assert (run.status, run.error["kind"]) == ("failed", "refused")
        assert tools.called("tell") == [{"by": "ana", "kind": "refused"}]
        assert [call.tool for call in tools.calls] == ["bad", "tell"]
        found = await statuses(engine, run.id)
        assert (found["/bad"], found["/never"]) == ("failed", "skipped")


@pytest.mark.parametrize("winner", ["a", "b"])
async def test_c002_a_race_of_gates_decided_over_a_restart_has_one_winner(tmp_path: Path, winner: str) -> None:
    branches = {name: [gate(f"g{name}"), tool(f"t{name}")] for name in "ab"}
    steps = [
        {"id": "p", "type": "parallel", "mode": "first_success", "branches": branches},
        gate("last"),
        tool("after"),
    ]
    tools = ScriptedTools()
    run_id = ""
    for number, path in enumerate(["", f"/p/{winner}/g{winner}", "/last"]):
        async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
            if number:
                await approve(engine, run_id, path)
                handle = await engine.resume(run_id)
            else:
                handle = await engine.start(workflow(steps, output={"p": "{{step.p}}"}), {})
            run_id = handle.run_id
            run = await handle.wait()
            assert len(await engine.waits(run_id=run_id)) == [2, 1, 0][number]
    loser = "b" if winner == "a" else "a"
    assert [call.tool for call in tools.calls] == [f"t{winner}", "after"]
    assert {name: one["status"] for name, one in run.output["p"].items()} == {winner: "completed", loser: "cancelled"}


@pytest.mark.parametrize(("keys", "ends"), [
    ([1, 2, 3], "completed"), ([1, 1], "failed"), ([None, None], "failed"), ([1, "1"], "completed"),
    ([[1], [1]], "failed"), ([{"a": 1}, {"a": 2}], "completed"), ([True, 1], "completed"), ([0, False, "", None], "completed"),
])  # fmt: skip
async def test_c050_keys_of_items_are_told_apart_by_value_and_type(keys: list[Json], ends: str) -> None:
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        loaded = workflow([loop([tool("t")], "workflow_input.items", key="loop_item.k")])
        handle = await engine.start(loaded, {"items": [{"k": key} for key in keys]})
        run = await handle.wait(until_final=True)
        assert run.status == ends
        assert len(tools.calls) == (len(keys) if ends == "completed" else 0)


async def test_c055_a_tolerated_iteration_has_spent_its_attempts_and_gets_no_more_after_a_restart(
    tmp_path: Path,
) -> None:
    retry = {"max_attempts": 2, "initial_delay": "1ms"}
    failing = [refusing_later]
    tools = ScriptedTools(answers={"t": failing})
    steps = [
        loop([tool("t", arguments={"n": "{{loop_item}}"}, retry=retry)], tolerate="100%"),
        gate("g"),
        tool("after"),
    ]
    async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
        handle = await engine.start(workflow(steps), {})
        assert (await handle.wait()).status == "pending_approval"
    async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
        await approve(engine, handle.run_id, "/g")
        run = await (await engine.resume(handle.run_id)).wait()
    assert run.status == "completed"
    assert [call["n"] for call in tools.called("t")] == [1, 1, 2, 2, 3, 3, 4, 4]


def refusing_later(given: Json) -> Json:
    raise StepFailed("server_error", f"503 for {given['n']}")


async def test_c007_the_answer_of_a_gate_that_is_let_expire_is_told_from_a_persons() -> None:
    body = [
        gate("g", expires_in="0.15s", on_expire="approve"),
        tool("use", arguments={"d": "{{step.g.decision}}", "by": "{{step.g.by}}"}),
    ]
    tools = ScriptedTools()
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow([loop(body, (1, 2))]), {})
        await approve(engine, handle.run_id, "/L/0/g", by="ana")
        run = await handle.wait(until_final=True)
        assert run.status == "completed"
        assert [(call["d"], call["by"]) for call in tools.called("use")] == [("approved", "ana"), ("expired", None)]


async def test_c073_a_refusal_and_a_failure_are_both_told_by_the_parallel() -> None:
    branches = {"a": [gate("g"), tool("x")], "b": [tool("t", arguments={"n": 1})]}
    steps = [{"id": "p", "type": "parallel", "branches": branches}, tool("after")]
    tools = ScriptedTools(answers={"t": refusing(1)}, delays={"t": 0.3})
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        wait = (await until_waiting(engine, handle.run_id, "/p/a/g"))["/p/a/g"]
        await engine.decide(wait.id, "rejected", comment="no")
        run = await handle.wait(until_final=True)
        assert run.error is not None
        told = {cause["branch"]: cause["kind"] for cause in run.error["detail"]["causes"]}
        assert told == {"a": "rejected", "b": "invalid_request"}
        assert run.error["path"] == "/p/a/g", "the first failure is the one that counts"
        assert tools.called("after") == tools.called("x") == []


async def test_c015_a_gate_stays_open_beside_a_failed_branch_where_the_parallel_may_go_on() -> None:
    branches = {"a": [gate("g"), tool("x")], "b": [tool("bad")]}
    steps = [{"id": "p", "type": "parallel", "continue_on_error": True, "branches": branches}, tool("after")]
    tools = ScriptedTools(answers={"bad": [StepFailed("refused", "no")]})
    async with engine_with(tools, serves=True) as engine:
        handle = await engine.start(workflow(steps), {})
        await until_waiting(engine, handle.run_id, "/p/a/g")
        await asyncio.sleep(0.3)
        assert (await handle.wait()).status == "pending_approval"
        assert set(await open_waits(engine, handle.run_id)) == {"/p/a/g"}
        await approve(engine, handle.run_id, "/p/a/g")
        assert (await handle.wait(until_final=True)).status == "completed"
        assert (len(tools.called("x")), len(tools.called("after"))) == (1, 1)


def test_c024_the_command_line_refuses_an_approval_that_was_used_and_says_who_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    from click.testing import CliRunner

    from stepwell.cli.app import stepwell

    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("STEPWELL_")]:
        monkeypatch.delenv(name)
    steps = [loop([gate("g"), {"id": "pay", "type": "set", "values": {"n": "{{loop_item}}"}}], (1, 2))]
    (tmp_path / "w.json").write_text(json.dumps({"workflow": "w", "steps": steps}))

    def called(*args: str) -> Any:
        return CliRunner().invoke(stepwell, list(args), prog_name="stepwell")

    assert called("run", "w.json").exit_code == 3
    (first,) = json.loads(called("approvals", "list", "--json").stdout)
    assert called("approvals", "approve", first["id"]).exit_code in {0, 3}
    (second,) = json.loads(called("approvals", "list", "--json").stdout)
    assert (first["path"], second["path"]) == ("/L/0/g", "/L/1/g")
    for word in ("approve", "reject"):
        again = called("approvals", word, first["id"])
        assert again.exit_code not in {0, 3}
        assert "Traceback" not in again.output
        assert "approved" in again.output
    assert json.loads(called("approvals", "list", "--json").stdout) == [second]
    assert called("approvals", "approve", second["id"]).exit_code == 0
    assert json.loads(called("runs", "list", "--json").stdout)[0]["status"] == "completed"
