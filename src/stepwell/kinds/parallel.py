"""Run branches at the same time and settle them all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from stepwell.definition.fields import Duration, Json, StepId
from stepwell.definition.policy import RetryPolicy
from stepwell.definition.step import Block, Recipes, Schema, Steps
from stepwell.errors import StepFailed
from stepwell.interpreter.interruption import Withdrawn
from stepwell.interpreter.kind import Control
from stepwell.kinds.causes import failed_inside

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome


def gathered(settled: Mapping[str, Outcome | None]) -> dict[str, Json]:
    """The output: how each branch ended; None is a branch that was cut off."""
    return {
        name: {"status": outcome.status, "output": outcome.value, "error": outcome.error}
        if outcome is not None
        else {"status": "cancelled", "output": None, "error": None}
        for name, outcome in settled.items()
    }


class Parallel(Control):
    """Runs its branches at once; the output is `{branch: {status, output, error}}`."""

    type: Literal["parallel"]
    branches: dict[StepId, Steps] = Field(min_length=1)
    mode: Literal["all_settled", "fail_fast", "first_success"] | dict[Literal["quorum"], int] = "all_settled"
    concurrency: int | None = Field(None, ge=1)
    continue_on_error: bool = False
    timeout: Duration | None = None
    retry: RetryPolicy | None = None

    @model_validator(mode="after")
    def _a_quorum_can_be_reached(self) -> Self:
        if isinstance(self.mode, dict) and not 1 <= self.mode.get("quorum", 0) <= len(self.branches):
            raise PydanticCustomError(
                "quorum",
                "a quorum lies between 1 and the number of branches, {count}",
                {"count": len(self.branches), "hint": "write mode: {quorum: 2}", "at": "mode"},
            )
        return self

    def blocks(self) -> Iterable[Block]:
        return [Block(("branches", name), steps, segment=name, certain=True) for name, steps in self.branches.items()]

    def shape(self, recipes: Recipes) -> Schema | None:
        del recipes
        branch = {
            "type": "object",
            "properties": {"status": {"enum": ["completed", "failed", "cancelled"]}, "output": {}, "error": {}},
            "required": ["status", "output", "error"],
            "additionalProperties": False,
        }
        return {
            "type": "object",
            "properties": dict.fromkeys(self.branches, branch),
            "required": list(self.branches),
            "additionalProperties": False,
        }

    def _goes_on(self, scope: Scope) -> bool:
        """Whether the step completes although branches fail."""
        return self.continue_on_error or (scope.plan is not None and scope.plan.tolerant)

    async def _branch(self, name: str, scope: Scope) -> Outcome:
        where = ("branches", name)
        inner = scope.branch(name, where)
        outcome = inner.recalled()
        if outcome is None:
            try:
                await inner.run_block(where)
                outcome = inner.complete(inner.last_output(where))
            except StepFailed as failure:
                outcome = await inner.fail(failure)
            except Withdrawn as withdrawn:
                if withdrawn.place != scope.path:
                    raise
                outcome = inner.give_up(withdrawn.reason)
        if outcome.error and not self._goes_on(scope):
            await scope.withdraw(f"branch {name} failed")
        return outcome

    async def _race(self, scope: Scope) -> Outcome:
        from stepwell.interpreter.race import Race, Rule

        total = len(self.branches)
        needed = self.mode["quorum"] if isinstance(self.mode, dict) else {"first_success": 1}.get(self.mode, total)
        blocks = {name: ("branches", name) for name in self.branches}
        race = Race(scope, blocks, Rule(needed, total - needed + 1), self.concurrency or total)
        settled = await race.run()
        completed = sum(outcome is not None and outcome.status == "completed" for outcome in settled.values())
        failures = [(name, outcome) for name, outcome in settled.items() if outcome is not None and outcome.error]
        if completed < needed and not self._goes_on(scope):
            raise failed_inside(failures, "branch")
        return scope.complete(gathered(settled))

    async def run(self, scope: Scope) -> Outcome:
        from stepwell.interpreter.settle import settle_pool  # asyncio is not needed to read a definition

        scope.begin(dict)
        if self.mode != "all_settled":
            return await self._race(scope)
        names = list(self.branches)
        outcomes = await settle_pool(
            scope,
            lambda index: self._branch(names[index], scope),
            len(names),
            self.concurrency or len(names),
            begun=lambda index: scope.has_begun(names[index]),
        )
        settled = {name: outcome for name, outcome in zip(names, outcomes, strict=True) if outcome is not None}
        failures = [(name, outcome) for name, outcome in settled.items() if outcome.error]
        if failures and not self._goes_on(scope):
            raise failed_inside(failures, "branch")
        return scope.complete(gathered(settled))
