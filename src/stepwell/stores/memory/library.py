"""Published workflows in memory.

The law of the file: no method awaits between looking and writing, so each is one transaction.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from stepwell.library.recipe_versions import called
from stepwell.library.versions import about, in_use, missing, number_in, numbered, pinning, says_the_same
from stepwell.ports import AuditRecord, NewVersion, Published, PublishedRecipe
from stepwell.stores.memory.recipes import MemoryRecipes, reached
from stepwell.stores.memory.store import MemoryRunStore


class MemoryLibrary:
    """`Library` beside a `MemoryRunStore`, whose runs keep versions from being deleted."""

    def __init__(self, runs: MemoryRunStore, *, clock: Callable[[], float] = time.time) -> None:
        self._runs = runs
        self._clock = clock
        self._versions: dict[tuple[str, str], dict[int, Published]] = defaultdict(dict)
        self.recipes = MemoryRecipes(runs, clock=clock)
        self._numbers: dict[tuple[str, str], count[int]] = defaultdict(lambda: count(1))

    async def publish(
        self, account: str, new: NewVersion, *, notes: Sequence[AuditRecord] = ()
    ) -> tuple[Published, bool]:
        key = (account, new.workflow)
        there = self._newest(key)
        if there is not None and says_the_same(there, new):
            return there, False
        version = numbered(new, next(self._numbers[key]), self._clock())
        self._versions[key][version.number] = version
        for recipe in new.recipes:
            self.recipes.pin(account, recipe)
        self._runs.people.keep(account, about(version, notes))
        return version, True

    async def find(self, account: str, workflow: str, version: str = "") -> Published:
        return self.find_now(account, workflow, version)

    def find_now(self, account: str, workflow: str, version: str = "") -> Published:
        key = (account, workflow)
        kept = self._versions.get(key, {})
        found = kept.get(number_in(version)) if version else self._newest(key)
        labelled = [one for one in kept.values() if version and one.label == version]
        if found is None and not labelled:
            raise missing(workflow, version, [(one.number, one.label) for one in reversed(kept.values())])
        return found or labelled[-1]

    def recipe_now(self, account: str, recipe: str, version: str = "") -> PublishedRecipe:
        return self.recipes.any_now(account, recipe, version)

    def recipe_names_now(self, account: str) -> list[str]:
        return self.recipes.names_now(account)

    def _newest(self, key: tuple[str, str]) -> Published | None:
        return next(reversed(self._versions.get(key, {}).values()), None)

    async def versions(self, account: str, workflow: str) -> list[Published]:
        kept = self._versions.get((account, workflow), {})
        return [replace(version, text="") for version in reversed(kept.values())]

    async def workflows(self, account: str) -> list[Published]:
        newest = [self._newest(key) for key in sorted(self._versions) if key[0] == account]
        return [replace(version, text="") for version in newest if version is not None]

    async def delete(self, account: str, workflow: str, number: int, *, notes: Sequence[AuditRecord] = ()) -> Published:
        kept = self._versions.get((account, workflow), {})
        if number not in kept:
            raise missing(workflow, str(number), [(one.number, one.label) for one in reversed(kept.values())])
        using = self._using(account, kept[number].definition)
        if using:
            raise in_use(f"{workflow}@{number}", using)
        self._runs.people.keep(account, notes)
        return kept.pop(number)

    def _using(self, account: str, definition: str) -> list[str]:
        """The open runs that pinned a definition, itself or by calling it."""
        pinned, bodies = self._runs.open_definitions(account), reached(self._runs, account)
        callers = pinning({definition}, {digest: called(body) for digest, body in bodies.items()})
        return [run for digest in sorted(callers & set(pinned)) for run in pinned[digest]]
