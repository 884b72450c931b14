"""Published recipes in memory.

The law of the file: no method awaits between looking and writing, so each is one transaction.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec

from stepwell.errors import NotFound
from stepwell.library.recipe_versions import called, no_version, pins, taken
from stepwell.library.versions import in_use, no_recipe
from stepwell.ports import AuditRecord, PublishedRecipe, RecipeVersion
from stepwell.stores.memory.store import MemoryRunStore

Json: TypeAlias = Any


class MemoryRecipes:
    """`RecipeStore` beside a `MemoryRunStore`, whose runs keep versions from being deleted."""

    def __init__(self, runs: MemoryRunStore, *, clock: Callable[[], float] = time.time) -> None:
        self._runs = runs
        self._clock = clock
        self._kept: dict[str, list[RecipeVersion]] = defaultdict(list)
        """By account, those published last at the end."""
        self._contents: dict[tuple[str, str, str], str] = {}
        """The content that each label was given, deleted ones included."""
        self._pinned: dict[str, list[PublishedRecipe]] = defaultdict(list)

    async def publish(
        self, account: str, new: RecipeVersion, *, notes: Sequence[AuditRecord] = ()
    ) -> tuple[RecipeVersion, bool]:
        key = (account, new.recipe, new.version)
        if self._contents.get(key, new.content) != new.content:
            raise taken(new, (key[2] for key in self._contents if key[:2] == (account, new.recipe)))
        for there in self._of(account, new.recipe):
            if there.version == new.version:
                return there, False
        version = replace(new, at=new.at or self._clock())
        self._contents[key] = new.content
        self._kept[account].append(version)
        self._runs.people.keep(account, notes)
        return version, True

    def find_now(self, account: str, recipe: str, version: str = "") -> RecipeVersion:
        kept = self._of(account, recipe)
        for one in kept:
            if version in {"", one.version}:
                return one
        raise no_version(recipe, version, (one.version for one in kept))

    def labels_now(self, account: str, recipe: str) -> list[str]:
        return [one.version for one in self._of(account, recipe)]

    async def versions(self, account: str, recipe: str = "") -> list[RecipeVersion]:
        return [replace(one, text="") for one in self._of(account, recipe)]

    async def pinned(self, account: str) -> list[PublishedRecipe]:
        last = {(one.recipe, one.version): one for one in self._pinned[account]}
        return [last[key] for key in sorted(last)]

    async def delete(
        self, account: str, recipe: str, version: str, *, notes: Sequence[AuditRecord] = ()
    ) -> RecipeVersion:
        found = self.find_now(account, recipe, version)
        pinned = self._runs.open_definitions(account)
        using = pins(reached(self._runs, account), found) & set(pinned)
        if using:
            raise in_use(f"{recipe}@{version}", [run for digest in sorted(using) for run in pinned[digest]])
        self._kept[account].remove(found)
        self._runs.people.keep(account, notes)
        return found

    # ── what workflows pinned ──

    def pin(self, account: str, recipe: PublishedRecipe) -> None:
        """Keep a recipe that a published workflow pinned."""
        same = [one for one in self._pinned[account] if (one.recipe, one.version) == (recipe.recipe, recipe.version)]
        if not same or same[-1].digest != recipe.digest:
            self._pinned[account].append(recipe)

    def any_now(self, account: str, recipe: str, version: str) -> PublishedRecipe:
        """One that was published on its own, else one that was pinned. Raises NotFound."""
        try:
            own = self.find_now(account, recipe, version)
        except NotFound:
            kept = [one for one in self._pinned[account] if one.recipe == recipe and version in {"", one.version}]
            if not kept:
                raise no_recipe(recipe, version) from None
            return kept[-1]
        return PublishedRecipe(own.recipe, own.version, own.digest, own.body)

    def names_now(self, account: str) -> list[str]:
        return sorted({one.recipe for one in self._kept[account]} | {one.recipe for one in self._pinned[account]})

    def _of(self, account: str, recipe: str) -> list[RecipeVersion]:
        return [one for one in reversed(self._kept[account]) if recipe in {"", one.recipe}]


def reached(runs: MemoryRunStore, account: str) -> dict[str, Json]:
    """The stored definitions that open runs pinned, and those that these call, by digest."""
    found: dict[str, Json] = {}
    ahead = list(runs.open_definitions(account))
    while ahead:
        if (digest := ahead.pop()) in found:
            continue
        try:
            found[digest] = msgspec.json.decode(runs.definition_now(account, digest))
        except NotFound:
            found[digest] = {}
        ahead += called(found[digest])
    return found
