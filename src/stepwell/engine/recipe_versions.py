"""Recipes with versions of their own: publishing, finding, comparing and deleting them.

The law of the file: a version never changes; what was pinned by a run or a workflow is not looked for here again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.errors import InputError, NotFound, Problem
from stepwell.journal.entry import decode, encode
from stepwell.library.differences import leaves
from stepwell.ports import RecipeVersion

if TYPE_CHECKING:
    from stepwell.engine.parts import Parts
    from stepwell.engine.people import People, Who
    from stepwell.library.recipes import FoundRecipe
    from stepwell.people.actor import Actor
    from stepwell.ports import PublishedRecipe, RecipeStore

Json: TypeAlias = Any

_COSMETIC = frozenset({"name", "description", "version", "tests"})
"""Fields in which nothing that is done differs."""


@dataclass(frozen=True, slots=True)
class RecipeDifference:
    """A field in which two recipes differ, by its dotted name; `cosmetic` if nothing that is done does."""

    field: str
    before: Json
    after: Json
    cosmetic: bool


class RecipeVersions:
    """The published recipes of one account."""

    def __init__(self, parts: Parts, people: People, now: Callable[[], float]) -> None:
        self._parts = parts
        self._people = people
        self._now = now

    @property
    def _store(self) -> RecipeStore:
        if self._parts.library is None:
            raise NotFound("this engine has no library")
        return self._parts.library.recipes

    async def publish(self, found: FoundRecipe, *, note: str = "", by: Who = "") -> tuple[RecipeVersion, bool]:
        """Publish a recipe under its own version; the second value says whether it is new.

        Raises Conflict if that version has other content, and Forbidden.
        """
        actor = await self._editor(by, "recipe.publish", found.reference)
        new = RecipeVersion(
            recipe=found.definition.recipe,
            version=found.definition.version,
            digest=found.digest,
            content=_content(found.data),
            body=encode(found.data),
            text=found.text or json.dumps(found.data, ensure_ascii=False, indent=2),
            file=str(found.file),
            note=note,
            by=actor.name,
            at=self._now(),
        )
        said = {"digest": new.digest} | ({"note": note} if note else {})
        return await self._store.publish(
            self._parts.account, new, notes=[actor.did("recipe.publish", found.reference, said)]
        )

    async def delete(self, reference: str, *, by: Who = "") -> RecipeVersion:
        """Take `id@version` out of the library. Raises NotFound, Conflict while open runs pinned it, and Forbidden."""
        recipe, _, version = reference.partition("@")
        if not version:
            raise InputError([Problem("error", "version", f"{reference!r} is no version", f"write {recipe}@VERSION")])
        actor = await self._editor(by, "recipe.delete", reference)
        return await self._store.delete(
            self._parts.account, recipe, version, notes=[actor.did("recipe.delete", reference)]
        )

    async def _editor(self, by: Who, action: str, thing: str) -> Actor:
        actor = await self._people.actor(by)
        if not actor.is_local:
            await self._people.demand(actor, "editor", "admin", to="publish recipes", about=actor.did(action, thing))
        return actor

    async def versions(self, recipe: str = "") -> list[RecipeVersion]:
        """All versions of a recipe, or of every recipe, those published last first."""
        return [] if self._parts.library is None else await self._store.versions(self._parts.account, recipe)

    async def pinned(self) -> list[PublishedRecipe]:
        """What published workflows pinned of recipes, by id and label."""
        return [] if self._parts.library is None else await self._store.pinned(self._parts.account)

    def published(self, reference: str) -> RecipeVersion:
        """What was published as `id` (the last) or `id@version`. Raises NotFound."""
        recipe, _, version = reference.partition("@")
        return self._store.find_now(self._parts.account, recipe, version)


def differences(before: FoundRecipe, after: FoundRecipe) -> list[RecipeDifference]:
    """What differs between two recipes, whatever the order and layout in which they are written."""
    found = []
    old, new = ({"version": one.definition.version, **one.data} for one in (before, after))
    for where, was, now in leaves(old, new, ()):
        cosmetic = bool(where) and where[0] in _COSMETIC
        found.append(RecipeDifference(".".join(map(str, where)), was, now, cosmetic))
    return found


def data_of(version: RecipeVersion | PublishedRecipe) -> dict[str, Json]:
    """A published recipe as plain JSON."""
    data: dict[str, Json] = decode(version.body)
    return data


def _content(data: dict[str, Json]) -> str:
    text = json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode(errors="replace")).hexdigest()
