"""Cases of approvals: who may decide, how many must, and what happens while nobody does (C024, C027, C030, C031)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine_world import open_waits, statuses, workflow

from stepwell.engine.engine import Engine
from stepwell.engine.events import Listeners
from stepwell.engine.incidents import Action
from stepwell.engine.parts import Parts
from stepwell.engine.tool_performer import ToolPerformer
from stepwell.engine.world import World
from stepwell.errors import AlreadyDecided, Forbidden, Gone, InputError, NotFound
from stepwell.interpreter.effect import ToolCall
from stepwell.ports import Person, RunStore
from stepwell.stores.knowledge_memory import MemoryKnowledge
from stepwell.stores.memory import MemoryRunStore
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.testing.scripted import ScriptedTools

ANA = Person("ana", "Ana@Example.org", ("finance", "approver"))
BEN = Person("ben", "", ("finance",))
CID = Person("cid", "", ("finance",), ("legal",))
HEAD = Person("head", "", ("head", "admin"))
EVE = Person("eve", "", ("viewer",))
PEOPLE = [ANA, BEN, CID, HEAD, EVE]


class Hands:
    """A clock whose hands are set by hand; durations are measured by the machine's."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def now(self) -> float:
        return self.time

    monotonic = staticmethod(time.monotonic)
    uptime = staticmethod(time.monotonic)


class Office:
    """An engine with people, whose clock stands still until it is set."""

    def __init__(self, store: RunStore, clock: Hands) -> None:
        tools = ScriptedTools()
        self.clock = clock
        self.tools = tools
        self.store = store
        world = World(store, {ToolCall: ToolPerformer(tools)}, tools, Listeners(), clock=clock)
        settings: Any = SimpleNamespace(root=Path("/"))
        self.engine = Engine(Parts(store, world, tools, MemoryKnowledge()), settings, serves=False)  # type: ignore[arg-type]

    async def start(self, steps: Any, value: Any = None, by: str = "eve") -> str:
        run = await self.engine.start(workflow(steps) if isinstance(steps, list) else steps, value or {}, requester=by)
        await run.wait()
        return run.run_id

    async def gate(self, run_id: str) -> str:
        [wait] = (await open_waits(self.engine, run_id)).values()
        return wait.id

    async def go_on(self, run_id: str) -> Any:
        return await self.engine.settled(run_id) if await self._adopted(run_id) else await self.engine.run(run_id)

    async def _adopted(self, run_id: str) -> bool:
        await self.engine.resume(run_id)
        return True

    async def sweep(self) -> None:
        await self.store.claim("sweeper", 15.0, limit=0)

    async def trail(self, wait_id: str) -> list[str]:
        return [f"{note.action} {note.by}" for note in reversed(await self.engine.people.trail(object=wait_id))]

    async def told(self, run_id: str) -> list[tuple[str, Any]]:
        found = await self.engine.notifications(run_id)
        return [(one.key.partition("/")[2], one.to) for one in reversed(found)]


@asynccontextmanager
async def office(*people: Person, store: RunStore | None = None) -> AsyncIterator[Office]:
    clock = Hands()
    made = Office(store or MemoryRunStore(clock=clock.now), clock)
    await made.engine.open()
    try:
        if people:
            await made.engine.people.add(list(people))
        yield made
    finally:
        await made.engine.close()


def gate(**fields: Any) -> dict[str, Any]:
    return {"id": "g", "type": "approval", "title": "Pay?", **fields}


FOUR_EYES = gate(approvers=["role:finance"], forbid_self=True)


@pytest.mark.parametrize("name", ["ana", "ANA", "ana@example.org"])
@pytest.mark.parametrize("inside", [False, True])
async def test_c030_who_asked_for_a_run_decides_it_under_no_name(name: str, inside: bool, tmp_path: Path) -> None:
    async with office(*PEOPLE) as here:
        if inside:
            (tmp_path / "child.yaml").write_text("workflow: child\nsteps:\n- {id: g, type: approval, "
                                                 "approvers: ['role:finance'], forbid_self: true}\n")  # fmt: skip
            here.engine._parts.workflow_file = lambda _, beside: tmp_path / "child.yaml"
        step = {"id": "c", "type": "sub_workflow", "workflow": "child"} if inside else FOUR_EYES
        run_id = await here.start([step], by="ana")
        wait_id = await here.gate(run_id)
        for word in ("approved", "rejected"):
            with pytest.raises(Forbidden):
                await here.engine.decide(wait_id, word, by=name)
        assert await here.trail(wait_id) == ["approval.decide.refused ana"] * 2
        assert await here.gate(run_id) == wait_id
        await here.engine.decide(wait_id, "approved", by="ben")
        assert (await here.go_on(run_id)).status == "completed"


@pytest.mark.parametrize("value", [{"amount": 0}, {"amount": 0.01}, {"amount": -1}, {}])
async def test_c031_no_input_value_lets_people_approve_their_own_requests(value: dict[str, Any]) -> None:
    async with office(*PEOPLE) as here:
        step = gate(forbid_self=True, condition="(workflow_input?.amount ?? 0) >= -1")
        run_id = await here.start([step], value, by="ana")
        with pytest.raises(Forbidden):
            await here.engine.decide(await here.gate(run_id), "approved", by="ana")
        await here.engine.decide(await here.gate(run_id), "approved", by="head")


async def test_c027_an_approval_that_expired_is_told_alike_everywhere_and_a_late_click_changes_nothing() -> None:
    async with office(*PEOPLE) as here:
        run_id = await here.start([gate(approvers=["role:finance"], expires_in="1h")])
        wait_id = await here.gate(run_id)
        here.clock.time += 61 * 60
        await here.sweep()
        assert (await here.engine.wait(wait_id)).status == "expired"
        assert await open_waits(here.engine, run_id) == {}
        run = await here.go_on(run_id)
        assert (run.status, run.error["kind"]) == ("failed", "approval_expired")
        assert await statuses(here.engine, run_id) == {"/g": "failed"}
        before = await here.engine.history(run_id)
        with pytest.raises(Gone):
            await here.engine.decide(wait_id, "approved", by="ana")
        assert await here.engine.history(run_id) == before
        assert (await here.engine.wait(wait_id)).status == "expired"
        assert await here.trail(wait_id) == ["approval.decide.refused ana"]
        assert (await here.told(run_id))[-1] == ("expired", {"users": ["ana", "ben", "cid"]})


async def test_c024_the_click_of_one_round_decides_no_later_one() -> None:
    async with office() as here:
        steps = [
            {"id": "r", "type": "loop", "over": [1, 2], "steps": [gate()]},
        ]
        run_id = await here.start(steps)
        first = await here.gate(run_id)
        await here.engine.decide(first, "approved")
        await here.go_on(run_id)
        second = await here.gate(run_id)
        assert second != first
        for _ in range(3):
            with pytest.raises(AlreadyDecided):
                await here.engine.decide(first, "approved")
        assert await here.gate(run_id) == second


async def test_a_quorum_waits_for_the_second_and_the_run_is_told_once() -> None:
    async with office(*PEOPLE) as here:
        run_id = await here.start([gate(approvers=["role:finance"], require={"quorum": 2})])
        wait_id = await here.gate(run_id)
        first = await here.engine.decide(wait_id, "approved", by="ben", comment="fine")
        assert first.status == "pending"
        with pytest.raises(Forbidden):
            await here.engine.decide(wait_id, "rejected", by="ben")
        with pytest.raises(Forbidden):
            await here.engine.decide(wait_id, "approved", by="eve")
        assert (await here.engine.run(run_id)).status == "pending_approval"
        await here.engine.decide(wait_id, "approved", by="Ana@example.org")
        run = await here.go_on(run_id)
        assert run.status == "completed"
        assert (run.output["decision"], run.output["by"]) == ("approved", "ana")
        assert [vote["by"] for vote in run.output["votes"]] == ["ben", "ana"]
        with pytest.raises(AlreadyDecided) as late:
            await here.engine.decide(wait_id, "rejected", by="cid")
        assert late.value.detail["by"] == "ana"
        assert await here.trail(wait_id) == [
            "approval.decide ben", "approval.decide.refused ben", "approval.decide.refused eve",
            "approval.decide ana", "approval.decide.refused cid",
        ]  # fmt: skip


async def test_a_sequence_asks_in_the_written_order_and_tells_the_next() -> None:
    async with office(*PEOPLE) as here:
        run_id = await here.start([gate(approvers=["head", "department:legal"], require="sequence")])
        wait_id = await here.gate(run_id)
        with pytest.raises(Forbidden):
            await here.engine.decide(wait_id, "approved", by="cid")
        await here.engine.decide(wait_id, "approved", by="head")
        await here.engine.decide(wait_id, "rejected", by="cid", comment="no contract")
        run = await here.go_on(run_id)
        assert (run.status, run.error["kind"]) == ("failed", "rejected")
        assert await here.told(run_id) == [("opened", {"users": ["head"]}), ("turn/1", {"users": ["cid"]})]


async def test_reminders_and_escalation_are_stored_once_and_wake_no_run() -> None:
    async with office(*PEOPLE) as here:
        asked = gate(approvers=["ben"], remind_every="1h", escalate=[{"after": "150m", "to": {"roles": ["head"]}}])
        run_id = await here.start([asked])
        wait_id = await here.gate(run_id)
        with pytest.raises(Forbidden):
            await here.engine.decide(wait_id, "approved", by="head")
        before = await here.engine.run(run_id)
        for _ in range(2):
            here.clock.time += 3600
            await here.sweep()
            await here.sweep()
        here.clock.time += 5 * 3600
        await here.sweep()
        assert await here.told(run_id) == [
            ("opened", {"users": ["ben"]}),
            ("reminder/1", {"users": ["ben"]}),
            ("reminder/2", {"users": ["ben"]}),
            ("reminder/7", {"users": ["ben"]}),
            ("escalation/0", {"users": ["head"]}),
        ]
        assert await here.engine.run(run_id) == before
        await here.engine.decide(wait_id, "approved", by="head")
        assert (await here.go_on(run_id)).status == "completed"


async def test_handing_on_changes_who_decides_and_makes_no_decision_stale() -> None:
    async with office(*PEOPLE) as here:
        run_id = await here.start([gate(approvers=["ben", "role:finance"], require="all")], by="ana")
        wait = (await open_waits(here.engine, run_id))["/g"]
        handed = await here.engine.approvals.reassign(wait.id, "head", old="cid", by="head")
        assert handed.digest == wait.digest
        with pytest.raises(Forbidden):
            await here.engine.approvals.reassign(wait.id, "eve", by="ben")
        with pytest.raises(Forbidden):
            await here.engine.approvals.reassign(wait.id, "ana", old="ben", by="head")
        with pytest.raises(Forbidden):
            await here.engine.decide(wait.id, "approved", by="cid")
        for name in ("ben", "head"):
            await here.engine.decide(wait.id, "approved", by=name, digest=wait.digest)
        assert (await here.go_on(run_id)).status == "completed"
        assert "approval.reassign head" in await here.trail(wait.id)
        assert ("reassigned", {"users": ["head"]}) in [
            (key.partition("/")[0], to) for key, to in await here.told(run_id)
        ]


async def test_what_somebody_who_has_left_was_asked_is_handed_on_by_an_admin() -> None:
    async with office(*PEOPLE) as here:
        run_id = await here.start([gate(approvers=["ben"])])
        wait_id = await here.gate(run_id)
        await here.engine.people.remove("ben")
        with pytest.raises(Forbidden):
            await here.engine.decide(wait_id, "approved", by="ben")
        await here.engine.approvals.reassign(wait_id, "cid", old="ben", by="head")
        assert (await here.engine.decide(wait_id, "approved", by="cid")).status == "decided"


async def test_only_approvals_are_decided_as_such() -> None:
    async with office() as here:
        run_id = await here.start([{"id": "w", "type": "wait", "for": "1h"}], by="")
        [timer] = await here.store.waits("default", run_id=run_id)
        with pytest.raises(NotFound):
            await here.engine.decide(timer.id, "approved")
        assert (await here.engine.wait(timer.id)).status == "pending"


async def test_on_a_bare_machine_one_decision_settles_what_several_are_asked_for_and_says_so() -> None:
    async with office() as here:
        run_id = await here.start([gate(approvers=["role:ghost"], require={"quorum": 5})], by="")
        decided = await here.engine.decide(await here.gate(run_id), "approved")
        assert (decided.status, decided.decision["rules"]) == ("decided", "off")
        assert (await here.go_on(run_id)).status == "completed"


async def test_people_who_come_after_an_approval_opened_are_fixed_at_its_first_decision() -> None:
    async with office() as here:
        run_id = await here.start([gate(approvers=["role:finance"], require="all")], by="")
        await here.engine.people.add(PEOPLE)
        wait_id = await here.gate(run_id)
        with pytest.raises(Forbidden):
            await here.engine.decide(wait_id, "approved")
        await here.engine.people.add([Person("late", "", ("finance",))])
        with pytest.raises(Forbidden):
            await here.engine.decide(wait_id, "approved", by="late")
        for name in ("ana", "ben", "cid"):
            await here.engine.decide(wait_id, "approved", by=name)
        assert (await here.engine.wait(wait_id)).status == "decided"


@pytest.mark.parametrize(
    "step",
    [
        gate(approvers=["role:ghost"]),
        gate(approvers=["zoe"]),
        gate(approvers=["role:finance"], require={"quorum": 4}),
        gate(approvers=["role:finance", "role:ghost"], require="sequence"),
        gate(require={"per_group": {"roles": {"finance": 4}}}),
        gate(approvers=["ana"]),
    ],
)
async def test_a_start_is_refused_where_nobody_could_decide(step: dict[str, Any]) -> None:
    async with office(*PEOPLE) as here:
        with pytest.raises(InputError) as refused:
            await here.start([step], by="ana")
        [problem] = refused.value.problems
        assert problem.code in {"approvers", "require"}
        assert problem.hint


async def test_a_form_is_checked_last_and_what_was_edited_stands_beside_what_was_shown() -> None:
    form = {
        "type": "object",
        "required": ["amount"],
        "properties": {"amount": {"type": "integer"}, "note": {"default": ""}},
    }
    async with office(*PEOPLE) as here:
        run_id = await here.start([gate(approvers=["role:finance"], form=form, show={"amount": 50})])
        wait_id = await here.gate(run_id)
        with pytest.raises(Forbidden):
            await here.engine.decide(wait_id, "approved", by="eve", data={"amount": "x"})
        with pytest.raises(InputError):
            await here.engine.decide(wait_id, "approved", by="ana", data={"amount": "x"})
        await here.engine.decide(wait_id, "approved", by="ana", data={"amount": 40})
        assert (await here.go_on(run_id)).output["data"] == {"amount": 40, "note": ""}
        kept = await here.engine.wait(wait_id)
        assert (kept.request["show"], kept.decision["data"]["amount"]) == ({"amount": 50}, 40)


async def test_an_open_approval_reminds_after_a_restart_of_the_file(tmp_path: Path) -> None:
    clock = Hands()

    def file() -> SqliteRunStore:
        store = SqliteRunStore.open(tmp_path / "runs.db")
        store._clock = clock.now
        return store

    async with office(*PEOPLE, store=file()) as here:
        here.clock.time = clock.time
        run_id = await here.start([gate(approvers=["role:finance"], remind_every="1h")])
    clock.time += 3 * 3600 + 60
    async with office(store=file()) as here:
        await here.sweep()
        await here.sweep()
        assert [key for key, _ in await here.told(run_id)] == ["opened", "reminder/3"]
        assert replace(await here.engine.wait(await here.gate(run_id)), rules=None).status == "pending"


def _review(**more: Any) -> list[dict[str, Any]]:
    return [
        {"id": "draft", "type": "tool_call", "tool": "write", "arguments": {
            "why": '{{step.g?.comment ?? ""}}', "before": "{{step.g?.rounds ?? []}}"}},
        gate(show={"text": "{{step.draft.why}}"}, **more),
        {"id": "send", "type": "tool_call", "tool": "send", "arguments": {"d": "{{step.g.decision}}"}},
    ]  # fmt: skip


async def test_a_review_comes_back_twice_and_earlier_rounds_are_data() -> None:
    async with office() as here:
        run_id = await here.start(_review(on_changes={"goto": "draft", "max_rounds": 2}), by="")
        ids = []
        for comment in ("shorter", "with sources"):
            wait_id = await here.gate(run_id)
            ids.append(wait_id)
            wait = await here.engine.wait(wait_id)
            assert wait.request["decisions"] == ["approved", "rejected", "changes_requested"]
            assert [one["comment"] for one in wait.request["earlier"]] == ["shorter", "with sources"][: len(ids) - 1]
            await here.engine.decide(wait_id, "changes_requested", comment=comment)
            assert (await here.go_on(run_id)).status == "pending_approval"
        last = await here.engine.wait(await here.gate(run_id))
        assert last.request["decisions"] == ["approved", "rejected"], "no rounds are left"
        assert last.request["round"] == 3
        with pytest.raises(InputError):
            await here.engine.decide(last.id, "changes_requested")
        await here.engine.decide(last.id, "approved", comment="good")
        run = await here.go_on(run_id)
        assert run.status == "completed"
        calls = here.tools.called("write")
        assert [call["why"] for call in calls] == ["", "shorter", "with sources"]
        tree = (await here.engine.tree(run_id)).as_json()
        [final] = [step for step in tree["steps"] if step["path"] == "/g#3"]
        assert [one["comment"] for one in final["output"]["rounds"]] == ["shorter", "with sources"]
        assert all("rounds" not in one for one in final["output"]["rounds"])


async def test_c024_the_click_of_a_round_that_was_sent_back_decides_no_later_round() -> None:
    async with office() as here:
        run_id = await here.start(_review(on_changes={"goto": "draft"}), by="")
        first = await here.gate(run_id)
        await here.engine.decide(first, "changes_requested")
        await here.go_on(run_id)
        second = await here.gate(run_id)
        assert first != second
        for _ in range(3):
            with pytest.raises(AlreadyDecided):
                await here.engine.decide(first, "approved")
        assert here.tools.called("send") == []
        assert await here.gate(run_id) == second


async def test_a_rejection_may_lead_back_and_ends_the_run_once_no_rounds_are_left() -> None:
    async with office() as here:
        run_id = await here.start(_review(on_reject={"goto": "draft", "max_rounds": 1}), by="")
        await here.engine.decide(await here.gate(run_id), "rejected", comment="no")
        assert (await here.go_on(run_id)).status == "pending_approval"
        await here.engine.decide(await here.gate(run_id), "rejected", comment="still no")
        run = await here.go_on(run_id)
        assert (run.status, run.error["kind"]) == ("failed", "rejected")
        assert [call["why"] for call in here.tools.called("write")] == ["", "no"]


async def test_an_approval_that_expires_may_become_an_incident_and_be_asked_again() -> None:
    async with office() as here:
        run_id = await here.start([gate(expires_in="1h", on_expire="suspend")], by="")
        first = await here.gate(run_id)
        here.clock.time += 3601
        await here.sweep()
        assert (await here.go_on(run_id)).status == "suspended"
        [incident] = await here.engine.incidents.open()
        assert incident.request["error"]["kind"] == "approval_expired"
        await here.engine.incidents.settle(incident.id, Action("retry"))
        assert (await here.go_on(run_id)).status == "pending_approval"
        again = await here.gate(run_id)
        assert again != first
        with pytest.raises(Gone):
            await here.engine.decide(first, "approved")
        await here.engine.decide(again, "approved")
        assert (await here.go_on(run_id)).status == "completed"


async def test_rounds_are_kept_over_a_restart_and_what_was_shown_is_kept_with_them(tmp_path: Path) -> None:
    steps = _review(on_changes={"goto": "draft"})
    path = tmp_path / "runs.db"
    async with office(store=SqliteRunStore.open(path)) as here:
        run_id = await here.start(steps, by="")
        await here.engine.decide(await here.gate(run_id), "changes_requested", comment="shorter", data={"hint": 1})
    async with office(store=SqliteRunStore.open(path)) as here:
        run = await here.go_on(run_id)
        waits = await here.engine.waits(run_id=run_id, pending_only=False)
        assert [(wait.path, wait.request["show"]["text"]) for wait in waits] == [("/g", ""), ("/g#2", "shorter")]
        await here.engine.decide(waits[1].id, "approved")
        assert (await here.go_on(run_id)).output == {"d": "approved"}
        assert run.status == "pending_approval"
