"""The failure of a container, made of the failures inside it (not a step kind)."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.errors import StepFailed
from stepwell.journal.entry import Outcome


def failed_inside(failures: Sequence[tuple[str | int, Outcome]], part: str) -> StepFailed:
    """The failure with which a container fails: the one that came first in the journal; `causes` lists all."""
    _, first = min(failures, key=lambda pair: pair[1].order)
    error = first.error or {}
    causes = [
        {part: name, "path": (outcome.error or {}).get("path", ""), "kind": (outcome.error or {}).get("kind"),
         "message": (outcome.error or {}).get("message")}
        for name, outcome in failures
    ]  # fmt: skip
    failure = StepFailed(error["kind"], error["message"], detail={"causes": causes})
    failure.retryable = error.get("retryable", False)
    failure.path = error.get("path", "")
    failure.order = first.order
    return failure
