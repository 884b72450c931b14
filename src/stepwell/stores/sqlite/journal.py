"""The journal in the database: fenced appends, and loading what a pass needs.

The law of the file: a row is written once, and only by a statement, or behind one of the same transaction, that finds
the run's epoch as the lease says it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from stepwell.errors import Conflict
from stepwell.journal.entry import Entry
from stepwell.journal.lease import LeaseLost
from stepwell.ports import Batch, Lease, Loaded, Outgoing, Run
from stepwell.stores.rules import SATISFIED, sets_time, unusable
from stepwell.stores.sqlite.rows import (
    ENTRIES,
    MESSAGES,
    RUNS,
    WAITS,
    Row,
    encode,
    entry_of,
    entry_row,
    message_of,
    outgoing_row,
    run_of,
    wait_of,
    wait_row,
)

Connection: TypeAlias = sqlite3.Connection

# The fence is part of the statement: where the lease is not the current one, nothing is selected and nothing written.
_INSERT = """
INSERT INTO journal (run, path, generation, kind, digest, at, body)
SELECT id, ?, ?, ?, ?, ?, ? FROM run WHERE id = ? AND epoch = ?
"""
_INSERT_BLOB = "INSERT INTO blob (account, digest, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_INSERT_WAIT = """
INSERT INTO wait (account, uid, run, path, generation, kind, request, digest, opened, deadline, on_expire, topic,
                  rules, next_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run, path, generation) DO NOTHING
"""
_INSERT_OUTGOING = """
INSERT INTO outgoing (account, key, run, path, channel, recipient, subject, body, priority, at, status)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (account, key) DO NOTHING
"""
_SATISFY = """
UPDATE wait SET status = 'decided', decision = ?, decided = ?
WHERE run = ? AND path = ? AND kind = 'event' AND status = 'pending'
"""
_EVENT = "SELECT 1 FROM event WHERE id = ? AND account = ?"
_USE = "INSERT INTO event_use (run, event, account) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_CONSUME = "UPDATE inbox SET consumed = 1 WHERE id = ? AND run = ?"
_BEAT = "UPDATE pulse SET beats = beats + 1"
_ENTRIES_FROM = ENTRIES + " WHERE run = ? AND path >= ? ORDER BY path, generation"
_ENTRIES_IN_ORDER = ENTRIES + " WHERE run = ? ORDER BY id"
_RUN_BY_KEY = RUNS + " WHERE run.id = ?"
_UNREAD = MESSAGES + " WHERE run = ? AND consumed = 0 ORDER BY id"
_UNREAD_AFTER = MESSAGES + " WHERE run = ? AND consumed = 0 AND id > ? ORDER BY id"
_ARRIVED = """
SELECT run.uid, inbox.kind, inbox.path, inbox.body, inbox.id, inbox.at
FROM run CROSS JOIN inbox ON inbox.run = run.id AND inbox.consumed = 0
WHERE run.process <> '' AND run.process = ? AND run.owner = ? ORDER BY inbox.id
"""
_PENDING = WAITS + " WHERE wait.run = ? AND wait.status = 'pending' ORDER BY wait.id"


def fence(connection: Connection, lease: Lease) -> None:
    """Raises LeaseLost unless the lease is the run's current one."""
    row = connection.execute("SELECT epoch FROM run WHERE id = ?", (lease.key,)).fetchone()
    if row is None or row[0] != lease.epoch:
        raise LeaseLost(lease.run_id)


def appending(lease: Lease, batch: Batch, now: float) -> tuple[Callable[[Connection], int], int, bool]:
    """What writes a batch, its size in bytes, and whether that is one statement. Encodes in the calling thread."""
    rows = [entry_row(entry, lease, now) for entry in batch.entries]
    blobs = [(lease.account, digest, text) for entry in batch.entries for digest, text in entry.blobs]
    size = sum(len(entry.body) + 200 for entry in batch.entries) + sum(len(text) for _, _, text in blobs)
    beside = blobs or batch.open or batch.consume or batch.outgoing or batch.satisfied or batch.used
    if len(rows) == 1 and not beside:
        return partial(_insert, lease, rows[0]), size, True
    rest = [
        (_INSERT_BLOB, blobs),
        (_INSERT_WAIT, [wait_row(wait, lease, now) for wait in batch.open]),
        (_SATISFY, [(encode(SATISFIED), now, lease.key, path) for path in batch.satisfied]),
        (_CONSUME, [(order, lease.key) for order in batch.consume]),
        (_INSERT_OUTGOING, [outgoing_row(outgoing, (lease.account, lease.key), now) for outgoing in batch.outgoing]),
        (_BEAT, [()] if sets_time(batch) else []),
    ]
    statements = [(statement, given) for statement, given in rest if given]
    return partial(_append, lease, rows, statements, batch.used), size, False


def put_outgoing(connection: Connection, place: tuple[str, int], outgoing: Iterable[Outgoing], now: float) -> None:
    """Store notifications of a run (account and number); one that is there already stays as it is."""
    connection.executemany(_INSERT_OUTGOING, [outgoing_row(one, place, now) for one in outgoing])


def _append(
    lease: Lease, rows: list[Row], rest: list[tuple[str, list[Row]]], used: Sequence[int], connection: Connection
) -> int:
    if not rows:
        fence(connection, lease)
    orders = [_insert(lease, row, connection) for row in rows]
    try:
        for statement, given in rest:
            connection.executemany(statement, given)
    except sqlite3.IntegrityError as error:
        raise Conflict(f"run {lease.run_id}: an id of a wait is taken") from error
    for order in used:
        _use(connection, lease, order)
    return orders[0] if orders else 0


def _use(connection: Connection, lease: Lease, order: int) -> None:
    known = connection.execute(_EVENT, (order, lease.account)).fetchone() is not None
    if not known or not connection.execute(_USE, (lease.key, order, lease.account)).rowcount:
        raise unusable(order, lease.run_id, known=known)


def _insert(lease: Lease, row: Row, connection: Connection) -> int:
    try:
        inserted = connection.execute(_INSERT, row)
    except sqlite3.IntegrityError as error:
        raise Conflict(f"{row[0]} is already recorded", {"path": row[0], "generation": row[1]}) from error
    if not inserted.rowcount:
        raise LeaseLost(lease.run_id)
    return inserted.lastrowid or 0


def loaded(connection: Connection, lease: Lease) -> Loaded:
    """Everything that a pass needs. Raises LeaseLost."""
    fence(connection, lease)
    return peeked(connection, lease.key)


def peeked(connection: Connection, key: int) -> Loaded:
    """The same of a run by its number, whoever owns it; all entries of a run that was made to go back."""
    run: Run = run_of(connection.execute(_RUN_BY_KEY, (key,)).fetchone())
    messages = [message_of(run.id, row) for row in connection.execute(_UNREAD, (key,))]
    waits = [wait_of(row) for row in connection.execute(_PENDING, (key,))]
    entries = history(connection, key) if run.generation else open_entries(connection, key)
    return Loaded(run, entries, messages, waits)


def open_entries(connection: Connection, run: int) -> list[Entry]:
    """The entries that have no settled ancestor, of each path the highest generation, in order.

    Walks the index (run, path, generation) and jumps over the range `P/` to `P0` of every settled P, so that what lies
    below is not read. P comes before its range, and whatever comes in between begins with P and has its own range
    before that of P: so the ranges ahead form a stack.
    """
    rows: dict[str, Row] = {}
    ahead: list[str] = []
    start: str | None = ""
    cursor = connection.cursor()
    while start is not None:
        cursor.execute(_ENTRIES_FROM, (run, start))
        start = _walk(cursor, rows, ahead)
    cursor.close()
    return [entry_of(row) for row in sorted(rows.values(), key=_order)]


def _walk(cursor: sqlite3.Cursor, rows: dict[str, Row], ahead: list[str]) -> str | None:
    """Take rows until one is covered by a settled path; returns where to go on, None at the end."""
    for row in cursor:
        path = row[0]
        while ahead and path >= ahead[-1] + "0":
            ahead.pop()
        if ahead and path >= ahead[-1] + "/":
            return ahead.pop() + "0"
        rows[path] = row
        if ahead and ahead[-1] == path:
            ahead.pop()
        if row[1] == "settled":
            ahead.append(path)
    return None


def _order(row: Row) -> int:
    return int(row[5])


def history(connection: Connection, run: int) -> list[Entry]:
    """All entries of a run in order, of all generations."""
    return [entry_of(row) for row in connection.execute(_ENTRIES_IN_ORDER, (run,))]


def unread(connection: Connection, lease: Lease, after: int) -> list[Row]:
    """Rows of `MESSAGES` that came after `after`."""
    return connection.execute(_UNREAD_AFTER, (lease.key, after)).fetchall()


def arrived(connection: Connection, process: str, worker: str) -> list[Row]:
    """The run's id and the columns of `MESSAGES`: all that is unread in the runs which this worker holds."""
    return connection.execute(_ARRIVED, (process, worker)).fetchall()
