"""What every run store must do with lanes, as tests: see `store_contract.py`."""

from __future__ import annotations

import time
from typing import Any

import pytest

from stepwell.errors import Conflict, NotFound
from stepwell.ports import FINAL, PARKED, Batch, Lease, Message, NewRun, RunStore, Verdict
from stepwell.testing.store_builders import ACCOUNT, TTL, OpenedStore, a_wait, batch, new_run


def in_lane(run_id: str, limit: int = 1, **fields: Any) -> NewRun:
    """A run in a lane."""
    return new_run(run_id, **{"lane": "order/eva", "lane_limit": limit, **fields})


async def created(store: RunStore, *runs: NewRun) -> None:
    """Create these runs one after the other."""
    for run in runs:
        await store.create(run)


async def taken(store: RunStore, worker: str = "w1") -> list[str]:
    """Which runs a claim without a bound takes."""
    return [lease.run_id for lease in await store.claim(worker, TTL, limit=1000)]


async def ended(store: RunStore, lease: Lease, status: str = "completed") -> None:
    """End a run."""
    assert await store.release(lease, Batch(), Verdict(status))


async def cancels(store: RunStore, lease: Lease) -> list[Any]:
    """Bodies of the cancels that a run was sent."""
    return [message.body for message in await store.inbox(lease, 0) if message.kind == "cancel"]


class LaneContract:
    """Runs of one lane begin in their order, and never more of them are under way than there are places."""

    async def test_a_lane_of_one_place_lets_one_run_after_the_other_begin(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(store, *(in_lane(f"r{number}") for number in range(3)))
        for number in range(3):
            [lease] = await store.claim("w1", TTL, limit=9)
            assert (lease.run_id, (await store.run(ACCOUNT, lease.run_id)).lane) == (f"r{number}", "order/eva")
            assert await taken(store, "w2") == []
            await ended(store, lease)
        assert await taken(store) == []

    async def test_a_lane_of_two_places_lets_two_runs_be_under_way(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(store, *(in_lane(f"r{number}", 2) for number in range(5)))
        first, second = await store.claim("w1", TTL, limit=9)
        assert (first.run_id, second.run_id) == ("r0", "r1")
        await ended(store, second)
        assert await taken(store) == ["r2"]
        await ended(store, first)
        assert await taken(store) == ["r3"]
        assert await taken(store) == []

    async def test_lanes_accounts_and_runs_without_lane_do_not_hold_each_other_up(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(
            store,
            in_lane("r0"), in_lane("r1"), in_lane("r2", lane="order/bob"), in_lane("r3", account="other"),
            new_run("r4"), new_run("r5"),
        )  # fmt: skip
        assert await taken(store) == ["r0", "r2", "r3", "r4", "r5"]
        assert (await store.run(ACCOUNT, "r1")).status == "queued"

    @pytest.mark.parametrize("status", [*PARKED, "queued"])
    async def test_a_parked_run_keeps_its_place(self, opened: OpenedStore, status: str) -> None:
        store = opened.store
        await created(store, in_lane("r0"), in_lane("r1"))
        [lease] = await store.claim("w1", TTL)
        assert await store.release(lease, Batch(), Verdict(status, wake_at=opened.clock.now + 60))
        opened.clock.now += 60
        assert await taken(store) == ["r0"]
        assert await store.claim("w2", TTL, run_id="r1") == []

    async def test_a_run_whose_owner_fell_silent_keeps_its_place(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(store, in_lane("r0"), in_lane("r1"))
        assert await taken(store) == ["r0"]
        opened.uptime.now += TTL + 1
        assert await taken(store, "w2") == ["r0"]

    @pytest.mark.parametrize("status", FINAL)
    async def test_the_place_is_free_when_the_run_has_ended_and_that_is_heard(
        self, opened: OpenedStore, status: str
    ) -> None:
        store = opened.store
        await created(store, in_lane("r0"), in_lane("r1"))
        [lease] = await store.claim("w1", TTL)
        while await store.changed(0):
            pass
        await ended(store, lease, status)
        assert await store.changed(0)
        assert await taken(store) == ["r1"]

    async def test_a_run_is_claimed_by_its_id_only_when_it_is_its_turn(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(store, *(in_lane(f"r{number}", 2) for number in range(3)))
        for run_id in ("r1", "r2"):
            assert await store.claim("w1", TTL, run_id=run_id) == []
        [lease] = await store.claim("w1", TTL, run_id="r0", due_only=True)
        assert len(await store.claim("w1", TTL, run_id="r1", due_only=True)) == 1
        assert await store.claim("w1", TTL, run_id="r2") == []
        await ended(store, lease)
        assert len(await store.claim("w1", TTL, run_id="r2")) == 1

    async def test_a_message_gives_a_waiting_run_no_place(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(store, in_lane("r0"), in_lane("r1"))
        [lease] = await store.claim("w1", TTL)
        await store.post(ACCOUNT, Message("r1", "event", path="/x"))
        assert await taken(store) == []
        assert await store.claim("w1", TTL, run_id="r1") == []
        await ended(store, lease)
        [lease] = await store.claim("w1", TTL)
        assert [message.kind for message in (await store.load(lease)).messages] == ["event"]

    async def test_a_waiting_run_that_was_cancelled_is_claimed_by_its_id_to_be_ended(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(store, in_lane("r0"), in_lane("r1"), in_lane("r2"))
        [first] = await store.claim("w1", TTL)
        await store.post(ACCOUNT, Message("r1", "cancel"))
        [lease] = await store.claim("w1", TTL, run_id="r1")
        await ended(store, lease, "cancelled")
        assert await taken(store) == []
        await ended(store, first)
        assert await taken(store) == ["r2"]

    async def test_a_full_lane_that_rejects_stores_nothing(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(store, in_lane("r0", on_limit="reject", idempotency_key="k0"))
        [lease] = await store.claim("w1", TTL)
        with pytest.raises(Conflict) as refused:
            await store.create(in_lane("r1", on_limit="reject", idempotency_key="k1"))
        assert refused.value.detail == {"lane": "order/eva", "limit": 1, "runs": ["r0"]}
        with pytest.raises(NotFound):
            await store.run(ACCOUNT, "r1")
        again, new = await store.create(in_lane("r2", on_limit="reject", idempotency_key="k0"))
        assert (again.id, new) == ("r0", False)
        await created(store, in_lane("r3", on_limit="reject", lane="order/bob"))
        await ended(store, lease)
        await created(store, in_lane("r1", on_limit="reject", idempotency_key="k1"))
        assert await taken(store) == ["r3", "r1"]

    async def test_a_newer_run_has_the_oldest_cancelled_once(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(store, in_lane("r0", 2), in_lane("r1", 2))
        first, second = await store.claim("w1", TTL, limit=9)
        await created(store, in_lane("r2", 2, on_limit="cancel_oldest", requester="eva"))
        assert await cancels(store, first) == [{"reason": "replaced by run r2 of the same lane", "by": "eva"}]
        assert await cancels(store, second) == []
        await created(store, in_lane("r3", 2, on_limit="cancel_oldest"))
        assert len(await cancels(store, first)) == len(await cancels(store, second)) == 1
        assert await taken(store) == []
        await ended(store, first, "cancelled")
        assert await taken(store) == ["r2"]

    async def test_waiting_runs_count_when_the_oldest_are_cancelled(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(store, in_lane("r0"))
        [lease] = await store.claim("w1", TTL)
        await created(store, in_lane("r1"), in_lane("r2", on_limit="cancel_oldest"))
        assert len(await cancels(store, lease)) == 1
        await ended(store, lease, "cancelled")
        [waiting] = await store.claim("w1", TTL)
        assert waiting.run_id == "r1"
        assert len(await cancels(store, waiting)) == 1

    async def test_a_cancel_of_the_oldest_wakes_it_where_it_is_parked(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(store, in_lane("r0"))
        [lease] = await store.claim("w1", TTL)
        await store.append(lease, batch("/g/~start", open=[a_wait("x1", "/g")]))
        await store.release(lease, Batch(), Verdict("pending_approval"))
        await created(store, in_lane("r1", on_limit="cancel_oldest"))
        assert await taken(store) == ["r0"]

    async def test_a_lane_that_is_not_full_cancels_and_rejects_nobody(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(store, in_lane("r0", 2))
        [lease] = await store.claim("w1", TTL)
        await created(store, in_lane("r1", 2, on_limit="cancel_oldest"))
        assert await taken(store) == ["r1"]
        assert await cancels(store, lease) == []
        await ended(store, lease)
        await created(store, in_lane("r2", 2, on_limit="reject"))
        assert await taken(store) == ["r2"]

    async def test_each_run_keeps_to_the_number_of_places_that_it_was_created_with(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(store, in_lane("r0", 2), in_lane("r1", 2), in_lane("r2", 1), in_lane("r3", 3))
        first, second = await store.claim("w1", TTL, limit=9)
        await ended(store, first)
        assert await taken(store) == []
        await ended(store, second)
        assert await taken(store) == ["r2", "r3"]

    async def test_a_lane_without_places_is_refused(self, opened: OpenedStore) -> None:
        with pytest.raises(ValueError, match="at least one place"):
            await opened.store.create(in_lane("r0", 0))
        assert await opened.store.runs(ACCOUNT) == []

    async def test_a_thousand_runs_that_wait_in_one_lane_starve_nobody(self, opened: OpenedStore) -> None:
        store = opened.store
        await created(store, in_lane("first"))
        assert await taken(store) == ["first"]
        await created(store, *(in_lane(f"r{number}") for number in range(1000)), new_run("last"))
        began = time.monotonic()
        assert [lease.run_id for lease in await store.claim("w1", TTL)] == ["last"]
        for _ in range(20):
            assert await store.claim("w1", TTL, limit=10) == []
        assert time.monotonic() - began < 5
