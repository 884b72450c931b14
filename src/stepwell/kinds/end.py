"""End the run early."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from stepwell.definition.fields import Template, Value
from stepwell.interpreter.kind import Control

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome


class End(Control):
    """Ends the run as completed or failed; branches still running are let finish, nothing new starts."""

    type: Literal["end"]
    status: Literal["completed", "failed"] = "completed"
    output: Value | None = None
    message: Template | None = None

    async def run(self, scope: Scope) -> Outcome:
        return await scope.end_run(
            self.status,
            scope.render(self.output) if self.output is not None else None,
            scope.text(self.message) if self.message else "",
        )
