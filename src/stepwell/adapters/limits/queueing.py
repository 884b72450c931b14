"""Time in a queue: what a call waited for slots, and a deadline that stands still meanwhile.

The law of the file: waiting for a slot is nobody's working time, wherever below the call it happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class Queueing:
    """What the calls made inside `watching` waited for slots, in seconds; `told` hears when a wait begins and ends."""

    def __init__(self, told: Callable[[bool], None] | None = None) -> None:
        self.seconds = 0.0
        self._told = told or _nobody
        self._deadline: asyncio.Timeout | None = None

    @contextmanager
    def watching(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Hold `deadline` still while something in this context waits for a slot."""
        self._deadline = deadline
        outer = _WATCHING.set(self)
        try:
            yield
        finally:
            _WATCHING.reset(outer)
            self._deadline = None

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        begun, deadline = loop.time(), self._deadline
        until = deadline.when() if deadline is not None else None
        if deadline is not None and until is not None:
            deadline.reschedule(None)
        self._told(True)
        try:
            yield
        finally:
            self._told(False)
            waited = loop.time() - begun
            self.seconds += waited
            if deadline is not None and until is not None:
                deadline.reschedule(until + waited)


def _nobody(waits: bool) -> None:  # noqa: FBT001 -- the one thing that is told
    """Hear nothing."""


_WATCHING: ContextVar[Queueing | None] = ContextVar("queueing", default=None)


async def granted(slot: asyncio.Future[Any]) -> None:
    """Wait for a slot, as time in a queue."""
    watching = _WATCHING.get()
    if slot.done() or watching is None:
        await slot
        return
    with watching._waiting():  # noqa: SLF001 -- the two are one thing
        await slot
