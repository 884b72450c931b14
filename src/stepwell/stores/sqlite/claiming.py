"""Leases in the database: who may write which run.

The law of the file: an owner that lives keeps its lease until it lapses by a clock that nobody sets, and an owner that
is known to be dead has none.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import TypeAlias

from stepwell.ports import FINAL, Lease
from stepwell.stores.liveness import ProcessIdentity
from stepwell.stores.rules import JUST_DUE
from stepwell.stores.sqlite import lanes
from stepwell.stores.sqlite.deciding import expire
from stepwell.stores.sqlite.rows import Row, lease_of, one
from stepwell.stores.sqlite.voting import remind

Connection: TypeAlias = sqlite3.Connection

EXPIRE_AT_ONCE = 1000
"""How many waits one claim turns into messages at most."""
_instances = count(1)

_NEXT_PROCESS = "SELECT min(process) FROM run WHERE process <> '' AND process > ?"
_DUE = "SELECT id FROM run WHERE due IS NOT NULL AND due <= ? ORDER BY due, id LIMIT ?"
_LAPSED = """
SELECT id FROM run WHERE process <> '' AND process = ? AND lease_until <= ? AND lease_until <= iif(owner = ?, ?, ?)
ORDER BY lease_until LIMIT ?
"""
_STANDING = "SELECT status, owner, process, lease_until, due, epoch, lane FROM run WHERE id = ?"
_TAKE = """
UPDATE run SET status = 'running', epoch = epoch + 1, owner = ?, process = ?, lease_until = ?, due = NULL, wake_at = 0,
               started = CASE started WHEN 0 THEN ? ELSE started END
WHERE id = ? RETURNING uid, account, id, epoch
"""
_NEXT_WAIT = "SELECT min(deadline) FROM wait WHERE status = 'pending' AND deadline > 0 AND deadline > ?"
_NEXT_REMINDER = "SELECT min(next_at) FROM wait WHERE status = 'pending' AND next_at > 0 AND next_at > ?"
_NEXT_RUN = "SELECT min(due) FROM run WHERE due IS NOT NULL AND due > ?"
_HEARTBEAT = """
INSERT INTO worker (name, process, serves, until) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET process = excluded.process, serves = excluded.serves, until = excluded.until
"""


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who asks for leases: a worker by name, in one store object of one process. `uptime` and `now` are seconds.

    `renewed` is the uptime at which this store object last renewed leases: a lease of its own that had lapsed by then
    was given up by its worker, while one that lapsed since may only be late and is left to it.
    """

    worker: str
    process: str
    uptime: float
    now: float
    renewed: float = 0.0

    def patience(self, process: str, owner: str) -> float:
        """By when a lease of this owner must have lapsed to be taken: infinity if it need not have."""
        if process == self.process and owner == self.worker:
            return self.renewed
        return float("inf") if known_dead(process) else self.uptime


def instance_of_this_process() -> str:
    """An identity for a store object: the process, and which of its store objects."""
    return f"{ProcessIdentity.current()}#{next(_instances)}"


@lru_cache(maxsize=1024)
def _identity(process: str) -> ProcessIdentity:
    return ProcessIdentity.parse(process.rpartition("#")[0])


def known_dead(process: str) -> bool:
    """Whether the process of a store object certainly runs no more."""
    return _identity(process).known_dead()


def sweep(connection: Connection, now: float, *, run: int = 0, limit: int) -> None:
    """Do what waits have come to: those that are too late expire, others remind. With `run`, of that run."""
    expire(connection, now, run=run, limit=limit)
    remind(connection, now, run=run, limit=limit)


def claim(connection: Connection, claimant: Claimant, ttl: float, limit: int) -> list[Lease]:
    """Lease up to `limit` runs: first those that lost their owner, then those that are due, the longest due first."""
    keys: list[int] = []
    for process in _processes(connection):
        own, others = claimant.patience(process, claimant.worker), claimant.patience(process, "")
        given = (process, max(own, others), claimant.worker, own, others, limit - len(keys))
        keys += _first(connection.execute(_LAPSED, given))
    keys += _first(connection.execute(_DUE, (claimant.now, limit - len(keys))))
    return [_take(connection, claimant, ttl, key) for key in keys]


def claim_run(connection: Connection, claimant: Claimant, ttl: float, run_id: str, *, due_only: bool) -> list[Lease]:
    """Lease this run, unless it has ended, its owner lives, its turn in its lane has not come, or it must be due."""
    key = one(connection.execute("SELECT id FROM run WHERE uid = ?", (run_id,)).fetchone())
    if key is None:
        return []
    sweep(connection, claimant.now, run=key, limit=-1)
    status, owner, process, lease_until, due, epoch, lane = connection.execute(_STANDING, (key,)).fetchone()
    if process:
        free = lease_until <= claimant.patience(process, owner)
    elif lane and not epoch:
        free = lanes.may_begin(connection, key)
    else:
        free = not due_only or (due is not None and due <= claimant.now)
    return [_take(connection, claimant, ttl, key)] if free and status not in FINAL else []


def next_due(connection: Connection, now: float) -> float:
    """When the next wait expires or reminds or a parked run is due, from just before `now` on; 0: never."""
    after = max(0.0, now - JUST_DUE)
    statements = (_NEXT_WAIT, _NEXT_REMINDER, _NEXT_RUN)
    found = [one(connection.execute(statement, (after,)).fetchone()) for statement in statements]
    return min((instant for instant in found if instant is not None), default=0.0)


def renew(connection: Connection, leases: list[Lease], until: float) -> list[Lease]:
    """Prolong leases; returns those that were lost."""
    return [
        lease
        for lease in leases
        if not connection.execute(
            "UPDATE run SET lease_until = ? WHERE id = ? AND epoch = ? AND process <> ''",
            (until, lease.key, lease.epoch),
        ).rowcount
    ]


def disown(connection: Connection, process: str) -> None:
    """Give up whatever a store object still holds: others may take it at once."""
    connection.execute("UPDATE run SET lease_until = 0, owner = '' WHERE process <> '' AND process = ?", (process,))
    connection.execute("DELETE FROM worker WHERE process = ?", (process,))


def heartbeat(connection: Connection, claimant: Claimant, ttl: float, *, serves: bool) -> None:
    """Say that a worker lives, and forget those that do not."""
    for name, process in connection.execute("SELECT name, process FROM worker").fetchall():
        if name != claimant.worker and known_dead(process):
            connection.execute("DELETE FROM worker WHERE name = ?", (name,))
    connection.execute(_HEARTBEAT, (claimant.worker, claimant.process, serves, claimant.uptime + ttl))


def served(connection: Connection, uptime: float) -> bool:
    """Whether a worker that serves the database lives."""
    alive = connection.execute("SELECT process FROM worker WHERE serves = 1 AND until > ?", (uptime,))
    return any(not known_dead(process) for (process,) in alive)


def _processes(connection: Connection) -> list[str]:
    """Which store objects hold leases: a jump from one to the next in the index, however many runs they hold."""
    found: list[str] = []
    process = connection.execute(_NEXT_PROCESS, ("",)).fetchone()[0]
    while process is not None:
        found.append(process)
        process = connection.execute(_NEXT_PROCESS, (process,)).fetchone()[0]
    return found


def _first(rows: sqlite3.Cursor) -> list[int]:
    return [key for (key,) in rows]


def _take(connection: Connection, claimant: Claimant, ttl: float, key: int) -> Lease:
    given = (claimant.worker, claimant.process, claimant.uptime + ttl, claimant.now, key)
    row: Row = connection.execute(_TAKE, given).fetchone()
    return lease_of(row, claimant.worker)
