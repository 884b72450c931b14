"""Going back in the database: a run that was parked or had ended is made due again, one generation on."""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from stepwell.ports import Reopening, Run
from stepwell.stores.rules import refuse_carried
from stepwell.stores.sqlite import creating, lanes
from stepwell.stores.sqlite.deciding import beat
from stepwell.stores.sqlite.rows import encode

Connection: TypeAlias = sqlite3.Connection

_INSERT = "INSERT INTO journal (run, path, generation, kind, digest, at, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
_BLOB = "INSERT INTO blob (account, digest, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_WITHDRAW = """
UPDATE wait SET status = 'withdrawn', decision = ?, decided = ? WHERE run = ? AND path = ? AND status = 'pending'
"""
_REOPEN = """
UPDATE run SET status = 'queued', generation = generation + 1, wake_at = 0, active = 0, ended = 0, due = 0,
               epoch = epoch + 1
WHERE id = ?
"""


def reopen(connection: Connection, account: str, run_id: str, back: Reopening, now: float) -> Run:
    """Let a run go back. Raises NotFound, Conflict."""
    run = creating.run(connection, account, run_id)
    key, entry = creating.run_key(connection, account, run_id), back.entry
    unread = connection.execute("SELECT 1 FROM inbox WHERE run = ? AND consumed = 0 LIMIT 1", (key,)).fetchone()
    refuse_carried(run, back, unread=unread is not None)
    row = (key, entry.path, run.generation + 1, entry.kind, entry.digest, entry.at or now, entry.body)
    connection.execute(_INSERT, row)
    connection.executemany(_BLOB, [(account, digest, text) for digest, text in entry.blobs])
    said = encode({"reason": back.reason})
    connection.executemany(_WITHDRAW, [(said, now, key, path) for path in back.withdraw])
    connection.execute(_REOPEN, (key,))
    connection.execute("UPDATE run_content SET output = NULL, error = NULL WHERE run = ?", (key,))
    lanes.hold(connection, key)
    beat(connection)
    return creating.run(connection, account, run_id)
