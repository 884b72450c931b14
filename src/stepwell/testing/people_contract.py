"""What every directory must do, as tests: derive a class from `PeopleContract` and give it a fixture `opened`.

The law of the file: only the port is used, so that any store can be held against it. Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import asyncio

import pytest

from stepwell.errors import Conflict, InputError, NotFound
from stepwell.ports import AuditRecord, Message, Person, PersonKey
from stepwell.testing.store_builders import ACCOUNT, OpenedStore, new_run

ANA = Person("ana", "ana@example.org", ("approver", "finance"), ("care", "Front Office"), "Ana Ruiz")
BO = Person("bo", roles=("care-manager", "approver"))


class PeopleContract:
    async def test_people_are_found_by_name_and_address_whatever_their_case(self, opened: OpenedStore) -> None:
        people = opened.store.people
        assert await people.empty(ACCOUNT)
        assert await people.put(ACCOUNT, [ANA, BO]) == [ANA, Person("bo", roles=("approver", "care-manager"))]
        assert not await people.empty(ACCOUNT)
        for who in ("ana", "ANA", "Ana@Example.ORG", "\uff41na"):
            assert await people.person(ACCOUNT, who) == ANA
        for who in ("an", "", "ana@", "%", "ana\0", "\ud800"):
            with pytest.raises(NotFound):
                await people.person(ACCOUNT, who)

    async def test_people_are_chosen_by_role_and_department(self, opened: OpenedStore) -> None:
        people = opened.store.people
        await people.put(ACCOUNT, [BO, ANA])
        assert [one.name for one in await people.people(ACCOUNT)] == ["ana", "bo"]
        assert [one.name for one in await people.people(ACCOUNT, role="approver")] == ["ana", "bo"]
        assert [one.name for one in await people.people(ACCOUNT, role="care-manager")] == ["bo"]
        assert [one.name for one in await people.people(ACCOUNT, role="care")] == []
        assert [one.name for one in await people.people(ACCOUNT, department="Front Office")] == ["ana"]
        assert await people.people(ACCOUNT, role="care-manager", department="care") == []

    async def test_a_key_proves_who_somebody_is_until_it_is_revoked_or_they_are_gone(self, opened: OpenedStore) -> None:
        people = opened.store.people
        with pytest.raises(NotFound):
            await people.add_key(ACCOUNT, PersonKey("k0", "ana"), "d0")
        await people.put(ACCOUNT, [ANA, BO])
        await people.add_key(ACCOUNT, PersonKey("k1", "ANA", "laptop"), "d1", notes=[AuditRecord("bo", "key.create")])
        await people.add_key(ACCOUNT, PersonKey("k2", "ana"), "d2")
        await people.add_key(ACCOUNT, PersonKey("k3", "bo"), "d3")
        assert await people.key_owner(ACCOUNT, "d1") == ANA
        for account, digest in ((ACCOUNT, "d9"), (ACCOUNT, ""), ("other", "d1")):
            with pytest.raises(NotFound):
                await people.key_owner(account, digest)
        told = {key.id: key for key in await people.keys(ACCOUNT)}
        assert (told["k1"].person, told["k1"].note, told["k1"].revoked) == ("ana", "laptop", 0)
        assert told["k1"].created
        assert await people.keys("other") == []
        gone = await people.revoke_key(ACCOUNT, "k1", notes=[AuditRecord("bo", "key.revoke")])
        assert gone.revoked
        assert await people.revoke_key(ACCOUNT, "k1") == gone
        with pytest.raises(NotFound):
            await people.revoke_key("other", "k2")
        with pytest.raises(NotFound):
            await people.key_owner(ACCOUNT, "d1")
        assert await people.key_owner(ACCOUNT, "d2") == ANA
        await people.remove(ACCOUNT, "ana")
        await people.put(ACCOUNT, [ANA])
        with pytest.raises(NotFound):
            await people.key_owner(ACCOUNT, "d2")
        assert (await people.key_owner(ACCOUNT, "d3")).name == "bo"
        assert [one.action for one in await people.audit(ACCOUNT)] == ["key.revoke", "key.create"]

    async def test_an_account_knows_nothing_of_another(self, opened: OpenedStore) -> None:
        people = opened.store.people
        await people.put(ACCOUNT, [ANA], notes=[AuditRecord("ana", "people.add", "ana")])
        assert await people.empty("other")
        assert await people.people("other") == []
        assert await people.audit("other") == []
        for asked in (people.person("other", "ana"), people.remove("other", "ana")):
            with pytest.raises(NotFound):
                await asked
        await people.put("other", [Person("ANA", "ana@example.org")])
        assert await people.person(ACCOUNT, "ana") == ANA

    @pytest.mark.parametrize(
        "second",
        [
            Person("ana"),
            Person("Ana"),
            Person("\uff21na"),
            Person("carla", "ANA@example.org"),
            Person("ana@example.org"),
            Person("carla", "carla@example.org", roles=("Finance Team",)),
            Person("local operator"),
            Person("Local  Operator"),
            Person("eve\u202e"),
            Person("e\x1b[31mve"),
            Person("eve\u200b"),
            Person("eve\n"),
            Person(" eve"),
            Person("--json"),
            Person(""),
            Person("e" * 101),
            Person("eve", "not an address"),
            Person("eve", "a@b.c\nBcc: x@y.z"),
            Person("eve", departments=("",)),
        ],
        ids=ascii,
    )
    async def test_whoever_is_wrong_or_looks_like_another_is_refused_and_nobody_is_stored(
        self, opened: OpenedStore, second: Person
    ) -> None:
        people = opened.store.people
        await people.put(ACCOUNT, [ANA])
        with pytest.raises(InputError) as caught:
            await people.put(ACCOUNT, [BO, second], notes=[AuditRecord("x", "people.add")])
        assert len(caught.value.problems) == 1
        assert await people.people(ACCOUNT) == [ANA]
        assert await people.audit(ACCOUNT) == []

    async def test_two_of_one_list_that_look_alike_are_refused(self, opened: OpenedStore) -> None:
        with pytest.raises(InputError, match="cannot be told from"):
            await opened.store.people.put(ACCOUNT, [Person("ana"), Person("Ana")], replaces=True)
        with pytest.raises(InputError, match="in the same list already"):
            await opened.store.people.put(ACCOUNT, [Person("ana"), Person("ana")], replaces=True)
        assert await opened.store.people.empty(ACCOUNT)

    async def test_all_that_is_wrong_is_told_at_once(self, opened: OpenedStore) -> None:
        with pytest.raises(InputError) as caught:
            await opened.store.people.put(ACCOUNT, [Person("a", "x", ("A", "B")), Person(""), Person("c")])
        assert len(caught.value.problems) == 4

    async def test_somebody_is_replaced_only_where_it_is_said_and_only_by_the_same_name(
        self, opened: OpenedStore
    ) -> None:
        people = opened.store.people
        await people.put(ACCOUNT, [ANA, BO])
        changed = Person("ana", "new@example.org", ("admin",))
        with pytest.raises(InputError):
            await people.put(ACCOUNT, [changed])
        await people.put(ACCOUNT, [changed], replaces=True)
        assert await people.person(ACCOUNT, "ana") == changed
        with pytest.raises(NotFound):
            await people.person(ACCOUNT, "ana@example.org")
        for other in (Person("ANA"), Person("bo", "new@example.org")):
            with pytest.raises(InputError):
                await people.put(ACCOUNT, [other], replaces=True)
        await people.put(ACCOUNT, [Person("bo", "ana@example.org")], replaces=True)
        assert (await people.person(ACCOUNT, "ana@example.org")).name == "bo"

    async def test_somebody_is_removed_once(self, opened: OpenedStore) -> None:
        people = opened.store.people
        await people.put(ACCOUNT, [ANA])
        assert await people.remove(ACCOUNT, "ANA@example.org", notes=[AuditRecord("x", "people.remove", "ana")]) == ANA
        assert await people.empty(ACCOUNT)
        with pytest.raises(NotFound):
            await people.remove(ACCOUNT, "ana", notes=[AuditRecord("x", "people.remove", "ana")])
        assert len(await people.audit(ACCOUNT)) == 1

    async def test_of_many_who_add_one_name_at_once_one_does(self, opened: OpenedStore) -> None:
        people = opened.store.people
        spelt = [Person("ana", roles=("finance",) * number) if number % 2 else Person("ANA") for number in range(20)]
        done = await asyncio.gather(*(people.put(ACCOUNT, [one]) for one in spelt), return_exceptions=True)
        assert sum(isinstance(one, list) for one in done) == 1
        assert sum(isinstance(one, InputError) for one in done) == 19
        assert len(await people.people(ACCOUNT)) == 1

    async def test_the_trail_is_told_newest_first_page_by_page(self, opened: OpenedStore) -> None:
        people = opened.store.people
        detail = {"a": [1, None, "\x1b"]}
        await people.note(ACCOUNT, AuditRecord("ana", "run.start", "r1", "cli", "host", detail))
        await people.note(ACCOUNT, AuditRecord("bo", "run.cancel", "r1", at=5.0), AuditRecord("ana", "run.start", "r2"))
        told = await people.audit(ACCOUNT)
        assert [(one.by, one.action, one.object) for one in told] == [
            ("ana", "run.start", "r2"), ("bo", "run.cancel", "r1"), ("ana", "run.start", "r1")
        ]  # fmt: skip
        assert (told[2].channel, told[2].origin, told[2].detail) == ("cli", "host", detail)
        assert [one.at for one in told] == [opened.clock.now, 5.0, opened.clock.now]
        assert told[0].order > told[1].order > told[2].order
        assert await people.audit(ACCOUNT, limit=1, before=told[0].order) == [told[1]]
        assert await people.audit(ACCOUNT, object="r1") == told[1:]
        assert await people.audit(ACCOUNT, by="ana", object="r2") == [told[0]]
        assert await people.audit(ACCOUNT, by="an") == []

    async def test_notes_are_kept_with_the_act_they_tell_of_or_not_at_all(self, opened: OpenedStore) -> None:
        store, people = opened.store, opened.store.people
        start, cancel = AuditRecord("ana", "run.start", "r1"), AuditRecord("bo", "run.cancel", "r1")
        await store.create(new_run("r1", idempotency_key="k"), notes=[start])
        await store.create(new_run("r2", idempotency_key="k"), notes=[start])
        with pytest.raises(Conflict):
            await store.create(new_run("r1"), notes=[start])
        await store.post(ACCOUNT, Message("r1", "cancel"), notes=[cancel])
        with pytest.raises(NotFound):
            await store.post(ACCOUNT, Message("r3", "cancel"), notes=[cancel])
        assert [one.action for one in await people.audit(ACCOUNT)] == ["run.cancel", "run.start"]
        assert await people.audit("other") == []
