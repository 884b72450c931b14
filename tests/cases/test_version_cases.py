"""Versions: published workflows, the runs that pinned them, and moving a parked run to another one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.engine_world import engine_with, open_waits, statuses, workflow

from stepwell.engine.incidents import Action, Filter
from stepwell.errors import Conflict, DefinitionError, NotFound, StepFailed
from stepwell.journal.entry import decode
from stepwell.people.actor import local_operator
from stepwell.stores.memory import MemoryRunStore
from stepwell.testing.scripted import ScriptedTools


def tool(name, **fields):
    return {"id": name, "type": "tool_call", "tool": name, "arguments": {"n": 1}, **fields}


GATE = {"id": "g", "type": "approval", "title": "go?"}
OLD = [tool("a"), GATE, tool("b")]


async def parked(engine, steps, value=None, **parts):
    handle = await engine.start(workflow(steps, **parts), value or {})
    run = await handle.wait()
    return run.id


async def approve(engine, run_id, path="/g"):
    await engine.decide((await open_waits(engine, run_id))[path].id, "approved")
    return await resumed(engine, run_id)


async def resumed(engine, run_id):
    return await (await engine.resume(run_id)).wait()


def told(clashes):
    return {clash.path: f"{clash.message} | {clash.recorded} | {clash.now}" for clash in clashes}


# ── publishing ──


async def test_publishing_numbers_versions_and_the_same_again_changes_nothing():
    async with engine_with(ScriptedTools()) as engine:
        first, new = await engine.versions.publish(workflow(OLD, version="beta"), note="first", by="ana")
        assert (first.number, first.label, first.by, first.note, new) == (1, "beta", "ana", "first", True)
        same, new = await engine.versions.publish(workflow(OLD, version="beta"))
        assert (same, new) == (first, False)
        renamed, new = await engine.versions.publish(workflow(OLD, version="beta", name="Another name"))
        assert (renamed.number, renamed.definition, new) == (2, first.definition, True)
        assert [one.number for one in await engine.versions.versions("w")] == [2, 1]
        assert [one.number for one in await engine.versions.workflows()] == [2]


async def test_publishing_keeps_the_text_and_refuses_what_does_not_exist():
    async with engine_with(ScriptedTools()) as engine:
        text = "# why\nworkflow: w\nsteps:\n- {id: a, type: set, values: {}}  # a comment\n"
        version, _ = await engine.versions.publish(workflow(text))
        assert version.text == text
        assert (await engine.versions.get("w@1")).workflow.workflow == "w"
        missing = workflow([{"id": "s", "type": "sub_workflow", "workflow": "nothing"}])
        with pytest.raises(DefinitionError, match="nothing"):
            await engine.versions.publish(missing)
        assert len(await engine.versions.versions("w")) == 1


async def test_twenty_publishers_at_once_get_twenty_numbers():
    async with engine_with(ScriptedTools()) as engine:
        made = [workflow([{"id": "a", "type": "set", "values": {"n": n}}]) for n in range(20)]
        found = await asyncio.gather(*(engine.versions.publish(one) for one in made))
        assert sorted(version.number for version, _ in found) == list(range(1, 21))


async def test_a_run_of_a_published_version_and_of_the_newest():
    tools = ScriptedTools()
    async with engine_with(tools) as engine:
        for n in (1, 2):
            await engine.versions.publish(workflow([tool("a", arguments={"n": n})], version=f"v{n}"))
        for reference, n in (("w@1", 1), ("w@v1", 1), ("w@2", 2), ("w", 2)):
            run = await (await engine.start(await engine.versions.get(reference), {})).wait()
            assert (run.status, run.output) == ("completed", {"n": n})
        with pytest.raises(NotFound, match=r"no version '3' of 'w'; it has 2 \(v2\), 1 \(v1\)"):
            await engine.versions.get("w@3")


async def test_publishing_and_rolling_back_touch_no_run_that_is_parked_or_running():
    tools = ScriptedTools(delays={"a": 0.2})
    async with engine_with(tools) as engine:
        await engine.versions.publish(workflow(OLD))
        waiting = await (await engine.start(await engine.versions.get("w"), {})).wait()
        running = await engine.start(await engine.versions.get("w"), {})
        before = [(await engine.run(one)).definition for one in (waiting.id, running.run_id)]
        await engine.versions.publish(workflow([GATE, tool("other")]))
        rolled, new = await engine.versions.rollback("w@1", by="ana")
        assert (rolled.number, rolled.origin, new) == (3, "rollback of 1", True)
        assert rolled.definition == before[0]
        await running.wait()
        assert [(await engine.run(one)).definition for one in (waiting.id, running.run_id)] == before
        for one in (waiting.id, running.run_id):
            assert (await approve(engine, one)).status == "completed"
        assert [call.tool for call in tools.calls] == ["a", "a", "b", "b"]
        same, new = await engine.versions.rollback("w@1")
        assert (same.number, new) == (3, False)


async def test_a_version_with_open_runs_cannot_be_deleted_and_others_can():
    async with engine_with(ScriptedTools()) as engine:
        await engine.versions.publish(workflow(OLD))
        await engine.versions.publish(workflow([GATE]))
        run = await (await engine.start(await engine.versions.get("w@1"), {})).wait()
        with pytest.raises(Conflict, match="w@1 cannot be deleted"):
            await engine.versions.delete("w@1")
        assert (await engine.versions.delete("w@2")).number == 2
        await approve(engine, run.id)
        await engine.versions.delete("w@1")
        with pytest.raises(NotFound):
            await engine.versions.versions("w")
        assert (await engine.tree(run.id)).as_json()["status"] == "completed"


async def test_a_sub_workflow_is_found_in_the_library_and_pinned():
    tools = ScriptedTools()
    inner = [GATE, tool("b", arguments={"n": 1})]
    outer = [{"id": "s", "type": "sub_workflow", "workflow": "inner@1"}]
    async with engine_with(tools) as engine:
        await engine.versions.publish(workflow(inner, workflow="inner"))
        run_id = await parked(engine, outer)
        await engine.versions.publish(workflow([tool("b", arguments={"n": 2})], workflow="inner"))
        with pytest.raises(Conflict):
            await engine.versions.delete("inner@1")
        assert (await approve(engine, run_id, "/s/g")).output == {"n": 1}
        newest = [{"id": "s", "type": "sub_workflow", "workflow": "inner"}]
        run = await (await engine.start(workflow(newest), {})).wait()
        assert (run.status, run.output) == ("completed", {"n": 2})


async def test_a_published_caller_keeps_the_child_that_it_was_published_with():
    tools = ScriptedTools()
    async with engine_with(tools) as engine:
        await engine.versions.publish(workflow([tool("b", arguments={"n": 1})], workflow="inner"))
        await engine.versions.publish(workflow([{"id": "s", "type": "sub_workflow", "workflow": "inner"}]))
        await engine.versions.publish(workflow([tool("b", arguments={"n": 2})], workflow="inner"))
        run = await (await engine.start(await engine.versions.get("w"), {})).wait()
        assert run.output == {"n": 1}
        again, new = await engine.versions.publish(workflow([{"id": "s", "type": "sub_workflow", "workflow": "inner"}]))
        assert (again.number, new) == (2, True)
        compared = await engine.versions.diff(await engine.versions.get("w@1"), await engine.versions.get("w@2"))
        assert [one.field for one in compared.found] == ["workflow inner"]
        assert not compared.cosmetic


async def test_a_sub_workflow_named_by_a_text_is_found_in_the_library_too():
    async with engine_with(ScriptedTools()) as engine:
        await engine.versions.publish(workflow([tool("b", arguments={"n": 5})], workflow="inner"))
        outer = [{"id": "s", "type": "sub_workflow", "workflow": "{{workflow_input.which}}"}]
        run = await (await engine.start(workflow(outer), {"which": "inner@1"})).wait()
        assert (run.status, run.output) == ("completed", {"n": 5})
        run = await (await engine.start(workflow(outer), {"which": "inner@7"})).wait()
        assert run.status == "failed"
        assert "it has 1" in str(run.error)


# ── C084, C085 ──


async def test_c084_a_cosmetic_change_of_the_file_disturbs_no_parked_run(tmp_path: Path):
    store, file = MemoryRunStore(), tmp_path / "w.yaml"
    before = (
        "workflow: w\nname: Old\nsteps:\n- {id: g, type: approval, title: go}\n- {id: t, type: tool_call, tool: t}\n"
    )
    after = (
        "# another comment\nsteps:\n- title: go\n  type: approval\n  id: g\n  description: Look twice\n"
        "- {type: tool_call, tool: t, id: t, name: Do it}\ntags: [x, y]\ndescription: New\nworkflow: w\n"
    )
    file.write_text(before, "utf-8")
    async with engine_with(ScriptedTools(), store) as engine:
        run = await (await engine.start(engine.load(file), {})).wait()
    file.write_text(after, "utf-8")
    async with engine_with(ScriptedTools(), store) as engine:
        changed = engine.load(file)
        plan = await engine.versions.migrate(run.id, changed)
        assert (plan.same, plan.conflicts) == (True, ())
        assert (await approve(engine, run.id)).status == "completed"
        compared = await engine.versions.diff(await engine.run(run.id), changed)
        assert compared.cosmetic
        assert compared.found


async def test_c085_a_lost_definition_makes_the_run_stuck_and_creates_nothing():
    store = MemoryRunStore()
    outer = [{"id": "s", "type": "sub_workflow", "workflow": "inner"}]
    async with engine_with(ScriptedTools(), store) as engine:
        await engine.versions.publish(workflow([GATE, tool("b")], workflow="inner"))
        run_id = await parked(engine, outer)
        wait = (await open_waits(engine, run_id))["/s/g"].id
    [begun] = [entry for entry in await store.history("default", run_id) if entry.path == "/s/~start"]
    child = decode(begun.body)["value"]["digest"]
    del store._definitions["default", child]
    tools = ScriptedTools()
    async with engine_with(tools, store) as engine:
        await engine.decide(wait, "approved")
        run = await resumed(engine, run_id)
        assert run.status == "stuck"
        assert child in str(run.error)
        assert tools.calls == []
        assert len(await engine.runs()) == 1
        with pytest.raises(NotFound, match="no run 0123"):
            await engine.resume("0123")
        assert len(await engine.runs()) == 1


# ── migration ──


async def test_a_parked_run_is_moved_and_goes_on_as_the_new_version_says():
    tools = ScriptedTools()
    async with engine_with(tools) as engine:
        run_id = await parked(engine, OLD)
        new = workflow([tool("a"), GATE, tool("c"), tool("d")], version="2")
        dry = await engine.versions.migrate(run_id, new, dry_run=True)
        assert (dry.conflicts, dry.done, dry.wake) == ((), False, False)
        assert (await engine.run(run_id)).version == ""
        plan = await engine.versions.migrate(run_id, new, by="ana")
        assert (plan.conflicts, plan.done) == ((), True)
        assert (await engine.run(run_id)).version == "2"
        [said] = [entry for entry in await engine.history(run_id) if entry.path == "/~migrated"]
        value = decode(said.body)["value"]
        assert (value["from"], value["to"], value["by"]) == (plan.before, plan.after, "ana")
        assert (await approve(engine, run_id)).status == "completed"
        assert [call.tool for call in tools.calls] == ["a", "c", "d"]
        assert await statuses(engine, run_id) == {
            "/a": "completed", "/g": "completed", "/c": "completed", "/d": "completed"
        }  # fmt: skip


async def test_a_run_can_be_moved_there_and_back():
    async with engine_with(ScriptedTools()) as engine:
        run_id = await parked(engine, OLD)
        for steps in ([tool("a"), GATE], OLD, [tool("a"), GATE, tool("z")]):
            assert (await engine.versions.migrate(run_id, workflow(steps))).done
        places = [entry.path for entry in await engine.history(run_id) if "migrated" in entry.path]
        assert places == ["/~migrated", "/~migrated#2", "/~migrated#3"]
        assert (await approve(engine, run_id)).output == {"n": 1}


async def test_all_conflicts_are_told_at_once_and_nothing_is_changed():
    steps = [
        tool("a"),
        tool("b"),
        {"id": "p", "type": "parallel", "branches": {"x": [GATE], "y": [{**GATE, "id": "h"}]}},
    ]
    other = [
        tool("a", arguments={"n": 7}),
        tool("b", arguments={"n": 8}),
        {"id": "p", "type": "parallel", "branches": {"x": [GATE], "y": [{"id": "h", "type": "wait", "for": "2h"}]}},
    ]
    async with engine_with(ScriptedTools()) as engine:
        run_id = await parked(engine, steps)
        before = await engine.history(run_id)
        plan = await engine.versions.migrate(run_id, workflow(other))
        found = told(plan.conflicts)
        assert set(found) == {"/a", "/b", "/p/y/h"}
        assert "not what the new definition asks for" in found["/a"]
        assert "waits (approval)" in found["/p/y/h"]
        assert not plan.done
        assert await engine.history(run_id) == before
        assert (await engine.run(run_id)).definition == plan.before
        assert all(clash.hint for clash in plan.conflicts)


async def test_an_open_approval_that_is_removed_or_put_behind_new_work_is_a_conflict():
    async with engine_with(ScriptedTools()) as engine:
        run_id = await parked(engine, OLD)
        gone = await engine.versions.migrate(run_id, workflow([tool("a"), tool("b")]))
        assert "no such step" in told(gone.conflicts)["/g"]
        behind = await engine.versions.migrate(run_id, workflow([tool("a"), tool("new"), GATE, tool("b")]))
        assert "comes first: /new" in told(behind.conflicts)["/g"]
        nested = [tool("a"), {"id": "k", "type": "condition", "when": "true", "then": [GATE]}]
        moved = await engine.versions.migrate(run_id, workflow(nested))
        assert "/g" in told(moved.conflicts)


async def test_a_completed_step_that_would_come_after_new_work_is_a_conflict():
    async with engine_with(ScriptedTools()) as engine:
        run_id = await parked(engine, OLD)
        plan = await engine.versions.migrate(run_id, workflow([tool("new"), *OLD]))
        assert "does not come to it" in told(plan.conflicts)["/a"]


async def test_a_completed_step_that_is_removed_is_told_and_stays_in_the_history():
    async with engine_with(ScriptedTools()) as engine:
        run_id = await parked(engine, OLD)
        plan = await engine.versions.migrate(run_id, workflow([GATE, tool("b")]))
        assert (plan.conflicts, plan.done) == ((), True)
        assert "no step any more" in told(plan.changes)["/a"]
        assert (await approve(engine, run_id)).status == "completed"
        assert (await statuses(engine, run_id))["/a"] == "completed"


async def test_a_changed_question_is_told_and_the_open_one_stays_as_it_was_shown():
    async with engine_with(ScriptedTools()) as engine:
        run_id = await parked(engine, OLD)
        plan = await engine.versions.migrate(run_id, workflow([tool("a"), {**GATE, "title": "really?"}]))
        assert (plan.conflicts, plan.done) == ((), True)
        assert "reads differently" in told(plan.changes)["/g"]
        assert (await open_waits(engine, run_id))["/g"].request["title"] == "go?"
        assert (await approve(engine, run_id)).status == "completed"


async def test_new_work_beside_what_waits_is_done_at_once():
    tools = ScriptedTools()
    graph = [{**GATE, "depends_on": []}, tool("b", depends_on=["g"])]
    async with engine_with(tools) as engine:
        run_id = await parked(engine, graph)
        plan = await engine.versions.migrate(run_id, workflow([*graph, tool("beside", depends_on=[])]))
        assert (plan.conflicts, plan.wake) == ((), True)
        assert "as soon as" in told(plan.changes)["/beside"]
        assert (await engine.run(run_id)).status == "queued"
        await resumed(engine, run_id)
        assert [call.tool for call in tools.calls] == ["beside"]
        assert (await approve(engine, run_id)).status == "completed"


async def test_a_branch_that_was_taken_has_to_be_there():
    def chosen(**parts):
        return [{"id": "k", "type": "condition", **parts}]

    async with engine_with(ScriptedTools()) as engine:
        run_id = await parked(engine, chosen(cases=[{"when": "true", "name": "small", "steps": [GATE]}]))
        renamed = chosen(cases=[{"when": "true", "name": "large", "steps": [GATE]}])
        plan = await engine.versions.migrate(run_id, workflow(renamed))
        assert "branch that was taken is not there any more | small" in told(plan.conflicts)["/k"]
        changed = chosen(cases=[{"when": "1 > 2", "name": "small", "steps": [GATE, tool("b")]}])
        plan = await engine.versions.migrate(run_id, workflow(changed))
        assert (plan.conflicts, plan.done) == ((), True)
        assert (await approve(engine, run_id, "/k/g")).status == "completed"


async def test_a_loop_keeps_its_items_and_its_finished_iterations():
    tools = ScriptedTools()

    def loop(**parts):
        body = [tool("t", arguments={"n": "{{loop_item}}"}), {**GATE, "condition": "loop_item == 2"}]
        return [{"id": "l", "type": "loop", "over": [1, 2, 3], "steps": body, **parts}]

    async with engine_with(tools) as engine:
        run_id = await parked(engine, loop())
        plan = await engine.versions.migrate(run_id, workflow([*loop(over=[9, 9]), tool("after")]))
        assert (plan.conflicts, plan.done) == ((), True)
        assert (await approve(engine, run_id, "/l/1/g")).status == "completed"
        assert tools.called("t") == [{"n": 1}, {"n": 2}, {"n": 3}]
        other = await parked(engine, loop())
        until = [{"id": "l", "type": "loop", "until": "true", "max_iterations": 3, "steps": [tool("t")]}]
        plan = await engine.versions.migrate(other, workflow(until))
        assert plan.conflicts
        assert not plan.done


async def test_what_a_settled_container_did_not_keep_cannot_be_referred_to_later():
    inner = {"id": "k", "type": "condition", "when": "true", "then": [tool("a"), tool("x")]}
    async with engine_with(ScriptedTools()) as engine:
        run_id = await parked(engine, [inner, GATE])
        refers = tool("b", arguments={"from": "{{ step.a.n ?? 0 }}"})
        plan = await engine.versions.migrate(run_id, workflow([inner, GATE, refers]))
        assert "whose record was not kept" in told(plan.conflicts)["/k"]


async def test_an_input_that_does_not_fit_and_a_step_that_fails_at_once_are_conflicts():
    schema = {"type": "object", "required": ["who"], "properties": {"who": {"type": "string"}}}
    async with engine_with(ScriptedTools()) as engine:
        run_id = await parked(engine, OLD)
        plan = await engine.versions.migrate(run_id, workflow(OLD, input=schema))
        assert "who" in told(plan.conflicts)[""]
        graph = [{**tool("a"), "depends_on": []}, {**GATE, "depends_on": []}]
        other = await parked(engine, graph)
        wrong = [*graph, {"id": "s", "type": "set", "values": {"v": "{{workflow_input.absent}}"}, "depends_on": []}]
        plan = await engine.versions.migrate(other, workflow(wrong))
        assert any("expression_error" in clash.now for clash in plan.conflicts)


async def test_only_a_parked_run_is_moved_and_only_to_its_own_workflow():
    async with engine_with(ScriptedTools(delays={"slow": 0.3})) as engine:
        done = await parked(engine, [tool("a")])
        with pytest.raises(Conflict, match="it ended"):
            await engine.versions.migrate(done, workflow(OLD))
        running = await engine.start(workflow([tool("slow")]), {})
        await asyncio.sleep(0)
        with pytest.raises(Conflict, match="only a parked run"):
            await engine.versions.migrate(running.run_id, workflow(OLD))
        await running.wait()
        run_id = await parked(engine, OLD)
        plan = await engine.versions.migrate(run_id, workflow(OLD, workflow="other"))
        assert "another workflow" in told(plan.conflicts)[""]
        with pytest.raises(NotFound):
            await engine.versions.migrate("nothing", workflow(OLD))


async def test_a_stuck_run_finds_its_way_out_by_a_definition_that_agrees():
    store, tools = MemoryRunStore(), ScriptedTools()
    async with engine_with(tools, store) as engine:
        run_id = await parked(engine, OLD)
        other = await engine._bundles.store("default", workflow([tool("a", arguments={"n": 9}), GATE, tool("b")]))
        record = store._records[run_id]
        record.change(definition=other)  # as if an engine had compiled it differently
        await engine.decide((await open_waits(engine, run_id))["/g"].id, "approved")
        assert (await resumed(engine, run_id)).status == "stuck"
        still = await engine.versions.migrate(run_id, workflow([tool("a", arguments={"n": 9}), GATE]))
        assert "/a" in told(still.conflicts)
        plan = await engine.versions.migrate(run_id, workflow([*OLD, tool("c")]))
        assert (plan.conflicts, plan.done, plan.wake) == ((), True, True)
        assert (await resumed(engine, run_id)).status == "completed"
        assert [call.tool for call in tools.calls] == ["a", "b", "c"]


async def test_a_decision_between_the_check_and_the_move_is_not_lost():
    tools = ScriptedTools()
    async with engine_with(tools) as engine:
        run_id = await parked(engine, OLD)
        digest = await engine._bundles.store("default", workflow([tool("a"), GATE, tool("c")]))
        plan = await engine.versions._migrations.plan(run_id, digest)
        await engine.decide((await open_waits(engine, run_id))["/g"].id, "approved")
        assert (await engine.versions._migrations.move(plan, local_operator())).definition == digest
        assert (await resumed(engine, run_id)).status == "completed"
        assert tools.called("c") == [{"n": 1}]
        other = await parked(engine, OLD)
        plan = await engine.versions._migrations.plan(other, digest)
        await approve(engine, other)
        with pytest.raises(Conflict):
            await engine.versions._migrations.move(plan, local_operator())


async def test_an_open_sub_workflow_stays_at_the_version_it_began_with():
    tools = ScriptedTools()
    async with engine_with(tools) as engine:
        await engine.versions.publish(workflow([GATE, tool("b", arguments={"n": 1})], workflow="inner"))
        outer = [{"id": "s", "type": "sub_workflow", "workflow": "inner"}]
        run_id = await parked(engine, outer)
        await engine.versions.publish(workflow([tool("x"), GATE, tool("b", arguments={"n": 2})], workflow="inner"))
        plan = await engine.versions.migrate(run_id, workflow([*outer, tool("after")]))
        assert (plan.conflicts, plan.done) == ((), True)
        assert (await approve(engine, run_id, "/s/g")).status == "completed"
        assert tools.called("b") == [{"n": 1}]
        assert [call.tool for call in tools.calls] == ["b", "after"]


# ── runs that wait for an operator, or that have gone back ──


async def test_a_suspended_run_is_moved_and_its_step_is_tried_again_as_the_new_version_says():
    tools = ScriptedTools(answers={"b": [StepFailed("invalid_request", "no such account")]})
    broken = [tool("a"), tool("b", on_error="suspend"), tool("c")]
    async with engine_with(tools) as engine:
        run_id = await parked(engine, broken)
        assert (await engine.run(run_id)).status == "suspended"
        gone = await engine.versions.migrate(run_id, workflow([tool("a"), tool("c")]))
        assert "no such step" in told(gone.conflicts)["/b"]
        tools.answers = {}
        mended = [tool("a"), tool("b", arguments={"n": 2}, on_error="suspend"), tool("c")]
        plan = await engine.versions.migrate(run_id, workflow(mended))
        assert (plan.conflicts, plan.done) == ((), True)
        [incident] = await engine.incidents.open(Filter(run_id=run_id))
        await engine.incidents.settle(incident.id, Action("retry"))
        run = await resumed(engine, run_id)
        assert run.status == "completed"
        assert [call.arguments for call in tools.calls if call.tool == "b"] == [{"n": 1}, {"n": 2}]
        assert len(tools.called("a")) == 1


async def test_a_run_that_was_sent_back_is_moved_with_its_rounds():
    tools = ScriptedTools()
    review = {"id": "g", "type": "approval", "title": "go?", "on_error": {"strategy": "goto", "goto": "a"}}
    async with engine_with(tools) as engine:
        run_id = await parked(engine, [tool("a"), review])
        await engine.decide((await open_waits(engine, run_id))["/g"].id, "rejected")
        await resumed(engine, run_id)
        assert set(await open_waits(engine, run_id)) == {"/g#2"}
        plan = await engine.versions.migrate(run_id, workflow([tool("a"), review, tool("b")]))
        assert (plan.conflicts, plan.changes, plan.done) == ((), (), True)
        assert (await approve(engine, run_id, "/g#2")).status == "completed"
        assert [call.tool for call in tools.calls] == ["a", "a", "b"]


async def test_a_run_inside_a_fallback_is_moved_while_the_fallback_is_there():
    tools = ScriptedTools(answers={"a": [StepFailed("invalid_request", "no")]})

    def steps(*inside):
        return [tool("a", on_error={"strategy": "fallback", "steps": list(inside)}), tool("b")]

    async with engine_with(tools) as engine:
        run_id = await parked(engine, steps(GATE))
        plan = await engine.versions.migrate(run_id, workflow(steps(tool("x"), GATE)))
        assert plan.conflicts
        plan = await engine.versions.migrate(run_id, workflow(steps(GATE, tool("x"))))
        assert (plan.conflicts, plan.done) == ((), True)
        [path] = await open_waits(engine, run_id)
        assert (await approve(engine, run_id, path)).status == "completed"
        assert [call.tool for call in tools.calls] == ["a", "x", "b"]
