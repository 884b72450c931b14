"""One test of a test file, run and checked.

The law of the file: whatever goes wrong with a test is that test's failure, told with its reason; the others go on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stepwell.errors import StepwellError
from stepwell.testing.crashes import every_crash
from stepwell.testing.expecting import Difference, differences
from stepwell.testing.result import Result
from stepwell.testing.running import run_to_end
from stepwell.testing.suite import TestCase

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Checked:
    """A test that has run. It passed if there are neither differences nor a problem."""

    test: TestCase
    result: Result | None = None
    differences: list[Difference] = field(default_factory=list)
    problem: str = ""
    """Why it could not be run, or what a crash has changed."""
    crashes: int = 0
    seconds: float = 0.0
    """Real ones."""

    @property
    def passed(self) -> bool:
        return not self.differences and not self.problem


def run_test(test: TestCase, *, crash: bool = False) -> Checked:
    """Run a test; with `crash`, again with a crash after every write to the journal."""
    began = time.perf_counter()
    result: Result | None = None
    crashes = 0
    try:
        result = run_to_end(test.project, test.input, test.world(), clock=test.clock(), requester=test.requester)
        found = differences(test, result)
        if crash and not found:
            crashes = len(every_crash(test.project, test.input, test.world, clock=test.clock)) - 1
    except (StepwellError, AssertionError) as problem:
        return Checked(test, result, problem=str(problem), seconds=time.perf_counter() - began)
    return Checked(test, result, found, crashes=crashes, seconds=time.perf_counter() - began)
