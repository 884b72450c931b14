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
    """What a person answers: `{action, edits, output, by, at, comment}`. Raises Pause, Withdrawn."""
    request = {"title": title, "error": failure.record(), "actions": actions}
    request |= {name: fact for name, fact in facts.items() if len(encode(fact)) <= LARGE}
    answer: dict[str, Json] = (await runtime.wait(place, "incident", request)).value
    return answer


def settled_by(answer: dict[str, Json]) -> dict[str, Json]:
    """Who settled it and how, for the step's own entry."""
    return {"settled": {name: answer.get(name) for name in ("action", "by", "at", "comment")}}
