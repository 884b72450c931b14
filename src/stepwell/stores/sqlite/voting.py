"""Decisions in the database: votes, other rules for a wait, and its reminders.

The law of the file: the rules themselves are `approvals/`; here they are asked inside the transaction that writes, so
that of fifty processes which decide at once each sees what the one before has written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeAlias

from stepwell.approvals.may_decide import cast
from stepwell.approvals.timers import tick
from stepwell.errors import Gone, NotFound
from stepwell.ports import Amendment, Ballot, Wait
from stepwell.stores.sqlite.deciding import beat, close_wait, expire_one, tell
from stepwell.stores.sqlite.journal import put_outgoing
from stepwell.stores.sqlite.rows import WAITS, encode, wait_of

Json: TypeAlias = Any
Connection: TypeAlias = sqlite3.Connection

_KEY = "SELECT id, run FROM wait WHERE account = ? AND uid = ?"
_WAIT = WAITS + " WHERE wait.account = ? AND wait.id = ?"
_VOTE = "INSERT INTO vote (account, wait, person, body, at) VALUES (?, ?, ?, ?, ?)"
_AMEND = "UPDATE wait SET rules = ?, next_at = ? WHERE account = ? AND id = ?"
_DUE = """
SELECT id, run, account FROM wait WHERE status = 'pending' AND next_at > 0 AND next_at <= ? ORDER BY next_at, id LIMIT ?
"""
_DUE_OF_RUN = """
SELECT id, run, account FROM wait WHERE run = ? AND status = 'pending' AND next_at > 0 AND next_at <= ?
ORDER BY next_at, id
"""


def decide(connection: Connection, account: str, wait_id: str, ballot: Ballot, now: float) -> Wait | Gone:
    """Take a vote; returns the wait, or that its deadline has passed, which is then stored. Raises as the port says."""
    key, run, wait = _found(connection, account, wait_id)
    try:
        result = cast(wait, ballot, now)
    except Gone as gone:
        if wait.status != "pending":
            raise
        expire_one(connection, (key, run, wait.path, wait.kind), now)
        return gone
    if result.vote is not None:
        connection.execute(_VOTE, (account, key, result.vote["by"], encode(result.vote), now))
    put_outgoing(connection, (account, run), result.notices, now)
    if result.decision is not None:
        said = encode(result.decision)
        close_wait(connection, key, "decided", said, now)
        tell(connection, run, "decision", (wait.path, said), now)
    return _read(connection, account, key)


def amend(connection: Connection, account: str, wait_id: str, change: Callable[[Wait], Amendment], now: float) -> Wait:
    """Give a wait other rules. Raises NotFound, and what `change` raises."""
    key, run, wait = _found(connection, account, wait_id)
    _amend(connection, (account, key, run), change(wait), now)
    beat(connection)
    return _read(connection, account, key)


def remind(connection: Connection, now: float, *, run: int = 0, limit: int) -> int:
    """Store the reminders and escalations that are due; returns of how many waits. With `run`, of that run."""
    if run:
        rows = connection.execute(_DUE_OF_RUN, (run, now)).fetchall()
    else:
        rows = connection.execute(_DUE, (now, limit)).fetchall()
    for key, owner, account in rows:
        due = tick(_read(connection, account, key), now)
        amendment = Amendment(due.rules.as_json(), due.next_at, due.notices)
        _amend(connection, (account, key, owner), amendment, now)
    return len(rows)


def _amend(connection: Connection, place: tuple[str, int, int], amendment: Amendment, now: float) -> None:
    account, key, run = place
    connection.execute(_AMEND, (encode(amendment.rules), amendment.next_at, account, key))
    put_outgoing(connection, (account, run), amendment.outgoing, now)


def _found(connection: Connection, account: str, wait_id: str) -> tuple[int, int, Wait]:
    row = connection.execute(_KEY, (account, wait_id)).fetchone()
    if row is None:
        raise NotFound(f"there is no wait {wait_id}")
    return row[0], row[1], _read(connection, account, row[0])


def _read(connection: Connection, account: str, key: int) -> Wait:
    return wait_of(connection.execute(_WAIT, (account, key)).fetchone())
