"""What happens at an instant, in the order of instants, so that nobody looks at what is not due yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class Agenda(Generic[T]):
    """Things by the instant (UTC seconds) at which they are due; `counts` says whether a thing still is.

    What counts no more is not searched for and taken out: it is dropped when its turn comes.
    """

    def __init__(self, counts: Callable[[float, T], bool]) -> None:
        self._counts = counts
        self._heap: list[tuple[float, int, int, T]] = []
        self._added = count()

    def add(self, instant: float, thing: T, rank: int = 0) -> None:
        """A thing is due at an instant; among equal instants the lowest `rank` is first, then what was added first."""
        heappush(self._heap, (instant, rank, next(self._added), thing))

    def due(self, now: float) -> Iterator[T]:
        """Take out what is due by now, one by one, the longest due first."""
        while self._heap and self._heap[0][0] <= now:
            instant, _, _, thing = heappop(self._heap)
            if self._counts(instant, thing):
                yield thing

    def next(self, after: float) -> float:
        """The first instant after `after` at which something is due; 0 if nothing is."""
        heap, counts = self._heap, self._counts
        while heap and not counts(heap[0][0], heap[0][3]):
            heappop(heap)
        if not heap or heap[0][0] > after:
            return heap[0][0] if heap else 0.0
        later = (instant for instant, _, _, thing in heap if instant > after and counts(instant, thing))
        return min(later, default=0.0)
