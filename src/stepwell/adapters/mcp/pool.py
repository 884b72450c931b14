"""The pool: a connection for every server and scope that is wanted, opened once, looked at before it is used.

The law of the file: a request is sent at most once, on a connection that was alive a moment ago; whoever is cancelled
or late takes nothing away from the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.mcp.connection import Connection
from stepwell.adapters.mcp.failures import McpCallTimeout, McpConnectError, McpPoolBusy
from stepwell.adapters.mcp.launched import Launched

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from stepwell.adapters.mcp.server import McpServer

Json: TypeAlias = Any
Key: TypeAlias = tuple[str, str]
"""A server's key and a scope: "" for all, or the run whose session it is."""

CONNECT = 30.0
"""Seconds for a connection to be opened, whoever waits for it."""
FRESH = 1.0
"""Seconds since it was last heard of, up to which a connection is used without being asked."""


class Pool:
    """Connections to MCP servers. It belongs to the event loop that it is first used in."""

    def __init__(self, *, largest: int = 20, idle: float = 60.0, keepalive: float = 20.0) -> None:
        """`largest` counts connections, those that are opening and closing too; `idle` and `keepalive` are seconds."""
        self._largest = largest
        self._idle = idle
        self._keepalive = keepalive
        self._open: dict[Key, Connection] = {}
        self._opening: dict[Key, asyncio.Task[Connection]] = {}
        self._checking: dict[Key, asyncio.Task[bool]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._launched: dict[str, Launched] = {}
        self._crowd: set[asyncio.Future[None]] = set()
        """Those who wait for room."""
        self._watch: asyncio.Task[None] | None = None
        self._closed = False

    async def call(
        self,
        server: McpServer,
        tool: str,
        arguments: dict[str, Json],
        *,
        timeout: float,
        scope: str = "",
        meta: dict[str, Json] | None = None,
    ) -> tuple[CallToolResult, bool]:
        """Call a tool once, within `timeout` seconds for everything. Raises McpError.

        Gives the answer, and whether it is the first of its session. With a `scope` the session is its own; one that
        did not answer in time is given up: nobody knows its state.
        """
        until = asyncio.get_running_loop().time() + timeout
        connection = await self.borrow(server, scope, timeout)
        async with _place(connection, _left(until)):
            try:
                new = connection.calls == 0
                return await connection.call(tool, arguments, _left(until), meta or {}), new
            except McpCallTimeout:
                if scope:
                    self._drop((server.key(), scope), connection, at_once=True)
                raise McpCallTimeout(f"no answer within {timeout:g} s") from None
            finally:
                self._tell()

    async def borrow(self, server: McpServer, scope: str = "", timeout: float = CONNECT) -> Connection:
        """A connection that is alive, opened if need be. Raises McpConnectError, McpPoolBusy."""
        key = (server.key(), scope)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    connection = self._open.get(key)
                    if connection is None:
                        connection = await self._opened(key, server)
                    elif not await self._alive(key, connection):
                        self._drop(key, connection, at_once=True)
                        continue
                    return connection
        except TimeoutError:
            if not self._crowd:
                raise McpConnectError(f"it cannot be connected to within {timeout:g} s") from None
            raise McpPoolBusy(f"no connection came free within {timeout:g} s") from None

    def discard(self, server: McpServer, scope: str) -> None:
        """Close a session: the next call has a new one."""
        key = (server.key(), scope)
        if key in self._open:
            self._drop(key, self._open[key])

    def release(self, scope: str) -> None:
        """Close the sessions of a scope that is over."""
        for key in [key for key in self._open if key[1] == scope and scope]:
            self._drop(key, self._open[key])

    async def aclose(self) -> None:
        """Close everything, and wait until no process is left. Idempotent."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        for task in list(self._opening.values()):
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for key, connection in list(self._open.items()):
            self._drop(key, connection)
        while self._closing:
            await asyncio.wait(self._closing)
        await asyncio.gather(*(launched.end() for launched in self._launched.values()))

    # ── opening ──

    async def _opened(self, key: Key, server: McpServer) -> Connection:
        """The connection, opened once for all who wait for it."""
        task = self._opening.get(key)
        if task is None:
            if self._closed:
                raise McpConnectError("the engine is closing")
            task = asyncio.create_task(self._connect(key, server), name=f"stepwell mcp connect {server.name}")
            self._opening[key] = task
            task.add_done_callback(lambda done: self._has_opened(key, done))
        await asyncio.wait({task})  # not awaited itself: a caller that goes must not take it from the others
        if task.cancelled():
            raise McpConnectError("the engine is closing")
        return task.result()

    def _has_opened(self, key: Key, task: asyncio.Task[Connection]) -> None:
        self._opening.pop(key, None)
        if not task.cancelled():
            task.exception()
        self._tell()

    async def _connect(self, key: Key, server: McpServer) -> Connection:
        if server.missing:
            raise McpConnectError(server.missing)
        await self._make_room(key)
        connection: Connection | None = None
        try:
            async with asyncio.timeout(CONNECT):
                connection = Connection(server, await self._url(server))
                await connection.open()
        except BaseException as error:
            if connection is not None:
                self._end(connection, at_once=True)
            if not isinstance(error, TimeoutError):
                raise
            if server.command and server.url:
                await self._launched[server.key()].end(at_once=True)
            raise McpConnectError(f"it does not answer within {CONNECT:g} s") from None
        self._open[key] = connection
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._keep(), name="stepwell mcp pool")
        return connection

    async def _url(self, server: McpServer) -> str:
        if not (server.command and server.url):
            return server.url
        return await self._launched.setdefault(server.key(), Launched(server)).url()

    async def _make_room(self, key: Key) -> None:
        """Wait until one more may be opened; each that waits closes at most one that nobody uses."""
        evicted = False
        while self._count(key) >= self._largest:
            free = [one for one in self._open.items() if not one[1].inflight]
            if not evicted and free:
                # a session of a run's own holds a state that its run may come back for: those go last
                self._drop(*min(free, key=lambda one: (bool(one[0][1]), one[1].used)))
                evicted = True
            told = asyncio.get_running_loop().create_future()
            self._crowd.add(told)
            try:
                await told
            finally:
                self._crowd.discard(told)

    def _count(self, mine: Key) -> int:
        earlier = list(self._opening)
        return len(self._open) + len(self._closing) + (earlier.index(mine) if mine in earlier else len(earlier))

    # ── keeping ──

    async def _alive(self, key: Key, connection: Connection) -> bool:
        """Whether it may be used: asked for, by one for all, if it was not heard of for a while."""
        if connection.lost:
            return False
        if connection.inflight or asyncio.get_running_loop().time() - connection.heard <= FRESH:
            return True
        task = self._checking.get(key)
        if task is None:
            task = self._checking[key] = asyncio.create_task(connection.ping(), name="stepwell mcp ping")
            task.add_done_callback(lambda _: self._checking.pop(key, None))
        await asyncio.wait({task})
        return not task.cancelled() and task.result() and not connection.lost

    async def _keep(self) -> None:
        """Close what is idle or dead, and ask what was not heard of for long."""
        loop = asyncio.get_running_loop()
        step = min(self._idle, self._keepalive) / 4
        while True:
            await asyncio.sleep(step)
            for key, connection in list(self._open.items()):
                if connection.lost:
                    self._drop(key, connection, at_once=True)
                elif not connection.inflight and loop.time() - connection.used > self._idle:
                    self._drop(key, connection)
            quiet = [one for one in self._open.items() if loop.time() - one[1].heard > self._keepalive]
            alive = await asyncio.gather(*(connection.ping() for _, connection in quiet))
            for (key, connection), answered in zip(quiet, alive, strict=True):
                if not answered:
                    self._drop(key, connection, at_once=True)

    def _drop(self, key: Key, connection: Connection, *, at_once: bool = False) -> None:
        """Use a connection no more, and close it behind the scenes."""
        if self._open.get(key) is connection:
            del self._open[key]
            self._end(connection, at_once=at_once)

    def _end(self, connection: Connection, *, at_once: bool = False) -> None:
        task = asyncio.create_task(connection.close(at_once=at_once), name="stepwell mcp close")
        self._closing.add(task)
        task.add_done_callback(self._is_closed)

    def _is_closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        self._tell()

    def _tell(self) -> None:
        """Let those who wait for room look again."""
        for waiter in self._crowd:
            if not waiter.done():
                waiter.set_result(None)


def _left(until: float) -> float:
    return until - asyncio.get_running_loop().time()


@contextlib.asynccontextmanager
async def _place(connection: Connection, timeout: float) -> Any:
    """One of the connection's places. Raises McpPoolBusy if none comes free in time."""
    try:
        async with asyncio.timeout(max(0.0, timeout)):
            await connection.places.acquire()
    except TimeoutError:
        most = connection.server.max_inflight
        raise McpPoolBusy(f"{most} calls are under way at once, and none ended within {timeout:g} s") from None
    try:
        yield
    finally:
        connection.places.release()
