"""What every run store must do with leases, waits and messages, as tests: see `store_contract.py`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from stepwell.errors import AlreadyDecided, Conflict, Gone, NotFound
from stepwell.journal.lease import LeaseLost
from stepwell.ports import FINAL, PARKED, Ballot, Batch, Message, Verdict
from stepwell.testing.store_builders import ACCOUNT, TTL, OpenedStore, a_wait, batch, leased, new_run, parked_at


class LeaseContract:
    """One owner at a time."""

    async def test_a_run_is_claimed_once_and_in_the_order_of_creation(self, opened: OpenedStore) -> None:
        store = opened.store
        for number in range(5):
            await store.create(new_run(f"r{number}"))
        first = await store.claim("w1", TTL, limit=2)
        second = await store.claim("w2", TTL, limit=9)
        assert [lease.run_id for lease in first] == ["r0", "r1"]
        assert [lease.run_id for lease in second] == ["r2", "r3", "r4"]
        assert await store.claim("w1", TTL) == []
        run = await store.run(ACCOUNT, "r0")
        assert (run.status, run.owner, run.started, run.epoch) == ("running", "w1", opened.clock.now, first[0].epoch)

    async def test_c045_claims_in_the_tick_of_creation_take_every_run_once(self, opened: OpenedStore) -> None:
        store = opened.store
        created = [store.create(new_run(f"r{number}")) for number in range(100)]
        claims = [store.claim(f"w{number % 2}", TTL, limit=3) for number in range(100)]
        tasks = [
            (asyncio.ensure_future(create), asyncio.ensure_future(claim))
            for create, claim in zip(created, claims, strict=True)
        ]
        assert all([(await create)[1] for create, _ in tasks])
        taken = [lease.run_id for _, claim in tasks for lease in await claim]
        taken += [lease.run_id for lease in await store.claim("w0", TTL, limit=100)]
        assert sorted(taken) == sorted(f"r{number}" for number in range(100))

    async def test_a_lease_that_lapsed_goes_to_another_worker_and_its_owner_is_refused(
        self, opened: OpenedStore
    ) -> None:
        store = opened.store
        old = await leased(store)
        opened.uptime.now += TTL - 1
        assert await store.claim("w2", TTL) == []
        assert await store.renew([old], TTL) == []
        opened.uptime.now += TTL - 1
        assert await store.claim("w2", TTL) == []
        opened.uptime.now += 2
        [new] = await store.claim("w2", TTL)
        assert new.epoch > old.epoch
        assert await store.renew([old, new], TTL) == [old]
        for refused in (
            store.append(old, batch("/a")),
            store.release(old, batch("/a"), Verdict("completed")),
            store.withdraw(old, ["/a"], "late"),
            store.load(old),
        ):
            with pytest.raises(LeaseLost):
                await refused
        assert await store.history(ACCOUNT, "r1") == []
        await store.append(new, batch("/a"))

    async def test_a_worker_does_not_take_its_own_late_lease_from_itself(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        opened.uptime.now += 10 * TTL
        assert await store.claim("w1", TTL) == []
        assert await store.claim("w1", TTL, run_id="r1") == []
        assert await store.renew([lease], TTL) == []
        await store.append(lease, batch("/a"))

    async def test_a_lease_that_a_worker_no_longer_renews_comes_back_to_it(self, opened: OpenedStore) -> None:
        store = opened.store
        await leased(store)
        opened.uptime.now += TTL + 1
        await store.renew([], TTL)
        [again] = await store.claim("w1", TTL)
        assert again.run_id == "r1"

    async def test_no_jump_of_the_wall_clock_ends_or_prolongs_a_lease(self, opened: OpenedStore) -> None:
        store = opened.store
        await leased(store)
        for jump in (1e6, -2e6):
            opened.clock.now += jump
            assert await store.claim("w2", TTL) == []
        opened.uptime.now += TTL + 1
        assert len(await store.claim("w2", TTL)) == 1

    async def test_a_released_lease_writes_nothing_more(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        assert await store.release(lease, batch("/a"), Verdict("waiting", wake_at=opened.clock.now + 60))
        with pytest.raises(LeaseLost):
            await store.append(lease, batch("/b"))
        with pytest.raises(LeaseLost):
            await store.release(lease, batch("/b"), Verdict("completed"))
        assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/a"]

    async def test_a_parked_run_is_due_at_its_time_and_claimed_before_only_by_its_id(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        await store.release(lease, Batch(), Verdict("waiting", wake_at=opened.clock.now + 60))
        assert await store.claim("w1", TTL) == []
        assert await store.claim("w1", TTL, run_id="r1", due_only=True) == []
        [lease] = await store.claim("w1", TTL, run_id="r1")
        await store.release(lease, Batch(), Verdict("waiting", wake_at=opened.clock.now + 60))
        opened.clock.now += 60
        [lease] = await store.claim("w1", TTL, run_id="r1", due_only=True)
        await store.release(lease, Batch(), Verdict("suspended"))
        opened.clock.now += 1e6
        assert await store.claim("w1", TTL) == []

    async def test_a_run_that_was_handed_back_is_due_at_once(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        assert await store.release(lease, batch("/a"), Verdict("queued"))
        [again] = await store.claim("w2", TTL)
        assert again.epoch > lease.epoch

    @pytest.mark.parametrize("status", FINAL)
    async def test_an_ended_run_stays_as_it_is(self, opened: OpenedStore, status: str) -> None:
        store = opened.store
        lease = await leased(store)
        await store.append(lease, batch("/g/~start", open=[a_wait("x1", "/g")]))
        failure = {"kind": "timeout", "message": "too late", "retryable": False}
        verdict = Verdict(status, {"n": 2**70}, failure, active=1.5, usage={"tokens": 3}, ended=7.0)
        await store.post(ACCOUNT, Message("r1", "event", body="unread"))
        assert await store.release(lease, batch("/a"), verdict)
        run = await store.run(ACCOUNT, "r1")
        assert (run.status, run.output, run.error) == (status, {"n": 2**70}, failure)
        assert (run.active, run.usage, run.ended, run.owner) == (1.5, {"tokens": 3}, 7.0, "")
        assert (await store.wait(ACCOUNT, "x1")).status == "cancelled"
        assert await store.claim("w1", TTL) == await store.claim("w1", TTL, run_id="r1") == []
        with pytest.raises(Conflict) as refused:
            await store.post(ACCOUNT, Message("r1", "cancel"))
        assert refused.value.detail == {"status": status}
        with pytest.raises(Gone):
            await store.decide(ACCOUNT, "x1", Ballot({"decision": "approved"}))

    async def test_a_worker_that_serves_is_seen_until_it_falls_silent(self, opened: OpenedStore) -> None:
        store = opened.store
        await store.heartbeat("cli", serves=False, ttl=TTL)
        assert not await store.served()
        await store.heartbeat("server", serves=True, ttl=TTL)
        assert await store.served()
        opened.uptime.now += TTL + 1
        assert not await store.served()


class WaitContract:
    """What people, timers and others say reaches a run once."""

    async def test_a_decision_wakes_a_parked_run_and_comes_as_a_message(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, a_wait("x1", "/g", digest="shown"))
        assert await store.claim("w1", TTL) == []
        [wait] = await store.waits(ACCOUNT)
        assert (wait.id, wait.run_id, wait.workflow, wait.status) == ("x1", "r1", "order", "pending")
        decided = await store.decide(ACCOUNT, "x1", Ballot({"decision": "approved", "by": "eva"}, digest="shown"))
        assert (decided.status, decided.decided) == ("decided", opened.clock.now)
        [lease] = await store.claim("w1", TTL)
        loaded = await store.load(lease)
        assert loaded.waits == []
        [message] = loaded.messages
        assert (message.kind, message.path, message.body) == ("decision", "/g", {"decision": "approved", "by": "eva"})
        await store.append(lease, Batch(batch("/g/?").entries, consume=[message.order]))
        assert (await store.load(lease)).messages == await store.inbox(lease, 0) == []

    async def test_c024_a_second_decision_gets_the_first(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, a_wait("x1", "/g"))
        await store.decide(ACCOUNT, "x1", Ballot({"decision": "rejected"}))
        with pytest.raises(AlreadyDecided) as refused:
            await store.decide(ACCOUNT, "x1", Ballot({"decision": "approved"}))
        assert refused.value.detail == {"decision": "rejected"}
        assert (await store.wait(ACCOUNT, "x1")).decision == {"decision": "rejected"}

    async def test_fifty_decisions_at_once_have_one_winner(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, a_wait("x1", "/g"))
        said = [store.decide(ACCOUNT, "x1", Ballot({"by": number})) for number in range(50)]
        results = await asyncio.gather(*said, return_exceptions=True)
        [winner] = [result for result in results if not isinstance(result, BaseException)]
        assert all(result.detail == winner.decision for result in results if isinstance(result, AlreadyDecided))
        [lease] = await store.claim("w1", TTL)
        assert [message.body for message in (await store.load(lease)).messages] == [winner.decision]

    async def test_a_decision_on_what_was_not_shown_is_refused(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, a_wait("x1", "/g", digest="new"))
        with pytest.raises(Conflict):
            await store.decide(ACCOUNT, "x1", Ballot({}, digest="old"))
        for account, wait_id in (("other", "x1"), (ACCOUNT, "x2")):
            with pytest.raises(NotFound):
                await store.decide(account, wait_id, Ballot({}))
            with pytest.raises(NotFound):
                await store.wait(account, wait_id)
        assert (await store.wait(ACCOUNT, "x1")).status == "pending"

    async def test_an_expired_wait_wakes_its_run_and_can_no_longer_be_decided(self, opened: OpenedStore) -> None:
        store = opened.store
        end = opened.clock.now + 60
        await parked_at(store, a_wait("x1", "/g", deadline=end))
        assert await store.claim("w1", TTL) == []
        opened.clock.now = end
        [lease] = await store.claim("w1", TTL)
        assert [message.body for message in (await store.load(lease)).messages] == [{"decision": "expired"}]
        with pytest.raises(Gone):
            await store.decide(ACCOUNT, "x1", Ballot({"decision": "approved"}))
        assert (await store.wait(ACCOUNT, "x1")).status == "expired"

    async def test_c046_a_decision_after_the_deadline_loses_to_it(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, a_wait("x1", "/g", deadline=opened.clock.now + 1))
        opened.clock.now += 1
        with pytest.raises(Gone):
            await store.decide(ACCOUNT, "x1", Ballot({"decision": "approved"}))
        [lease] = await store.claim("w1", TTL)
        assert [message.body for message in (await store.load(lease)).messages] == [{"decision": "expired"}]

    async def test_a_timer_of_an_owned_run_comes_due_in_its_inbox(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        timer = a_wait("t1", "/pause", kind="timer", deadline=opened.clock.now + 5)
        await store.append(lease, batch("/pause/~start", open=[timer]))
        opened.clock.now += 6
        assert await store.claim("w2", TTL, limit=0) == []
        [message] = await store.inbox(lease, 0)
        assert (message.path, message.body) == ("/pause", {"decision": "due"})
        assert await store.inbox(lease, message.order) == []

    async def test_a_claim_by_id_closes_the_late_waits_of_that_run_alone(self, opened: OpenedStore) -> None:
        store = opened.store
        end = opened.clock.now + 60
        await parked_at(store, a_wait("x1", "/g", deadline=end))
        await parked_at(store, a_wait("x2", "/g", deadline=end), "r2")
        opened.clock.now = end
        [lease] = await store.claim("w1", TTL, run_id="r1", due_only=True)
        assert [message.body for message in (await store.load(lease)).messages] == [{"decision": "expired"}]
        assert (await store.wait(ACCOUNT, "x2")).status == "pending"
        assert [lease.run_id for lease in await store.claim("w1", TTL)] == ["r2"]

    async def test_what_has_arrived_is_told_to_its_worker_for_all_runs_at_once(self, opened: OpenedStore) -> None:
        store = opened.store
        leases = [await leased(store, f"r{number}", "w1") for number in range(3)]
        await leased(store, "r3", "w2")
        await store.create(new_run("r4"))
        posted = [await store.post(ACCOUNT, Message(f"r{n}", "action", "/p", n)) for n in (2, 0, 3, 4, 2)]
        assert await store.arrived("w1") == [posted[0], posted[1], posted[4]]
        assert await store.arrived("w2") == [posted[2]]
        assert await store.arrived("w3") == []
        await store.append(leases[2], Batch(consume=[posted[0].order]))
        await store.release(leases[0], Batch(), Verdict("waiting", seen=posted[1].order))
        assert await store.arrived("w1") == [posted[4]]

    async def test_a_wait_that_is_there_stays_as_it_is(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        await store.append(lease, batch("/a", open=[a_wait("x1", "/g")]))
        await store.decide(ACCOUNT, "x1", Ballot({"decision": "approved"}))
        await store.append(lease, batch("/b", open=[a_wait("x2", "/g")]))
        assert [wait.id for wait in await store.waits(ACCOUNT, pending_only=False)] == ["x1"]
        with pytest.raises(Conflict):
            await store.append(lease, batch("/c", open=[a_wait("x1", "/other")]))
        assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/a", "/b"]

    async def test_withdrawn_waits_are_told_apart_from_those_decided_first(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        await store.append(lease, batch("/s", open=[a_wait("x1", "/a"), a_wait("x2", "/b"), a_wait("x3", "/c")]))
        await store.decide(ACCOUNT, "x1", Ballot({"decision": "approved"}))
        assert await store.withdraw(lease, ["/a", "/b", "/none"], "a sibling failed") == ["/b"]
        assert await store.withdraw(lease, ["/a", "/b"], "again") == ["/b"]
        assert (await store.wait(ACCOUNT, "x2")).decision == {"reason": "a sibling failed"}
        with pytest.raises(Gone):
            await store.decide(ACCOUNT, "x2", Ballot({}))
        assert [wait.id for wait in await store.waits(ACCOUNT, run_id="r1", kind="approval")] == ["x3"]

    @pytest.mark.parametrize("status", PARKED)
    async def test_a_run_is_not_parked_over_a_message_that_nobody_read(self, opened: OpenedStore, status: str) -> None:
        store = opened.store
        lease = await leased(store)
        seen = await store.post(ACCOUNT, Message("r1", "event", body=1))
        unseen = await store.post(ACCOUNT, Message("r1", "event", body=2))
        assert unseen.order > seen.order
        assert not await store.release(lease, batch("/a"), Verdict(status, seen=seen.order))
        assert (await store.run(ACCOUNT, "r1")).status == "running"
        assert [message.body for message in await store.inbox(lease, seen.order)] == [2]
        assert await store.release(lease, batch("/b"), Verdict(status, seen=unseen.order))
        assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/a", "/b"]
        assert (await store.run(ACCOUNT, "r1")).status == status

    async def test_a_message_wakes_a_parked_run_once(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        await store.release(lease, Batch(), Verdict("suspended"))
        posted = await store.post(ACCOUNT, Message("r1", "cancel", body={"why": "x"}))
        [lease] = await store.claim("w1", TTL)
        assert (await store.load(lease)).messages == [posted]
        await store.release(lease, Batch(), Verdict("suspended", seen=posted.order))
        assert await store.claim("w1", TTL) == []

    async def test_changes_are_heard_at_once_and_once_by_everyone(self, opened: OpenedStore) -> None:
        store = opened.store
        await store.create(new_run("r1"))
        while await store.changed(0):
            pass
        heard: list[Any] = []

        async def listen() -> None:
            heard.append(await store.changed(5))
            heard.append(await store.changed(0))

        listeners = [asyncio.create_task(listen()) for _ in range(3)]
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await store.create(new_run("r2"))
        await asyncio.gather(*listeners)
        assert time.monotonic() - began < 2
        assert sorted(heard) == [False] * 3 + [True] * 3
