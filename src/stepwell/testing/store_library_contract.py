"""What every library of workflows must do, and every run store whose runs are given other definitions, as tests.

The law of the file: only the ports are used, so that any store can be held against it. Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell.errors import Conflict, NotFound
from stepwell.journal.entry import encode
from stepwell.ports import AuditRecord, Ballot, Batch, Library, Message, NewVersion, PublishedRecipe, Repin, Verdict
from stepwell.testing.store_builders import (
    ACCOUNT,
    TTL,
    ManualClock,
    OpenedStore,
    a_wait,
    entry,
    leased,
    new_run,
    parked_at,
)


@dataclass(slots=True)
class OpenedLibrary:
    """A fresh library on the database of a fresh run store."""

    library: Library
    runs: OpenedStore
    clock: ManualClock


def new_version(number: int = 1, **fields: Any) -> NewVersion:
    """A version to be published, which says something else for each number."""
    given = {"workflow": "order", "definition": f"d{number}", "content": f"c{number}", "text": f"text {number}"}
    return NewVersion(**{**given, "label": "beta", "by": "ana", **fields})


class LibraryContract:
    """Derive from it and give it a fixture `opened` with an `OpenedLibrary`."""

    async def test_versions_are_numbered_from_one_and_read_back_as_they_were_given(self, opened: OpenedLibrary) -> None:
        library = opened.library
        first, new = await library.publish(ACCOUNT, new_version(1, note="the first", file="order.yaml"))
        assert (first.number, new, first.origin) == (1, True, "publish")
        assert first.at == opened.clock.now
        second, _ = await library.publish(ACCOUNT, new_version(2, origin="rollback of 1", at=12.5))
        assert (second.number, second.at, second.origin) == (2, 12.5, "rollback of 1")
        assert await library.find(ACCOUNT, "order", "1") == first
        assert library.find_now(ACCOUNT, "order", "2") == second
        assert await library.find(ACCOUNT, "order") == second
        assert (first.text, first.note, first.file, first.label, first.by) == (
            "text 1", "the first", "order.yaml", "beta", "ana",
        )  # fmt: skip

    async def test_each_workflow_and_account_counts_for_itself(self, opened: OpenedLibrary) -> None:
        library = opened.library
        for account, workflow in ((ACCOUNT, "order"), (ACCOUNT, "refund"), ("other", "order")):
            version, _ = await library.publish(account, new_version(1, workflow=workflow))
            assert version.number == 1
        assert [one.workflow for one in await library.workflows(ACCOUNT)] == ["order", "refund"]
        assert [one.workflow for one in await library.workflows("other")] == ["order"]
        assert await library.versions("other", "refund") == []
        with pytest.raises(NotFound):
            await library.find("other", "refund")
        with pytest.raises(NotFound):
            await library.delete("other", "refund", 1)

    async def test_the_same_as_the_newest_changes_nothing(self, opened: OpenedLibrary) -> None:
        library = opened.library
        await library.publish(ACCOUNT, new_version(1))
        same, new = await library.publish(ACCOUNT, new_version(1, note="again", text="text 1 with a comment"))
        assert (same.number, same.note, same.text, new) == (1, "", "text 1", False)
        renamed, new = await library.publish(ACCOUNT, new_version(1, content="another name"))
        assert (renamed.number, new) == (2, True)
        back, new = await library.publish(ACCOUNT, new_version(1))
        assert (back.number, new) == (3, True)

    async def test_a_number_is_looked_for_before_a_label_and_the_newest_of_a_label_counts(
        self, opened: OpenedLibrary
    ) -> None:
        library = opened.library
        await library.publish(ACCOUNT, new_version(1, label="2"))
        assert (await library.find(ACCOUNT, "order", "2")).number == 1
        await library.publish(ACCOUNT, new_version(2, label="x"))
        await library.publish(ACCOUNT, new_version(3, label="x"))
        assert (await library.find(ACCOUNT, "order", "2")).number == 2
        assert (await library.find(ACCOUNT, "order", "x")).number == 3
        with pytest.raises(NotFound, match=r"no version '9' of 'order'; it has 3 \(x\), 2 \(x\), 1 \(2\)"):
            await library.find(ACCOUNT, "order", "9")
        with pytest.raises(NotFound, match="no workflow 'nothing' in the library"):
            library.find_now(ACCOUNT, "nothing", "1")

    async def test_lists_are_newest_first_and_without_texts(self, opened: OpenedLibrary) -> None:
        library = opened.library
        for number in (1, 2, 3):
            await library.publish(ACCOUNT, new_version(number))
        found = await library.versions(ACCOUNT, "order")
        assert [(one.number, one.definition, one.text) for one in found] == [
            (3, "d3", ""),
            (2, "d2", ""),
            (1, "d1", ""),
        ]
        [newest] = await library.workflows(ACCOUNT)
        assert (newest.number, newest.text) == (3, "")

    async def test_recipes_that_versions_pinned_are_found_by_label_and_the_last_counts(
        self, opened: OpenedLibrary
    ) -> None:
        library = opened.library
        said = [("mood", "1", "a"), ("mood", "2", "b"), ("tone", "1", "c"), ("mood", "1", "d"), ("mood", "1", "d")]
        for number, (recipe, version, digest) in enumerate(said):
            one = PublishedRecipe(recipe, version, digest, f'"{digest}"'.encode())
            await library.publish(ACCOUNT, new_version(number, recipes=(one,)))
        assert library.recipe_now(ACCOUNT, "mood", "1") == PublishedRecipe("mood", "1", "d", b'"d"')
        assert library.recipe_now(ACCOUNT, "mood", "2").digest == "b"
        assert library.recipe_now(ACCOUNT, "mood").digest == "d"
        assert library.recipe_names_now(ACCOUNT) == ["mood", "tone"]
        assert library.recipe_names_now("other") == []
        with pytest.raises(NotFound, match="no recipe 'mood' of version '3'"):
            library.recipe_now(ACCOUNT, "mood", "3")
        with pytest.raises(NotFound):
            library.recipe_now("other", "mood")

    async def test_what_was_done_is_noted_with_it_and_what_was_not_is_not(self, opened: OpenedLibrary) -> None:
        library, people = opened.library, opened.runs.store.people
        note = AuditRecord("ana", "workflow.publish", "order")
        await library.publish(ACCOUNT, new_version(1), notes=[note])
        await library.publish(ACCOUNT, new_version(1), notes=[note])
        await library.publish(ACCOUNT, new_version(2), notes=[note])
        assert [one.object for one in await people.audit(ACCOUNT)] == ["order@2", "order@1"]
        await leased(opened.runs.store, "r1", definition="d1")
        with pytest.raises(Conflict):
            await library.delete(ACCOUNT, "order", 1, notes=[AuditRecord("ana", "workflow.delete", "order@1")])
        await library.delete(ACCOUNT, "order", 2, notes=[AuditRecord("ana", "workflow.delete", "order@2")])
        [last] = await people.audit(ACCOUNT, limit=1)
        assert last.action == "workflow.delete"
        assert len(await people.audit(ACCOUNT)) == 3

    async def test_publishers_at_once_never_get_one_number(self, opened: OpenedLibrary) -> None:
        library = opened.library
        found = await asyncio.gather(*(library.publish(ACCOUNT, new_version(number)) for number in range(40)))
        assert sorted(version.number for version, _ in found) == list(range(1, 41))

    async def test_a_deleted_version_is_gone_and_its_number_is_never_given_again(self, opened: OpenedLibrary) -> None:
        library = opened.library
        for number in (1, 2):
            await library.publish(ACCOUNT, new_version(number))
        assert (await library.delete(ACCOUNT, "order", 2)).number == 2
        assert (await library.find(ACCOUNT, "order")).number == 1
        for gone in (library.find(ACCOUNT, "order", "2"), library.delete(ACCOUNT, "order", 2)):
            with pytest.raises(NotFound):
                await gone
        again, _ = await library.publish(ACCOUNT, new_version(2))
        assert again.number == 3

    async def test_a_version_with_open_runs_cannot_be_deleted(self, opened: OpenedLibrary) -> None:
        library, runs = opened.library, opened.runs.store
        await library.publish(ACCOUNT, new_version(1))
        lease = await leased(runs, "r1", definition="d1")
        await runs.create(new_run("r2", account="other", definition="d1"))
        with pytest.raises(Conflict, match=r"order@1 cannot be deleted.*r1") as refused:
            await library.delete(ACCOUNT, "order", 1)
        assert refused.value.detail == {"runs": ["r1"]}
        assert await runs.release(lease, Batch(), Verdict("pending_approval"))
        with pytest.raises(Conflict):
            await library.delete(ACCOUNT, "order", 1)
        [lease] = await runs.claim("w1", TTL, run_id="r1")
        await runs.release(lease, Batch(), Verdict("completed"))
        await library.delete(ACCOUNT, "order", 1)

    async def test_a_version_that_an_open_run_calls_cannot_be_deleted(self, opened: OpenedLibrary) -> None:
        library, runs = opened.library, opened.runs.store
        for digest, called in (("outer", {"a": "middle"}), ("middle", {"b": "d1"}), ("apart", {})):
            await runs.put_definition(ACCOUNT, digest, encode({"workflows": called}))
        await library.publish(ACCOUNT, new_version(1))
        await runs.create(new_run("r1", definition="apart"))
        await runs.create(new_run("r2", definition="outer"))
        with pytest.raises(Conflict) as refused:
            await library.delete(ACCOUNT, "order", 1)
        assert refused.value.detail == {"runs": ["r2"]}


class RepinContract:
    """Part of `RunStoreContract`: a parked run gets another definition."""

    async def test_a_definition_is_read_at_once_and_a_run_is_looked_at_without_a_lease(
        self, opened: OpenedStore
    ) -> None:
        store = opened.store
        await store.put_definition(ACCOUNT, "d1", b"{}")
        assert store.definition_now(ACCOUNT, "d1") == b"{}"
        with pytest.raises(NotFound):
            store.definition_now("other", "d1")
        lease = await leased(store)
        wait = a_wait("w1", "/b")
        await store.append(lease, Batch([entry("/a/x"), entry("/a", "settled"), entry("/b/~start", "started")], [wait]))
        await store.post(ACCOUNT, Message("r1", "decision", "/b"))
        seen, loaded = await store.peek(ACCOUNT, "r1"), await store.load(lease)
        assert seen == loaded
        assert [one.path for one in seen.entries] == ["/a", "/b/~start"]
        assert [one.id for one in seen.waits] == ["w1"]
        with pytest.raises(NotFound):
            await store.peek("other", "r1")

    async def test_a_parked_run_gets_another_definition_and_an_entry_that_says_so(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, a_wait("w1", "/b"))
        run = await store.run(ACCOUNT, "r1")
        pin = Repin("d2", "2", run.epoch, "d1", entry("/~migrated", "started", b'{"value":1}'))
        moved = await store.repin(ACCOUNT, "r1", pin, notes=[AuditRecord("ana", "run.migrate", "r1")])
        assert [one.action for one in await store.people.audit(ACCOUNT)] == ["run.migrate"]
        assert (moved.definition, moved.version, moved.status) == ("d2", "2", "pending_approval")
        last = (await store.history(ACCOUNT, "r1"))[-1]
        assert (last.path, last.kind, last.body) == ("/~migrated", "started", b'{"value":1}')
        assert await store.claim("w2", TTL) == []
        await store.decide(ACCOUNT, "w1", Ballot({"decision": "approved"}))
        [lease] = await store.claim("w2", TTL)
        assert (await store.load(lease)).run.definition == "d2"

    async def test_a_run_that_has_something_to_do_is_woken(self, opened: OpenedStore) -> None:
        store = opened.store
        lease = await leased(store)
        await store.release(lease, Batch(), Verdict("stuck"))
        run = await store.run(ACCOUNT, "r1")
        await store.repin(ACCOUNT, "r1", Repin("d2", "2", run.epoch, "d1", entry("/~migrated"), wake=True))
        assert (await store.run(ACCOUNT, "r1")).status == "queued"
        [again] = await store.claim("w2", TTL)
        assert again.run_id == "r1"

    async def test_a_run_that_went_on_keeps_its_definition(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, a_wait("w1", "/b"))
        run = await store.run(ACCOUNT, "r1")
        pin = Repin("d2", "2", run.epoch, "d1", entry("/~migrated"))
        with pytest.raises(NotFound):
            await store.repin("other", "r1", pin)
        wrong = Repin("d2", "2", run.epoch, "d0", entry("/~migrated"))
        with pytest.raises(Conflict):
            await store.repin(ACCOUNT, "r1", wrong, notes=[AuditRecord("ana", "run.migrate", "r1")])
        assert await store.people.audit(ACCOUNT) == []
        [lease] = await store.claim("w2", TTL, run_id="r1")
        with pytest.raises(Conflict, match="not parked"):
            await store.repin(ACCOUNT, "r1", pin)
        await store.release(lease, Batch(), Verdict("pending_approval"))
        with pytest.raises(Conflict, match="has gone on"):
            await store.repin(ACCOUNT, "r1", pin)
        assert (await store.run(ACCOUNT, "r1")).definition == "d1"
        assert "/~migrated" not in [one.path for one in await store.history(ACCOUNT, "r1")]

    async def test_of_two_that_migrate_a_run_at_once_one_wins(self, opened: OpenedStore) -> None:
        store = opened.store
        await parked_at(store, a_wait("w1", "/b"))
        run = await store.run(ACCOUNT, "r1")
        pins = [Repin(f"d{number}", "2", run.epoch, "d1", entry("/~migrated")) for number in (2, 3)]
        results = await asyncio.gather(*(store.repin(ACCOUNT, "r1", pin) for pin in pins), return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["Conflict", "Run"]
