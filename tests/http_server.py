"""A server for tests of the tool `http`: answers by path, keeps what it was asked, fails in every way."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = Any


@dataclass(slots=True)
class Request:
    """What came in. `headers` by lower-case name."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.target).query, keep_blank_values=True)


@dataclass(slots=True)
class Web:
    """One server on the loopback."""

    port: int = 0
    asked: list[Request] = field(default_factory=list)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read(reader)
            self.asked.append(request)
            await self._answer(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        path, _, rest = urlsplit(request.target).path[1:].partition("/")
        match path:
            case "echo":
                said = {"method": request.method, "headers": request.headers, "query": request.query,
                        "body": request.body.decode("utf-8", "replace")}  # fmt: skip
                await _send(writer, 200, json.dumps(said).encode(), "application/json")
            case "status":
                headers = {name: values[0] for name, values in request.query.items()}
                await _send(writer, int(rest), json.dumps({"error": "said no"}).encode(), "application/json", headers)
            case "to":
                code, target = rest.split("/", 1)
                await _send(writer, int(code), b"", "", {"location": request.query.get("at", [f"/{target}"])[0]})
            case "round":
                await _send(writer, 302, b"", "", {"location": "/round"})
            case "body":
                await _send(writer, 200, *_BODIES[rest]())
            case "hang":
                await asyncio.sleep(60)
            case "drop":
                writer.transport.abort()
            case "half":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
                await writer.drain()
            case "flood":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
                for _ in range(1000):
                    writer.write(b"x" * 65536)
                    await writer.drain()
            case "nonsense":
                writer.write(b"hello, this is no HTTP\r\n\r\n")
                await writer.drain()


_BODIES: dict[str, Any] = {
    "text": lambda: ("é中".encode(), "text/plain; charset=utf-8"),
    "latin": lambda: ("é".encode("latin-1"), "text/plain; charset=iso-8859-1"),
    "bom": lambda: (b"\xef\xbb\xbf{}", "application/json"),
    "big": lambda: (b'{"n": 123456789012345678901234567890}', "application/vnd.x+json; charset=utf-8"),
    "bad-json": lambda: (b"<html>", "application/json"),
    "nan": lambda: (b"[NaN]", "application/json"),
    "deep": lambda: (b"[" * 100_000, "application/json"),
    "png": lambda: (b"\x89PNG\0\xff", "image/png"),
    "plain": lambda: (b"just text", ""),
    "odd": lambda: (b"\xff\0", ""),
    "gzip": lambda: (gzip.compress(b'{"ok": true}'), "application/json", {"content-encoding": "gzip"}),
    "bomb": lambda: (gzip.compress(b"0" * 50_000_000), "text/plain", {"content-encoding": "gzip"}),
    "not-gzip": lambda: (b"plain", "text/plain", {"content-encoding": "gzip"}),
    "cookie": lambda: (b"{}", "application/json", {"set-cookie": "sid=1", "x-a": "1"}),
    "empty": lambda: (b"", "application/json"),
}


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    return Request(method, target, headers, await reader.readexactly(int(headers.get("content-length", 0))))


async def _send(
    writer: asyncio.StreamWriter, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None
) -> None:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close"]
    lines += [f"content-type: {kind}"] if kind else []
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
    await writer.drain()


@asynccontextmanager
async def web() -> AsyncIterator[Web]:
    """A running server."""
    found = Web()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
