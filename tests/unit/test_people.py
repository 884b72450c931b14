"""Who acts, what they hold, lists of people, and what an engine notes of their acts."""

from __future__ import annotations

import pytest
from tests.engine_world import engine_with, workflow

from stepwell.errors import Conflict, Forbidden, InputError, NotFound
from stepwell.people import OPERATOR, Actor, holds, key_of, require, resolve
from stepwell.people.listing import read_people
from stepwell.ports import Person
from stepwell.stores.memory import MemoryRunStore
from stepwell.testing.scripted import ScriptedTools

ANA = Person("ana", "ana@example.org", ("approver",), ("care",))
GATE = [{"id": "g", "type": "approval", "title": "ok?"}]


async def test_without_people_every_name_is_taken_and_holds_every_role():
    people = MemoryRunStore().people
    for said, name in (("", OPERATOR), ("Local Operator", OPERATOR), ("whoever", "whoever")):
        actor = await resolve(people, "acme", said, channel="cli", origin="me@here")
        assert (actor.name, actor.rules_off, actor.channel, actor.origin) == (name, True, "cli", "me@here")
        assert holds(actor, "finance")
    for said in ("a\x1b[2J", "\u202eana", " ", "-x", "a" * 101):
        with pytest.raises(InputError):
            await resolve(people, "acme", said)


async def test_with_people_a_name_is_somebody_or_refused():
    people = MemoryRunStore().people
    await people.put("acme", [ANA])
    actor = await resolve(people, "acme", "ANA@example.org")
    assert (actor.person, actor.rules_off) == (ANA, False)
    assert [role for role in ("approver", "admin", "care") if holds(actor, role)] == ["approver"]
    with pytest.raises(Forbidden, match="nobody is called 'eve'"):
        await resolve(people, "acme", "eve")
    local = await resolve(people, "acme", "")
    assert [role for role in ("viewer", "operator", "approver", "admin") if holds(local, role)] == ["operator"]
    assert (await resolve(people, "other", "eve")).rules_off


def test_a_role_is_demanded_by_name():
    require(Actor(ANA), "operator", "approver", to="decide")
    with pytest.raises(Forbidden, match="ana may not cancel: it takes the role operator or admin"):
        require(Actor(ANA), "operator", "admin", to="cancel")
    require(Actor(ANA, rules_off=True), "admin", to="cancel")


@pytest.mark.parametrize(("one", "other"), [("ana", "ANA"), ("ﬁn", "FIN"), ("Ａna", "ana"), ("straße", "STRASSE")])
def test_names_that_read_alike_have_one_key(one, other):
    assert key_of(one) == key_of(other)


YAML = "- {name: ana, email: ana@example.org, roles: [approver], departments: care}\n- name: bo\n"
JSON = '{"people": [{"name": "ana", "email": "ana@example.org", "roles": ["approver"], "departments": ["care"]}, {"name": "bo"}]}'
CSV = '\ufeffName,Email,roles,departments\r\nana,ana@example.org,approver,care\r\n\r\n"bo",,,\r\n'


@pytest.mark.parametrize(("file", "text"), [("p.yaml", YAML), ("p.json", JSON), ("P.CSV", CSV)])
def test_people_are_read_from_lists_with_their_places(file, text):
    found = read_people(text, file)
    assert (found.people, found.problems) == ([ANA, Person("bo")], [])
    assert [place[0] for place in found.where] == [file, file]
    assert found.where[1][1] == {"p.yaml": 2, "p.json": 1, "P.CSV": 4}[file]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("p.yaml", "people: 3\n", ["p.yaml:1:9: error[type] a file of people is a list"]),
        ("p.yaml", "- ana\n- {rolls: [x], name: bo}\n- {roles: [1]}\n", ["p.yaml:1:3", "p.yaml:2:4", "p.yaml:3:3", "p.yaml:3:12"]),
        ("p.yaml", "- name: a\n  - b\n", ["p.yaml:2"]),
        ("p.json", "[{]", ["p.json:1:3"]),
        ("p.csv", "name,role\nana,x\n", ["p.csv:1:1: error[unknown] a person has no 'role'"]),
        ("p.csv", "email\nx@y.z\n", ["p.csv:1:1: error[missing]"]),
        ("p.csv", "name,roles\nana,x,y\nbo\n", ["p.csv:2:1: error[columns]", "p.csv:3:1: error[columns]"]),
        ("p.csv", 'name\n"ana\n', ["p.csv:2:1: error[syntax]"]),
        ("p.csv", "", ["p.csv:1:1"]),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_list_is_told_with_its_place(file, text, said):
    problems = [str(problem) for problem in read_people(text, file).problems]
    assert len(problems) == len(said), problems
    assert all(problem.startswith(start) for problem, start in zip(problems, said, strict=True)), problems


async def acts(engine, **chosen):
    return [(one.by, one.action, one.object) for one in reversed(await engine.people.trail(**chosen))]


async def test_starts_and_cancels_are_noted_with_who_and_a_start_that_was_made_before_is_not():
    async with engine_with(ScriptedTools({})) as engine:
        handle = await engine.start(workflow(GATE), {}, idempotency_key="k")
        await handle.wait()
        again = await engine.start(workflow(GATE), {}, idempotency_key="k", requester="ana")
        assert again.run_id == handle.run_id
        await engine.cancel(handle.run_id, "no use", by="ana")
        assert await acts(engine) == [
            (OPERATOR, "run.start", handle.run_id), ("ana", "run.cancel", handle.run_id)
        ]  # fmt: skip
        with pytest.raises(Conflict):
            await engine.cancel(handle.run_id, by="ana")
        assert len(await acts(engine)) == 2


async def test_whoever_is_not_known_starts_nothing_and_the_try_is_noted():
    async with engine_with(ScriptedTools({})) as engine:
        await engine.people.add([ANA])
        with pytest.raises(Forbidden):
            await engine.start(workflow(GATE), {}, requester="eve")
        assert await engine.runs() == []
        assert await acts(engine, by="eve") == [("eve", "person.unknown", "")]
        handle = await engine.start(workflow(GATE), {}, requester="ANA@EXAMPLE.ORG")
        assert (await handle.wait()).requester == "ana"


async def test_a_run_is_cancelled_by_who_asked_for_it_or_operates():
    async with engine_with(ScriptedTools({})) as engine:
        await engine.people.add([ANA, Person("bo", roles=("operator",)), Person("eve", roles=("viewer",))])
        runs = [await engine.start(workflow(GATE), {}, requester="ana") for _ in range(3)]
        for handle in runs:
            await handle.wait()
        with pytest.raises(Forbidden):
            await engine.cancel(runs[0].run_id, by="eve")
        assert (await engine.run(runs[0].run_id)).status == "pending_approval"
        for handle, by in zip(runs, ("ana", "bo", ""), strict=True):
            assert (await engine.cancel(handle.run_id, by=by)).status == "cancelled"
        told = [action for _, action, _ in await acts(engine, object=runs[0].run_id)]
        assert told == ["run.start", "run.cancel.refused", "run.cancel"]


async def test_who_is_known_is_changed_by_admins_and_the_local_operator_and_noted_with_what_was():
    async with engine_with(ScriptedTools({})) as engine:
        await engine.people.add([ANA, Person("root", roles=("admin",))])
        with pytest.raises(Forbidden):
            await engine.people.add([Person("mallory", roles=("admin",))], by="ana")
        with pytest.raises(Forbidden):
            await engine.people.remove("root", by="ana")
        await engine.people.add([Person("ana", roles=("viewer",))], by="root", replaces=True)
        with pytest.raises(NotFound):
            await engine.people.remove("eve", by="root")
        assert (await engine.people.remove("ana")).roles == ("viewer",)
        assert [one.name for one in await engine.people.known()] == ["root"]
        assert await acts(engine) == [
            (OPERATOR, "person.add", "ana"), (OPERATOR, "person.add", "root"),
            ("ana", "person.add.refused", "mallory"), ("ana", "person.remove.refused", "root"),
            ("root", "person.change", "ana"), (OPERATOR, "person.remove", "ana"),
        ]  # fmt: skip
        (changed,) = await engine.people.trail(by="root")
        assert changed.detail["before"]["email"] == "ana@example.org"
        assert changed.detail["roles"] == ["viewer"]


async def test_a_run_that_a_tool_starts_was_asked_for_by_whoever_asked_for_that_one():
    started = []

    class Starting(ScriptedTools):
        async def call(self, name, arguments, context):
            started.append(await engine.start(workflow(GATE), {}))
            return "ok"

    async with engine_with(Starting()) as engine:
        await engine.people.add([ANA])
        outer = await engine.start(workflow([{"id": "s", "type": "tool_call", "tool": "start"}]), {}, requester="ana")
        assert (await outer.wait()).status == "completed"
        assert (await engine.run(started[0].run_id)).requester == "ana"
        after = await engine.start(workflow(GATE), {})
        assert (await after.wait()).requester == OPERATOR
