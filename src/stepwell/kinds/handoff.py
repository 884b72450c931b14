"""Tell a department or people, and go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from stepwell.definition.fields import Template, Value
from stepwell.definition.step import Recipes, Schema
from stepwell.interpreter.effect import Effect, Notify
from stepwell.interpreter.kind import Action

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope


class Handoff(Action):
    """Stores a notification for a department, role or user; the output is null. It never fails or delays the run."""

    type: Literal["handoff"]
    to: Value
    subject: Template | None = None
    message: Template
    priority: Literal["low", "normal", "high", "urgent"] = "normal"

    def shape(self, recipes: Recipes) -> Schema | None:
        del recipes
        return {"type": "null"}

    def effect(self, scope: Scope) -> Effect:
        return Notify(
            to=scope.render(self.to),
            subject=scope.text(self.subject) if self.subject else (self.name or self.id),
            message=scope.text(self.message),
            priority=self.priority,
        )
