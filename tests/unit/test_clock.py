"""The clock of the engine when somebody sets the clock of the machine."""

from __future__ import annotations

import pytest

from stepwell.engine.clock import SYSTEM, steady
from stepwell.testing.store_builders import ManualClock


class SetClock:
    """A clock whose wall time is set by the test; the other readings go on."""

    monotonic = staticmethod(SYSTEM.monotonic)

    def __init__(self) -> None:
        self.now = ManualClock(1_000_000.0)
        self.uptime = ManualClock(50.0)


@pytest.mark.parametrize("jump", [-43_200.0, 43_200.0])
def test_a_steady_clock_is_read_once_and_counted_on(jump: float) -> None:
    clock = SetClock()
    read = steady(clock)
    assert read() == 1_000_000.0
    clock.now.now += jump
    clock.uptime.now += 2.5
    assert read() == 1_000_002.5


def test_the_clock_of_the_machine_goes_on() -> None:
    first = (SYSTEM.now(), SYSTEM.monotonic(), SYSTEM.uptime())
    second = (SYSTEM.now(), SYSTEM.monotonic(), SYSTEM.uptime())
    assert second[1] >= first[1]
    assert second[2] >= first[2]
    assert first[0] > 1_700_000_000
