"""What every run store must do with events and due times, as tests: see `store_contract.py`."""

from __future__ import annotations

import pytest

from stepwell.errors import AlreadyDecided, Conflict, Gone
from stepwell.journal.lease import LeaseLost
from stepwell.ports import Ballot, Batch, Lease, Message, RunStore, SentEvent, Verdict, Wait
from stepwell.testing.store_builders import ACCOUNT, TTL, OpenedStore, a_wait, batch, entry, leased, new_run

DAY = 24 * 3600.0


def for_event(wait_id: str, path: str, name: str = "paid", deadline: float = 0.0) -> Wait:
    """A wait for an event."""
    return Wait(wait_id, path, "event", {"event": name}, deadline=deadline, topic=name)


async def parked_for(store: RunStore, *waits: Wait, run_id: str = "r1") -> None:
    """A run that is parked at waits for events."""
    lease = await leased(store, run_id)
    await store.append(lease, batch("/s", open=waits))
    assert await store.release(lease, Batch(), Verdict("waiting"))


async def claimed(store: RunStore) -> Lease:
    """The one run that may be claimed."""
    [lease] = await store.claim("w1", TTL, limit=9)
    return lease


def satisfying(wait: Wait, event: SentEvent) -> Batch:
    """The batch by which an event satisfies a wait."""
    return Batch([entry(f"{wait.path}/?")], satisfied=[wait.path], used=[event.order])


class EventContract:
    """An event reaches each run that waits for it, whichever came first, and satisfies one wait of it."""

    async def test_an_event_after_its_wait_wakes_the_run_and_is_found(self, opened: OpenedStore) -> None:
        store = opened.store
        wait = for_event("x1", "/w")
        await parked_for(store, wait)
        assert (await store.wait(ACCOUNT, "x1")).topic == "paid"
        assert await store.claim("w1", TTL) == []
        assert await store.send_event(ACCOUNT, SentEvent("e1", "paid", {"n": 2**70, "t": "\0"})) == 1
        lease = await claimed(store)
        loaded = await store.load(lease)
        [message] = loaded.messages
        assert (message.kind, message.path, message.at) == ("event", "/w", opened.clock.now)
        assert [pending.id for pending in loaded.waits] == ["x1"]
        [event] = await store.events(lease, "paid", opened.clock.now - 60)
        assert event == SentEvent("e1", "paid", {"n": 2**70, "t": "\0"}, opened.clock.now, event.order)
        assert message.body == {"event": event.order, "id": "e1", "name": "paid"}

    async def test_an_event_before_its_wait_is_found_and_tells_nobody(self, opened: OpenedStore) -> None:
        store = opened.store
        assert await store.send_event(ACCOUNT, SentEvent("e1", "paid", 1)) == 0
        assert await store.send_event(ACCOUNT, SentEvent("e2", "sent", 2)) == 0
        lease = await leased(store)
        await store.append(lease, batch("/s", open=[for_event("x1", "/w")]))
        assert (await store.load(lease)).messages == []
        assert [event.id for event in await store.events(lease, "paid", 0)] == ["e1"]

    async def test_a_satisfied_wait_is_decided_and_told_of_nothing_more(self, opened: OpenedStore) -> None:
        store = opened.store
        wait = for_event("x1", "/w")
        await parked_for(store, wait)
        await store.send_event(ACCOUNT, SentEvent("e1", "paid"))
        lease = await claimed(store)
        [event] = await store.events(lease, "paid", 0)
        opened.clock.now += 5
        await store.append(lease, satisfying(wait, event))
        closed = await store.wait(ACCOUNT, "x1")
        assert (closed.status, closed.decided, closed.decision) == (
            "decided",
            opened.clock.now,
            {"decision": "satisfied"},
        )
        assert (await store.load(lease)).waits == await store.waits(ACCOUNT) == []
        assert await store.withdraw(lease, ["/w"], "late") == []
        with pytest.raises(AlreadyDecided):
            await store.decide(ACCOUNT, "x1", Ballot({}))
        assert await store.send_event(ACCOUNT, SentEvent("e2", "paid")) == 0
        assert [event.id for event in await store.events(lease, "paid", 0)] == ["e2"]

    async def test_a_wait_may_be_opened_and_satisfied_in_one_batch(self, opened: OpenedStore) -> None:
        store = opened.store
        await store.send_event(ACCOUNT, SentEvent("e1", "paid"))
        lease = await leased(store)
        [event] = await store.events(lease, "paid", 0)
        await store.release(
            lease,
            Batch([entry("/w/?")], open=[for_event("x1", "/w")], satisfied=["/w"], used=[event.order]),
            Verdict("queued"),
        )
        assert (await store.wait(ACCOUNT, "x1")).status == "decided"

    async def test_satisfying_closes_pending_waits_for_events_alone(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        waits = [a_wait("x1", "/a"), for_event("x2", "/b"), for_event("x3", "/c"), for_event("x4", "/d")]
        await store.append(lease, batch("/s", open=waits))
        await store.withdraw(lease, ["/b"], "a sibling failed")
        await store.append(lease, Batch([entry("/t")], satisfied=["/a", "/b", "/c", "/none"]))
        found = [wait.status for wait in await store.waits(ACCOUNT, pending_only=False)]
        assert found == ["pending", "withdrawn", "decided", "pending"]

    async def test_an_event_reaches_two_runs_and_each_uses_it(self, opened: OpenedStore) -> None:
        store = opened.store
        wait = for_event("x1", "/w")
        await parked_for(store, wait)
        await parked_for(store, for_event("x2", "/w"), run_id="r2")
        await parked_for(store, for_event("x3", "/w", "sent"), run_id="r3")
        assert await store.send_event(ACCOUNT, SentEvent("e1", "paid")) == 2
        leases = await store.claim("w1", TTL, limit=9)
        assert [lease.run_id for lease in leases] == ["r1", "r2"]
        for lease in leases:
            [event] = await store.events(lease, "paid", 0)
            await store.append(lease, satisfying(wait, event))
            assert await store.events(lease, "paid", 0) == []
        assert [wait.id for wait in await store.waits(ACCOUNT)] == ["x3"]

    async def test_each_event_satisfies_one_of_two_waits_of_a_run(self, opened: OpenedStore) -> None:
        store = opened.store
        first, second = for_event("x1", "/a"), for_event("x2", "/b")
        await parked_for(store, first, second)
        assert await store.send_event(ACCOUNT, SentEvent("e1", "paid")) == 2
        lease = await claimed(store)
        assert [message.path for message in (await store.load(lease)).messages] == ["/a", "/b"]
        [event] = await store.events(lease, "paid", 0)
        await store.append(lease, satisfying(first, event))
        with pytest.raises(Conflict) as refused:
            await store.append(lease, satisfying(second, event))
        assert refused.value.detail == {"event": event.order}
        assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/s", "/a/?"]
        assert [wait.id for wait in await store.waits(ACCOUNT)] == ["x2"]
        await store.send_event(ACCOUNT, SentEvent("e2", "paid"))
        [another] = await store.events(lease, "paid", 0)
        assert another.order > event.order
        await store.append(lease, satisfying(second, another))
        assert await store.waits(ACCOUNT) == []

    async def test_an_event_that_is_not_there_is_not_used(self, opened: OpenedStore) -> None:
        store = opened.store
        await store.send_event("other", SentEvent("e1", "paid"))
        stranger = await leased(store, "r2", account="other")
        [foreign] = await store.events(stranger, "paid", 0)
        lease = await leased(store)
        for used in ([foreign.order], [10**9]):
            with pytest.raises(Conflict):
                await store.append(lease, Batch([entry("/a")], used=used))
        assert await store.history(ACCOUNT, "r1") == []
        await store.append(stranger, Batch(used=[foreign.order]))
        with pytest.raises(Conflict):
            await store.append(stranger, Batch(used=[foreign.order]))

    async def test_the_same_event_again_changes_nothing_and_tells_nobody(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_for(store, for_event("x1", "/w"))
        assert await store.send_event(ACCOUNT, SentEvent("e1", "paid", 1)) == 1
        assert await store.send_event(ACCOUNT, SentEvent("e1", "paid", 2)) == 0
        assert await store.send_event("other", SentEvent("e1", "paid", 3)) == 0
        lease = await claimed(store)
        assert len((await store.load(lease)).messages) == 1
        assert [event.data for event in await store.events(lease, "paid", 0)] == [1]

    async def test_events_of_another_account_are_neither_told_nor_found(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_for(store, for_event("x1", "/w"))
        assert await store.send_event("other", SentEvent("e1", "paid")) == 0
        assert await store.claim("w1", TTL) == []
        [lease] = await store.claim("w1", TTL, run_id="r1")
        assert await store.events(lease, "paid", 0) == []

    async def test_events_are_found_from_an_instant_on_in_the_order_in_which_they_came(
        self, opened: OpenedStore
    ) -> None:
        store = opened.store
        now = opened.clock.now
        for name, at in (("e1", now - 10), ("e2", now - 30), ("e3", now - 20), ("e4", 0.0)):
            await store.send_event(ACCOUNT, SentEvent(name, "paid", at=at))
        lease = await leased(store)
        found = await store.events(lease, "paid", now - 20)
        assert [(event.id, event.at) for event in found] == [("e1", now - 10), ("e3", now - 20), ("e4", now)]
        assert [event.order for event in found] == sorted({event.order for event in found})

    async def test_an_event_is_kept_for_a_day_and_its_id_is_free_after_it(self, opened: OpenedStore) -> None:
        store = opened.store
        await store.send_event(ACCOUNT, SentEvent("e1", "paid", 1))
        lease = await leased(store)
        opened.clock.now += DAY - 1
        assert await store.send_event(ACCOUNT, SentEvent("e1", "paid", 2)) == 0
        assert [event.data for event in await store.events(lease, "paid", 0)] == [1]
        opened.clock.now += 1
        assert await store.events(lease, "paid", 0) == []
        await store.send_event(ACCOUNT, SentEvent("e1", "paid", 3))
        assert [event.data for event in await store.events(lease, "paid", 0)] == [3]

    async def test_many_old_events_are_deleted_and_new_ones_stay(self, opened: OpenedStore) -> None:
        store = opened.store
        for number in range(150):
            await store.send_event(ACCOUNT, SentEvent(f"old-{number}", "paid"))
        opened.clock.now += DAY + 3601
        for number in range(150):
            await store.send_event(ACCOUNT, SentEvent(f"new-{number}", "paid"))
        lease = await leased(store)
        found = await store.events(lease, "paid", 0)
        assert [event.id for event in found] == [f"new-{number}" for number in range(150)]
        with pytest.raises(Conflict):
            await store.append(lease, Batch(used=[found[0].order - 150]))

    async def test_a_run_that_nobody_carries_on_for_days_still_finds_what_it_was_told_of(
        self, opened: OpenedStore
    ) -> None:
        store = opened.store
        wait = for_event("x1", "/w")
        await parked_for(store, wait)
        assert await store.send_event(ACCOUNT, SentEvent("e1", "paid", "in time")) == 1
        opened.clock.now += 3 * DAY
        for number in range(150):
            await store.send_event(ACCOUNT, SentEvent(f"other-{number}", "sent"))
        stranger = await leased(store, "r2")
        assert await store.events(stranger, "paid", 0) == []
        lease = await claimed(store)
        [event] = await store.events(lease, "paid", 0)
        assert event.data == "in time"
        [message] = (await store.load(lease)).messages
        await store.append(lease, Batch([entry("/w/?")], consume=[message.order], satisfied=["/w"], used=[event.order]))
        assert await store.events(lease, "paid", 0) == []

    async def test_an_ended_run_keeps_no_event(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_for(store, for_event("x1", "/w"))
        await store.send_event(ACCOUNT, SentEvent("e1", "paid", 1))
        lease = await claimed(store)
        await store.release(lease, Batch(), Verdict("failed"))
        opened.clock.now += DAY
        await store.send_event(ACCOUNT, SentEvent("e1", "paid", 2))
        stranger = await leased(store, "r2")
        assert [event.data for event in await store.events(stranger, "paid", 0)] == [2]

    async def test_an_event_after_the_deadline_of_its_wait_comes_too_late(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_for(store, for_event("x1", "/w", deadline=opened.clock.now + 5))
        opened.clock.now += 5
        assert await store.send_event(ACCOUNT, SentEvent("e1", "paid")) == 0
        lease = await claimed(store)
        [message] = (await store.load(lease)).messages
        assert (message.kind, message.body) == ("decision", {"decision": "expired"})
        with pytest.raises(Gone):
            await store.decide(ACCOUNT, "x1", Ballot({}))

    async def test_an_owned_run_is_told_in_its_inbox_and_not_parked_over_it(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        await store.append(lease, batch("/s", open=[for_event("x1", "/w")]))
        while await store.changed(0):
            pass
        await store.send_event(ACCOUNT, SentEvent("e1", "paid"))
        assert await store.changed(0)
        [message] = await store.inbox(lease, 0)
        assert not await store.release(lease, Batch(), Verdict("waiting"))
        assert await store.release(lease, Batch(), Verdict("waiting", seen=message.order))

    async def test_a_lost_lease_finds_no_events(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        await store.release(lease, Batch(), Verdict("waiting"))
        with pytest.raises(LeaseLost):
            await store.events(lease, "paid", 0)


class DueContract:
    """The store says until when a worker may sleep."""

    async def test_nothing_is_due_where_nothing_is_timed(self, opened: OpenedStore) -> None:
        store = opened.store
        assert await store.next_due() == 0
        await store.create(new_run("r0"))
        lease = await leased(store)
        await store.append(lease, batch("/s", open=[a_wait("x1", "/a"), for_event("x2", "/b")]))
        await store.release(lease, Batch(), Verdict("waiting"))
        assert await store.next_due() == 0
        await store.post(ACCOUNT, Message("r1", "action"))
        assert await store.next_due() == 0

    async def test_the_next_is_the_first_of_pending_waits_and_parked_runs(self, opened: OpenedStore) -> None:
        store = opened.store
        now = opened.clock.now
        lease = await leased(store)
        waits = [a_wait("x1", "/a", deadline=now + 50), a_wait("x2", "/b", deadline=now + 70)]
        await store.append(lease, batch("/s", open=waits))
        assert await store.next_due() == now + 50  # owned or not: its owner hears of it by a claim
        other = await leased(store, "r2")
        await store.release(other, Batch(), Verdict("waiting", wake_at=now + 30))
        assert await store.next_due() == now + 30
        await store.claim("w1", TTL, run_id="r2")
        assert await store.next_due() == now + 50
        await store.decide(ACCOUNT, "x1", Ballot({}))
        assert await store.next_due() == now + 70
        await store.release(lease, Batch(), Verdict("completed"))
        assert await store.next_due() == 0

    async def test_a_message_for_a_parked_run_takes_its_time_away(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        await store.release(lease, Batch(), Verdict("waiting", wake_at=opened.clock.now + 30))
        await store.post(ACCOUNT, Message("r1", "action"))
        assert await store.next_due() == 0

    async def test_what_has_just_become_due_is_told_and_what_was_left_lying_is_not(self, opened: OpenedStore) -> None:
        store = opened.store
        due = opened.clock.now + 30
        lease = await leased(store)
        await store.release(lease, Batch(), Verdict("waiting", wake_at=due))
        other = await leased(store, "r2")
        await store.append(other, batch("/s", open=[a_wait("x1", "/a", deadline=due + 100)]))
        opened.clock.now = due + 0.5
        assert await store.next_due() == due
        opened.clock.now = due + 1
        assert await store.next_due() == due + 100
        assert [lease.run_id for lease in await store.claim("w1", TTL)] == ["r1"]

    async def test_whoever_sleeps_hears_of_a_new_deadline(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        while await store.changed(0):
            pass
        await store.append(lease, batch("/s", open=[a_wait("x1", "/a")]))
        assert not await store.changed(0)
        await store.append(lease, batch("/t", open=[a_wait("x2", "/b", deadline=opened.clock.now + 30)]))
        assert await store.changed(0)

    async def test_an_expired_wait_is_due_until_a_claim_has_closed_it(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        end = opened.clock.now + 30
        await store.append(lease, batch("/s", open=[a_wait("x1", "/a", deadline=end)]))
        opened.clock.now = end
        assert await store.next_due() == end
        await store.claim("w2", TTL, limit=0)
        assert await store.next_due() == 0
