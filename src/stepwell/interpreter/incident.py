"""Incidents: asking a person what becomes of a step that failed.

The law of the file: what was asked and what was answered are in the journal; the answer is data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.journal.entry import LARGE, encode

if TYPE_CHECKING:
    from stepwell.errors import StepFailed
    from stepwell.interpreter.runtime import Runtime

Json: TypeAlias = Any

ACTIONS = ("retry", "provide", "skip", "fallback", "compensate", "fail")


async def asked(
    runtime: Runtime, place: str, title: str, failure: StepFailed, actions: list[str], **facts: Json
) -> dict[str, Json]:
    """What a person answers: `{action, edits, output, by, at, comment}`. Raises Pause, Withdrawn.

    A step that a budget of a day or month holds up is tried again when the next one begins, if nobody was faster.
    """
    request = {"title": title, "error": failure.record(), "actions": actions}
    request |= {name: fact for name, fact in facts.items() if len(encode(fact)) <= LARGE}
    deadline = _passes_in(runtime, failure)
    told = await runtime.wait(place, "incident", request, deadline=deadline, on_expire="retry" if deadline else "")
    answer: dict[str, Json] = told.value
    if "action" not in answer:  # its deadline has passed
        return {"action": "retry", "comment": "the next period of the budget has begun"}
    return answer


def _passes_in(runtime: Runtime, failure: StepFailed) -> float:
    """Seconds until the failure passes by itself, at least one; 0 for one that does not."""
    budget = failure.detail.get("budget") if isinstance(failure.detail, dict) else None
    ends = budget.get("ends_at") if isinstance(budget, dict) else None
    return max(1.0, ends - runtime.clock()) if ends else 0.0


def settled_by(answer: dict[str, Json]) -> dict[str, Json]:
    """Who settled it and how, for the step's own entry."""
    return {"settled": {name: answer.get(name) for name in ("action", "by", "at", "comment")}}
