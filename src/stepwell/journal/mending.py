"""Sentences of an explanation about what became of failures: who or what mended a step, and what nobody knows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.journal.wording import error_text

if TYPE_CHECKING:
    from stepwell.journal.view import StepRecord

Json: TypeAlias = Any


def failed(run: str, record: StepRecord) -> tuple[str, dict[str, Json]]:
    """How a step failed; without an error it has sent the run back."""
    if record.error is None:
        return f"It sent the run back: {sent_back(record.output)}.", {"output": record.output}
    attempts = f" after {record.attempts} attempts" if record.attempts > 1 else ""
    doubt = in_doubt(run, record) if record.error.get("kind") == "in_doubt" else ""
    return f"It failed{attempts}: {error_text(record.error)}.{doubt}", {"error": record.error}


def sent_back(output: Json) -> str:
    """What somebody said who sent the run back: the decision of an approval."""
    said = output if isinstance(output, Mapping) else {}
    comment = f": {said['comment']}" if said.get("comment") else ""
    return f"{str(said.get('decision', 'sent back')).replace('_', ' ')} by {said.get('by') or 'an operator'}{comment}"


def mended(record: StepRecord) -> str:
    """How a step completed that failed first."""
    meta = record.meta or {}
    how = {
        "fallback": f"Its fallback {meta.get('fallback', '')} completed it",
        "verify": "Verifying found that its call had taken effect",
        "operator": f"{_who(meta.get('settled') or {})} gave its output",
    }.get(record.completed_by or "", "It was completed by something else")
    return f"{how}, after it had failed: {error_text(record.error)}."


def by_operator(reason: Mapping[str, Json]) -> str:
    """Who skipped a step, and why."""
    comment = f": {reason['message']}" if reason.get("message") else ""
    return f"{_who(reason)} skipped it{comment}."


def _who(said: Mapping[str, Json]) -> str:
    return str(said.get("by") or "An operator")


def in_doubt(run: str, record: StepRecord) -> str:
    """What finds the call on the other side, whose end nobody knows."""
    error = record.error or {}
    detail = error.get("detail")
    made = detail.get("arguments") if isinstance(detail, dict) else None  # the call of an agent step
    arguments = record.input if made is None else made
    given = "" if arguments is None else f", its arguments {json.dumps(arguments, ensure_ascii=False)}"
    return f" Nobody knows whether the call took effect; its key is {run}{error.get('path') or record.path}{given}."
