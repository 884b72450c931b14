"""A store that sees every append of an engine, and may be told to kill it after one of them.

The law of the file: what was appended before the end is durable; after it the engine reaches the store no more, as if
its process had been killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from stepwell.ports import Batch, Lease, Loaded, RunStore, Verdict, Wait


class MortalStore:
    """`RunStore` over another one. `opened` hears of every wait once it is durable."""

    def __init__(self, inner: RunStore, opened: Callable[[Wait], None], *, dies_after: int = 0) -> None:
        """`dies_after` counts appends from 1; 0 is never."""
        self._inner = inner
        self._opened = opened
        self._dies_after = dies_after
        self.appends = 0
        self.dead = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return _gone if self.dead.is_set() else getattr(self._inner, name)

    def append(self, lease: Lease, batch: Batch) -> Awaitable[int]:
        if self.dead.is_set():
            return _gone()
        written = self._inner.append(lease, batch)
        self.appends += 1
        if self.appends == self._dies_after:
            self.dead.set()
            return _dying(written)
        return self._telling(written, batch) if batch.open else written

    async def _telling(self, written: Awaitable[int], batch: Batch) -> int:
        order = await written
        for wait in batch.open:
            self._opened(wait)
        return order

    async def load(self, lease: Lease) -> Loaded:
        loaded = await (_gone() if self.dead.is_set() else self._inner.load(lease))
        for wait in loaded.waits:  # opened by an engine before this one
            self._opened(wait)
        return loaded

    async def release(self, lease: Lease, batch: Batch, verdict: Verdict) -> bool:
        if self.dead.is_set():
            await _gone()
        released = await self._inner.release(lease, batch, verdict)
        self.appends += 1
        if self.appends == self._dies_after:
            self.dead.set()
            await _gone()
        return released

    async def close(self) -> None:
        """The store outlives its engines."""


async def _gone(*_given: object, **_named: object) -> Any:
    raise asyncio.CancelledError


async def _dying(written: Awaitable[int]) -> int:
    await written
    raise asyncio.CancelledError
