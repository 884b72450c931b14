"""Lanes in the database: runs that share a few places, first come, first served.

The law of the file: a run that waits for a place has no `due`, so that no claim ever looks at it; whoever makes a place
free gives it to the oldest that waits, in the same transaction. So never more runs can be claimed than there are
places, and a lane of any length costs the others nothing.
"""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from stepwell.ports import NewRun
from stepwell.stores.rules import lane_full

Connection: TypeAlias = sqlite3.Connection

_ENTER = "UPDATE run SET lane = ?, lane_limit = ?, lane_state = 'waits', due = NULL WHERE id = ?"
# `lane_state <> ''` is said wherever the index on lanes is meant, which SQLite uses only then.
_OF = "FROM run WHERE account = ? AND lane = ? AND lane_state <> '' AND lane_state ="
_CLAIMED = f"SELECT uid {_OF} 'holds' AND epoch > 0 ORDER BY id"
_IN_STATE = f"SELECT count(*) {_OF} ?"
_OLDEST = f"SELECT id {_OF} ? ORDER BY id LIMIT ?"
_FIRST = f"SELECT id, lane_limit {_OF} 'waits' ORDER BY id LIMIT 1"
_OLDER = f"SELECT 1 {_OF} 'holds' AND epoch = 0 AND id < ? LIMIT 1"
_CANCELLED = "SELECT 1 FROM inbox WHERE run = ? AND kind = 'cancel' AND consumed = 0 LIMIT 1"
# One that was cancelled may be owned by who ends it: then it gets the place but is not due.
_ADMIT = "UPDATE run SET lane_state = 'holds', due = iif(process = '', 0, NULL) WHERE id = ?"
_LEAVE = "UPDATE run SET lane_state = '' WHERE id = ? AND lane_state <> '' RETURNING account, lane"
_LANE_OF = "SELECT account, lane FROM run WHERE id = ? AND epoch = 0 AND lane_state = 'holds'"


def enter(connection: Connection, new: NewRun, run: int) -> list[int]:
    """Put a fresh run into its lane; returns which runs are to be cancelled for it. Raises Conflict."""
    holders = [uid for (uid,) in connection.execute(_CLAIMED, (new.account, new.lane))]
    full = len(holders) >= new.lane_limit
    if full and new.on_limit == "reject":
        raise lane_full(new, holders)
    connection.execute(_ENTER, (new.lane, new.lane_limit, run))
    _admit(connection, new.account, new.lane)
    return _surplus(connection, new) if full and new.on_limit == "cancel_oldest" else []


def hold(connection: Connection, run: int) -> None:
    """Let a run that goes back have its place again, also where others have taken all: new ones wait the longer."""
    connection.execute("UPDATE run SET lane_state = 'holds' WHERE id = ? AND lane <> '' AND lane_state = ''", (run,))


def leave(connection: Connection, run: int) -> None:
    """Make the place of a run that has ended free for the next."""
    left = connection.execute(_LEAVE, (run,)).fetchone()
    if left is not None:
        _admit(connection, *left)


def may_begin(connection: Connection, run: int) -> bool:
    """Whether a run that nobody has claimed yet has a place in its lane, and no older one is to be claimed before.

    One that was cancelled needs no place: it is claimed to be ended.
    """
    if connection.execute(_CANCELLED, (run,)).fetchone() is not None:
        return True
    lane = connection.execute(_LANE_OF, (run,)).fetchone()
    return lane is not None and connection.execute(_OLDER, (*lane, run)).fetchone() is None


def _admit(connection: Connection, account: str, lane: str) -> None:
    held = _count(connection, account, lane, "holds")
    while (first := connection.execute(_FIRST, (account, lane)).fetchone()) is not None:
        run, limit = first
        if held >= limit:
            return
        connection.execute(_ADMIT, (run,))
        held += 1


def _surplus(connection: Connection, new: NewRun) -> list[int]:
    held, waiting = (_count(connection, new.account, new.lane, state) for state in ("holds", "waits"))
    surplus = held + waiting - new.lane_limit
    runs: list[int] = []
    for state in ("holds", "waits"):  # who holds a place is older than who waits
        rows = connection.execute(_OLDEST, (new.account, new.lane, state, max(0, surplus - len(runs))))
        runs += [run for (run,) in rows.fetchall()]
    return [run for run in runs if connection.execute(_CANCELLED, (run,)).fetchone() is None]


def _count(connection: Connection, account: str, lane: str, state: str) -> int:
    return int(connection.execute(_IN_STATE, (account, lane, state)).fetchone()[0])
