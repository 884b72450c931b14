"""What every library must do with recipes that are published on their own, as tests.

The law of the file: only the ports are used, so that any store can be held against it. Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell.definition.canonical import digest_of
from stepwell.errors import Conflict, NotFound
from stepwell.journal.entry import encode
from stepwell.ports import AuditRecord, Batch, PublishedRecipe, RecipeVersion, Verdict
from stepwell.testing.store_builders import ACCOUNT, TTL, leased, new_run
from stepwell.testing.store_library_contract import OpenedLibrary, new_version


def a_recipe(version: str = "1", prompt: str = "hello", **fields: Any) -> RecipeVersion:
    """A version of the recipe `mood` that says something else for each prompt."""
    data = {"recipe": "mood", "version": version, "prompt": prompt}
    given = {"recipe": "mood", "version": version, "digest": digest_of(data), "content": f"c {prompt}"}
    return RecipeVersion(**{**given, "body": encode(data), "text": f"recipe: mood # {prompt}", "by": "ana", **fields})


class RecipeStoreContract:
    """Derive from it and give it a fixture `opened` with an `OpenedLibrary`."""

    async def test_a_version_is_read_back_as_it_was_given(self, opened: OpenedLibrary) -> None:
        recipes = opened.library.recipes
        first, new = await recipes.publish(ACCOUNT, a_recipe(file="mood.yaml", note="the first"))
        assert (first.version, first.at, first.note, new) == ("1", opened.clock.now, "the first", True)
        second, _ = await recipes.publish(ACCOUNT, a_recipe("2", "hi", at=12.5))
        assert second.at == 12.5
        assert recipes.find_now(ACCOUNT, "mood", "1") == first
        assert recipes.find_now(ACCOUNT, "mood") == second
        assert [(one.version, one.text) for one in await recipes.versions(ACCOUNT, "mood")] == [("2", ""), ("1", "")]
        assert recipes.labels_now(ACCOUNT, "mood") == ["2", "1"]
        await recipes.publish(ACCOUNT, a_recipe(recipe="tone"))
        assert [one.recipe for one in await recipes.versions(ACCOUNT)] == ["tone", "mood", "mood"]

    async def test_the_same_content_again_changes_nothing_and_another_is_refused(self, opened: OpenedLibrary) -> None:
        recipes, people = opened.library.recipes, opened.runs.store.people
        note = AuditRecord("ana", "recipe.publish", "mood@1")
        await recipes.publish(ACCOUNT, a_recipe(), notes=[note])
        same, new = await recipes.publish(ACCOUNT, a_recipe(note="again"), notes=[note])
        assert (same.note, new) == ("", False)
        with pytest.raises(Conflict, match='such as  version: "2"'):
            await recipes.publish(ACCOUNT, a_recipe(prompt="other"), notes=[note])
        assert len(await people.audit(ACCOUNT)) == 1
        assert recipes.find_now(ACCOUNT, "mood", "1").content == "c hello"

    async def test_of_two_contents_published_at_once_under_one_label_one_wins(self, opened: OpenedLibrary) -> None:
        recipes = opened.library.recipes
        results = await asyncio.gather(
            *(recipes.publish(ACCOUNT, a_recipe(prompt=f"p{number}")) for number in range(10)), return_exceptions=True
        )
        assert sorted(type(result).__name__ for result in results) == ["Conflict"] * 9 + ["tuple"]

    async def test_accounts_do_not_see_each_other(self, opened: OpenedLibrary) -> None:
        recipes = opened.library.recipes
        await recipes.publish(ACCOUNT, a_recipe())
        await recipes.publish("other", a_recipe(prompt="other"))
        assert recipes.find_now("other", "mood", "1").content == "c other"
        await recipes.delete("other", "mood", "1")
        assert await recipes.versions("other") == []
        assert recipes.find_now(ACCOUNT, "mood").content == "c hello"
        for account in ("other", "third"):
            with pytest.raises(NotFound, match="no recipe 'mood' in the library"):
                recipes.find_now(account, "mood")

    async def test_a_deleted_label_is_given_to_its_own_content_alone(self, opened: OpenedLibrary) -> None:
        recipes = opened.library.recipes
        for version in ("1", "2"):
            await recipes.publish(ACCOUNT, a_recipe(version, version))
        assert (await recipes.delete(ACCOUNT, "mood", "1")).version == "1"
        with pytest.raises(NotFound, match=r"no version '1' of the recipe 'mood'; it has 2"):
            recipes.find_now(ACCOUNT, "mood", "1")
        with pytest.raises(NotFound):
            await recipes.delete(ACCOUNT, "mood", "1")
        with pytest.raises(Conflict):
            await recipes.publish(ACCOUNT, a_recipe("1", "another"))
        back, new = await recipes.publish(ACCOUNT, a_recipe("1", "1"))
        assert (new, back.text) == (True, "recipe: mood # 1")
        assert recipes.find_now(ACCOUNT, "mood") == back

    async def test_one_that_was_published_on_its_own_comes_before_one_that_a_workflow_pinned(
        self, opened: OpenedLibrary
    ) -> None:
        library = opened.library
        pinned = [PublishedRecipe("mood", version, f"w{version}", b"{}") for version in ("1", "3")]
        await library.publish(ACCOUNT, new_version(1, recipes=pinned))
        assert library.recipe_now(ACCOUNT, "mood").digest == "w3"
        await library.recipes.publish(ACCOUNT, a_recipe())
        own = library.recipes.find_now(ACCOUNT, "mood", "1")
        for version in ("", "1"):
            assert library.recipe_now(ACCOUNT, "mood", version) == PublishedRecipe("mood", "1", own.digest, own.body)
        assert library.recipe_now(ACCOUNT, "mood", "3").digest == "w3"
        assert library.recipe_names_now(ACCOUNT) == ["mood"]
        assert await library.recipes.pinned(ACCOUNT) == pinned
        assert await library.recipes.pinned("other") == []

    async def test_a_version_that_an_open_run_pinned_cannot_be_deleted(self, opened: OpenedLibrary) -> None:
        recipes, runs = opened.library.recipes, opened.runs.store
        await recipes.publish(ACCOUNT, a_recipe())
        mine = {"recipe": "mood", "version": "1", "prompt": "hello", "tests": [{"name": "not part of it"}]}
        other = {"recipe": "mood", "prompt": "of a file"}
        for digest, body in (
            ("inner", {"recipes": {"mood@1": mine}}),
            ("outer", {"workflows": {"a": "inner"}, "recipes": {}}),
            ("apart", {"recipes": {"mood": other}}),
        ):
            await runs.put_definition(ACCOUNT, digest, encode(body))
        await runs.create(new_run("r1", definition="apart"))
        lease = await leased(runs, "r2", definition="outer")
        with pytest.raises(Conflict, match=r"mood@1 cannot be deleted: 1 open run") as refused:
            await recipes.delete(ACCOUNT, "mood", "1")
        assert refused.value.detail == {"runs": ["r2"]}
        await runs.release(lease, Batch(), Verdict("pending_approval"))
        with pytest.raises(Conflict):
            await recipes.delete(ACCOUNT, "mood", "1")
        [lease] = await runs.claim("w1", TTL, run_id="r2")
        await runs.release(lease, Batch(), Verdict("completed"))
        await recipes.delete(ACCOUNT, "mood", "1", notes=[AuditRecord("ana", "recipe.delete", "mood@1")])
        assert [one.action for one in await runs.people.audit(ACCOUNT)] == ["recipe.delete"]
