"""Virtual time: a clock that leaps to the next thing that is due, and the event loop that lets it.

The law of the file: time passes only when nothing can run. Where something real is awaited (a thread, a socket) it
passes as it does outside, so that a program in virtual time differs from one in real time in nothing but its haste.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

from stepwell.definition.fields import seconds as seconds_of
from stepwell.interpreter.instants import instant

T = TypeVar("T")
START = "2026-01-05T09:00:00Z"
"""When virtual time begins unless a test says otherwise: a Monday morning."""


class VirtualClock:
    """Implements `ports.Clock`. `jump` sets its wall clock; durations and timers know nothing of that."""

    def __init__(self, start: str | datetime = START) -> None:
        """`start` is ISO 8601 with an offset, or a datetime that has one."""
        text = start if isinstance(start, str) else start.isoformat()
        self._began = instant(text)
        self._passed = 0.0
        self._jumps: list[tuple[float, float]] = []

    def now(self) -> float:
        """UTC seconds since 1970, as somebody has set them."""
        passed = self._passed
        return self._began + passed + sum(by for at, by in self._jumps if at <= passed)

    def monotonic(self) -> float:
        """Virtual seconds since the clock was made."""
        return self._passed

    uptime = monotonic

    def jump(self, *, hours: float = 0.0, minutes: float = 0.0, seconds: float = 0.0, after: str = "0s") -> None:
        """Set the wall clock forward, or back by negative numbers: now, or once some time (`after`) has passed."""
        by = hours * 3600 + minutes * 60 + seconds
        self._jumps.append((self._passed + seconds_of(after), by))

    def next_jump(self) -> float:
        """Virtual seconds until the wall clock is set next; infinity if it is not."""
        return min((at - self._passed for at, _ in self._jumps if at > self._passed), default=float("inf"))

    def advance(self, by: float) -> None:
        """Let some seconds pass."""
        self._passed += by


class _LeapingSelector(selectors.DefaultSelector):
    """Tells of real input at once; where a loop would block for a time, lets the clock leap over it."""

    def __init__(self, clock: VirtualClock, outside: Callable[[], bool]) -> None:
        super().__init__()
        self._clock = clock
        self._outside = outside

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        if self._outside() or len(self.get_map()) > 1:  # the one is the loop's own, by which threads wake it
            began = time.monotonic()
            found = super().select(timeout)
            self._clock.advance(time.monotonic() - began)
            return found
        if timeout is None:
            raise RuntimeError("nothing can happen any more: everything waits, and no time is set for any of it")
        self._clock.advance(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._in_threads = 0
        super().__init__(_LeapingSelector(clock, lambda: self._in_threads > 0))

    def time(self) -> float:
        return self.clock.monotonic()

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """As usual; meanwhile, time passes as it does outside."""
        future: asyncio.Future[T] = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._back)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """As usual; the threads that end are outside too."""
        del timeout  # Python 3.11 knows none
        self._in_threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._in_threads -= 1

    def _back(self, future: asyncio.Future[Any]) -> None:
        del future
        self._in_threads -= 1


def run_in_virtual_time(work: Coroutine[Any, Any, T], clock: VirtualClock | None = None) -> T:
    """Run a coroutine to its end on a loop of its own, in virtual time. Also possible where a loop is running.

    Raises what the coroutine raises, and RuntimeError when it waits for something that cannot come.
    """
    its = clock or VirtualClock()

    def run() -> T:
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(its)) as runner:
            return runner.run(work)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, "stepwell-virtual-time") as thread:  # a thread has one running loop
        return thread.submit(run).result()
