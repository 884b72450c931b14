"""The toolbox: tools of several kinds as one.

The law of the file: a name belongs to one kind; two that claim it are told before anything runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.engine.tool_checks import servers_wanted
from stepwell.errors import DefinitionError, Problem, StepFailed

if TYPE_CHECKING:
    from stepwell.adapters.mcp.tools import McpTools
    from stepwell.definition.workflow import Workflow
    from stepwell.ports import Tool, ToolCallContext, Tools

Json: TypeAlias = Any


class Toolbox:
    """Tools of this project, then those of its MCP servers, as SERVER.TOOL. Implements `ports.Tools`."""

    def __init__(self, own: Tools, mcp: McpTools) -> None:
        """Raises DefinitionError for an own tool whose name begins as those of a server do."""
        self._own = own
        self.mcp = mcp
        self.keeps_time = bool(getattr(own, "keeps_time", False)) and mcp.keeps_time
        hint = "give the tool or the server another name"
        taken = {name: server for name in own.names() if (server := mcp.server_of(name))}
        said = {name: f"the tool {name!r} is named as those of the MCP server {taken[name]!r} are" for name in taken}
        if taken:
            raise DefinitionError([Problem("error", "tools", message, hint) for message in said.values()])

    async def prepare(self, workflow: Workflow) -> None:
        """Let servers that a workflow calls say what they offer, so that it is known which calls may be repeated."""
        wanted = servers_wanted(workflow.every_step(), self.mcp) - self.mcp.told
        if wanted:
            await self.mcp.reach(wanted)

    def get(self, name: str) -> Tool | None:
        return self.mcp.get(name) if self.mcp.server_of(name) else self._own.get(name)

    def names(self) -> list[str]:
        return sorted([*self._own.names(), *self.mcp.names()])

    async def call(self, name: str, arguments: dict[str, Json], context: ToolCallContext) -> Any:
        if self.mcp.server_of(name):
            return await self.mcp.call(name, arguments, context)
        if context.own_session:
            known = ", ".join(self.mcp.servers) or "none"
            raise StepFailed("not_found", f"there is no MCP server for {name!r}; known: {known}")
        return await self._own.call(name, arguments, context)
