"""A server that is started here and spoken to over HTTP: one process, as many sessions as are wanted.

The law of the file: it is started once, however many ask for it at once, and again only after it has ended.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stepwell.adapters.mcp.children import Child
from stepwell.adapters.mcp.failures import McpConnectError
from stepwell.adapters.mcp.server import PORT

if TYPE_CHECKING:
    from stepwell.adapters.mcp.server import McpServer


class Launched:
    """The process of one server."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._child: Child | None = None
        self._url = ""
        self._starting = asyncio.Lock()

    async def url(self) -> str:
        """Where it listens, once it does. Raises McpConnectError."""
        async with self._starting:
            child = self._child
            if child is None or child.process.returncode is not None:
                await self._start()
            return self._url

    async def end(self, *, at_once: bool = False) -> None:
        """End the process; it is started again when it is next wanted."""
        child, self._child = self._child, None
        if child is not None:
            await child.end(at_once=at_once)

    async def _start(self) -> None:
        await self.end(at_once=True)
        port = str(_free_port())
        self._url = self._server.url.replace(PORT, port)
        args = [argument.replace(PORT, port) for argument in self._server.args]
        child = await Child.start(self._server, args, speaks=False)
        self._child = child
        try:
            await _listening(child, self._url)
        except BaseException:
            await self.end(at_once=True)
            raise


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _listening(child: Child, url: str) -> None:
    """Wait until something listens where the server should. Raises McpConnectError if it ended instead."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    while True:
        if child.process.returncode is not None:
            raise McpConnectError(child.ending())
        try:
            _, writer = await asyncio.open_connection(parts.hostname, port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.close()
        return
