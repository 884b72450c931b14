"""How a connection to the database file is opened, and what its errors mean."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from stepwell.errors import Unavailable
from stepwell.stores.sqlite.file import refuse_foreign, refuse_foreign_file

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
_NO_ROOM = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP)
"""Extended codes: what a quota, a limit of the process or a full tmpfs is told as instead of SQLITE_FULL."""
_BUSY_PAUSE = 0.01
_FULL_PAUSE = 0.2
_WAL_LIMIT = 64 * 1024 * 1024


def _code(error: sqlite3.Error) -> int:
    """The primary result code (https://sqlite.org/rescode.html); SQLITE_MISUSE for errors of the Python module."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection is at work and the same call may succeed later."""
    return _code(error) in _BUSY


def lacks_room(error: sqlite3.Error) -> bool:
    """Whether the same call may succeed once there is room on the disk."""
    return _code(error) == sqlite3.SQLITE_FULL or getattr(error, "sqlite_errorcode", 0) in _NO_ROOM


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
        case sqlite3.SQLITE_IOERR if lacks_room(error):
            reason = "it cannot be written any further; is the disk full?"
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
    """Make an attempt again until the file is free and has room, with a line a second to `on_busy`.

    An attempt that fails must have undone what it did. Raises Unavailable after `patience` seconds; other errors of
    SQLite pass.
    """
    started = said = time.monotonic()
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            now = time.monotonic()
            busy = is_busy(error)
            if not busy and not lacks_room(error):
                raise
            if now - started >= patience:
                raise unavailable(path, error) from error
            if now - said >= 1 and on_busy is not None:
                said = now
                state = "is locked by another process" if busy else "cannot grow: the disk or the database is full"
                on_busy(f"database {path} {state}; trying again for {now - started:.0f} s")
            time.sleep(_BUSY_PAUSE if busy else _FULL_PAUSE)


def connect_writer(path: Path, durability: Durability) -> sqlite3.Connection:
    """A connection that may write; transactions are begun by hand.

    Raises Unavailable, also for a database that is not ours, and sqlite3.Error, also if the file is busy.
    """
    refuse_foreign_file(path)
    connection = sqlite3.connect(
        path, timeout=1.0, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        refuse_foreign(path, connection)
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
