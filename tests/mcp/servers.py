"""Servers for the tests of MCP, and a look at what is left of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

import psutil

from stepwell.adapters.mcp.pool import Pool
from stepwell.adapters.mcp.server import McpServer

RUDE = Path(__file__).with_name("rude_server.py")


def rude(manner: str = "", *, name: str = "rude", env: dict[str, str] | None = None, **more: Any) -> McpServer:
    """The server that misbehaves on request; `manner` is how it starts."""
    return McpServer(
        name, command=sys.executable, args=(str(RUDE), *([manner] if manner else [])), env=env or {}, **more
    )


def children() -> list[psutil.Process]:
    """The living children of this process that are servers of the tests."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            words = " ".join(child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and RUDE.name in words and "warden.py" not in words:
                found.append(child)
    return found


@contextlib.asynccontextmanager
async def pool_of(**options: Any) -> AsyncIterator[Pool]:
    """A pool that leaves nothing behind: no process, no task."""
    import mcp  # noqa: F401 -- half a second that no timeout of a test should pay

    before = asyncio.all_tasks()
    pool = Pool(**options)
    try:
        yield pool
    finally:
        await pool.aclose()
        for _ in range(100):
            left = [task for task in asyncio.all_tasks() - before if not task.done()]
            if not left:
                break
            await asyncio.sleep(0.05)
        assert not left, left
        assert not children()


def calls(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


class HttpServer:
    """An MCP server over HTTP, as an answer to each request decides; speaks the handshake by itself."""

    def __init__(self, answer: Callable[[dict[str, Any], HttpServer], Any] | None = None) -> None:
        self.answer = answer
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.sessions: set[str] = set()
        self.called = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As if it were killed: nothing is said to anybody, and all sessions are forgotten."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        self.sessions.clear()
        if self._serving:
            await asyncio.wait(self._serving, timeout=5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method = lines[0].split()[0]
                message = json.loads(body) if body else {}
                self.requests.append((method, headers, message))
                await self._reply(writer, method, headers, message)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _reply(
        self, writer: asyncio.StreamWriter, method: str, headers: dict[str, str], message: dict[str, Any]
    ) -> None:
        asked = message.get("method")
        if method != "POST":
            await respond(writer, 405, b"")
        elif asked == "server/discover":
            await respond(writer, 400, rpc(None, error={"code": -32601, "message": "unknown"}))
        elif asked == "initialize":
            session = f"s{len(self.sessions) + 1}-{self.port}"
            self.sessions.add(session)
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "1"},
            }
            await respond(writer, 200, rpc(message["id"], result), {"mcp-session-id": session})
        elif headers.get("mcp-session-id") not in self.sessions:
            await respond(writer, 404, rpc(None, error={"code": -32001, "message": "Session not found"}))
        elif "id" not in message:
            await respond(writer, 202, b"")
        elif asked == "tools/list":
            tool = {"name": "act", "inputSchema": {"type": "object"}}
            await respond(writer, 200, rpc(message["id"], {"tools": [tool]}))
        elif asked == "ping":
            await respond(writer, 200, rpc(message["id"], {}))
        else:
            self.called += 1
            said = self.answer(message, self) if self.answer else None
            if asyncio.iscoroutine(said):
                said = await said
            if callable(said):
                await said(writer)
            elif isinstance(said, tuple):
                await respond(writer, *said)
            else:
                await respond(writer, 200, rpc(message["id"], {"content": [{"type": "text", "text": said or "done"}]}))


def rpc(number: Any, result: Any = None, *, error: Any = None) -> bytes:
    body = {"jsonrpc": "2.0", "id": number}
    body |= {"error": error} if error else {"result": result}
    return json.dumps(body).encode()


async def respond(
    writer: asyncio.StreamWriter, status: int, body: bytes, headers: dict[str, str] | None = None
) -> None:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await writer.drain()
