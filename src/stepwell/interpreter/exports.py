"""Exports: what a settled container tells of the steps inside it that steps outside it refer to.

The law of the file: what is taken in on a replay is what was visible when the container settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from stepwell.interpreter.frame import Outputs, Record, Records
from stepwell.journal.entry import Body, Outcome

Json: TypeAlias = Any


def exported(steps: Iterable[str], records: Records) -> dict[str, dict[str, Json]] | None:
    """The records of these steps, as far as they have one; None if none has."""
    return {step: record_of(records[step].outcome) for step in steps if step in records} or None


def record_of(outcome: Outcome) -> dict[str, Json]:
    """A step's outcome as data."""
    record: dict[str, Json] = {"status": outcome.status, "attempts": outcome.attempts}
    if outcome.value is not None:
        record["value"] = outcome.value
    for name in ("error", "reason", "meta"):
        if (part := getattr(outcome, name)) is not None:
            record[name] = part
    if outcome.ended:
        record |= {"started": outcome.started, "ended": outcome.ended}
    return record


def take_in(exports: Mapping[str, dict[str, Json]], outputs: Outputs, records: Records) -> None:
    """Make what was exported visible, but for steps that are visible already."""
    for step, record in exports.items():
        if step not in records:
            outcome = outcome_from(record)
            records[step] = Record(outcome)
            if outcome.has_value:
                outputs[step] = outcome.value


def outcome_from(record: Mapping[str, Json]) -> Outcome:
    """The outcome that `record_of` described."""
    body = Body(
        error=record.get("error"),
        reason=record.get("reason"),
        meta=record.get("meta"),
        attempts=record.get("attempts", 0),
        started=record.get("started", 0.0),
        ended=record.get("ended", 0.0),
    )
    return Outcome(record["status"], record.get("value"), body=body)
