"""A wall clock that somebody sets again and again, hours forward and back, for one process.

The law of the file: only the wall clock jumps; `monotonic` and `uptime` are the machine's, as they are wherever a
clock is set. Once the storm is over, every clock is ahead of whatever was set before, so that all deadlines pass.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import stepwell.engine.assemble as assembling
from stepwell.engine.clock import SystemClock
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.stores.sqlite.database import Database

FARTHEST = 10 * 3600.0
AFTERWARDS = 11 * 3600.0


class LooseClock:
    """`now` is UTC seconds since 1970, as somebody has set them. Each jump is told in a file, one line by one write."""

    def __init__(self, told: Path, calm: Path) -> None:
        self._told = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._calm = calm
        self._ahead = 0.0
        self._next = 0.0

    def now(self) -> float:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + random.uniform(0.2, 3.0)
            self._set(AFTERWARDS if self._calm.exists() else self._chosen())
        return time.time() + self._ahead

    def _chosen(self) -> float:
        """Ten minutes around the true time, or ten hours, or the true time."""
        return random.choice([0.0, random.uniform(-600, 600), random.uniform(-FARTHEST, FARTHEST)])

    def _set(self, ahead: float) -> None:
        if ahead != self._ahead:
            self._ahead = ahead
            os.write(self._told, f"{os.getpid()} {ahead:.0f}\n".encode())


def let_loose(told: Path, calm: Path) -> None:
    """Give every engine of this process such a clock: the engine and its store read the same one."""
    clock = LooseClock(told, calm)
    setattr(SystemClock, "now", clock.now)  # noqa: B010 -- the clock of the world, an instance of this class

    class Store(SqliteRunStore):
        @classmethod
        def open(cls, *given: Any, **more: Any) -> SqliteRunStore:
            return SqliteRunStore(Database.open(*given, **more), clock=clock.now)

    vars(assembling)["SqliteRunStore"] = Store
