"""Lines of requests that wait until others have settled, one for each limit that is full.

The law of the file: first come, first served; whoever leaves, however, makes room for the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

POLL = 0.25
"""Seconds after which it is looked again, since another process may have settled something."""


@dataclass(slots=True)
class _Line:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    people: int = 0


class Lines:
    """The lines of one process."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}
        self._settled = asyncio.Event()

    def first(self, limits: Iterable[Hashable]) -> Hashable | None:
        """The first of these limits for which somebody waits."""
        return next((limit for limit in limits if limit in self._lines), None)

    @asynccontextmanager
    async def ahead(self, limit: Hashable) -> AsyncIterator[None]:
        """Wait to be the first in the line of a limit, and stay it inside."""
        line = self._lines.setdefault(limit, _Line())
        line.people += 1
        try:
            async with line.lock:
                yield
        finally:
            line.people -= 1
            if not line.people:
                del self._lines[limit]

    async def change(self) -> None:
        """Return when something was settled here, or may have been elsewhere."""
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL):
                await self._settled.wait()

    def settled(self) -> None:
        """Tell those who wait that there may be room."""
        self._settled.set()
        self._settled = asyncio.Event()
