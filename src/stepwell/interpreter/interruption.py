"""Interruptions: how a pass of the interpreter is left before its end.

The law of the file: they derive from BaseException, so no kind and no `except Exception` can catch one by accident;
they are never recorded; `settle.py` alone combines them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from stepwell.journal.entry import Draft

from stepwell.journal.lease import LeaseLost

Json: TypeAlias = Any


class Interruption(BaseException):
    """The root of what leaves a pass on purpose."""


class Pause(Interruption):
    """Nothing in the run can move: it parks until a decision, an event or a time."""


class Withdrawn(Interruption):
    """What this branch waits for was withdrawn, since its container can no longer complete."""

    def __init__(self, reason: str, place: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place
        """The path of that container: it settles the branch, and whatever lies between is left."""


class Ended(Interruption):
    """An `end` step was reached, or a failure asks for the whole run to be undone. `order` is its journal position."""

    def __init__(self, status: str, output: Json, message: str, order: int) -> None:
        super().__init__(status)
        self.status = status
        """completed, failed, or compensated: what was done is undone before the run ends."""
        self.output = output
        self.message = message
        self.order = order
        self.error: dict[str, Json] | None = None
        """The failure that asks for it."""

    @property
    def undoes(self) -> bool:
        return self.status == "compensated"


class Rewind(Interruption):
    """Return to an earlier step of the block that holds `target`."""

    def __init__(self, target: str, cause: str, failed: Draft) -> None:
        super().__init__(target)
        self.target = target
        self.cause = cause
        self.failed = failed
        """The entry of the causing step, recorded together with the rewind; it need not be a failure."""


class Abort(Interruption):
    """The pass must stop now."""


class RunCancelled(Abort):
    """Somebody cancelled the run."""


class RunTimedOut(Abort):
    """The run's active time is used up."""


__all__ = ["Abort", "Ended", "Interruption", "LeaseLost", "Pause", "Rewind", "RunCancelled", "RunTimedOut", "Withdrawn"]
