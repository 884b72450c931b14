"""How a connection to the database file is opened, and what its errors mean."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from stepwell.errors import Unavailable

Durability: TypeAlias = Literal["full", "normal"]
"""`full` survives a power cut; `normal` the death of the process, while a power cut may take the last moments."""
BusyLine: TypeAlias = Callable[[str], None]
T = TypeVar("T")

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_OF_THE_STATEMENT = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_MISUSE,
    sqlite3.SQLITE_RANGE,
    sqlite3.SQLITE_TOOBIG,
)
_WAL_LIMIT = 64 * 1024 * 1024


def _code(error: sqlite3.Error) -> int:
    """The primary result code (https://sqlite.org/rescode.html); SQLITE_MISUSE for errors of the Python module."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection is at work and the same call may succeed later."""
    return _code(error) in _BUSY


def is_of_the_statement(error: sqlite3.Error) -> bool:
    """Whether the statement alone is wrong; otherwise the file behind it does not work."""
    return _code(error) in _OF_THE_STATEMENT


def unavailable(path: Path, error: sqlite3.Error) -> Unavailable:
    """What a failure of the file means to the caller."""
    match _code(error):
        case sqlite3.SQLITE_FULL:
            reason = "the disk or the database is full"
        case sqlite3.SQLITE_READONLY:
            reason = "it may not be written"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            reason = "another process keeps it locked"
        case sqlite3.SQLITE_CANTOPEN:
            reason = "it cannot be opened (does its folder exist?)"
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            reason = "it is no SQLite database, or it is damaged"
        case _:
            reason = "it does not work"
    return Unavailable(f"database {path}: {reason} ({error})")


def patiently(path: Path, attempt: Callable[[], T], *, patience: float, on_busy: BusyLine | None) -> T:
    """Make an attempt again until the file is free, with a line a second to `on_busy`.

    Raises Unavailable after `patience` seconds; other errors of SQLite pass.
    """
    started = said = time.monotonic()
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            now = time.monotonic()
            if not is_busy(error):
                raise
            if now - started >= patience:
                raise unavailable(path, error) from error
            if now - said >= 1 and on_busy is not None:
                said = now
                on_busy(f"database {path} is locked by another process; trying again for {now - started:.0f} s")
            time.sleep(0.01)


def connect_writer(path: Path, durability: Durability) -> sqlite3.Connection:
    """A connection that may write; transactions are begun by hand. Raises sqlite3.Error, also if the file is busy."""
    connection = sqlite3.connect(
        path, timeout=1.0, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        connection.execute("PRAGMA synchronous=" + ("FULL" if durability == "full" else "NORMAL"))
        connection.execute("PRAGMA wal_autocheckpoint=4000")
        connection.execute(f"PRAGMA journal_size_limit={_WAL_LIMIT}")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA temp_store=MEMORY")
    except BaseException:
        connection.close()
        raise
    if mode != "wal":
        connection.close()
        raise Unavailable(f"database {path}: its file system does not allow write-ahead logging")
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=5.0,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.execute("PRAGMA query_only=ON")
    connection.execute("PRAGMA temp_store=MEMORY")
    return connection
