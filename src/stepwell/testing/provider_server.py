"""A real HTTP server that looks like a model provider and does what a script says, also badly.

    async with ProviderServer([Reply(status=429, headers={"Retry-After": "7"}), Reply("hello")]) as server:
        OpenAICompatible("test", server.base_url, "some-model", api_key=server.key)
        Anthropic("test", server.root, "claude-sonnet-5", api_key=server.key)

It answers as OpenAI does under /v1/chat/completions and as Anthropic does under /v1/messages, whole or streamed, as it
is asked. Replies are used up in order; the last one repeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self, TypeAlias

from stepwell.testing.provider_reply import Reply
from stepwell.testing.provider_shapes import AnthropicShape, OpenAIShape, Shape

Json: TypeAlias = Any

_OPENAI, _ANTHROPIC = OpenAIShape(), AnthropicShape()


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came: header names in lower case, and the JSON body."""

    path: str
    headers: dict[str, str]
    json: Json

    @property
    def shape(self) -> Shape:
        """The format in which it wants to be answered."""
        return _ANTHROPIC if self.path.partition("?")[0].endswith("/messages") else _OPENAI

    @property
    def streams(self) -> bool:
        """Whether the answer is wanted in pieces."""
        return isinstance(self.json, dict) and bool(self.json.get("stream"))

    @property
    def key(self) -> str:
        """The key that came with it."""
        return self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")


Script: TypeAlias = Sequence[Reply] | Callable[[Received], Reply]


class ProviderServer:
    """Serves on 127.0.0.1 while entered.

    `requests` lists what came; `dropped` counts clients that went away early, `sent` the events of all streams.
    """

    def __init__(self, script: Script, *, key: str = "sk-test-0123456789abcdef") -> None:
        self.script = script
        self.key = key
        self.requests: list[Received] = []
        self.dropped = 0
        self.sent = 0
        self.root = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        """Where OpenAI's clients begin; those of Anthropic begin at `root`."""
        return f"{self.root}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.root = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that closes its connection is how a conversation ends.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while await self._serve(reader, writer):
                pass

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(head[0].split(" ")[1], headers, json.loads(raw) if raw else None)
        self.requests.append(received)
        reply = self._next(received)
        if (reply.hang or reply.delay) and await self._client_left(reader, None if reply.hang else reply.delay):
            return False
        if reply.reset:
            return _break(writer)
        if received.streams and reply.status < 400 and reply.body is None:
            return await self._stream(reply, received, reader, writer)
        return await self._send(reply, received, writer)

    def _next(self, received: Received) -> Reply:
        if self.key and received.key != self.key:
            message = f"Incorrect API key provided: {received.key}"
            if received.shape is _ANTHROPIC:
                return Reply(message, status=401)
            return Reply(status=401, body={"error": {"message": message, "code": "invalid_api_key"}})
        if callable(self.script):
            return self.script(received)
        return self.script[min(len(self.requests), len(self.script)) - 1]

    async def _client_left(self, reader: asyncio.StreamReader, seconds: float | None) -> bool:
        """Wait; true if the client went away meanwhile."""
        try:
            rest = await asyncio.wait_for(reader.read(1), seconds)
        except TimeoutError:
            return False
        except ConnectionError:
            rest = b""
        self.dropped += not rest
        return True

    async def _send(self, reply: Reply, received: Received, writer: asyncio.StreamWriter) -> bool:
        asked = received.json if isinstance(received.json, dict) else {}
        body = _payload(reply, received.shape, str(asked.get("model", "")))
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **reply.headers}
        writer.write(_head(reply.status, headers) + body[: reply.truncate])
        await writer.drain()
        return reply.truncate is None

    async def _stream(
        self, reply: Reply, received: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        headers = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **reply.headers}
        writer.write(_head(reply.status, headers))
        for number, event in enumerate(received.shape.events(reply, received.json)):
            if number == reply.cut:
                return await self._break_off(reply, received, reader, writer)
            if reply.pause and await self._client_left(reader, reply.pause):
                return False
            writer.write(_chunk(event))
            self.sent += 1
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _break_off(
        self, reply: Reply, received: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        match reply.then:
            case "end":
                writer.write(b"0\r\n\r\n")
            case "reset":
                return _break(writer)
            case "hang":
                await self._client_left(reader, None)
            case "garbage":
                writer.write(_chunk('event: message_delta\ndata: {"id": nonsense\n\n') + b"0\r\n\r\n")
            case "error":
                failure = received.shape.failure(Reply("we are overloaded", status=529))
                writer.write(_chunk(f"event: error\ndata: {json.dumps(failure)}\n\n") + b"0\r\n\r\n")
            case "drop":
                pass
        await writer.drain()
        return False


def _payload(reply: Reply, shape: Shape, model: str) -> bytes:
    """The body of an answer that is not streamed."""
    if isinstance(reply.body, str):
        return reply.body.encode()
    body = reply.body
    if body is None:
        body = shape.answer(reply, model) if reply.status < 400 else shape.failure(reply)
    return json.dumps(body).encode()


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {phrase}\r\n{lines}\r\n".encode()


def _chunk(event: str) -> bytes:
    raw = event.encode()
    return f"{len(raw):x}\r\n".encode() + raw + b"\r\n"


def _break(writer: asyncio.StreamWriter) -> bool:
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    return False
