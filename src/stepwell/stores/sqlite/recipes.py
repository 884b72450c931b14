"""Published recipes on an SQLite file that other stores share.

The law of the file: whether a label is free, and whether a run uses a version, is looked up in the transaction that
publishes or deletes it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from stepwell.library.recipe_versions import called, no_version, pins, taken
from stepwell.library.versions import in_use, no_recipe
from stepwell.ports import PARKED, RUNNABLE, AuditRecord, PublishedRecipe, RecipeVersion
from stepwell.stores.sqlite import people
from stepwell.stores.sqlite.database import Database
from stepwell.stores.sqlite.rows import decode

Connection: TypeAlias = sqlite3.Connection
Json: TypeAlias = Any

_OPEN_STATUSES = ", ".join(f"'{status}'" for status in (*RUNNABLE, *PARKED))
_COLUMNS = "recipe, version, digest, content, body, text, file, note, by, at"
_LISTED = _COLUMNS.replace("text", "''")
_KEPT = "FROM library_recipe_version WHERE account = ? AND (? = '' OR recipe = ?) AND deleted = 0"
_FIND = f"SELECT {_COLUMNS} {_KEPT} AND (? = '' OR version = ?) ORDER BY place DESC LIMIT 1"
_VERSIONS = f"SELECT {_LISTED} {_KEPT} ORDER BY place DESC"
_CONTENT = "SELECT content FROM library_recipe_version WHERE account = ? AND recipe = ? AND version = ?"
_PLACE = "SELECT coalesce(max(place), 0) + 1 FROM library_recipe_version WHERE account = ?"
_INSERT = f"""
INSERT OR REPLACE INTO library_recipe_version (account, place, {_COLUMNS})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""  # noqa: S608 -- constants
_DELETE = """
UPDATE library_recipe_version SET deleted = ?, text = '', body = '' WHERE account = ? AND recipe = ? AND version = ?
"""
_OPEN = f"SELECT DISTINCT definition FROM run WHERE account = ? AND status IN ({_OPEN_STATUSES})"  # noqa: S608 -- constants
_OPEN_OF = f"SELECT uid FROM run WHERE account = ? AND definition = ? AND status IN ({_OPEN_STATUSES}) LIMIT 100"  # noqa: S608 -- constants
_LABELS = "SELECT version FROM library_recipe_version WHERE account = ? AND recipe = ?"
_BODY = "SELECT body FROM definition WHERE account = ? AND digest = ?"
_PIN = """
SELECT recipe, version, digest, body FROM library_recipe
WHERE account = ? AND recipe = ? AND (? = '' OR version = ?) ORDER BY id DESC LIMIT 1
"""
_INSERT_PIN = "INSERT INTO library_recipe (account, recipe, version, digest, body) VALUES (?, ?, ?, ?, ?)"
_PINNED = """
SELECT recipe, version, digest, body FROM library_recipe
WHERE id IN (SELECT max(id) FROM library_recipe WHERE account = ? GROUP BY recipe, version) ORDER BY recipe, version
"""
_NAMES = """
SELECT recipe FROM library_recipe WHERE account = ?
UNION SELECT recipe FROM library_recipe_version WHERE account = ? AND deleted = 0 ORDER BY recipe
"""


class SqliteRecipes:
    """`RecipeStore` on a `Database` whose library tables there are."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self.database = database
        self._clock = clock

    async def publish(
        self, account: str, new: RecipeVersion, *, notes: Sequence[AuditRecord] = ()
    ) -> tuple[RecipeVersion, bool]:
        now = self._clock()

        def act(connection: Connection) -> tuple[RecipeVersion, bool]:
            there = connection.execute(_CONTENT, (account, new.recipe, new.version)).fetchone()
            if there is not None and there[0] != new.content:
                raise taken(new, (row[0] for row in connection.execute(_LABELS, (account, new.recipe))))
            if (same := _own(connection, account, new.recipe, new.version)) is not None:
                return same, False
            version = replace(new, at=new.at or now)
            (place,) = connection.execute(_PLACE, (account,)).fetchone()
            connection.execute(_INSERT, (account, place, *_row(version)))
            people.note(connection, account, notes, now)
            return version, True

        return await self.database.write(act, size=len(new.text) + len(new.body) + 400)

    def find_now(self, account: str, recipe: str, version: str = "") -> RecipeVersion:
        return self.database.read_now(lambda connection: _find(connection, account, recipe, version))

    def labels_now(self, account: str, recipe: str) -> list[str]:
        return [one.version for one in self.database.read_now(lambda found: _versions(found, account, recipe))]

    async def versions(self, account: str, recipe: str = "") -> list[RecipeVersion]:
        return await self.database.read(lambda connection: _versions(connection, account, recipe))

    async def pinned(self, account: str) -> list[PublishedRecipe]:
        return await self.database.read(
            lambda connection: [PublishedRecipe(*row) for row in connection.execute(_PINNED, (account,))]
        )

    async def delete(
        self, account: str, recipe: str, version: str, *, notes: Sequence[AuditRecord] = ()
    ) -> RecipeVersion:
        now = self._clock()

        def act(connection: Connection) -> RecipeVersion:
            found = _find(connection, account, recipe, version)
            if using := runs_that_pinned(connection, account, pins(reached(connection, account), found)):
                raise in_use(f"{recipe}@{version}", using)
            connection.execute(_DELETE, (now, account, recipe, version))
            people.note(connection, account, notes, now)
            return found

        return await self.database.write(act)

    # ── what workflows pinned ──

    def any_now(self, account: str, recipe: str, version: str) -> PublishedRecipe:
        """One that was published on its own, else one that was pinned. Raises NotFound."""

        def look(connection: Connection) -> PublishedRecipe | None:
            own = _own(connection, account, recipe, version)
            if own is not None:
                return PublishedRecipe(own.recipe, own.version, own.digest, own.body)
            return _pin(connection, account, recipe, version)

        if (found := self.database.read_now(look)) is None:
            raise no_recipe(recipe, version)
        return found

    def names_now(self, account: str) -> list[str]:
        return self.database.read_now(
            lambda connection: [row[0] for row in connection.execute(_NAMES, (account, account))]
        )


def pin(connection: Connection, account: str, recipe: PublishedRecipe) -> None:
    """Keep a recipe that a published workflow pinned."""
    last = _pin(connection, account, recipe.recipe, recipe.version)
    if last is None or last.digest != recipe.digest:
        connection.execute(_INSERT_PIN, (account, recipe.recipe, recipe.version, recipe.digest, recipe.body))


def reached(connection: Connection, account: str) -> dict[str, Json]:
    """The stored definitions that open runs pinned, and those that these call, by digest."""
    found: dict[str, Json] = {}
    ahead = [row[0] for row in connection.execute(_OPEN, (account,))]
    while ahead:
        if (digest := ahead.pop()) in found:
            continue
        row = connection.execute(_BODY, (account, digest)).fetchone()
        found[digest] = decode(row[0]) if row is not None else {}
        ahead += called(found[digest])
    return found


def runs_that_pinned(connection: Connection, account: str, definitions: set[str]) -> list[str]:
    """Open runs with one of these definitions; at most 100 of each."""
    found: list[str] = []
    for digest in sorted(definitions):
        found += [row[0] for row in connection.execute(_OPEN_OF, (account, digest))]
    return found


def _row(version: RecipeVersion) -> tuple[Any, ...]:
    given = (version.recipe, version.version, version.digest, version.content, version.body, version.text)
    return (*given, version.file, version.note, version.by, version.at)


def _pin(connection: Connection, account: str, recipe: str, version: str) -> PublishedRecipe | None:
    row = connection.execute(_PIN, (account, recipe, version, version)).fetchone()
    return None if row is None else PublishedRecipe(*row)


def _own(connection: Connection, account: str, recipe: str, version: str) -> RecipeVersion | None:
    row = connection.execute(_FIND, (account, recipe, recipe, version, version)).fetchone()
    return None if row is None else RecipeVersion(*row)


def _find(connection: Connection, account: str, recipe: str, version: str) -> RecipeVersion:
    if (found := _own(connection, account, recipe, version)) is None:
        raise no_version(recipe, version, (one.version for one in _versions(connection, account, recipe)))
    return found


def _versions(connection: Connection, account: str, recipe: str) -> list[RecipeVersion]:
    return [RecipeVersion(*row) for row in connection.execute(_VERSIONS, (account, recipe, recipe))]
