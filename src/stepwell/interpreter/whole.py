"""A whole run: its steps, those that follow a failure, and how it ended.

The law of the file: how a run ends follows from the interpreter alone, whoever runs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stepwell.errors import NonDeterminism, StepFailed
from stepwell.interpreter.interruption import Ended

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How a run ended. `error` is a `StepFailed.record()`, or says how the journal and the definition disagree."""

    status: Literal["completed", "failed", "stuck"]
    output: Json = None
    error: dict[str, Json] | None = None


async def conclude(scope: Scope) -> Conclusion:
    """Run the definition of a root scope to its end. Raises Pause and Abort when it is left before."""
    try:
        return Conclusion("completed", (await scope.run_all())[0])
    except Ended as end:
        if end.status == "completed":
            return Conclusion("completed", end.output)
        failure = StepFailed("ended", end.message or "an end step says failed")
        return Conclusion("failed", end.output, failure.record())
    except StepFailed as failure:
        return Conclusion("failed", error=failure.record())
    except NonDeterminism as drift:
        said = {"kind": "non_determinism", "message": str(drift), "path": drift.path, "retryable": False}
        return Conclusion("stuck", error=said | {"recorded": drift.recorded, "now": drift.now})
