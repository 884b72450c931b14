"""Messages and waits in the database: what reaches a run from outside.

The law of the file: a wait changes from pending once, by compare-and-set, in one transaction with the message that
tells of it and the wake-up of the run.
"""

from __future__ import annotations

import sqlite3
from typing import Any, TypeAlias

from stepwell.approvals import notices
from stepwell.approvals.rules import rules_of
from stepwell.errors import Conflict, NotFound
from stepwell.ports import FINAL, PARKED, RUNNABLE, Lease, Message, Verdict
from stepwell.stores.rules import BEING_UNDONE, being_undone
from stepwell.stores.sqlite import lanes
from stepwell.stores.sqlite.journal import fence, put_outgoing
from stepwell.stores.sqlite.rows import WAITS, encode, wait_of

Json: TypeAlias = Any
Connection: TypeAlias = sqlite3.Connection

_INSERT_MESSAGE = "INSERT INTO inbox (run, kind, path, body, at) VALUES (?, ?, ?, ?, ?)"
# A run that nobody has claimed yet is due already, or waits for a place in its lane.
_WAKE = "UPDATE run SET due = 0 WHERE id = ? AND process = '' AND epoch > 0"
_EXPIRED = """
SELECT id, run, path, kind FROM wait
WHERE status = 'pending' AND deadline > 0 AND deadline <= ? ORDER BY deadline, id LIMIT ?
"""
_EXPIRED_OF_RUN = """
SELECT id, run, path, kind FROM wait
WHERE run = ? AND status = 'pending' AND deadline > 0 AND deadline <= ? ORDER BY deadline, id
"""
_EXPIRED_OF_TOPIC = """
SELECT id, run, path, kind FROM wait
WHERE account = ? AND topic = ? AND topic <> '' AND status = 'pending' AND deadline > 0 AND deadline <= ?
ORDER BY deadline, id
"""
_UNDOING = "SELECT 1 FROM journal WHERE run = ? AND path = ? LIMIT 1"
_UNTELL = "UPDATE inbox SET event = NULL WHERE run = ? AND consumed = 0 AND event IS NOT NULL"
_CLOSE_WAIT = "UPDATE wait SET status = ?, decision = ?, decided = ? WHERE id = ? AND status = 'pending'"
_WITHDRAW = """
UPDATE wait SET status = 'withdrawn', decision = ?, decided = ? WHERE run = ? AND path = ? AND status = 'pending'
"""
_NEWEST = "SELECT status FROM wait WHERE run = ? AND path = ? ORDER BY generation DESC LIMIT 1"
_WAIT_BY_KEY = WAITS + " WHERE wait.id = ?"
_RELEASE = """
UPDATE run SET status = ?, wake_at = ?, active = ?, ended = ?, due = ?, epoch = epoch + 1, owner = '', process = '',
               lease_until = 0
WHERE id = ?
"""


def beat(connection: Connection) -> None:
    """Let other processes see that something may be of interest to them."""
    connection.execute("UPDATE pulse SET beats = beats + 1")


def post(connection: Connection, account: str, message: Message, body: bytes) -> int:
    """Put a message into a run's inbox and wake it; returns its order. Raises NotFound, Conflict."""
    row = connection.execute(
        "SELECT id, status FROM run WHERE uid = ? AND account = ?", (message.run_id, account)
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no run {message.run_id}")
    key, status = row
    if status in FINAL:
        raise Conflict(f"run {message.run_id} has ended: {status}", {"status": status})
    if message.kind == "cancel" and connection.execute(_UNDOING, (key, BEING_UNDONE)).fetchone() is not None:
        raise being_undone(message.run_id)
    return tell(connection, key, message.kind, (message.path, body), message.at)


def tell(connection: Connection, run: int, kind: str, said: tuple[str, bytes], at: float) -> int:
    """Put a message (path, body) into a run's inbox and wake it; returns its order."""
    path, body = said
    order = connection.execute(_INSERT_MESSAGE, (run, kind, path, body, at)).lastrowid or 0
    connection.execute(_WAKE, (run,))
    beat(connection)
    return order


def expire(connection: Connection, now: float, *, run: int = 0, limit: int) -> int:
    """Close pending waits whose deadline has passed and tell their runs; returns how many. With `run`, of that run."""
    if run:
        rows = connection.execute(_EXPIRED_OF_RUN, (run, now)).fetchall()
    else:
        rows = connection.execute(_EXPIRED, (now, limit)).fetchall()
    for row in rows:
        expire_one(connection, row, now)
    return len(rows)


def expire_topic(connection: Connection, account: str, topic: str, now: float) -> None:
    """Close the waits for events of this name whose deadline has passed, so that none comes to them late."""
    for row in connection.execute(_EXPIRED_OF_TOPIC, (account, topic, now)).fetchall():
        expire_one(connection, row, now)


def withdraw(connection: Connection, lease: Lease, paths: list[str], reason: str, now: float) -> list[str]:
    """Close pending waits of the run at these paths; returns the paths that are withdrawn now. Raises LeaseLost."""
    fence(connection, lease)
    said = encode({"reason": reason})
    withdrawn = []
    for path in paths:
        connection.execute(_WITHDRAW, (said, now, lease.key, path))
        row = connection.execute(_NEWEST, (lease.key, path)).fetchone()
        if row is not None and row[0] == "withdrawn":
            withdrawn.append(path)
    return withdrawn


def end_pass(connection: Connection, lease: Lease, verdict: Verdict, content: tuple[bytes | None, ...]) -> bool:
    """Store the verdict and give the lease back, unless it parks the run and an unread message came. Fenced before."""
    due: float | None = None
    if verdict.status in PARKED:
        if _came_after(connection, lease.key, verdict.seen):
            return False
        due = verdict.wake_at or None
    elif verdict.status in RUNNABLE:
        due = 0
    else:
        connection.execute(
            "UPDATE wait SET status = 'cancelled', decided = ? WHERE run = ? AND status = 'pending'",
            (verdict.ended, lease.key),
        )
        connection.execute(_UNTELL, (lease.key,))  # a run that has ended keeps no event
        lanes.leave(connection, lease.key)
    connection.execute(_RELEASE, (verdict.status, verdict.wake_at, verdict.active, verdict.ended, due, lease.key))
    connection.execute("UPDATE run_content SET output = ?, error = ?, usage = ? WHERE run = ?", (*content, lease.key))
    beat(connection)
    return True


def _came_after(connection: Connection, run: int, seen: int) -> bool:
    row = connection.execute(
        "SELECT 1 FROM inbox WHERE run = ? AND consumed = 0 AND id > ? LIMIT 1", (run, seen)
    ).fetchone()
    return row is not None


def expire_one(connection: Connection, row: tuple[int, int, str, str], now: float) -> None:
    """Close a wait (its number, run, path and kind) whose deadline has passed, and tell its run and its people."""
    key, run, path, kind = row
    said = encode({"decision": "due" if kind == "timer" else "expired"})
    if kind == "approval":
        wait = wait_of(connection.execute(_WAIT_BY_KEY, (key,)).fetchone())
        put_outgoing(connection, (wait.account, run), notices.expired(wait, rules_of(wait), now), now)
    close_wait(connection, key, "expired", said, now)
    tell(connection, run, "decision", (path, said), now)


def close_wait(connection: Connection, key: int, status: str, decision: bytes, now: float) -> None:
    """Close a wait that is pending."""
    connection.execute(_CLOSE_WAIT, (status, decision, now, key))
