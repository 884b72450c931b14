"""Frames: what is visible from a place, linked to what is visible around it.

The law of the file: nothing is merged or copied. A frame is a dictionary that looks in the frame around it for what it
does not hold; that no step sees what it must not is proven by the checks, before the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.interpreter.instants import instant_text
from stepwell.journal import path as paths

if TYPE_CHECKING:
    from stepwell.journal.entry import Outcome

Json: TypeAlias = Any


class Outputs(dict[str, Json]):
    """Outputs by step id (`step.<id>`); large ones are loaded when touched."""

    __slots__ = ("_large", "_outer")

    def __init__(self, outer: Outputs | None = None) -> None:
        super().__init__()
        self._outer = outer
        self._large: dict[str, Outcome] = {}

    def __missing__(self, key: str) -> Json:
        if (outcome := self._large.pop(key, None)) is not None:
            value = self[key] = outcome.value
            return value
        if self._outer is None:
            raise KeyError(key)
        return self._outer[key]

    def bind(self, step: str, outcome: Outcome) -> None:
        """Make an outcome's value visible."""
        self.pop(step, None)
        if outcome.is_large:
            self._large[step] = outcome
        else:
            self._large.pop(step, None)
            self[step] = outcome.value

    def hide(self, step: str) -> None:
        """Take a step's output out: it was skipped in this round."""
        self.pop(step, None)
        self._large.pop(step, None)


class Records(dict[str, "Record"]):
    """Records by step id (`steps.<id>`)."""

    __slots__ = ("_outer",)

    def __init__(self, outer: Records | None = None) -> None:
        super().__init__()
        self._outer = outer

    def __missing__(self, key: str) -> Record:
        if self._outer is None:
            raise KeyError(key)
        return self._outer[key]


class Record(Mapping[str, Json]):
    """A step's record as expressions see it."""

    __slots__ = ("_recall", "outcome", "path")

    def __init__(
        self, outcome: Outcome, path: str = "", recall: Callable[[str], Outcome | None] = lambda _: None
    ) -> None:
        self.outcome = outcome
        self.path = path
        self._recall = recall

    def __getitem__(self, key: str) -> Json:  # noqa: PLR0911 -- a table, written as one
        outcome = self.outcome
        match key:
            case "status":
                return outcome.status
            case "attempts":
                return outcome.attempts
            case "retry_count":
                return max(0, outcome.attempts - 1)
            case "result" | "output" if outcome.has_value:
                return outcome.value
            case "error" if outcome.error is not None:
                return outcome.error
            case "errors" | "count" if outcome.meta and key in outcome.meta:
                return outcome.meta[key]
            case "completed_by" if outcome.meta and key in outcome.meta:
                return outcome.meta[key]
            case "completed_at" if outcome.ended:
                return instant_text(outcome.ended)
            case "duration_ms" if outcome.ended:
                return max(0, round((outcome.ended - outcome.started) * 1000))
            case "attempt_log":
                return self._attempts()
            case "skip_reason" if outcome.status == "skipped" and outcome.reason:
                return outcome.reason.get("type")
        raise KeyError(key)

    def _attempts(self) -> list[Json]:
        """Every attempt with its number, times and error; the last one is the step's own entry."""
        found: list[Json] = []
        while (one := self._recall(paths.attempt(self.path, len(found) + 1))) is not None:
            found.append(_attempt(len(found) + 1, one))
        if self.outcome.attempts > len(found):
            found.append(_attempt(len(found) + 1, self.outcome))
        return found

    def __iter__(self) -> Iterator[str]:
        yield "status"
        for key in ("result", "output", "error", "errors", "count", "completed_by"):
            try:
                self[key]
            except KeyError:
                continue
            yield key
        yield "attempts"
        yield "retry_count"
        if self.outcome.ended:
            yield "completed_at"
            yield "duration_ms"

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _attempt(number: int, outcome: Outcome) -> dict[str, Json]:
    return {
        "attempt": number,
        "started_at": instant_text(outcome.started),
        "ended_at": instant_text(outcome.ended),
        "error": outcome.error,
    }
