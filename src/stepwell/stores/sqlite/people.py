"""The directory and the audit trail in the database.

The law of the file: an act and the note of it are one transaction; `note` is called by whatever writes the act.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from stepwell.errors import NotFound
from stepwell.people.names import key_of, settled, wrong_with
from stepwell.ports import AuditRecord, Person, PersonKey
from stepwell.stores.sqlite.database import Database
from stepwell.stores.sqlite.rows import decode, encode

Connection: TypeAlias = sqlite3.Connection
Row: TypeAlias = tuple[Any, ...]

_PEOPLE = "SELECT name, email, roles, departments, display FROM person"
_PERSON = _PEOPLE + " WHERE account = ?1 AND (key = ?2 OR (email_key = ?2 AND email_key <> ''))"
_CHOSEN = """
SELECT name, email, roles, departments, display FROM person
WHERE account = ?1 AND (?2 = '' OR EXISTS (SELECT 1 FROM json_each(roles) WHERE value = ?2))
      AND (?3 = '' OR EXISTS (SELECT 1 FROM json_each(departments) WHERE value = ?3))
ORDER BY key
"""
_PUT = """
INSERT INTO person (account, key, email_key, name, email, roles, departments, display) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADD_KEY = "INSERT INTO person_key (account, id, digest, person, note, created) VALUES (?, ?, ?, ?, ?, ?)"
_COLUMNS = "SELECT id, person, note, created, revoked FROM person_key WHERE account = ?"
_KEYS = _COLUMNS + " ORDER BY created, id"
_KEY = _COLUMNS + " AND id = ?"
_OWNER = "SELECT person FROM person_key WHERE account = ? AND digest = ? AND revoked = 0"
_REVOKE = "UPDATE person_key SET revoked = ? WHERE account = ? AND id = ? AND revoked = 0"
_REVOKE_ALL = "UPDATE person_key SET revoked = ? WHERE account = ? AND person = ? AND revoked = 0"
_NOTE = "INSERT INTO audit (account, at, who, action, object, channel, origin, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_AUDIT = "SELECT who, action, object, channel, origin, detail, at, id FROM audit"


class SqlitePeople:
    """`Directory` on the database of a run store, which has made its tables."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def person(self, account: str, who: str) -> Person:
        return await self._database.read(lambda connection: person(connection, account, who))

    async def people(self, account: str, *, role: str = "", department: str = "") -> list[Person]:
        given = (account, role, department)
        return await self._database.read(
            lambda connection: [_person_of(row) for row in connection.execute(_CHOSEN, given)]
        )

    async def empty(self, account: str) -> bool:
        return await self._database.read(lambda connection: empty(connection, account))

    async def put(
        self, account: str, people: Sequence[Person], *, replaces: bool = False, notes: Sequence[AuditRecord] = ()
    ) -> list[Person]:
        given, now = list(people), self._clock()

        def act(connection: Connection) -> list[Person]:
            known = [_person_of(row) for row in connection.execute(_PEOPLE + " WHERE account = ?", (account,))]
            stored = settled(known, given, replaces=replaces)
            for one in stored:
                connection.execute("DELETE FROM person WHERE account = ? AND key = ?", (account, key_of(one.name)))
            for one in stored:
                connection.execute(_PUT, _row_of(account, one))
            note(connection, account, notes, now)
            return stored

        return await self._database.write(act, size=400 * len(given))

    async def remove(self, account: str, who: str, *, notes: Sequence[AuditRecord] = ()) -> Person:
        now = self._clock()

        def act(connection: Connection) -> Person:
            gone = person(connection, account, who)
            connection.execute("DELETE FROM person WHERE account = ? AND key = ?", (account, key_of(gone.name)))
            connection.execute(_REVOKE_ALL, (now, account, gone.name))
            note(connection, account, notes, now)
            return gone

        return await self._database.write(act)

    async def add_key(self, account: str, key: PersonKey, digest: str, *, notes: Sequence[AuditRecord] = ()) -> None:
        now = self._clock()

        def act(connection: Connection) -> None:
            owner = person(connection, account, key.person)
            connection.execute(_ADD_KEY, (account, key.id, digest, owner.name, key.note, key.created or now))
            note(connection, account, notes, now)

        await self._database.write(act)

    async def keys(self, account: str) -> list[PersonKey]:
        return await self._database.read(
            lambda connection: [PersonKey(*row) for row in connection.execute(_KEYS, (account,))]
        )

    async def key_owner(self, account: str, digest: str) -> Person:
        def look(connection: Connection) -> Person:
            row = connection.execute(_OWNER, (account, digest)).fetchone()
            if row is None:
                raise NotFound("there is no such key")
            return person(connection, account, row[0])

        return await self._database.read(look)

    async def revoke_key(self, account: str, key_id: str, *, notes: Sequence[AuditRecord] = ()) -> PersonKey:
        now = self._clock()

        def act(connection: Connection) -> PersonKey:
            connection.execute(_REVOKE, (now, account, key_id))
            row = connection.execute(_KEY, (account, key_id)).fetchone()
            if row is None:
                raise NotFound(f"there is no key {key_id!r}")
            note(connection, account, notes, now)
            return PersonKey(*row)

        return await self._database.write(act)

    async def note(self, account: str, *records: AuditRecord) -> None:
        now = self._clock()
        await self._database.write(lambda connection: note(connection, account, records, now))

    async def audit(
        self,
        account: str,
        *,
        limit: int = 50,
        before: int = 0,
        object: str = "",  # noqa: A002 -- the name of the port's field
        by: str = "",
    ) -> list[AuditRecord]:
        conditions: list[tuple[str, str | int]] = [("account = ?", account)]
        if before:
            conditions.append(("id < ?", before))
        if object:
            conditions.append(("object = ? AND object <> ''", object))
        if by:
            conditions.append(("who = ?", by))
        where = " AND ".join(condition for condition, _ in conditions)
        statement = f"{_AUDIT} WHERE {where} ORDER BY id DESC LIMIT ?"
        given = (*(value for _, value in conditions), limit)
        rows = await self._database.read(lambda connection: connection.execute(statement, given).fetchall())
        return [_record_of(row) for row in rows]


def person(connection: Connection, account: str, who: str) -> Person:
    """One person by name or e-mail address. Raises NotFound."""
    row = None if wrong_with(who) else connection.execute(_PERSON, (account, key_of(who))).fetchone()
    if row is None:
        raise NotFound(f"nobody is called {who!r} here")
    return _person_of(row)


def empty(connection: Connection, account: str) -> bool:
    """Whether an account has no people."""
    return connection.execute("SELECT 1 FROM person WHERE account = ? LIMIT 1", (account,)).fetchone() is None


def note(connection: Connection, account: str, records: Sequence[AuditRecord], now: float) -> None:
    """Add to the trail, in the transaction of what it tells of."""
    for one in records:
        told = (one.by, one.action, one.object, one.channel, one.origin, encode(one.detail))
        connection.execute(_NOTE, (account, one.at or now, *told))


def _person_of(row: Row) -> Person:
    name, email, roles, departments, display = row
    return Person(name, email, tuple(decode(roles)), tuple(decode(departments)), display)


def _record_of(row: Row) -> AuditRecord:
    by, action, thing, channel, origin, detail, at, order = row
    return AuditRecord(by, action, thing, channel, origin, decode(detail), at, order)


def _row_of(account: str, one: Person) -> Row:
    keys = (key_of(one.name), key_of(one.email))
    words = (encode(one.roles).decode(), encode(one.departments).decode())
    return (account, *keys, one.name, one.email, *words, one.display)
