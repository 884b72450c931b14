"""Runs and definitions in the database: creating and listing them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from stepwell.errors import Conflict, NotFound
from stepwell.ports import NewRun, Outgoing, Repin, Run, Wait
from stepwell.stores.rules import refuse_moved, replaced_by
from stepwell.stores.sqlite import lanes
from stepwell.stores.sqlite.deciding import beat, tell
from stepwell.stores.sqlite.rows import (
    OUTGOING,
    RUNS,
    WAITS,
    canonical,
    encode,
    one,
    outgoing_of,
    run_of,
    wait_of,
)

Connection: TypeAlias = sqlite3.Connection

_INSERT_RUN = """
INSERT INTO run (uid, account, workflow, version, definition, status, requester, idempotency_key, created, due)
VALUES (?, ?, ?, ?, ?, 'queued', ?, ?, ?, 0)
"""
_RUN = RUNS + " WHERE run.account = ? AND run.uid = ?"
_RUN_OF_KEY = (
    RUNS + " WHERE run.account = ? AND run.workflow = ? AND run.idempotency_key <> '' AND run.idempotency_key = ?"
)
_RUN_OF_NUMBER = RUNS + " WHERE run.id = ?"
_WAIT = WAITS + " WHERE wait.account = ? AND wait.uid = ?"


_SEED = "INSERT INTO journal (run, path, generation, kind, digest, at, body) VALUES (?, ?, 0, ?, ?, ?, ?)"
_BLOB = "INSERT INTO blob (account, digest, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are listed; `before` is the id of the last one already seen."""

    statuses: Sequence[str] = ()
    workflow: str = ""
    limit: int = 50
    before: str = ""


@dataclass(frozen=True, slots=True)
class WaitFilter:
    """Which waits are listed."""

    run_id: str = ""
    kind: str = ""
    pending_only: bool = True
    limit: int = 1000


def put_definition(connection: Connection, account: str, digest: str, body: bytes) -> None:
    """Keep a definition; the same digest again changes nothing."""
    connection.execute(
        "INSERT INTO definition (account, digest, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (account, digest, body),
    )


def definition(connection: Connection, account: str, digest: str) -> bytes:
    """A definition's text. Raises NotFound."""
    body: bytes | None = one(
        connection.execute("SELECT body FROM definition WHERE account = ? AND digest = ?", (account, digest)).fetchone()
    )
    if body is None:
        raise NotFound(f"there is no definition {digest}")
    return body


def blob(connection: Connection, account: str, digest: str) -> bytes:
    """A large value's text. Raises NotFound."""
    body: bytes | None = one(
        connection.execute("SELECT body FROM blob WHERE account = ? AND digest = ?", (account, digest)).fetchone()
    )
    if body is None:
        raise NotFound(f"there is no value {digest}")
    return body


def create(connection: Connection, new: NewRun, content: tuple[bytes, bytes], now: float) -> tuple[Run, bool]:
    """Store a queued run, or find the one of its idempotency key. Raises Conflict, also for a lane that is full."""
    if new.idempotency_key:
        key = (new.account, new.workflow, new.idempotency_key)
        row = connection.execute(_RUN_OF_KEY, key).fetchone()
        if row is not None:
            return _same(run_of(row), new), False
    given = (new.id, new.account, new.workflow, new.version, new.definition, new.requester, new.idempotency_key)
    try:
        stored = connection.execute(_INSERT_RUN, (*given, new.created or now)).lastrowid
    except sqlite3.IntegrityError as error:
        raise Conflict(f"there is a run {new.id} already") from error
    connection.execute("INSERT INTO run_content (run, input, project) VALUES (?, ?, ?)", (stored, *content))
    connection.executemany(_SEED, [(stored, one.path, one.kind, one.digest, one.at, one.body) for one in new.seed])
    connection.executemany(_BLOB, [(new.account, digest, text) for one in new.seed for digest, text in one.blobs])
    if new.lane:
        for replaced in lanes.enter(connection, new, stored or 0):
            tell(connection, replaced, "cancel", ("", encode(replaced_by(new))), now)
    beat(connection)
    return run(connection, new.account, new.id), True


def repin(connection: Connection, account: str, run_id: str, pin: Repin, at: float) -> Run:
    """Give a parked run another definition. Raises NotFound, Conflict."""
    refuse_moved(run(connection, account, run_id), pin)
    key, entry = run_key(connection, account, run_id), pin.entry
    try:
        connection.execute(
            "INSERT INTO journal (run, path, generation, kind, digest, at, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (key, entry.path, entry.generation, entry.kind, entry.digest, entry.at or at, entry.body),
        )
    except sqlite3.IntegrityError as error:
        raise Conflict(f"{entry.path} is already recorded", {"path": entry.path}) from error
    connection.execute("UPDATE run SET definition = ?, version = ? WHERE id = ?", (pin.definition, pin.version, key))
    if pin.wake:
        connection.execute("UPDATE run SET status = 'queued', wake_at = 0, due = 0 WHERE id = ?", (key,))
    beat(connection)
    return run(connection, account, run_id)


def _same(there: Run, new: NewRun) -> Run:
    if there.definition != new.definition or canonical(there.input) != canonical(new.input):
        raise Conflict(
            f"the idempotency key {new.idempotency_key} belongs to run {there.id}, whose definition or input differs",
            {"run": there.id},
        )
    return there


def run(connection: Connection, account: str, run_id: str) -> Run:
    """One run. Raises NotFound."""
    row = connection.execute(_RUN, (account, run_id)).fetchone()
    if row is None:
        raise NotFound(f"there is no run {run_id}")
    return run_of(row)


def run_key(connection: Connection, account: str, run_id: str) -> int:
    """The database's own number of a run. Raises NotFound."""
    key: int | None = one(
        connection.execute("SELECT id FROM run WHERE account = ? AND uid = ?", (account, run_id)).fetchone()
    )
    if key is None:
        raise NotFound(f"there is no run {run_id}")
    return key


def runs(connection: Connection, account: str, wanted: RunFilter) -> list[Run]:
    """Runs, newest first. Raises NotFound for a `before` that is no run."""
    end = run_key(connection, account, wanted.before) if wanted.before else None
    keys: list[int] = []
    for status in wanted.statuses or [""]:  # each by its index in order, so that none is sorted
        conditions: list[tuple[str, str | int]] = [("account = ?", account)]
        if status:
            conditions.append(("status = ?", status))
        if wanted.workflow:
            conditions.append(("workflow = ?", wanted.workflow))
        if end is not None:
            conditions.append(("id < ?", end))
        statement = f"SELECT id FROM run WHERE {_all(conditions)} ORDER BY id DESC LIMIT ?"  # noqa: S608 -- constants
        given = [value for _, value in conditions]
        keys += [key for (key,) in connection.execute(statement, (*given, wanted.limit))]
    newest = sorted(set(keys), reverse=True)[: wanted.limit]
    return [run_of(connection.execute(_RUN_OF_NUMBER, (key,)).fetchone()) for key in newest]


def _all(conditions: Sequence[tuple[str, object]]) -> str:
    return " AND ".join(condition for condition, _ in conditions)


def wait(connection: Connection, account: str, wait_id: str) -> Wait:
    """One wait. Raises NotFound."""
    row = connection.execute(_WAIT, (account, wait_id)).fetchone()
    if row is None:
        raise NotFound(f"there is no wait {wait_id}")
    return wait_of(row)


def waits(connection: Connection, account: str, wanted: WaitFilter) -> list[Wait]:
    """Waits, oldest first. Raises NotFound for a run that is not there."""
    conditions: list[tuple[str, str | int | None]] = [("wait.account = ?", account)]
    if wanted.run_id:
        conditions.append(("wait.run = ?", run_key(connection, account, wanted.run_id)))
    if wanted.kind:
        conditions.append(("wait.kind = ?", wanted.kind))
    if wanted.pending_only:
        conditions.append(("wait.status = 'pending'", None))
    statement = f"{WAITS} WHERE {_all(conditions)} ORDER BY wait.id LIMIT ?"
    given = [value for _, value in conditions if value is not None]
    return [wait_of(row) for row in connection.execute(statement, (*given, wanted.limit))]


def outgoing(connection: Connection, account: str, run_id: str, limit: int) -> list[Outgoing]:
    """Stored notifications, newest first."""
    given: tuple[Any, ...] = (account, limit)
    condition = "outgoing.account = ?"
    if run_id:
        condition = "outgoing.account = ? AND outgoing.run = ?"
        given = (account, run_key(connection, account, run_id), limit)
    statement = f"{OUTGOING} WHERE {condition} ORDER BY outgoing.id DESC LIMIT ?"
    return [outgoing_of(row) for row in connection.execute(statement, given)]
