"""The clock of the engine: three readings of time, and what each of them is good for.

The law of the file: nothing in the engine reads time but through a `Clock`. Durations are differences of `monotonic`
or of a pass's `steady` clock, never of `now`, which people and machines may set at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from stepwell.ports import Clock


class SystemClock:
    """The clock of this machine."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    uptime: Callable[[], float] = staticmethod(
        partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
    )


SYSTEM = SystemClock()


def steady(clock: Clock) -> Callable[[], float]:
    """UTC seconds, read once and counted on from there: whoever sets the clock changes nothing for what is under way.

    Every pass has its own, so that the times of its steps fit together whatever happens to the wall clock meanwhile.
    """
    uptime = clock.uptime
    ahead = clock.now() - uptime()
    return lambda: ahead + uptime()


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How long leases live without being renewed, and how often they are renewed and due runs looked for (seconds)."""

    ttl: float = 15.0
    renew: float = 5.0
    sweep: float = 5.0


USUAL = Rhythm()
