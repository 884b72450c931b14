"""The tools of MCP servers, under the names SERVER.TOOL.

The law of the file: a server is asked for its tools when somebody wants to know them; what it said last is known.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.mcp import browser
from stepwell.adapters.mcp.failures import McpConnectError, McpConnectionLost, McpError, step_failure
from stepwell.adapters.mcp.result import plain
from stepwell.errors import StepFailed
from stepwell.ports import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcp_types import Tool as Offered

    from stepwell.adapters.mcp.pool import Pool
    from stepwell.adapters.mcp.server import McpServer
    from stepwell.ports import ToolCallContext

Json: TypeAlias = Any

REACHING = 20.0
"""Seconds for a server to tell its tools before a run."""


class McpTools:
    """The tools of a project's servers. Implements `ports.Tools`."""

    keeps_time = True

    def __init__(self, servers: Iterable[McpServer], pool: Pool) -> None:
        self._servers = {server.name: server for server in servers}
        self._pool = pool
        self._listed: dict[str, dict[str, Tool]] = {}

    @property
    def servers(self) -> list[str]:
        return sorted(self._servers)

    @property
    def told(self) -> set[str]:
        """The servers that have said what they offer."""
        return set(self._listed)

    def server_of(self, name: str) -> str:
        """The server that a tool's name names; "" if none."""
        server = name.partition(".")[0]
        return server if server in self._servers and "." in name else ""

    def get(self, name: str) -> Tool | None:
        """What is known of a tool. One of a server that told nothing yet may not be repeated, until it says so."""
        server = self.server_of(name)
        if not server:
            return None
        if server not in self._listed:
            return Tool(name, "", {}, idempotent=False)
        return self._listed[server].get(name)

    def names(self) -> list[str]:
        return sorted(name for tools in self._listed.values() for name in tools)

    async def reach(self, servers: Iterable[str]) -> dict[str, str]:
        """Ask servers for their tools, all at once; says why of those that do not answer."""
        wanted = sorted({name for name in servers if name in self._servers})
        said = await asyncio.gather(*(self._reach(self._servers[name]) for name in wanted))
        return {name: why for name, why in zip(wanted, said, strict=True) if why}

    async def _reach(self, server: McpServer) -> str:
        try:
            connection = await self._pool.borrow(server, timeout=REACHING)
        except McpError as error:
            return step_failure(error, server, "").message.partition(": ")[2]
        self._listed[server.name] = {tool.name: tool for tool in (_tool(server, one) for one in connection.tools)}
        return ""

    async def call(self, name: str, arguments: dict[str, Json], context: ToolCallContext) -> Json:
        """Call a tool. Raises StepFailed; `detail.sent` is false where the server surely got nothing."""
        server = self._servers.get(self.server_of(name))
        if server is None:
            raise StepFailed("not_found", f"there is no tool {name!r}", detail={"servers": self.servers})
        tool = name.partition(".")[2]
        timeout = min(context.timeout, server.timeout) if context.timeout > 0 else server.timeout
        scope = context.run_id if context.own_session else ""
        meta = _meta(context)
        try:
            answer, new = await self._pool.call(server, tool, arguments, timeout=timeout, scope=scope, meta=meta)
            if not scope:
                return plain(answer)
            try:
                return browser.seen(answer, tool, arguments, new=new)
            except (McpConnectError, McpConnectionLost):  # nobody shall take this session for the run's
                self._pool.discard(server, scope)
                raise
        except McpError as error:
            raise step_failure(error, server, tool) from None


def _tool(server: McpServer, offered: Offered) -> Tool:
    return Tool(
        f"{server.name}.{offered.name}",
        offered.description or offered.title or "",
        dict(offered.input_schema),
        _repeatable(offered),
    )


def _repeatable(offered: Offered) -> bool:
    """What the server says of a second call; one that says nothing may be repeated, as any tool that does not."""
    hints = offered.annotations
    if hints is None or hints.read_only_hint or hints.idempotent_hint:
        return True
    return hints.idempotent_hint is None and not hints.destructive_hint


def _meta(context: ToolCallContext) -> dict[str, Json]:
    """What a server is told of the call: which workflows led to it, and a key that is the same for every attempt."""
    return {"stepwell/chain": list(context.chain), "stepwell/run": context.run_id, "stepwell/key": context.key}
