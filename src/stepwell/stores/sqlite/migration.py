"""Migrations: numbered .sql files, applied once each and in order.

The law of the file: a file that was released is never changed; what was applied is known by number and checksum, and a
database that knows more than this code is refused. Forward only.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from stepwell.errors import Unavailable
from stepwell.stores.sqlite.file import APPLICATION_ID

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migration (
    part TEXT NOT NULL, number INTEGER NOT NULL, title TEXT NOT NULL, checksum TEXT NOT NULL,
    PRIMARY KEY (part, number)
) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: `number` counts from 1 within a part of the schema."""

    number: int
    title: str
    script: str

    @property
    def checksum(self) -> str:
        return sha256(self.script.encode()).hexdigest()


def migrations_in(folder: Path) -> list[Migration]:
    """The migrations of a folder, `0001_title.sql` and so on without a gap. Raises ValueError."""
    found = []
    for file in sorted(folder.glob("*.sql")):
        named = _FILE.fullmatch(file.name)
        if named is None:
            raise ValueError(f"{file.name}: a migration is named 0001_title.sql")
        found.append(Migration(int(named[1]), named[2], file.read_text(encoding="utf-8")))
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"{folder}: migrations are numbered from 1 without a gap")
    return found


def migrate(connection: sqlite3.Connection, part: str, migrations: list[Migration]) -> int:
    """Apply what is missing, one transaction each; returns how many were. Safe when several processes do it at once.

    Raises Unavailable if the database is newer than this code or was made by other files; sqlite3.Error passes, also
    that the file is busy.
    """
    missing = _missing(connection, part, migrations)
    for migration in missing:
        _apply(connection, part, migration)
    return len(missing)


def _missing(connection: sqlite3.Connection, part: str, migrations: list[Migration]) -> list[Migration]:
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_migration'").fetchone()
    if known is None:
        return migrations
    applied: dict[int, str] = dict(
        connection.execute("SELECT number, checksum FROM schema_migration WHERE part = ?", (part,))
    )
    newest = max(applied, default=0)
    if newest > len(migrations):
        raise Unavailable(
            f"the database was written by a newer version of Stepwell ({part} {newest}; this version knows {part} "
            f"{len(migrations)}): use that version, or another database"
        )
    for migration in migrations:
        if applied.get(migration.number, migration.checksum) != migration.checksum:
            raise Unavailable(
                f"the database was made by another migration {part} {migration.number} than this code has"
            )
    return [migration for migration in migrations if migration.number not in applied]


def _apply(connection: sqlite3.Connection, part: str, migration: Migration) -> None:
    connection.execute("BEGIN EXCLUSIVE")
    try:
        connection.execute(_TABLE)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        done = connection.execute(
            "SELECT 1 FROM schema_migration WHERE part = ? AND number = ?", (part, migration.number)
        ).fetchone()
        if done is None:
            for statement in _statements(migration.script):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO schema_migration (part, number, title, checksum) VALUES (?, ?, ?, ?)",
                (part, migration.number, migration.title, migration.checksum),
            )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip():
        yield pending
