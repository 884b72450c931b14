"""Makes the vectors that are missing, one batch after the other, while others go on.

The law of the file: it keeps nothing that the store does not keep, so that it may end at any moment; that there is no
model, or that it fails, is said and stops nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from stepwell.errors import StepFailed, Unavailable

if TYPE_CHECKING:
    from stepwell.errors import Problem
    from stepwell.ports import Embedder

LONGEST_QUERY = 2000
"""Characters of a query whose meaning is looked for."""
_PATIENCE = 5.0
"""Seconds that are waited before a model that failed is tried again."""


class Waiting(Protocol):
    """A passage that waits for its vector."""

    def told(self) -> str:
        """What of it is embedded."""


P = TypeVar("P", bound=Waiting)


class VectorMaker(Generic[P]):
    """One store's. `missing` gives the next passages, `keep` takes their vectors.

    `disown` puts those that another model made among the missing.
    """

    def __init__(
        self,
        embedder: Embedder | None,
        missing: Callable[[], Awaitable[list[P]]],
        keep: Callable[[Sequence[tuple[P, Sequence[float]]]], Awaitable[None]],
        disown: Callable[[], Awaitable[None]],
    ) -> None:
        self.model = embedder.identity if embedder is not None else ""
        self._embedder = embedder
        self._missing = missing
        self._keep = keep
        self._disown = disown
        self._looked = False
        self._failed = ""
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def problem(self) -> str:
        """Why no vectors are made, or ""."""
        if self._embedder is None:
            return "no embedding model is configured"
        problems: list[Problem] = getattr(self._embedder, "available", list)()
        return str(problems[0].message) if problems else self._failed

    def wake(self) -> None:
        """Go to work in the background, if there is a model and nobody is at it."""
        if self._task is not None and not self._task.done():
            self._again = True
            return
        if self._embedder is None or getattr(self._embedder, "available", list)():
            return
        self._task = asyncio.get_running_loop().create_task(self._work(), name="stepwell-vectors")

    async def query(self, text: str) -> list[float] | None:
        """The vector of a query; None where there is no model, or it failed, or there is nothing to look for."""
        if self._embedder is None or not text.strip() or getattr(self._embedder, "available", list)():
            return None
        self.wake()
        try:
            vector = (await self._embedder.queries([text[:LONGEST_QUERY]]))[0]
        except StepFailed as failure:
            self._failed = failure.message
            return None
        self._failed = ""
        return vector

    async def make_all(self, told: Callable[[int], None] | None = None) -> int:
        """Make all that are missing; returns how many were. Raises StepFailed."""
        if self._embedder is None:
            raise StepFailed("not_found", "no embedding model is configured")
        await self.aclose()
        if not self._looked:
            await self._disown()
            self._looked = True
        made = 0
        while found := await self._missing():
            made += await self._make(self._embedder, found)
            if told is not None:
                told(made)
        return made

    async def aclose(self) -> None:
        """End the work in the background; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _make(self, embedder: Embedder, found: list[P]) -> int:
        rows = await embedder.passages([one.told() for one in found])
        await self._keep(list(zip(found, rows, strict=True)))
        self._failed = ""
        return len(found)

    async def _work(self) -> None:
        assert self._embedder is not None
        while True:
            self._again = failed = False
            try:
                if not self._looked:
                    await self._disown()
                    self._looked = True
                while found := await self._missing():
                    await self._make(self._embedder, found)
            except Unavailable as failure:  # the database is closed, or does not work: others say so
                self._failed = str(failure)
                return
            except Exception as failure:  # noqa: BLE001 -- text is found without vectors; doctor tells why there are none
                self._failed = f"{type(failure).__name__}: {failure}"
                failed = True
                await asyncio.sleep(_PATIENCE)
            if not self._again and not failed:
                return
