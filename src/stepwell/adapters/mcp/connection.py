"""One connection to an MCP server: opened, kept and closed by one task of its own.

The law of the file: the library's client is entered and left in the owner's task and nowhere else, and once there is a
connection that task is told to end, not cancelled; a call is raced against the end of the connection.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from stepwell.adapters.mcp.failures import McpCallTimeout, McpConnectError, McpConnectionLost, McpError, McpRefused
from stepwell.adapters.mcp.failures import of_protocol as meant_by
from stepwell.adapters.mcp.http import streamable_http
from stepwell.adapters.mcp.stdio import stdio
from stepwell.extras import installing

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mcp_types import CallToolResult, RequestParamsMeta, Tool

    from mcp import Client
    from stepwell.adapters.mcp.children import Child
    from stepwell.adapters.mcp.server import McpServer

Json: TypeAlias = Any
PAGES = 50
"""Pages of a listing of tools; a server that has no last page is cut off."""
PATIENCE = 3
"""Pings without an answer, while calls are in flight, after which a connection counts as dead."""
PING = 3.0
"""Seconds for the answer to a ping."""
CLOSED = -32000
"""The library's code for a connection that has ended."""
LAST_WORD = 0.25
"""Seconds for an answer to come after the end of the connection has been told."""

logging.getLogger("mcp").addHandler(logging.NullHandler())  # what it has to say is raised as well, and is told there


class Connection:
    """A connection to one server, for one scope."""

    def __init__(self, server: McpServer, url: str = "") -> None:
        self.server = server
        self.tools: tuple[Tool, ...] = ()
        self.inflight = 0
        self.used = 0.0
        self.calls = 0
        """How many were made, or begun."""
        self.heard = 0.0
        """When a call ended, and when an answer came, last, in the loop's time."""
        self.places = asyncio.Semaphore(server.max_inflight)
        self._url = url
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Client] = self._loop.create_future()
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._child: Child | None = None
        self._unanswered = 0
        self._unreadable = ""
        """What is wrong with what the server said while it was connected to; its process is ended for that."""
        self._abandoned: set[asyncio.Task[Any]] = set()
        self._owner = self._loop.create_task(self._own(), name=f"stepwell mcp {server.name}")

    async def open(self) -> None:
        """Wait until it is ready. Raises McpConnectError; a caller that is cancelled does not take it from others."""
        await asyncio.wait({self._ready})
        self._ready.result()

    @property
    def lost(self) -> str:
        """Why it is of no use any more; "" while it is."""
        return self._ended.result() if self._ended.done() else ""

    @property
    def closed(self) -> bool:
        return self._owner.done()

    async def call(
        self, tool: str, arguments: dict[str, Json], timeout: float, meta: dict[str, Json]
    ) -> CallToolResult:
        """Call a tool once. Raises McpError; a call that is given up is cancelled at the server too."""
        client = self._ready.result()
        told = cast("RequestParamsMeta", meta) if meta else None
        self.inflight += 1
        self.calls += 1
        try:
            answer: CallToolResult = await self._raced(client.call_tool(tool, arguments, meta=told), timeout)
            return answer
        finally:
            self.inflight -= 1
            self.used = self._loop.time()

    async def ping(self) -> bool:
        """Whether it may still be used: a server that is busy need not answer at once."""
        if self.lost:
            return False
        client = self._ready.result()
        from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

        old = client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
        asking: Awaitable[Any] = client.session.send_ping() if old else client.list_tools(cache_mode="bypass")
        try:
            await self._raced(asking, PING)
        except McpCallTimeout:
            self._unanswered += 1
            return self.inflight > 0 and self._unanswered < PATIENCE
        except McpError:  # an answer, if not a kind one, unless it was the end of the connection
            if self.lost:
                return False
        self._unanswered = 0
        self.heard = self._loop.time()
        return True

    def give_up(self, why: str) -> None:
        """Use it no more; calls in flight fail."""
        if not self._ended.done():
            self._ended.set_result(why)

    async def close(self, *, at_once: bool = False) -> None:
        """End it and wait for its end; `at_once` without asking the server first."""
        self.give_up("it was closed")
        if self._child is not None and (at_once or not self._ready.done()):
            await self._child.end(at_once=True)
        elif not self._ready.done():
            self._owner.cancel()  # still connecting over HTTP: there is nothing that could be left behind
        done, _ = await asyncio.wait({self._owner}, timeout=8.0)
        if not done:
            if self._child is not None:
                await self._child.end(at_once=True)
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=2.0)
        for task in self._abandoned:
            task.cancel()

    async def _own(self) -> None:
        """The one task that enters and leaves the client."""
        why = "it was closed"
        try:
            await asyncio.to_thread(_import)
            await self._serve()
        except McpError as error:
            why = str(error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 -- a transport cancels its owner: that is no cancellation of ours
            why = _first_words(error)
            self._unreadable = "" if _of_the_end(error) else why
        finally:
            self.give_up(why)
            if not self._ready.done():
                self._ready.set_exception(McpConnectError(self._unreadable or self._ended.result()))
                self._ready.exception()  # whoever waits raises it; if nobody does any more, it is no loose end

    async def _serve(self) -> None:
        from mcp import Client

        if self._url:
            transport = streamable_http(self._url, self.server.headers, self.give_up)
        else:
            transport = stdio(self.server, self._started, self.give_up)
        async with Client(transport) as client:
            self.tools = await _listing(client)
            self.used = self.heard = self._loop.time()
            if not self._ready.done():
                self._ready.set_result(client)
            await asyncio.wait({self._ended})

    def _started(self, child: Child) -> None:
        self._child = child

    async def _raced(self, asking: Awaitable[Any], timeout: float) -> Any:
        """The answer, unless the connection or the time ends before it comes."""
        task = asyncio.ensure_future(asking)
        try:
            await asyncio.wait({task, self._ended}, timeout=max(0.0, timeout), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if self._ended.done() and not task.done():
            await self._last_word(task)
        if not task.done():
            self._abandon(task)
            if self._ended.done():
                raise McpConnectionLost(f"the connection ended before the answer came: {self._ended.result()}")
            raise McpCallTimeout(f"no answer within {timeout:g} s")
        self.heard = self._loop.time()
        return self._result(task)

    async def _last_word(self, task: asyncio.Future[Any]) -> None:
        """Let the answer come that says whether this call was sent: it comes a moment after the end is known."""
        try:
            await asyncio.wait({task}, timeout=LAST_WORD)
        except asyncio.CancelledError:
            self._abandon(task)
            raise

    def _result(self, task: asyncio.Future[Any]) -> Any:
        from mcp.shared.exceptions import MCPError
        from pydantic import ValidationError

        if task.cancelled():  # by the transport: nobody here cancels a call that it still waits for
            raise McpConnectionLost(f"the connection ended before the answer came: {self.lost or 'it broke'}")
        error = task.exception()
        if isinstance(error, MCPError):
            meant = meant_by(error.code, error.message, error.data)
            if isinstance(meant, McpConnectionLost) and self.lost:
                raise McpConnectionLost(f"the connection ended before the answer came: {self.lost}") from None
            if isinstance(meant, McpConnectionLost | McpConnectError):
                self.give_up(str(meant))
            raise meant from None
        if isinstance(error, ValidationError | ValueError | RuntimeError):
            raise McpRefused(f"its answer cannot be used: {_first_words(error)}", "tool_error") from None
        if error is not None:
            self.give_up(_first_words(error))
            raise McpConnectionLost(f"the connection broke: {_first_words(error)}") from None
        return task.result()

    def _abandon(self, task: asyncio.Future[Any]) -> None:
        """Let a call end by itself: what it still sends to the server may take a while."""
        task.cancel()
        if isinstance(task, asyncio.Task) and not task.done():
            self._abandoned.add(task)
            task.add_done_callback(self._settled)

    def _settled(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()


def _import() -> None:
    """Half a second of a processor, not in the event loop. Raises McpConnectError."""
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        raise McpConnectError(f"the extra `mcp` is not installed ({error}): {installing('mcp')}") from None


async def _listing(client: Client) -> tuple[Tool, ...]:
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return tuple(found)


def _of_the_end(error: BaseException) -> bool:
    """Whether an error only says that the connection has ended."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return (
        isinstance(error, asyncio.CancelledError | OSError)
        or getattr(error, "code", 0) == CLOSED
        or (type(error).__name__ in {"ClosedResourceError", "BrokenResourceError", "EndOfStream"})
    )


def _first_words(error: BaseException) -> str:
    """What an error says, or the first of those that it groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    said = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
