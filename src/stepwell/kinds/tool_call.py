"""Call a registered tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from stepwell.definition.fields import Value
from stepwell.definition.step import Verify
from stepwell.interpreter.effect import Effect, ToolCall
from stepwell.interpreter.kind import Action

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope


class ToolCallStep(Action):
    """Calls a registered Python function; the output is its result."""

    extra_roots: ClassVar[Mapping[str, tuple[str, ...]]] = {"arguments": ("secret",)}

    type: Literal["tool_call"]
    tool: str
    arguments: dict[str, Value] = {}
    idempotent: bool | None = None
    verify: Verify | None = None

    def effect(self, scope: Scope) -> Effect:
        arguments, secrets = scope.arguments(self.arguments)
        repeatable = scope.tool_is_idempotent(self.tool) if self.idempotent is None else self.idempotent
        return ToolCall(tool=self.tool, call=arguments, repeatable=repeatable, secrets=secrets)
