"""Writes of the knowledge base: what runs in the writer's transaction.

The law of the file: a write is one version or nothing; with an idempotency key that is known it is the version that
was made under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stepwell.errors import NotFound
from stepwell.knowledge.document import DEFAULT, Prepared
from stepwell.knowledge.showing import with_replaced
from stepwell.ports import Collection, DocumentWrite, Written
from stepwell.stores.knowledge_sqlite.reading import collections, version_of

if TYPE_CHECKING:
    import sqlite3

_encode = msgspec.json.Encoder().encode


def write(connection: sqlite3.Connection, account: str, prepared: Prepared, now: float) -> Written:
    """Make the version, its part and its passages; `now` in UTC seconds since 1970."""
    asked = prepared.write
    if asked.idempotency_key and (made := _made_before(connection, account, asked.idempotency_key)):
        return made
    document, version = _next_version(connection, account, asked)
    position = _make_room(connection, document, version, asked)
    part = connection.execute(
        "INSERT INTO kb_part (account, document, position, section, since, content, size) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (account, document, position, asked.section, version, asked.content, len(asked.content)),
    ).lastrowid
    for passage in prepared.passages:
        number = connection.execute(
            "INSERT INTO kb_passage (account, document, part, content, start, heading, page)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (account, document, part, passage.text, passage.start, passage.heading, passage.page),
        ).lastrowid
        connection.execute("INSERT INTO kb_index (rowid, words) VALUES (?, ?)", (number, passage.words))
        connection.execute("INSERT INTO kb_backlog (passage, account) VALUES (?, ?)", (number, account))
    _record(connection, account, prepared, (document, version), now)
    return Written(asked.document, version, len(prepared.passages))


def _made_before(connection: sqlite3.Connection, account: str, key: str) -> Written | None:
    row = connection.execute(
        "SELECT d.name, v.version, v.passages FROM kb_version v JOIN kb_document d ON d.id = v.document"
        " WHERE v.account = ? AND v.idempotency_key = ? AND v.idempotency_key <> ''",
        (account, key),
    ).fetchone()
    return Written(*row) if row else None


def _next_version(connection: sqlite3.Connection, account: str, asked: DocumentWrite) -> tuple[int, int]:
    row = connection.execute(
        "INSERT INTO kb_document (account, name, collection, version) VALUES (?1, ?2, ?3, 1)"
        " ON CONFLICT (account, name) DO UPDATE SET version = version + 1,"
        " collection = iif(?3 = ?4, collection, ?3) RETURNING id, version",
        (account, asked.document, asked.collection, DEFAULT),
    ).fetchone()
    return int(row[0]), int(row[1])


def _make_room(connection: sqlite3.Connection, document: int, version: int, asked: DocumentWrite) -> int:
    """End the parts that the write takes the place of; returns the new part's position."""
    gone: list[tuple[int, int]] = []
    if asked.mode == "replace":
        gone = connection.execute(
            "SELECT id, position FROM kb_part WHERE document = ? AND until IS NULL", (document,)
        ).fetchall()
    elif asked.mode == "upsert":
        gone = connection.execute(
            "SELECT id, position FROM kb_part WHERE document = ? AND section = ? AND until IS NULL",
            (document, asked.section),
        ).fetchall()
    for part, _ in gone:
        connection.execute("UPDATE kb_part SET until = ? WHERE id = ?", (version, part))
        connection.execute("DELETE FROM kb_index WHERE rowid IN (SELECT id FROM kb_passage WHERE part = ?)", (part,))
        connection.execute("DELETE FROM kb_passage WHERE part = ?", (part,))  # its vector goes with it
    if asked.mode == "upsert" and gone:
        return gone[0][1]
    row = connection.execute(
        "SELECT coalesce(max(position), 0) + 1 FROM kb_part WHERE document = ?", (document,)
    ).fetchone()
    return int(row[0])


def _record(
    connection: sqlite3.Connection, account: str, prepared: Prepared, made: tuple[int, int], now: float
) -> None:
    asked = prepared.write
    document, version = made
    replaces = asked.mode == "replace" and version > 1
    before = version_of(connection, account, asked.document, version - 1) if replaces else None
    connection.execute(
        "INSERT INTO kb_version (document, version, account, collection, mode, section, passages, metadata, origin,"
        " idempotency_key, at) SELECT id, ?2, ?3, collection, ?4, ?5, ?6, ?7, ?8, ?9, ?10"
        " FROM kb_document WHERE id = ?1",
        (
            document,
            version,
            account,
            asked.mode,
            asked.section,
            len(prepared.passages),
            _encode(asked.metadata).decode(),
            _encode(with_replaced(asked.origin, before)).decode(),
            asked.idempotency_key,
            now,
        ),
    )


def remove(connection: sqlite3.Connection, account: str, name: str) -> int:
    """Remove a document with its versions; returns how many there were. Raises NotFound."""
    row = connection.execute("SELECT id FROM kb_document WHERE account = ? AND name = ?", (account, name)).fetchone()
    if row is None:
        raise NotFound(f"there is no document {name!r}")
    document = int(row[0])
    (versions,) = connection.execute("SELECT count(*) FROM kb_version WHERE document = ?", (document,)).fetchone()
    connection.execute(
        "DELETE FROM kb_index WHERE rowid IN (SELECT id FROM kb_passage WHERE document = ?)", (document,)
    )
    for table in ("kb_passage", "kb_part", "kb_version"):
        connection.execute(f"DELETE FROM {table} WHERE document = ?", (document,))  # noqa: S608 -- names of our tables
    connection.execute("DELETE FROM kb_document WHERE id = ?", (document,))
    return int(versions)


def describe(
    connection: sqlite3.Connection, account: str, name: str, description: str | None, department: str | None
) -> Collection:
    """Make a collection, or say more of it."""
    connection.execute(
        "INSERT INTO kb_collection (account, name, description, department)"
        " VALUES (?1, ?2, coalesce(?3, ''), coalesce(?4, ''))"
        " ON CONFLICT (account, name) DO UPDATE SET description = coalesce(?3, description),"
        " department = coalesce(?4, department)",
        (account, name, description, department),
    )
    return next(one for one in collections(connection, account) if one.name == name)
