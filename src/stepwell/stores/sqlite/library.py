"""Published workflows on an SQLite file that other stores share.

The law of the file: the number of a version is given in the transaction that stores it, so no two publishers get one;
whether a run uses a version is looked up in the transaction that deletes it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from stepwell.library.recipe_versions import called
from stepwell.library.versions import about, in_use, missing, number_in, numbered, pinning, says_the_same
from stepwell.ports import AuditRecord, NewVersion, Published, PublishedRecipe
from stepwell.stores.sqlite import people
from stepwell.stores.sqlite.database import Database
from stepwell.stores.sqlite.recipes import SqliteRecipes, pin, reached, runs_that_pinned

Connection: TypeAlias = sqlite3.Connection
Row: TypeAlias = tuple[Any, ...]

MIGRATIONS = Path(__file__).parent / "library_migrations"
_COLUMNS = "workflow, number, definition, content, text, file, label, note, by, at, origin"
_LISTED = _COLUMNS.replace("text", "''")
_KEPT = "FROM library_version WHERE account = ? AND workflow = ? AND deleted = 0"
_NEWEST = f"SELECT {_COLUMNS} {_KEPT} ORDER BY number DESC LIMIT 1"
_NUMBER = f"SELECT {_COLUMNS} {_KEPT} AND number = ?"
_LABEL = f"SELECT {_COLUMNS} {_KEPT} AND label = ? ORDER BY number DESC LIMIT 1"
_VERSIONS = f"SELECT {_LISTED} {_KEPT} ORDER BY number DESC"
_WORKFLOWS = f"""
SELECT {_LISTED} FROM library_version AS version
WHERE account = ? AND deleted = 0 AND number = (
    SELECT max(number) FROM library_version
    WHERE account = version.account AND workflow = version.workflow AND deleted = 0
) ORDER BY workflow
"""  # noqa: S608 -- constants
_LAST = "SELECT coalesce(max(number), 0) FROM library_version WHERE account = ? AND workflow = ?"
_INSERT = f"INSERT INTO library_version (account, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 -- constants
_DELETE = "UPDATE library_version SET deleted = ?, text = '' WHERE account = ? AND workflow = ? AND number = ?"


class SqliteLibrary:
    """`Library` on a `Database` that also holds the runs, which whoever opened it closes."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        """Applies the missing migrations, so make it before the database is used. Raises Unavailable."""
        database.migrate("library", MIGRATIONS)
        self.database = database
        self.recipes = SqliteRecipes(database, clock=clock)
        self._clock = clock

    async def publish(
        self, account: str, new: NewVersion, *, notes: Sequence[AuditRecord] = ()
    ) -> tuple[Published, bool]:
        now = self._clock()

        def act(connection: Connection) -> tuple[Published, bool]:
            there = _one(connection, _NEWEST, account, new.workflow)
            if there is not None and says_the_same(there, new):
                return there, False
            (last,) = connection.execute(_LAST, (account, new.workflow)).fetchone()
            version = numbered(new, last + 1, now)
            connection.execute(_INSERT, (account, *_row(version)))
            for recipe in new.recipes:
                pin(connection, account, recipe)
            people.note(connection, account, about(version, notes), now)
            return version, True

        return await self.database.write(act, size=len(new.text) + 400)

    async def find(self, account: str, workflow: str, version: str = "") -> Published:
        return await self.database.read(lambda connection: _find(connection, account, workflow, version))

    def find_now(self, account: str, workflow: str, version: str = "") -> Published:
        return self.database.read_now(lambda connection: _find(connection, account, workflow, version))

    def recipe_now(self, account: str, recipe: str, version: str = "") -> PublishedRecipe:
        return self.recipes.any_now(account, recipe, version)

    def recipe_names_now(self, account: str) -> list[str]:
        return self.recipes.names_now(account)

    async def versions(self, account: str, workflow: str) -> list[Published]:
        return await self.database.read(
            lambda connection: [Published(*row) for row in connection.execute(_VERSIONS, (account, workflow))]
        )

    async def workflows(self, account: str) -> list[Published]:
        return await self.database.read(
            lambda connection: [Published(*row) for row in connection.execute(_WORKFLOWS, (account,))]
        )

    async def delete(self, account: str, workflow: str, number: int, *, notes: Sequence[AuditRecord] = ()) -> Published:
        now = self._clock()

        def act(connection: Connection) -> Published:
            version = _one(connection, _NUMBER, account, workflow, number)
            if version is None:
                raise _missing(connection, account, workflow, str(number))
            bodies = reached(connection, account)
            callers = pinning({version.definition}, {digest: called(body) for digest, body in bodies.items()})
            if using := runs_that_pinned(connection, account, callers):
                raise in_use(f"{workflow}@{number}", using)
            connection.execute(_DELETE, (now, account, workflow, number))
            people.note(connection, account, notes, now)
            return version

        return await self.database.write(act)


def _row(version: Published) -> Row:
    given = (version.workflow, version.number, version.definition, version.content, version.text, version.file)
    return (*given, version.label, version.note, version.by, version.at, version.origin)


def _one(connection: Connection, statement: str, *given: object) -> Published | None:
    row = connection.execute(statement, given).fetchone()
    return None if row is None else Published(*row)


def _find(connection: Connection, account: str, workflow: str, version: str) -> Published:
    if not version:
        found = _one(connection, _NEWEST, account, workflow)
    else:
        number = number_in(version)
        found = _one(connection, _NUMBER, account, workflow, number) if number else None
        found = found or _one(connection, _LABEL, account, workflow, version)
    if found is None:
        raise _missing(connection, account, workflow, version)
    return found


def _missing(connection: Connection, account: str, workflow: str, version: str) -> Exception:
    there = [Published(*row) for row in connection.execute(_VERSIONS, (account, workflow))]
    return missing(workflow, version, [(one.number, one.label) for one in there])
