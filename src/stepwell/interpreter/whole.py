"""A whole workflow: its steps, those that follow a failure, and how a run of it ended.

The law of the file: how a run ends follows from the interpreter alone, whoever runs it; a run that has begun to be
undone is undone to the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stepwell.errors import NonDeterminism, StepFailed
from stepwell.expressions import ExpressionError
from stepwell.interpreter.block import run_block
from stepwell.interpreter.interruption import Ended
from stepwell.interpreter.scope import last_output
from stepwell.interpreter.undo import begun, undo_all

if TYPE_CHECKING:
    from stepwell.definition.compile import BlockPlan
    from stepwell.interpreter.scope import Scope

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How a run ended. `error` is a `StepFailed.record()`, or says how the journal and the definition disagree."""

    status: Literal["completed", "failed", "compensated", "stuck"]
    output: Json = None
    error: dict[str, Json] | None = None


async def conclude(scope: Scope) -> Conclusion:
    """Run the definition of a root scope to its end. Raises Pause and Abort when it is left before."""
    try:
        undoing = begun(scope)
        return await (_undone(scope, undoing.error) if undoing is not None else _done(scope))
    except StepFailed as failure:
        return Conclusion("failed", error=failure.record())
    except NonDeterminism as drift:
        said = {"kind": "non_determinism", "message": str(drift), "path": drift.path, "retryable": False}
        return Conclusion("stuck", error=said | {"recorded": drift.recorded, "now": drift.now})


async def _done(scope: Scope) -> Conclusion:
    try:
        return Conclusion("completed", (await run_all(scope))[0])
    except Ended as end:
        if end.undoes:
            return await _undone(scope, end.error)
        if end.status == "completed":
            return Conclusion("completed", end.output)
        failure = StepFailed("ended", end.message or "an end step says failed")
        return Conclusion("failed", end.output, failure.record())


async def _undone(scope: Scope, error: dict[str, Json] | None) -> Conclusion:
    await undo_all(scope, error)
    return Conclusion("compensated", error=error)


async def run_all(scope: Scope) -> list[Json]:
    """Run the whole definition of a scope there; the one element is its output. Raises StepFailed, Ended.

    Once it has failed, its `on_failure` steps run; it has failed whatever they do, but their failure is told too.
    """
    plan = scope.definition.plan
    try:
        await run_block(plan.root, scope)
    except StepFailed as failure:
        if plan.on_failure is not None:
            await _after_failure(scope, plan.on_failure, failure)
        raise
    if plan.workflow.output is not None:
        try:
            return [scope.render(plan.workflow.output)]
        except ExpressionError as error:
            raise StepFailed("expression_error", f"output: {error.message} in {error.source[:200]!r}") from None
    return [last_output(plan.root, scope.records)]


async def _after_failure(scope: Scope, block: BlockPlan, failure: StepFailed) -> None:
    try:
        await run_block(block, scope.after_failure(failure))
    except Ended as end:
        if end.undoes:
            raise
    except StepFailed as second:
        detail = failure.detail if isinstance(failure.detail, dict) else {}
        failure.detail = detail | {"on_failure": second.record()}
