"""The budgets that a run brings with it: its workflow's own, and those of the sub-workflows that it is in.

The law of the file: a sub-workflow's budget bounds what lies below the step that calls it, besides all around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stepwell.journal import path as paths
from stepwell.ports import Limit

if TYPE_CHECKING:
    from stepwell.definition.budget import Budget
    from stepwell.interpreter.definition import Definition
    from stepwell.journal.entry import Outcome


class RunBudgets:
    """The budgets of one run in one pass."""

    def __init__(self, run_id: str, definition: Definition) -> None:
        self._run_id = run_id
        self._own = _limits(definition, run_id)
        self._called: dict[str, Budget] = {}

    def learn(self, digest: str, definition: Definition) -> None:
        """Take note of a sub-workflow that the run enters."""
        if (budget := definition.plan.workflow.budget) is not None:
            self._called[digest] = budget

    def at(self, path: str, recall: Callable[[str], Outcome | None]) -> tuple[Limit, ...]:
        """What bounds a call at a path, the innermost first. `recall` tells which workflow a step has entered."""
        if not self._called:
            return self._own
        found = []
        place = path
        while place := place.rpartition("/")[0]:
            begun = recall(paths.start(place))
            digest = begun.value.get("digest") if begun is not None and isinstance(begun.value, dict) else None
            if digest in self._called:
                found.append(limit_of(self._called[digest], self._run_id, place))
        return (*found, *self._own)


def _limits(definition: Definition, run_id: str) -> tuple[Limit, ...]:
    budget = definition.plan.workflow.budget
    return () if budget is None else (limit_of(budget, run_id, ""),)


def limit_of(budget: Budget, run_id: str, below: str) -> Limit:
    """A budget of a run, of what lies below a path in it."""
    return Limit("run", run_id, below, "", budget.tokens, budget.nano_usd, budget.on_exceed)
