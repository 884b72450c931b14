"""A bound on what a provider may send: an answer without end ends, before it has filled the memory.

The law of the file: bytes are counted as they come, and none beyond the bound is kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

from stepwell.adapters.models.stream import too_large

WHOLE = 32_000_000
"""Bytes of an answer that comes at once; what a step may give is far below it."""
STREAMED = 128_000_000
"""Bytes of a stream, which says little in many."""
UNPACKED = 20
"""How much more than its bytes a packed answer may be when it is unpacked."""


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for part in self._inner:
            seen += len(part)
            if seen > self._limit:
                raise too_large(self._limit, "bytes")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


async def bound(response: httpx2.Response) -> None:
    """Called with every response before its body is read."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    streams = response.headers.get("content-type", "").startswith("text/event-stream")
    limit = STREAMED if streams else WHOLE
    if response.headers.get("content-encoding", "identity") != "identity":
        limit //= UNPACKED
    response.stream = _Bounded(response.stream, limit)
