"""The turns of an agent step, as its run is shown: what the model said, what it asked for, and what came of that.

The law of the file: all of it is told by the journal; a part that has not ended yet says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeAlias

import msgspec

from stepwell.journal.told import Told

Json: TypeAlias = Any
Value: TypeAlias = Callable[[msgspec.Raw, str], Json]
Instant: TypeAlias = Callable[[float], str | None]


def turns_of(step: Told, value: Value, instant: Instant) -> tuple[dict[str, Json], ...]:
    """Every turn in order: `{turn, status, text, calls, ...}`. `value` reads what may be large."""
    return tuple(_turns(step, value, instant))


def _turns(step: Told, value: Value, instant: Instant) -> Iterator[dict[str, Json]]:
    for number in count(1):
        told = step.parts.get(f"t{number}")
        if told is None:
            return
        said = value(told.value, told.value_ref)
        said = said if isinstance(said, dict) else {}
        asked = said.get("calls") or []
        yield {
            "turn": number,
            **_facts(told, instant),
            "text": said.get("text"),
            "calls": [_call(call, step.parts.get(f"t{number}.{index}"), value, instant, ended=bool(step.status))
                      for index, call in enumerate(asked)],
            "meta": told.meta,
        }  # fmt: skip


_NOTHING: dict[str, Json] = {
    "attempts": 0, "attempt_log": [], "error": None, "started_at": None, "ended_at": None, "output": None,
}  # fmt: skip


def _call(asked: dict[str, Json], told: Told | None, value: Value, instant: Instant, *, ended: bool) -> dict[str, Json]:
    if told is None and ended:
        return {"tool": asked["name"], "arguments": asked["arguments"], "status": "not_made"} | _NOTHING
    told = told or Told()
    return {
        "tool": asked["name"],
        "arguments": asked["arguments"],
        **_facts(told, instant),
        "output": value(told.value, told.value_ref),
    }


def _facts(told: Told, instant: Instant) -> dict[str, Json]:
    last = told.failed[max(told.failed)] if told.failed and not told.status else None
    in_doubt = last is not None and (last.error or {}).get("kind") == "in_doubt" and told.attempts <= max(told.failed)
    return {
        "status": told.status or ("in_doubt" if in_doubt else "running"),
        "attempts": told.attempts,
        "attempt_log": list(told.attempt_log(instant)),
        "error": last.error if last is not None else told.error,
        "started_at": instant(told.started),
        "ended_at": instant(told.ended),
    }
