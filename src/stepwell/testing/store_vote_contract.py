"""What every run store must do with votes, other rules for a wait, and reminders, as tests: see `store_contract.py`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from stepwell.approvals.opening import opened as prepared
from stepwell.approvals.opening import reassigned
from stepwell.errors import AlreadyDecided, Conflict, Forbidden, Gone, NotFound
from stepwell.ports import Amendment, AuditRecord, Ballot, Person, Wait
from stepwell.testing.store_builders import ACCOUNT, TTL, OpenedStore, a_wait, parked_at

FINANCE = tuple(Person(f"p{number}", roles=("finance",)) for number in range(5))
HEAD = Person("head", roles=("head", "admin"))


def _gate(opened: OpenedStore, *, deadline: float = 0.0, **rules: Any) -> Wait:
    wait = replace(a_wait("x1", "/g", digest="d1", deadline=deadline), opened=opened.clock.now)
    given = {"approvers": [{"kind": "role", "name": "finance"}], **rules}
    return prepared(replace(wait, rules=given), [*FINANCE, HEAD], "")[0]


def _vote(person: Person, decision: str = "approved") -> Ballot:
    return Ballot({"decision": decision, "by": person.name, "comment": "", "data": None}, person, "d1")


def _two_of(opened: OpenedStore, count: int = 2) -> Wait:
    return _gate(opened, require={"mode": "quorum", "count": count})


class VoteContract:
    """Votes are counted once each, and settle a wait once."""

    async def test_votes_are_kept_until_they_settle_the_wait(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, _two_of(opened))
        first = await store.decide(ACCOUNT, "x1", _vote(FINANCE[0]))
        assert (first.status, [vote["by"] for vote in first.votes]) == ("pending", ["p0"])
        assert await store.claim("w1", TTL) == []
        [listed] = await store.waits(ACCOUNT)
        assert listed.votes == first.votes == (await store.wait(ACCOUNT, "x1")).votes
        last = await store.decide(ACCOUNT, "x1", _vote(FINANCE[1]))
        assert (last.status, last.decision["by"], len(last.votes)) == ("decided", "p1", 2)
        [lease] = await store.claim("w1", TTL)
        assert [message.body for message in (await store.load(lease)).messages] == [last.decision]

    async def test_who_may_not_and_who_has_voted_is_refused_and_nothing_is_written(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, _two_of(opened))
        await store.decide(ACCOUNT, "x1", _vote(FINANCE[0]))
        before = await store.wait(ACCOUNT, "x1")
        note = AuditRecord("p0", "approval.decide", "x1")
        for person in (FINANCE[0], HEAD):
            with pytest.raises(Forbidden):
                await store.decide(ACCOUNT, "x1", _vote(person), notes=[note])
        with pytest.raises(Conflict):
            await store.decide(ACCOUNT, "x1", replace(_vote(FINANCE[1]), digest="old"), notes=[note])
        assert await store.wait(ACCOUNT, "x1") == before
        assert await store.people.audit(ACCOUNT) == []
        await store.decide(ACCOUNT, "x1", _vote(FINANCE[1]), notes=[note])
        assert [kept.action for kept in await store.people.audit(ACCOUNT, object="x1")] == ["approval.decide"]

    async def test_fifty_at_once_count_each_person_once_and_settle_once(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, _two_of(opened, 3))
        said = [store.decide(ACCOUNT, "x1", _vote(FINANCE[number % 5])) for number in range(50)]
        results = await asyncio.gather(*said, return_exceptions=True)
        taken = [result for result in results if isinstance(result, Wait)]
        assert [wait.status for wait in sorted(taken, key=lambda wait: len(wait.votes))] == ["pending"] * 2 + [
            "decided"
        ]
        final = await store.wait(ACCOUNT, "x1")
        assert len({vote["by"] for vote in final.votes}) == len(final.votes) == 3
        late = [result for result in results if isinstance(result, AlreadyDecided)]
        assert all(result.detail == final.decision for result in late)
        assert len(late) + sum(isinstance(result, Forbidden) for result in results) == 47
        [lease] = await store.claim("w1", TTL)
        assert len((await store.load(lease)).messages) == 1

    async def test_other_rules_are_given_in_one_transaction_with_a_note(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, _gate(opened, require={"mode": "all"}))

        def hand_on(wait: Wait) -> Amendment:
            rules = reassigned(wait, HEAD, "p0", Person("new"), opened.clock.now)
            return Amendment(rules.as_json(), wait.next_at)

        changed = await store.amend(ACCOUNT, "x1", hand_on, notes=[AuditRecord("head", "approval.reassign", "x1")])
        assert "new" in str(changed.rules)
        assert changed == await store.wait(ACCOUNT, "x1")
        with pytest.raises(Forbidden):
            await store.decide(ACCOUNT, "x1", _vote(FINANCE[0]))
        assert (await store.decide(ACCOUNT, "x1", _vote(Person("new")))).votes[0]["by"] == "new"
        assert len(await store.people.audit(ACCOUNT, object="x1")) == 1
        with pytest.raises(NotFound):
            await store.amend("other", "x1", hand_on)

    async def test_votes_belong_to_their_account(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, _two_of(opened))
        with pytest.raises(NotFound):
            await store.decide("other", "x1", _vote(FINANCE[0]))
        assert (await store.wait(ACCOUNT, "x1")).votes == ()


class ReminderContract:
    """Reminders and escalations are stored once each, and wake nobody."""

    async def test_a_reminder_is_due_and_stored_once_and_wakes_nobody(self, opened: OpenedStore) -> None:
        store, start = opened.store, opened.clock.now
        await parked_at(store, _gate(opened, remind_every=60.0))
        assert await store.next_due() == start + 60
        opened.clock.now = start + 61
        for _ in range(3):
            assert await store.claim("w1", TTL) == []
        [notice] = await store.outgoing(ACCOUNT)
        assert (notice.to, notice.run_id, notice.path) == ({"users": [one.name for one in FINANCE]}, "r1", "/g")
        assert await store.next_due() == start + 120

    async def test_what_was_missed_is_made_up_for_once_and_the_rhythm_stays(self, opened: OpenedStore) -> None:
        store, start = opened.store, opened.clock.now
        await parked_at(store, _gate(opened, remind_every=60.0))
        opened.clock.now = start + 60 * 5 + 30
        assert await store.claim("w1", TTL) == []
        assert len(await store.outgoing(ACCOUNT)) == 1
        assert await store.next_due() == start + 360

    async def test_an_escalation_lets_others_decide(self, opened: OpenedStore) -> None:
        store = opened.store
        to = [{"kind": "role", "name": "head"}]
        await parked_at(store, _gate(opened, escalate=[{"after": 60.0, "to": to}]))
        with pytest.raises(Forbidden):
            await store.decide(ACCOUNT, "x1", _vote(HEAD))
        opened.clock.now += 60
        await store.claim("w1", TTL, limit=0)
        assert [notice.to for notice in await store.outgoing(ACCOUNT)] == [{"users": ["head"]}]
        assert (await store.decide(ACCOUNT, "x1", _vote(HEAD))).status == "decided"

    async def test_those_who_have_voted_are_not_reminded(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, _gate(opened, remind_every=60.0, require={"mode": "all"}))
        await store.decide(ACCOUNT, "x1", _vote(FINANCE[2]))
        opened.clock.now += 60
        await store.claim("w1", TTL, limit=0)
        assert [notice.to for notice in await store.outgoing(ACCOUNT)] == [{"users": ["p0", "p1", "p3", "p4"]}]

    async def test_a_settled_wait_reminds_nobody(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, _gate(opened, remind_every=60.0))
        await store.decide(ACCOUNT, "x1", _vote(FINANCE[0], "rejected"))
        opened.clock.now += 1000
        await store.claim("w1", TTL)
        assert await store.outgoing(ACCOUNT) == []

    async def test_expiry_comes_before_a_reminder_and_is_told(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, _gate(opened, remind_every=60.0, deadline=opened.clock.now + 90))
        opened.clock.now += 120
        [lease] = await store.claim("w1", TTL)
        assert [message.body for message in (await store.load(lease)).messages] == [{"decision": "expired"}]
        assert [notice.key for notice in await store.outgoing(ACCOUNT)] == ["x1/expired"]
        with pytest.raises(Gone):
            await store.decide(ACCOUNT, "x1", _vote(FINANCE[0]))

    async def test_a_claim_by_id_reminds_for_that_run(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, _gate(opened, remind_every=60.0))
        opened.clock.now += 60
        assert await store.claim("w1", TTL, run_id="r1", due_only=True) == []
        assert len(await store.outgoing(ACCOUNT)) == 1
