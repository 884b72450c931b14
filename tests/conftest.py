"""What holds for every test: none waits for ever, and none leaves its log guarded for the next.

A run that never ends is a failure with a traceback, not a build that hangs.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

LONGEST = 420
"""Seconds; the longest tests take about one minute on a busy machine."""


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"the test has not ended within {LONGEST} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    if not hasattr(signal, "SIGALRM"):
        return (yield)
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _log_of_its_own() -> Iterator[None]:
    """A command that is called inside this process guards the log of the whole process against secrets."""
    before = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(before)
