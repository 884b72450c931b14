"""Flights: effects while they are being performed.

The law of the file: however a performer ends, its attempt says how; only the store's failure and a cancellation leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from stepwell.errors import StepFailed, Unavailable
from stepwell.interpreter.normalise import normalised_json

if TYPE_CHECKING:
    from stepwell.engine.performer import CallContext, Performer
    from stepwell.interpreter.effect import Effect
    from stepwell.interpreter.runtime import Attempt


LAST_WORD = 0.25
"""Seconds by which a performer, which keeps the timeout itself, may say more of it than that it passed."""


async def fly(
    performer: Performer, effect: Effect, context: CallContext, attempt: Attempt, clock: Callable[[], float]
) -> None:
    """Perform an effect within `context.timeout` seconds and put the result, or the failure, into `attempt`."""
    try:
        async with asyncio.timeout(context.timeout + LAST_WORD):
            performed = await performer(effect, context)
        attempt.value, attempt.text = normalised_json(performed.value)
        attempt.meta, attempt.outgoing = performed.meta, performed.outgoing
    except StepFailed as failure:
        attempt.failure = failure
        usage = failure.detail.get("usage") if isinstance(failure.detail, dict) else None
        attempt.meta = usage if isinstance(usage, dict) else None
    except TimeoutError:
        attempt.failure = StepFailed("timeout", f"no result within {context.timeout:g} s")
    except Unavailable:
        raise
    except Exception as error:  # noqa: BLE001 -- a fault of an adapter is this step's failure, not the engine's
        attempt.failure = StepFailed("tool_error", f"{type(error).__name__}: {error}")
    attempt.ended = max(attempt.started, clock())
