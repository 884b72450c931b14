"""How a store lets those who wait in this process know that something happened."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary


class Announcements:
    """A count that grows, and waiting for it; `announce` may be called in any thread."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def announce(self) -> None:
        """Wake whoever waits."""
        self.count += 1
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            with suppress(RuntimeError):  # a loop that is closed waits for nothing
                future.get_loop().call_soon_threadsafe(_wake, future)

    async def beyond(self, count: int, seconds: float) -> None:
        """Wait until the count is another than `count`, at most this many seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            if self.count == count:
                await asyncio.wait((future,), timeout=seconds)
        finally:
            self._waiting.discard(future)


class Seen:
    """Which number every task saw last, so that one that looks does not take a change away from another.

    A task that looks for the first time begins with what any task has seen until then.
    """

    def __init__(self) -> None:
        self._newest = 0
        self._of: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()

    def last(self) -> int:
        """What the running task saw last."""
        task = asyncio.current_task()
        return self._newest if task is None else self._of.setdefault(task, self._newest)

    def see(self, number: int) -> None:
        """The running task has seen this number."""
        self._newest = max(self._newest, number)
        if (task := asyncio.current_task()) is not None:
            self._of[task] = number


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
