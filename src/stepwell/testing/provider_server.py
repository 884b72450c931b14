"""A real HTTP server that looks like an OpenAI provider and does what a script says, also badly.

    async with ProviderServer([Reply(status=429, headers={"Retry-After": "7"}), Reply("hello")]) as server:
        OpenAICompatible("test", server.base_url, "some-model", api_key=server.key)

Replies are used up in order; the last one repeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self, TypeAlias

from stepwell.ports import ToolRequest

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server does with one request.

    `body` replaces the whole answer (text or JSON); `delay` is seconds before anything is sent; `hang` sends nothing
    until the client goes; `reset` breaks the connection with RST; `truncate` sends so many bytes of the announced body
    and closes. `calls` are tools that the model asks for; arguments that are text are sent as they are.
    """

    content: str | None = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | Json = None
    finish_reason: str = "stop"
    refusal: str | None = None
    calls: Sequence[ToolRequest] = ()
    input_tokens: int = 10
    output_tokens: int = 5
    delay: float = 0.0
    hang: bool = False
    reset: bool = False
    truncate: int | None = None

    @property
    def finish(self) -> str:
        """Why the answer ends, as it is sent."""
        return "tool_calls" if self.calls and self.finish_reason == "stop" else self.finish_reason

    def payload(self, model: str) -> bytes:
        """The body as it is sent."""
        if isinstance(self.body, str):
            return self.body.encode()
        body = self.body
        if body is None:
            body = self._completion(model) if self.status < 400 else {"error": {"message": self.content or "refused"}}
        return json.dumps(body).encode()

    def _completion(self, model: str) -> Json:
        message: dict[str, Json] = {"role": "assistant", "content": self.content}
        if self.refusal is not None:
            message |= {"content": None, "refusal": self.refusal}
        if self.calls:
            message |= {"content": self.content or None, "tool_calls": [_as_call(call) for call in self.calls]}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish}],
            "usage": {
                "prompt_tokens": self.input_tokens,
                "completion_tokens": self.output_tokens,
                "total_tokens": self.input_tokens + self.output_tokens,
            },
        }


def _as_call(call: ToolRequest) -> Json:
    function = {"name": call.name, "arguments": _text(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _text(arguments: Json) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came: header names in lower case, and the JSON body."""

    path: str
    headers: dict[str, str]
    json: Json


Script: TypeAlias = Sequence[Reply] | Callable[[Received], Reply]


class ProviderServer:
    """Serves on 127.0.0.1 while entered; `requests` lists what came, `dropped` counts clients that went away early."""

    def __init__(self, script: Script, *, key: str = "sk-test-0123456789abcdef") -> None:
        self.script = script
        self.key = key
        self.requests: list[Received] = []
        self.dropped = 0
        self.base_url = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}/v1"
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
        if reply.hang or reply.delay:
            gone = await self._client_left(reader, None if reply.hang else reply.delay)
            if gone:
                return False
        return await self._send(reply, received, writer)

    def _next(self, received: Received) -> Reply:
        if self.key and received.headers.get("authorization") != f"Bearer {self.key}":
            shown = received.headers.get("authorization", "").removeprefix("Bearer ")
            message = f"Incorrect API key provided: {shown}"
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
        self.dropped += not rest
        return True

    async def _send(self, reply: Reply, received: Received, writer: asyncio.StreamWriter) -> bool:
        if reply.reset:
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        asked = received.json if isinstance(received.json, dict) else {}
        body = reply.payload(str(asked.get("model", "")))
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **reply.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        phrase = HTTPStatus(reply.status).phrase if reply.status in set(HTTPStatus) else "Unknown"
        writer.write(f"HTTP/1.1 {reply.status} {phrase}\r\n{lines}\r\n".encode() + body[: reply.truncate])
        await writer.drain()
        return reply.truncate is None
