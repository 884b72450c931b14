"""Mutants: the interpreter with one rule broken, each by exchanging one function, to show that a law notices."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.definition.compile import BlockPlan, StepPlan
from stepwell.engine.ledger import Ledger
from stepwell.errors import StepFailed
from stepwell.interpreter import attempts, settle
from stepwell.interpreter import place as places
from stepwell.interpreter.race import Race
from stepwell.interpreter.scope import Scope
from stepwell.journal.entry import Outcome
from stepwell.journal.lease import LeaseLost


def bindings_of_all_finished_steps(patch: pytest.MonkeyPatch) -> None:
    """A step sees whatever has finished, wherever it lies: nobody checks what is upstream."""
    patch.setattr("stepwell.definition.check.check_references", lambda *_: iter(()))


def failure_by_definition_order(patch: pytest.MonkeyPatch) -> None:
    """Of several failures, the first one in the order of the tasks counts, not the first one of the journal."""
    real = settle._severity

    def severity(problem: BaseException) -> tuple[int, int]:
        return real(problem)[0], 0

    patch.setattr(settle, "_severity", severity)


def unsettled_failed_container(patch: pytest.MonkeyPatch) -> None:
    """A container's failure is known to this pass alone."""
    real = Scope.fail

    async def fail(self: Scope, failure: StepFailed, *, default: Any = None, reason: Any = None) -> Outcome:
        if self.spent is not None:
            return await real(self, failure, default=default, reason=reason)
        return self.failure(failure, default=default, reason=reason).outcome()

    patch.setattr(Scope, "fail", fail)


def missing_exports(patch: pytest.MonkeyPatch) -> None:
    """A settled container does not say what the steps inside gave."""
    patch.setattr(places, "exported", lambda steps, records: None)


def lost_lease_below_failure(patch: pytest.MonkeyPatch) -> None:
    """A step's failure counts for more than the loss of the lease."""
    real = settle._severity

    def severity(problem: BaseException) -> tuple[int, int]:
        return (6, 0) if isinstance(problem, LeaseLost) else real(problem)

    patch.setattr(settle, "_severity", severity)


def rewind_without_closure(patch: pytest.MonkeyPatch) -> None:
    """Returning to a step starts another round of that step and of the one that asked, of none between."""
    real = BlockPlan.downstream

    def downstream(self: BlockPlan, target: str) -> tuple[StepPlan, ...] | None:
        stale = real(self, target)
        return stale and (stale[0], stale[-1])

    patch.setattr(BlockPlan, "downstream", downstream)


def losers_run_again(patch: pytest.MonkeyPatch) -> None:
    """Nobody reads that a race was decided."""
    real = Race.run

    async def run(self: Race) -> Any:
        self._mark += str(id(self))
        return await real(self)

    patch.setattr(Race, "run", run)


def round_from_memory(patch: pytest.MonkeyPatch) -> None:
    """Rounds are those of this pass; what the journal says of them is not read."""
    real = Ledger.__init__

    def init(self: Ledger, *arguments: Any) -> None:
        real(self, *arguments)
        self.fold.rounds.clear()

    patch.setattr(Ledger, "__init__", init)


def attempts_from_memory(patch: pytest.MonkeyPatch) -> None:
    """Attempts are counted from one in every pass."""

    async def resume(scope: Scope) -> int:
        return 1

    patch.setattr(attempts, "_resume", resume)


def recorded_value_not_read_back(patch: pytest.MonkeyPatch) -> None:
    """A first pass goes on with what it computed, and only a replay with what was recorded."""
    from stepwell.journal.entry import Draft

    real_value, real_outcome = Draft.value, Draft.outcome
    computed: dict[int, Any] = {}

    def value(self: Draft, value: Any, text: bytes | None = None) -> None:
        computed[id(self)] = value
        real_value(self, value, text)

    def outcome(self: Draft) -> Outcome:
        found = real_outcome(self)
        if isinstance(computed.get(id(self)), dict) and "path" in computed[id(self)]:
            found._value = computed[id(self)] | {"seen": "in memory"}
        return found

    patch.setattr(Draft, "value", value)
    patch.setattr(Draft, "outcome", outcome)
