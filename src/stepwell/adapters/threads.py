"""Threads for calls that block: reused while they come back, replaced when they do not.

The law of the file: a thread that never ends holds up nobody, neither the next call nor the end of the process.
(`concurrent.futures` keeps both waiting.)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeAlias

_Job: TypeAlias = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]
_IDLE = 16


class Threads:
    """Daemon threads, one per call in progress; at most 16 are kept for the next call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[SimpleQueue[_Job]] = []
        self._lock = threading.Lock()
        self._count = 0

    def submit(self, run: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `run` in a thread. It must not raise; a cancelled future does not stop it, its result is dropped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            queue = self._idle.pop() if self._idle else None
        if queue is None:
            queue = SimpleQueue()
            self._count += 1
            name = f"{self._name}-{self._count}"
            threading.Thread(target=self._work, args=(queue,), name=name, daemon=True).start()
        queue.put((run, future, loop))
        return future

    def _work(self, queue: SimpleQueue[_Job]) -> None:
        while True:
            run, future, loop = queue.get()
            result = run()
            with self._lock:
                keep = len(self._idle) < _IDLE
                if keep:
                    self._idle.append(queue)
            with suppress(RuntimeError):  # the loop was closed: nobody waits for the result any more
                loop.call_soon_threadsafe(_resolve, future, result)
            del run, future, loop, result
            if not keep:
                return


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)
