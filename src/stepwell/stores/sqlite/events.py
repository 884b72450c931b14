"""Events in the database: what was told to an account, and which runs it concerns.

The law of the file: an event is stored in one transaction with the messages that tell of it, so that a wait is either
open by then and told, or opened later and finds the event.
"""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from stepwell.ports import Lease, SentEvent
from stepwell.stores.rules import EVENTS_KEPT, EVENTS_SWEPT, SWEEP_EVERY, told_of
from stepwell.stores.sqlite.deciding import beat, expire_topic
from stepwell.stores.sqlite.journal import fence
from stepwell.stores.sqlite.rows import decode, encode

Connection: TypeAlias = sqlite3.Connection

_UNREAD = "SELECT 1 FROM inbox WHERE inbox.event = event.id AND inbox.consumed = 0"
_KNOWN = f"SELECT id, received > ? OR EXISTS ({_UNREAD}) FROM event WHERE account = ? AND uid = ?"  # noqa: S608 -- a constant
_INSERT = "INSERT INTO event (account, uid, name, data, at, received) VALUES (?, ?, ?, ?, ?, ?)"
_FOR = "FROM wait WHERE account = ? AND topic = ? AND topic <> '' AND kind = 'event' AND status = 'pending'"
_TELL = f"INSERT INTO inbox (run, kind, path, body, at, event) SELECT run, 'event', path, ?, ?, ? {_FOR} ORDER BY id"
_WAKE = f"UPDATE run SET due = 0 WHERE process = '' AND epoch > 0 AND id IN (SELECT run {_FOR})"  # noqa: S608 -- constants
_SWEEP = f"DELETE FROM event WHERE received <= ? AND NOT EXISTS ({_UNREAD})"  # noqa: S608 -- a constant
_UNUSED = f"""
SELECT event.uid, event.name, event.data, event.at, event.id FROM event
WHERE event.account = ? AND event.name = ? AND event.at >= ?
      AND (event.received > ? OR EXISTS ({_UNREAD} AND inbox.run = ?))
      AND NOT EXISTS (SELECT 1 FROM event_use WHERE event_use.run = ? AND event_use.event = event.id)
ORDER BY event.id
"""  # noqa: S608 -- a constant


def send(connection: Connection, account: str, event: SentEvent, data: bytes, now: float) -> int:
    """Keep an event and tell the runs that wait for its name; returns how many waits were told."""
    row = connection.execute(_KNOWN, (now - EVENTS_KEPT, account, event.id)).fetchone()
    if row is not None:
        known, kept = row
        if kept:
            return 0
        connection.execute("DELETE FROM event WHERE id = ?", (known,))
    given = (account, event.id, event.name, data, event.at or now, now)
    order = connection.execute(_INSERT, given).lastrowid or 0
    if order % SWEEP_EVERY == 0:
        connection.execute(_SWEEP, (now - EVENTS_SWEPT,))
    expire_topic(connection, account, event.name, now)
    body = encode(told_of(event, order))
    told = connection.execute(_TELL, (body, now, order, account, event.name)).rowcount
    if told:
        connection.execute(_WAKE, (account, event.name))
        beat(connection)
    return told


def unused(connection: Connection, lease: Lease, name: str, since: float, now: float) -> list[SentEvent]:
    """Events of a name that the run has not used, in the order in which they were told. Raises LeaseLost."""
    fence(connection, lease)
    given = (lease.account, name, since, now - EVENTS_KEPT, lease.key, lease.key)
    return [
        SentEvent(uid, named, decode(data), at, order)
        for uid, named, data, at, order in connection.execute(_UNUSED, given)
    ]
