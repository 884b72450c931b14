"""Announcing: what a pass is doing is written now and then for others to see, although nobody needs it to go on.

The law of the file: nothing waits for it; that it cannot be written ends the pass as any other write would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft

if TYPE_CHECKING:
    from stepwell.engine.flight import Flights
    from stepwell.engine.ledger import Ledger

ANNOUNCE = 1.0
"""Seconds after which a step that still runs, and what rides along, is written for others to see.

Not less: on a busy machine every step would take longer than that, be written twice, and make it busier.
"""


class Announcer:
    """Announces the steps of one pass that run for a while, and what rides along."""

    def __init__(
        self,
        flights: Flights,
        ledger: Ledger,
        append: Callable[[], Awaitable[int]],
        clock: Callable[[], float],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`append` writes what rides; `fail` is told why that did not work."""
        self._flights = flights
        self._ledger = ledger
        self._append = append
        self._clock = clock
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._ticker: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        """See to it that what is going on is announced before long."""
        if self._ticker is None:
            self._ticker = self._loop.call_later(ANNOUNCE, self._announce)

    def close(self) -> None:
        """Announce nothing more."""
        if self._ticker is not None:
            self._ticker.cancel()

    def _announce(self) -> None:
        self._ticker = None
        now = self._clock()
        unsaid = [
            (paths.start(path), attempt)
            for path, attempt in self._flights.aloft.items()
            if paths.start(path) not in self._ledger.outcomes
        ]
        for place, attempt in unsaid:
            if now - attempt.started >= ANNOUNCE / 2:
                meta = {"waited_for": "model_calls", "at": now} if attempt.queued else None
                draft = Draft(place, "started", Body(started=attempt.started, attempts=attempt.number, meta=meta))
                self._ledger.ride(draft, quietly=True)
        if self._ledger.rides:
            appended = asyncio.ensure_future(self._append())
            appended.add_done_callback(self._announced)
        if any(place not in self._ledger.outcomes for place, _ in unsaid):
            self.arm()

    def _announced(self, appended: asyncio.Future[int]) -> None:
        if not appended.cancelled() and (problem := appended.exception()) is not None:
            self._fail(problem)
