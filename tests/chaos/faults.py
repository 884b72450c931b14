"""Faults that are put into a worker's engine on purpose, to see that the storm finds them: `--fault NAME`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable

from stepwell.interpreter.effect import ToolCall
from stepwell.ports import Batch, Lease
from stepwell.stores.sqlite import SqliteRunStore, claiming


def take_the_living_for_dead() -> None:
    """One time in twenty, a process that lives is known to be dead: two owners."""
    known_dead = claiming.known_dead
    claiming.known_dead = lambda process: random.random() < 0.05 or known_dead(process)


def drop_writes() -> None:
    """One write in a hundred is acknowledged and not made."""
    append = SqliteRunStore.append

    def dropping(self: SqliteRunStore, lease: Lease, batch: Batch) -> Awaitable[int]:
        if batch.open or batch.consume or random.random() > 0.01:
            return append(self, lease, batch)
        dropped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        dropped.set_result(1)
        return dropped

    setattr(SqliteRunStore, "append", dropping)  # noqa: B010 -- mypy knows that a method is replaced


def repeat_everything() -> None:
    """Calls that may not be repeated are taken for calls that may."""
    setattr(ToolCall, "again", lambda _: True)  # noqa: B010 -- the same


FAULTS = {"owners": take_the_living_for_dead, "writes": drop_writes, "repeats": repeat_everything}
