"""The tool `http` against servers that mean no good: redirects to nowhere, odd packings and charsets, names that are none."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stepwell.adapters.http_addresses import Addresses
from stepwell.adapters.http_tool import HttpTool
from stepwell.errors import StepFailed
from stepwell.ports import ToolCallContext

Json = Any
CONTEXT = ToolCallContext("run", "/a", 1, "run/a", 20.0, ())


@asynccontextmanager
async def saying(answer: bytes) -> AsyncIterator[str]:
    """The address of a server that says the same to everybody."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"content-length: {len(body)}", "connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


async def called(said: bytes, **arguments: Json) -> Json:
    tool = HttpTool(["127.0.0.1"], max_bytes=1_000_000)
    try:
        async with saying(said) as url:
            return await tool.call("http", {"url": url, **arguments}, CONTEXT)
    finally:
        await tool.aclose()


async def failed(said: bytes, **arguments: Json) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        await called(said, **arguments)
    return caught.value


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("http://[::1", "refused"),
        ("javascript:alert(1)", "refused"),
        ("http://u:p@h.example/", "refused"),
        ("/x" * 40_000, "refused"),
        (f"http://{'a' * 70}.example/", "connection_error"),
        ("http://nowhere.invalid/", "connection_error"),
        ("http://10.0.0.1/", "refused"),
    ],
)
async def test_a_post_that_is_led_on_to_nowhere_was_sent(location: str, kind: str) -> None:
    failure = await failed(answer(b"", f"location: {location}", status="303 See Other"), method="POST", json={})
    assert failure.kind == kind
    assert (failure.detail or {}).get("sent") is not False


async def test_where_a_redirect_leads_is_told_without_its_query() -> None:
    failure = await failed(answer(b"", "location: ftp://x/?code=abc123", status="302 Found"))
    assert "ftp://x/" in failure.message
    assert "abc123" not in failure.message


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..b", "..."])
async def test_a_name_that_can_be_none_was_not_sent(host: str) -> None:
    tool = HttpTool()
    with pytest.raises(StepFailed, match="cannot be resolved") as caught:
        await tool.call("http", {"url": f"http://{host}/"}, CONTEXT)
    assert caught.value.kind == "connection_error"
    assert caught.value.detail == {"sent": False}


@pytest.mark.parametrize(
    ("packing", "body"),
    [
        ("gzip", gzip.compress(b"one ") + gzip.compress(b"two")),
        ("gzip", gzip.compress(b"one ") + b"\0" * 30 + gzip.compress(b"two") + b"\0\0"),
        ("deflate", zlib.compress(b"one two")),
        ("deflate", zlib.compress(b"one two")[2:-4]),
    ],
    ids=["members", "members_and_padding", "zlib", "bare"],  # gzip writes the time, and each process has its own
)
async def test_nothing_of_a_packed_body_is_lost(packing: str, body: bytes) -> None:
    got = await called(answer(body, f"content-encoding: {packing}", "content-type: text/plain"))
    assert got["text"] == "one two"


async def test_what_follows_a_packed_body_and_is_none_is_no_result() -> None:
    failure = await failed(answer(gzip.compress(b"one") + b"garbage", "content-encoding: gzip"))
    assert failure.kind == "output_invalid"


async def test_a_body_that_unpacks_to_nothing_ends_too() -> None:
    failure = await failed(answer(gzip.compress(b"") * 100_000, "content-encoding: gzip"))
    assert failure.kind == "output_too_large"


async def test_many_members_are_bounded_together() -> None:
    failure = await failed(answer(gzip.compress(b"0" * 600_000) * 2, "content-encoding: gzip"))
    assert failure.kind == "output_too_large"


async def test_a_charset_that_takes_quadratic_time_is_none() -> None:
    body = b"a-" + b"9" * 900_000
    begun = time.monotonic()
    got = await called(answer(body, "content-type: text/plain; charset=punycode"))
    assert got["text"] == body.decode()
    assert time.monotonic() - begun < 15  # it took minutes


async def test_a_number_that_is_none_is_no_json() -> None:
    assert (await failed(answer(b"[1e999]", "content-type: application/json"))).kind == "output_invalid"


@pytest.mark.parametrize(
    "address",
    [
        "::7f00:1", "::ffff:0:7f00:1", "64:ff9b:1::7f00:1", "fec0::1", "5f00::1", "3fff::1", "192.0.0.192",
        "192.88.99.1", "168.63.129.16", "2001:470::5efe:a00:1", "2001:470::200:5efe:a00:1",
    ],
)  # fmt: skip
async def test_addresses_that_only_look_public_are_inside(address: str) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return [address]

    with pytest.raises(StepFailed, match="not public"):
        await Addresses(resolve=resolve).of("innocent.example", 80)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "2001:470::5efe:808:808"])
async def test_public_addresses_are_public(address: str) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return [address]

    assert await Addresses(resolve=resolve).of("x.example", 80) == [address]
