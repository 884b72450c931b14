"""Performs notifications: they are stored with the step's entry, and delivered by others afterwards."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stepwell.engine.performer import CallContext, Performed
from stepwell.interpreter.effect import Effect, Notify
from stepwell.ports import Outgoing

if TYPE_CHECKING:
    from collections.abc import Callable


class NotifyPerformer:
    """Gives null at once; the notification goes into the transaction that records the step, once per step and round."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    async def __call__(self, effect: Effect, context: CallContext) -> Performed:
        """Never fails: what becomes of the notification is told by its delivery record."""
        if not isinstance(effect, Notify):
            raise TypeError(f"a notification is wanted, this is {type(effect).__name__}")
        outgoing = Outgoing(
            key=context.key,
            channel="app",
            to=effect.to,
            subject=effect.subject,
            body={"message": effect.message},
            priority=effect.priority,
            at=self._clock(),
            run_id=context.run_id,
            path=context.path,
        )
        return Performed(None, outgoing=(outgoing,))
