"""Run another workflow inside this run, and wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from stepwell.definition.fields import Duration, Template, Value
from stepwell.definition.policy import RetryPolicy
from stepwell.errors import StepFailed
from stepwell.interpreter.interruption import Ended
from stepwell.interpreter.kind import Control

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome


class SubWorkflow(Control):
    """Runs a workflow (`id`, or `id@version`; it may be a template); the output is its output.

    Its steps, approvals and costs are part of this run; it sees its own input alone, and has its own defaults.
    """

    type: Literal["sub_workflow"]
    workflow: Template
    inputs: dict[str, Value] = {}
    timeout: Duration | None = None
    retry: RetryPolicy | None = None

    async def run(self, scope: Scope) -> Outcome:
        from stepwell.interpreter.settle import within  # asyncio is not needed to read a definition
        from stepwell.interpreter.whole import run_all

        name = scope.text(self.workflow)
        inner = await scope.child(name, {key: scope.render(value) for key, value in self.inputs.items()})
        plan = inner.definition.plan
        try:
            done = await within(inner, run_all(inner), plan.workflow.timeout - inner.spent_active())
        except StepFailed as failure:
            raise _failed(name, failure) from None
        except Ended as end:
            if end.undoes:
                raise
            if end.status == "completed":
                return scope.complete(end.output)
            raise _failed(name, StepFailed("ended", end.message or "an end step says failed")) from None
        if done is None:
            limit = plan.workflow.timeout
            raise _failed(name, StepFailed("timeout", f"{name} was active for {limit:g} s, its timeout"))
        return scope.complete(done[0])


def _failed(name: str, failure: StepFailed) -> StepFailed:
    if failure.kind == "depth_exceeded":
        return failure
    outer = StepFailed("child_failed", f"{name}: {failure.kind}: {failure.message}", detail={"cause": failure.record()})
    outer.retryable = failure.retryable
    outer.path, outer.order = failure.path, failure.order
    return outer
