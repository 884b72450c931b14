"""The transport to a server over its standard input and output.

The law of the file: a message of a server is bounded, and its end is told at once. The library's own transport reads a
line of any length and tells nobody of the end; hence this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.mcp.children import Child
from stepwell.adapters.mcp.server import LARGEST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from stepwell.adapters.mcp.server import McpServer

NOISE = 100_000
"""Lines between two messages that a server may print for nobody."""
_ID = re.compile(rb'"id" ?: ?([0-9]{1,18}|"[^"]{1,100}")')
_METHOD = re.compile(rb'^.{0,200}"method" ?:')
Streams: TypeAlias = Any
"""The two memory streams of a transport of the library, read and write."""


@contextlib.asynccontextmanager
async def stdio(
    server: McpServer, started: Callable[[Child], None], ended: Callable[[str], None]
) -> AsyncIterator[Streams]:
    """Start the server and connect to it. `ended` is told why, when nothing can come any more."""
    import anyio

    child = await Child.start(server, server.args, speaks=True)
    started(child)
    heard, reading = anyio.create_memory_object_stream[Any](0)
    writing, said = anyio.create_memory_object_stream[Any](0)
    tasks = [
        asyncio.create_task(_hear(child, heard, ended), name=f"stepwell mcp {server.name} reader"),
        asyncio.create_task(_say(child, said, ended), name=f"stepwell mcp {server.name} writer"),
    ]
    try:
        yield reading, writing
    finally:
        await child.end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (heard, reading, writing, said):
            stream.close()


async def _hear(child: Child, heard: Any, ended: Callable[[str], None]) -> None:
    from mcp.shared.message import SessionMessage

    assert child.process.stdout is not None
    why, noise = "", 0
    async with heard:
        while True:
            try:
                line = await child.process.stdout.readuntil(b"\n")
            except asyncio.LimitOverrunError:
                why = f"it sent a message of more than {LARGEST // 2**20} MB"
                break
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            message = _read(line)
            if message is None:  # programs print things; what is no message of the protocol is for nobody
                noise += 1
                if noise > NOISE:
                    why = f"it wrote more than {NOISE} lines that are no messages"
                    break
                await asyncio.sleep(0)  # a flood of lines holds up nobody else
                continue
            noise = 0
            try:
                await heard.send(SessionMessage(message))
            except Exception:  # noqa: BLE001 -- whichever way the session closed its end: nobody listens any more
                break
        if not why:
            await child.gone(0.2)  # the exit code comes a moment after the end of the pipe
        ended(why or child.ending())


def _read(line: bytes) -> Any:
    """The message of a line; where the library cannot read it, without lone surrogates, or an error for who waits.

    None for a line that is no message.
    """
    from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter

    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        if b'"jsonrpc"' not in line:
            return None
    try:
        whole = json.dumps(json.loads(line), ensure_ascii=False)
        said = json.loads(whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
        return jsonrpc_message_adapter.validate_python(said, by_name=False)
    except (ValueError, RecursionError):
        pass
    found = _ID.search(line)
    if found is None or _METHOD.search(line):
        return None
    told = found[1].decode("utf-8", "replace")
    asked = int(told) if told.isdecimal() else told.strip('"')
    return JSONRPCError(jsonrpc="2.0", id=asked, error=ErrorData(code=-32603, message="its answer cannot be read"))


async def _say(child: Child, said: Any, ended: Callable[[str], None]) -> None:
    pipe = child.process.stdin
    assert pipe is not None
    try:
        async with said:
            async for one in said:
                text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                pipe.write(text.encode() + b"\n")
                await pipe.drain()
    except (ConnectionError, RuntimeError):
        ended(child.ending() if await child.gone(0.5) else "it does not read its input any more")
