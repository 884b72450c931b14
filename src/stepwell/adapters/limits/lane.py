"""A lane: the calls of one account, in the order they came, each waiting for a slot or holding one.

The law of the file: whatever ends a call, `end` takes it out of where it stands, once; a slot is never handed to a call
that nobody awaits any more, nor kept by one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class Lane:
    """Calls by their ids; ids are the caller's to choose."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._holding: set[str] = set()

    @property
    def waiting(self) -> Collection[str]:
        """Ids of calls that want a slot, oldest first."""
        return self._waiting.keys()

    @property
    def holding(self) -> Collection[str]:
        return self._holding

    @property
    def empty(self) -> bool:
        return not self._waiting and not self._holding

    def want(self, call: str) -> asyncio.Future[None]:
        """Queue up; the future is done once the call holds a slot."""
        future = self._waiting[call] = asyncio.get_running_loop().create_future()
        return future

    def give(self, call: str) -> bool:
        """Give a slot to a call that waits; false if it does not wait any more."""
        future = self._waiting.pop(call, None)
        if future is None:
            return False
        if future.done():  # cancelled, and whoever awaited it has not come to say so
            return False
        self._holding.add(call)
        future.set_result(None)
        return True

    def give_up_to(self, limit: int) -> int:
        """Give slots to those who came first, as long as fewer than `limit` are held. Returns how many."""
        given = 0
        while self._waiting and len(self._holding) < limit:
            given += self.give(next(iter(self._waiting)))
        return given

    def refuse(self, problem: Callable[[], Exception]) -> None:
        """Tell everyone who waits that there will be no slot."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(problem())

    def end(self, call: str) -> None:
        """The call is over, or wants no slot any more. Saying so again changes nothing."""
        self._waiting.pop(call, None)
        self._holding.discard(call)
