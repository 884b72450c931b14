"""Call a registered tool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from stepwell.definition.fields import Json, Value
from stepwell.definition.step import Location
from stepwell.interpreter.effect import Effect, ToolCall
from stepwell.interpreter.kind import Action

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope


class ToolCallStep(Action):
    """Calls a registered Python function; the output is its result."""

    type: Literal["tool_call"]
    tool: str
    arguments: dict[str, Value] = {}
    idempotent: bool | None = None
    verify: Json = None

    def unperformed(self) -> Iterable[tuple[Location, str]]:
        if self.verify is not None:
            yield ("verify",), "a `verify` block"

    def effect(self, scope: Scope) -> Effect:
        arguments = {name: scope.render(value) for name, value in self.arguments.items()}
        repeatable = scope.tool_is_idempotent(self.tool) if self.idempotent is None else self.idempotent
        return ToolCall(tool=self.tool, call=arguments, repeatable=repeatable)
