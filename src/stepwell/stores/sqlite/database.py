"""A database file: one thread writes, a few read, several processes share it.

The law of the file: every write runs in a transaction that was begun IMMEDIATE, so that it never fails halfway because
another process writes; every read sees one instant.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from stepwell.errors import Unavailable
from stepwell.stores.announcements import Announcements
from stepwell.stores.sqlite.connection import (
    BusyLine,
    Durability,
    connect_reader,
    connect_writer,
    is_of_the_statement,
    patiently,
    unavailable,
)
from stepwell.stores.sqlite.file import OpenFile
from stepwell.stores.sqlite.migration import migrate, migrations_in
from stepwell.stores.sqlite.writer import Operation, Writer

T = TypeVar("T")
PATIENCE = 30.0
"""For how many seconds a write waits for a file that another process keeps locked, or for room on a full disk."""
_READERS = 3


class Database:
    """An SQLite file that is open. Stores on it share it, and whoever opened it closes it."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, *, patience: float, on_busy: BusyLine | None
    ) -> None:
        self.path = path
        self._file = OpenFile(path)
        self.announcements = Announcements()
        """Of commits of this process that others may want to know of."""
        self._patience = patience
        self._on_busy = on_busy
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="stepwell-reader")
        self._local = threading.local()
        self._reading: list[sqlite3.Connection] = []
        self._now: sqlite3.Connection | None = None
        self._now_lock = threading.Lock()
        self._closed = False
        self._connection = connection
        self._writer = Writer(
            self._file, connection, patience=patience, on_busy=on_busy, announce=self.announcements.announce
        )

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        durability: Durability = "full",
        patience: float = PATIENCE,
        on_busy: BusyLine | None = None,
    ) -> Database:
        """Open or create the file; blocks, for at most `patience` seconds. Raises Unavailable.

        `on_busy` gets a line a second while another process keeps the file locked or the disk is full; it is called in
        other threads. A file that holds another program's tables is refused and left as it is.
        """
        if str(path) == ":memory:":
            raise Unavailable(":memory: names no file, and a database is one, so that other processes find it")
        path = Path(path).absolute()
        try:
            connection = patiently(path, lambda: connect_writer(path, durability), patience=patience, on_busy=on_busy)
        except sqlite3.Error as error:
            raise unavailable(path, error) from error
        return cls(path, connection, patience=patience, on_busy=on_busy)

    def migrate(self, part: str, folder: Path) -> int:
        """Apply the missing ones of the numbered .sql files in `folder`; returns how many. Blocks; raises Unavailable.

        To be called before the database is used: `part` names what the files are about, and counts for itself.
        """
        migrations = migrations_in(folder)
        self._file.check()
        try:
            connection = sqlite3.connect(self.path, timeout=1.0, isolation_level=None)
            try:
                return patiently(
                    self.path,
                    lambda: migrate(connection, part, migrations),
                    patience=self._patience,
                    on_busy=self._on_busy,
                )
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise unavailable(self.path, error) from error

    def submit(
        self,
        act: Callable[[sqlite3.Connection], T],
        *,
        size: int = 256,
        indivisible: bool = False,
        announces: bool = False,
    ) -> asyncio.Future[T]:
        """Hand a write over before this returns; the future is resolved when it is durable. See `Operation`."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._writer.submit(Operation(act, future, size, indivisible, announces))
        return future

    async def write(self, act: Callable[[sqlite3.Connection], T], *, size: int = 256, announces: bool = False) -> T:
        """Run `act` in the writer's transaction; its own writes are undone if it raises. Returns when it is durable.

        Raises Unavailable, and whatever `act` raises. `act` runs in another thread, quickly and perhaps more than once.
        """
        return await self.submit(act, size=size, announces=announces)

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run `query` on a connection that sees one instant and cannot write. Raises Unavailable."""
        if self._closed:
            raise Unavailable(f"database {self.path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_here, query)

    def read_now(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """The same, in the calling thread and blocking."""
        with self._now_lock:
            if self._closed:
                raise Unavailable(f"database {self.path} is closed")
            if self._now is None:
                self._now = self._connect_reader()
            return self._read(self._now, query)

    async def close(self) -> None:
        """Write what was handed over, checkpoint and close; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._writer.refuse()
        await asyncio.get_running_loop().run_in_executor(None, self._close_here)

    def _close_here(self) -> None:
        self._readers.shutdown()
        with self._now_lock:
            for connection in (*self._reading, *((self._now,) if self._now else ())):
                connection.close()
        self._writer.stop()

    def _read_here(self, query: Callable[[sqlite3.Connection], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect_reader()
            self._reading.append(connection)
        return self._read(connection, query)

    def _connect_reader(self) -> sqlite3.Connection:
        self._file.check()
        try:
            return connect_reader(self.path)
        except sqlite3.Error as error:
            raise unavailable(self.path, error) from error

    def _read(self, connection: sqlite3.Connection, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection.execute("BEGIN")
            try:
                return query(connection)
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if is_of_the_statement(error):
                raise
            raise unavailable(self.path, error) from error
