"""A lane whose slots are given elsewhere: it knows what is still to be told there.

The law of the file: whatever changes is untold until a telling of it has been answered.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepwell.adapters.limits.lane import Lane

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Telling:
    """What is told of the calls of one account: those that are over, that hold a slot, that want one."""

    over: Sequence[str]
    holding: Sequence[str]
    waiting: Sequence[str]


class SharedLane(Lane):
    """A lane with what is untold of it."""

    def __init__(self) -> None:
        super().__init__()
        self._untold: set[str] = set()
        self._over: dict[str, float] = {}
        """Calls that are over, with the time at which they were."""

    @property
    def quiet(self) -> bool:
        """Whether there is nothing to tell."""
        return not self._untold and not self._over

    def want(self, call: str) -> asyncio.Future[None]:
        self._untold.add(call)
        return super().want(call)

    def give(self, call: str) -> bool:
        self._untold.add(call)
        return super().give(call)

    def end(self, call: str) -> None:
        super().end(call)
        self._untold.discard(call)
        self._over[call] = asyncio.get_running_loop().time()

    def tell_again(self, calls: Iterable[str] = ()) -> None:
        """All that wait or hold a slot are to be told (again), or those of `calls` that still do."""
        known = {*self.waiting, *self.holding}
        self._untold |= known.intersection(calls) if calls else known

    def telling(self) -> Telling:
        holding = [call for call in self.holding if call in self._untold]
        waiting = [call for call in self.waiting if call in self._untold]
        return Telling([*self._over], holding, waiting)

    def answered(self, telling: Telling, given: Iterable[str]) -> None:
        """Note that a telling was answered, and by which of the calls that waited a slot is held now."""
        for call in telling.over:
            self._over.pop(call, None)
        self._untold.difference_update(call for call in telling.holding if call in self.holding)
        self._untold.difference_update(call for call in telling.waiting if call in self.waiting)
        for call in given:
            if call in self.waiting:
                self.give(call)
                self._untold.discard(call)

    def forget(self, older: float) -> None:
        """Forget calls that were over before a time: the leases of them have lapsed by themselves."""
        self._over = {call: at for call, at in self._over.items() if at > older}
