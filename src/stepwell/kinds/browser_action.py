"""Call a tool of a browser over MCP: a page is opened, read, clicked, filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from stepwell.definition.fields import Value
from stepwell.definition.step import Verify
from stepwell.interpreter.effect import Effect, ToolCall
from stepwell.interpreter.kind import Action

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope


class BrowserAction(Action):
    """Calls a tool of a browser's MCP server, in a session of the run's own; the output is the tool's result."""

    extra_roots: ClassVar[Mapping[str, tuple[str, ...]]] = {"arguments": ("secret",)}

    type: Literal["browser_action"]
    server: str
    tool: str
    arguments: dict[str, Value] = {}
    idempotent: bool | None = None
    verify: Verify | None = None

    def effect(self, scope: Scope) -> Effect:
        arguments, secrets = scope.arguments(self.arguments)
        name = f"{self.server}.{self.tool}"
        repeatable = scope.tool_is_idempotent(name) if self.idempotent is None else self.idempotent
        return ToolCall(tool=name, call=arguments, repeatable=repeatable, secrets=secrets, own_session=True)
