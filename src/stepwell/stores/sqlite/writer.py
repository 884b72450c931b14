"""The one thread that writes to the database file, in groups.

The law of the file: what an event loop hands over within one tick arrives together and in order; a future is resolved
after the commit; an operation that fails takes nothing of its group with it, and a file that fails takes all of it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from stepwell.errors import Unavailable
from stepwell.stores.sqlite.connection import BusyLine, is_of_the_statement, patiently, unavailable
from stepwell.stores.sqlite.file import OpenFile

GROUP_OPERATIONS = 1000
GROUP_BYTES = 4 * 1024 * 1024
_WAL_BOUND = 64 * 1024 * 1024
_LOOK_AT_WAL = 1.0

Loop: TypeAlias = asyncio.AbstractEventLoop


@dataclass(slots=True)
class Operation:
    """Something to be done within the writer's transaction.

    `indivisible` says that it checks before it writes and writes in one statement, so that it needs no savepoint;
    `announces` that others may want to know of it; `size` is in bytes and bounds the group.
    """

    act: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    size: int = 256
    indivisible: bool = False
    announces: bool = False


_Outcome: TypeAlias = tuple[asyncio.Future[Any], Any, BaseException | None]


class Writer:
    """Owns the writing connection from `start` to `stop`."""

    def __init__(
        self,
        file: OpenFile,
        connection: sqlite3.Connection,
        *,
        patience: float,
        on_busy: BusyLine | None,
        announce: Callable[[], None],
    ) -> None:
        self._file = file
        self._path = path = file.path
        self._wal = path.with_name(path.name + "-wal")
        self._connection = connection
        self._patience = patience
        self._on_busy = on_busy
        self._announce = announce
        self._ticks: dict[Loop, list[Operation]] = {}
        self._queue: SimpleQueue[list[Operation] | None] = SimpleQueue()
        self._stopping = False
        self._looked_at_wal = 0.0
        self._thread = threading.Thread(target=self._serve, name="stepwell-writer", daemon=True)
        self._thread.start()

    def submit(self, operation: Operation) -> None:
        """Hand an operation over with what else the event loop does in this tick. Raises Unavailable after `stop`."""
        if self._stopping:
            raise Unavailable(f"database {self._path} is closed")
        loop = operation.future.get_loop()
        tick = self._ticks.get(loop)
        if tick is None:
            self._ticks[loop] = [operation]
            loop.call_soon(self._hand_over, loop)
        else:
            tick.append(operation)

    def refuse(self) -> None:
        """Take nothing more."""
        self._stopping = True
        for loop in list(self._ticks):
            self._hand_over(loop)

    def stop(self) -> None:
        """Write what was handed over, shorten the write-ahead log and close; blocks."""
        self.refuse()
        self._queue.put(None)
        self._thread.join()

    def _hand_over(self, loop: Loop) -> None:
        tick = self._ticks.pop(loop, None)
        if tick:
            self._queue.put(tick)

    def _serve(self) -> None:
        backlog: deque[Operation] = deque()
        open_ended = True
        while open_ended or backlog:
            open_ended = self._fill(backlog, open_ended=open_ended)
            if backlog:
                self._deliver(self._commit(_group(backlog)))
                self._bound_wal()
        with suppress(sqlite3.Error):  # readers elsewhere may keep the log; it is shortened by whoever closes last
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._connection.close()

    def _fill(self, backlog: deque[Operation], *, open_ended: bool) -> bool:
        while open_ended:
            try:
                tick = self._queue.get(block=not backlog)
            except Empty:
                break
            if tick is None:
                return False
            backlog.extend(tick)
        return open_ended

    def _commit(self, group: list[Operation]) -> list[_Outcome]:
        try:
            outcomes = patiently(
                self._path, lambda: self._attempt(group), patience=self._patience, on_busy=self._on_busy
            )
        except (sqlite3.Error, Unavailable) as error:
            failure = error if isinstance(error, Unavailable) else unavailable(self._path, error)
            return [(operation.future, None, failure) for operation in group]
        if any(operation.announces for operation in group):
            self._announce()
        return outcomes

    def _attempt(self, group: list[Operation]) -> list[_Outcome]:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            outcomes = [self._perform(operation) for operation in group]
            self._file.check()
            connection.execute("COMMIT")
        except (sqlite3.Error, Unavailable):
            if connection.in_transaction:
                with suppress(sqlite3.Error):  # what failed is told, and an open transaction ends with the next try
                    connection.execute("ROLLBACK")
            raise
        return outcomes

    def _perform(self, operation: Operation) -> _Outcome:
        connection = self._connection
        if not operation.indivisible:
            connection.execute("SAVEPOINT operation")
        result, failure = None, None
        try:
            result = operation.act(connection)
        except BaseException as error:
            if isinstance(error, sqlite3.Error) and not is_of_the_statement(error):
                raise
            failure = error
            if not operation.indivisible:
                connection.execute("ROLLBACK TO operation")
        if not operation.indivisible:
            connection.execute("RELEASE operation")
        return operation.future, result, failure

    def _deliver(self, outcomes: list[_Outcome]) -> None:
        loops: dict[Loop, list[_Outcome]] = {}
        for outcome in outcomes:
            loops.setdefault(outcome[0].get_loop(), []).append(outcome)
        for loop, told in loops.items():
            with suppress(RuntimeError):  # a loop that is closed has nobody left to tell
                loop.call_soon_threadsafe(_resolve, told)

    def _bound_wal(self) -> None:
        """Shorten the log if a long reader kept the automatic checkpoints from starting it anew."""
        now = time.monotonic()
        if now - self._looked_at_wal < _LOOK_AT_WAL:
            return
        self._looked_at_wal = now
        with suppress(OSError, sqlite3.Error):  # tried again in a second
            if self._wal.stat().st_size > _WAL_BOUND:
                self._connection.execute("PRAGMA busy_timeout=100")
                try:
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                finally:
                    self._connection.execute("PRAGMA busy_timeout=1000")


def _group(backlog: deque[Operation]) -> list[Operation]:
    group: list[Operation] = []
    size = 0
    while backlog and len(group) < GROUP_OPERATIONS and (not group or size + backlog[0].size <= GROUP_BYTES):
        operation = backlog.popleft()
        size += operation.size
        group.append(operation)
    return group


def _resolve(outcomes: list[_Outcome]) -> None:
    for future, result, failure in outcomes:
        if future.done():
            continue
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
