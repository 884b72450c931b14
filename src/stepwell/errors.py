"""Every exception of Stepwell.

    StepwellError
    ├─ DefinitionError(problems)      the workflow is wrong
    ├─ InputError(problems)           the run's input is wrong, or preflight refused it
    ├─ NotFound                       no such run, wait, document … (or not yours: the answer is the same)
    ├─ Conflict(detail)               the state does not allow it; `detail` says what is there instead
    │   ├─ AlreadyDecided             the wait has an answer: `detail` is the first one
    │   └─ Gone                       the wait has expired or was withdrawn
    ├─ Forbidden                      this person may not
    ├─ StepFailed(kind, message, …)   a step failed; recorded, and raised again on replay
    ├─ NonDeterminism(path, …)        replay disagrees with the journal: the run is stuck, not failed
    └─ Unavailable                    an outside thing failed (store full, locked): nothing is recorded
    Interruption(BaseException)       control flow of the interpreter, see `interpreter/interruption.py`

The law of the file: `StepFailed` carries data only, so that it means the same after a replay as when it was raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Json: TypeAlias = Any
Severity: TypeAlias = Literal["error", "warning", "note"]

RETRYABLE_KINDS = frozenset({"rate_limit", "server_error", "timeout", "connection_error", "overloaded"})
"""Error kinds that can pass by themselves and are retried by default (LANGUAGE, Failure)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a definition, an input or an environment, where it is and how to fix it.

    `line` and `column` count from 1 and are 0 where no position is known; `path` is a JSON pointer into the file.
    """

    severity: Severity
    code: str
    message: str
    hint: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    path: str = ""

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place = f"{place}:{self.line}:{self.column}"
        elif self.path:
            place = f"{place}{'#' if place else ''}{self.path}"
        head = f"{place}: " if place else ""
        text = f"{head}{self.severity}[{self.code}] {self.message}"
        return f"{text}\n    hint: {self.hint}" if self.hint else text


class StepwellError(Exception):
    """The root of all errors that Stepwell raises on purpose."""


class _Problems(StepwellError):
    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class DefinitionError(_Problems):
    """The workflow is wrong; `problems` lists everything that is, at once."""


class InputError(_Problems):
    """The run's input does not fit, or something that the run needs is missing; nothing was executed."""


class NotFound(StepwellError):
    """There is no such thing here."""


class Forbidden(StepwellError):
    """The person is known, the thing is there, and the act is not allowed."""


class Conflict(StepwellError):
    """The state of the thing does not allow the act; `detail` is what is there instead."""

    def __init__(self, message: str, detail: Json = None) -> None:
        super().__init__(message)
        self.detail = detail


class AlreadyDecided(Conflict):
    """The wait was decided before; `detail` is the decision that counts."""


class Gone(Conflict):
    """The wait was withdrawn, has expired, or its run has ended."""


class Unavailable(StepwellError):
    """An outside thing that must work did not: the pass is abandoned and nothing was recorded."""


class StepFailed(StepwellError):
    """A step failed. Raised by tools and performers, recorded, and raised again on replay.

    `kind` is one of the error kinds of LANGUAGE ("timeout", "rate_limit", "tool_error", …); `retryable` overrides the
    kind's default; `retry_after` is in seconds. `detail` is JSON that helps to see what happened.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        retryable: bool | None = None,  # noqa: FBT001 -- documented positional signature for tool authors
        retry_after: float | None = None,
        detail: Json = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retryable = kind in RETRYABLE_KINDS if retryable is None else retryable
        self.final = retryable is False
        """Whether it was said that trying again is of no use, whatever the policy."""
        self.retry_after = retry_after
        self.detail = detail
        self.path = ""
        self.order = 0
        self.suspends = False
        """Whether a person settles it, whatever `on_error` says."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"

    def record(self) -> dict[str, Json]:
        """The failure as JSON, the form in which journals keep it."""
        data: dict[str, Json] = {"kind": self.kind, "message": self.message, "retryable": self.retryable}
        if self.path:
            data["path"] = self.path
        if self.retry_after is not None:
            data["retry_after"] = self.retry_after
        if self.detail is not None:
            data["detail"] = self.detail
        return data

    @classmethod
    def of(cls, record: dict[str, Json], *, order: int = 0) -> StepFailed:
        """The failure that `record()` described."""
        failure = cls(record["kind"], record["message"], None, record.get("retry_after"), record.get("detail"))
        failure.retryable = record["retryable"]
        failure.path = record.get("path", "")
        failure.order = order
        return failure


class NonDeterminism(StepwellError):
    """The journal holds another effect at `path` than the definition asks for now."""

    def __init__(self, path: str, recorded: str, now: str) -> None:
        super().__init__(f"{path}: the journal was written for {recorded}, the definition now asks for {now}")
        self.path = path
        self.recorded = recorded
        self.now = now
