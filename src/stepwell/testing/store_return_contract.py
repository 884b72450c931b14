"""What every run store must do with a run that goes back, as tests: see `store_contract.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepwell.errors import Conflict
from stepwell.ports import AuditRecord, Batch, Reopening, Verdict
from stepwell.testing.store_builders import ACCOUNT, TTL, OpenedStore, a_wait, entry, leased, new_run, parked_at

BACK = entry("/~rewound", "rewound", b'{"value":{"stale":[],"reopen":[""],"drop":["/b"],"by":"ana"}}', generation=1)


class ReturnContract:
    """A run that was parked or has ended is made due again, one generation on."""

    async def test_a_pass_of_a_run_that_went_back_loads_what_lay_below_settled_places(
        self, opened: OpenedStore
    ) -> None:
        store = opened.store
        lease = await leased(store)
        await store.append(lease, Batch([entry("/a"), entry("/c/x"), entry("/c", "settled"), entry("/b", "failed")]))
        assert [one.path for one in (await store.peek(ACCOUNT, "r1")).entries] == ["/a", "/c", "/b"]
        ended = Batch([entry("", "settled")])
        assert await store.release(lease, ended, Verdict("failed", error={"kind": "k", "message": "m"}))
        run = await store.run(ACCOUNT, "r1")
        note = AuditRecord("ana", "run.redrive", "r1")
        back = await store.reopen(ACCOUNT, "r1", Reopening(run.epoch, BACK), notes=[note])
        assert (back.status, back.generation, back.error, back.ended) == ("queued", 1, None, 0.0)
        [lease] = await store.claim("w2", TTL)
        loaded = (await store.load(lease)).entries
        assert [one.path for one in loaded] == ["/a", "/c/x", "/c", "/b", "", "/~rewound"]
        await store.append(lease, Batch([entry("/b", generation=1)]))
        assert [one.kind for one in await store.history(ACCOUNT, "r1") if one.path == "/b"] == ["failed", "succeeded"]
        assert [kept.action for kept in await store.people.audit(ACCOUNT, object="r1")] == ["run.redrive"]

    async def test_a_run_that_went_on_since_it_was_looked_at_does_not_go_back(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, a_wait("x1", "/g"))
        run = await store.run(ACCOUNT, "r1")
        with pytest.raises(Conflict):
            await store.reopen(ACCOUNT, "r1", Reopening(run.epoch - 1, BACK))
        assert (await store.run(ACCOUNT, "r1")).generation == 0
        await store.reopen(ACCOUNT, "r1", Reopening(run.epoch, BACK, ["/g"], "ana made the run go back"))
        wait = await store.wait(ACCOUNT, "x1")
        assert (wait.status, wait.decision) == ("withdrawn", {"reason": "ana made the run go back"})
        with pytest.raises(Conflict):  # it is due: nobody has looked at what it will do
            await store.reopen(ACCOUNT, "r1", Reopening(run.epoch + 1, BACK))

    async def test_a_run_that_begins_with_entries_of_another_has_their_large_values(self, opened: OpenedStore) -> None:
        store, large = opened.store, b'"x"' * 1000
        first = replace(entry("/~rewound#0", "rewound", b'{"value_ref":"d9"}'), blobs=(("d9", large),))
        await store.create(new_run("r1", seed=[entry("/a"), first]))
        assert await store.blob(ACCOUNT, "d9") == store.blob_now(ACCOUNT, "d9") == large
        assert [one.path for one in await store.history(ACCOUNT, "r1")] == ["/a", "/~rewound#0"]
