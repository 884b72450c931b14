"""Compute values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from stepwell.definition.fields import Value
from stepwell.definition.step import Recipes, Schema
from stepwell.interpreter.kind import Control

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome


class SetValues(Control):
    """Renders `values`; they are the output."""

    type: Literal["set"]
    values: dict[str, Value]

    def shape(self, recipes: Recipes) -> Schema | None:
        del recipes
        return {
            "type": "object",
            "properties": {name: {} for name in self.values},
            "required": list(self.values),
            "additionalProperties": False,
        }

    async def run(self, scope: Scope) -> Outcome:
        return scope.complete({name: scope.render(value) for name, value in self.values.items()})
