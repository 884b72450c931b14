"""Call a registered tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from stepwell.definition.fields import Value
from stepwell.definition.http_call import HTTP, may_repeat
from stepwell.definition.step import Verify
from stepwell.interpreter.effect import Effect, ToolCall
from stepwell.interpreter.kind import Action

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope


class ToolCallStep(Action):
    """Calls a registered tool: a Python function, or `http`; the output is its result."""

    extra_roots: ClassVar[Mapping[str, tuple[str, ...]]] = {"arguments": ("secret",)}

    type: Literal["tool_call"]
    tool: str
    arguments: dict[str, Value] = {}
    idempotent: bool | None = None
    verify: Verify | None = None

    def effect(self, scope: Scope) -> Effect:
        arguments, secrets = scope.arguments(self.arguments)
        repeatable = self.idempotent
        if repeatable is None:
            repeatable = may_repeat(arguments) if self.tool == HTTP else scope.tool_is_idempotent(self.tool)
        return ToolCall(tool=self.tool, call=arguments, repeatable=repeatable, secrets=secrets)
