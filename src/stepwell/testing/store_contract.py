"""What every run store must do, as tests: derive a class from `RunStoreContract` and give it a fixture `opened`.

The law of the file: only the port is used, so that any store can be held against it. Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import asyncio

import pytest

from stepwell.errors import Conflict, NotFound
from stepwell.journal.entry import Entry
from stepwell.journal.lease import LeaseLost
from stepwell.ports import Batch, Lease, Message, Outgoing
from stepwell.testing.store_builders import ACCOUNT, TTL, OpenedStore, batch, entry, leased, new_run
from stepwell.testing.store_event_contract import DueContract, EventContract
from stepwell.testing.store_lane_contract import LaneContract
from stepwell.testing.store_lease_contract import LeaseContract, WaitContract
from stepwell.testing.store_library_contract import RepinContract
from stepwell.testing.store_return_contract import ReturnContract
from stepwell.testing.store_vote_contract import ReminderContract, VoteContract


class RunContract:
    async def test_a_created_run_is_queued_and_reads_back_as_it_was_given(self, opened: OpenedStore) -> None:
        given = {"big": 2**200, "nul": "a\0b", "\0key": "\ufeffbom", "order": {"z": 1, "a": [1.5, None, True]}}
        run, new = await opened.store.create(new_run("r1", input=given, project={"file": "x"}, requester="eva"))
        assert new
        assert run == await opened.store.run(ACCOUNT, "r1")
        assert (run.status, run.input, run.project, run.requester) == ("queued", given, {"file": "x"}, "eva")
        assert list(run.input["order"]) == ["z", "a"]
        assert run.created == opened.clock.now

    async def test_a_run_of_another_account_is_not_found(self, opened: OpenedStore) -> None:
        await opened.store.create(new_run("r1"))
        for asked in (
            opened.store.run("other", "r1"),
            opened.store.history("other", "r1"),
            opened.store.run(ACCOUNT, "r"),
        ):
            with pytest.raises(NotFound):
                await asked
        with pytest.raises(NotFound):
            await opened.store.post("other", Message("r1", "cancel"))
        assert await opened.store.runs("other") == []

    async def test_the_same_idempotency_key_gives_the_same_run(self, opened: OpenedStore) -> None:
        store = opened.store
        first, _ = await store.create(new_run("r1", idempotency_key="k", input={"a": 1, "b": 2}))
        again, new = await store.create(new_run("r2", idempotency_key="k", input={"b": 2, "a": 1}))
        assert (again.id, new) == (first.id, False)
        with pytest.raises(Conflict):
            await store.create(new_run("r3", idempotency_key="k", input={"a": 2, "b": 2}))
        with pytest.raises(Conflict):
            await store.create(new_run("r3", idempotency_key="k", input={"a": 1, "b": 2}, definition="d2"))
        _, elsewhere = await store.create(new_run("r4", idempotency_key="k", account="other"))
        _, another = await store.create(new_run("r5", idempotency_key="k", workflow="invoice"))
        assert elsewhere
        assert another

    async def test_an_id_is_given_once(self, opened: OpenedStore) -> None:
        await opened.store.create(new_run("r1"))
        with pytest.raises(Conflict):
            await opened.store.create(new_run("r1"))
        with pytest.raises(Conflict):
            await opened.store.create(new_run("r1", account="other"))

    async def test_runs_are_listed_newest_first_and_page_by_page(self, opened: OpenedStore) -> None:
        store = opened.store
        for number in range(7):
            await store.create(new_run(f"r{number}", workflow="even" if number % 2 == 0 else "odd"))
        await store.claim("w", TTL, run_id="r3")
        page = await store.runs(ACCOUNT, limit=3)
        assert [run.id for run in page] == ["r6", "r5", "r4"]
        assert [run.id for run in await store.runs(ACCOUNT, limit=3, before="r4")] == ["r3", "r2", "r1"]
        assert [run.id for run in await store.runs(ACCOUNT, workflow="even")] == ["r6", "r4", "r2", "r0"]
        assert [run.id for run in await store.runs(ACCOUNT, statuses=["running", "failed"])] == ["r3"]
        wanted = await store.runs(ACCOUNT, statuses=["queued"], workflow="odd", before="r5")
        assert [run.id for run in wanted] == ["r1"]
        with pytest.raises(NotFound):
            await store.runs(ACCOUNT, before="nothing")

    async def test_definitions_are_kept_by_digest_and_account(self, opened: OpenedStore) -> None:
        await opened.store.put_definition(ACCOUNT, "d1", b'{"a":"\\u0000"}')
        await opened.store.put_definition(ACCOUNT, "d1", b"other")
        assert await opened.store.definition(ACCOUNT, "d1") == b'{"a":"\\u0000"}'
        with pytest.raises(NotFound):
            await opened.store.definition("other", "d1")


class JournalContract:
    async def test_orders_grow_over_all_runs_and_follow_by_one_in_a_batch(self, opened: OpenedStore) -> None:
        store = opened.store
        one, two = await leased(store, "r1"), await leased(store, "r2")
        orders = [
            await store.append(one, batch("/a", "/b")),
            await store.append(two, batch("/a")),
            await store.append(one, batch("/c")),
        ]
        assert orders == sorted(set(orders))
        history = await store.history(ACCOUNT, "r1")
        assert [(entry.path, entry.order) for entry in history] == [
            ("/a", orders[0]),
            ("/b", orders[0] + 1),
            ("/c", orders[2]),
        ]

    async def test_an_entry_reads_back_byte_for_byte(self, opened: OpenedStore) -> None:
        lease = await leased(opened.store)
        body = '{"value":{"n":123456789012345678901234567890,"t":"\\u0000 é 漢 \ufeff"}}'.encode()
        written = Entry("/é漢/x#2/@3", "failed", body, digest="ab", generation=2, at=12.25)
        order = await opened.store.append(lease, Batch([written]))
        [read] = await opened.store.history(ACCOUNT, "r1")
        assert (read.path, read.kind, read.body, read.digest, read.generation, read.at, read.order) == (
            *("/é漢/x#2/@3", "failed", body, "ab", 2, 12.25),
            order,
        )

    async def test_a_second_entry_of_a_path_and_generation_is_refused_with_its_whole_batch(
        self, opened: OpenedStore
    ) -> None:
        store = opened.store
        lease = await leased(store)
        await store.append(lease, Batch([entry("/a", body=b'"first"')]))
        for refused in (batch("/a"), batch("/b", "/a"), batch("/c", "/c")):
            with pytest.raises(Conflict, match="already recorded"):
                await store.append(lease, refused)
        assert [(entry.path, entry.body) for entry in await store.history(ACCOUNT, "r1")] == [("/a", b'"first"')]
        await store.append(lease, Batch([entry("/a", generation=1)]))

    async def test_appends_handed_over_at_once_keep_their_order_and_fail_alone(self, opened: OpenedStore) -> None:
        store = opened.store
        one, two = await leased(store, "r1"), await leased(store, "r2")
        stale = Lease(two.run_id, two.account, two.key, two.epoch - 1, two.owner)
        given = [(one, batch("/a")), (stale, batch("/x")), (one, batch("/b")), (one, batch("/a")), (two, batch("/c"))]
        handed = [store.append(lease, written) for lease, written in given]
        first, lost, second, taken, third = await asyncio.gather(*handed, return_exceptions=True)
        assert isinstance(lost, LeaseLost)
        assert isinstance(taken, Conflict)
        orders = [order for order in (first, second, third) if isinstance(order, int)]
        assert len(orders) == 3
        assert orders == sorted(set(orders))
        assert [entry.path for entry in await store.history(ACCOUNT, "r1")] == ["/a", "/b"]
        assert [entry.path for entry in await store.history(ACCOUNT, "r2")] == ["/c"]

    async def test_load_leaves_out_what_lies_below_settled_paths(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        settled = ["/a", "/loop/1", "/loop/1#2", "/b#2"]
        below = ["/a/x", "/a/x/@1", "/a/?", "/loop/1/s", "/loop/1#2/s/@2", "/b#2/~start"]
        beside = [
            "/a#2/x",
            "/a-b/x",
            "/a0/x",
            "/ab",
            "/loop/10/s",
            "/loop/1!/x",
            "/b/~start",
            "/b#20/x",
            "/loop/~start",
        ]
        await store.append(lease, batch(*below, *beside))
        await store.append(lease, Batch([entry(path, "settled") for path in settled]))
        loaded = await store.load(lease)
        assert [entry.path for entry in loaded.entries] == [*beside, *settled]
        await store.append(lease, Batch([entry("", "settled")]))
        assert [entry.path for entry in (await store.load(lease)).entries] == [""]

    async def test_load_gives_the_newest_generation_of_a_path(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        await store.append(lease, Batch([entry("/a/x"), entry("/a", "settled"), entry("/s", body=b"0")]))
        await store.append(lease, Batch([entry("/a", "started", generation=1), entry("/s", body=b"1", generation=1)]))
        loaded = (await store.load(lease)).entries
        assert [(entry.path, entry.generation, entry.body) for entry in loaded] == [
            ("/a/x", 0, b"{}"),
            ("/a", 1, b"{}"),
            ("/s", 1, b"1"),
        ]

    async def test_large_values_and_notifications_are_stored_once_with_their_entry(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        text = b'"' + b"x" * 100_000 + b'"'
        told = Outgoing("k1", "app", ["ops"], "late \0", {"n": 2**70}, path="/a")
        await store.append(lease, Batch([Entry("/a", "succeeded", b"{}", blobs=(("big", text),))], outgoing=[told]))
        with pytest.raises(Conflict):
            await store.append(lease, Batch([Entry("/a", "succeeded", b"{}", blobs=(("lost", text),))]))
        await store.append(lease, Batch([Entry("/b", "succeeded", b"{}", blobs=(("big", b"other"),))], outgoing=[told]))
        assert await store.blob(ACCOUNT, "big") == store.blob_now(ACCOUNT, "big") == text
        for account, digest in ((ACCOUNT, "lost"), ("other", "big")):
            with pytest.raises(NotFound):
                await store.blob(account, digest)
            with pytest.raises(NotFound):
                store.blob_now(account, digest)
        [stored] = await store.outgoing(ACCOUNT)
        assert (stored.key, stored.to, stored.body, stored.run_id) == ("k1", ["ops"], {"n": 2**70}, "r1")
        assert await store.outgoing(ACCOUNT, run_id="r1") == [stored]
        assert await store.outgoing("other") == []

    async def test_a_changed_value_does_not_change_what_was_stored(self, opened: OpenedStore) -> None:
        given = {"list": [1]}
        run, _ = await opened.store.create(new_run("r1", input=given))
        given["list"].append(2)
        run = await opened.store.run(ACCOUNT, "r1")
        assert run.input == {"list": [1]}


class RunStoreContract(
    RunContract,
    JournalContract,
    LeaseContract,
    WaitContract,
    VoteContract,
    ReminderContract,
    EventContract,
    DueContract,
    LaneContract,
    RepinContract,
    ReturnContract,
):
    """All of it. The fixture `opened` gives an `OpenedStore` that nobody has used yet."""
