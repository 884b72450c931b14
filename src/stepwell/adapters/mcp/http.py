"""The transport to a server over streamable HTTP.

The law of the file: a request that fails gets an answer that says so. In the library the error of one request ends the
whole session, and the task that opened it; so none may leave the HTTP client.
"""

from __future__ import annotations

import contextlib
import math
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.mcp.failures import CONTAINED
from stepwell.adapters.mcp.server import LARGEST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

Json: TypeAlias = Any
CONNECT = 10.0
"""Seconds for a connection of HTTP. How long an answer may take is each call's own affair."""
SESSION = "mcp-session-id"


@contextlib.asynccontextmanager
async def streamable_http(url: str, headers: Mapping[str, str], ended: Callable[[str], None]) -> AsyncIterator[Any]:
    """Connect to the server at `url`. `ended` is told why, when the session is of no use any more."""
    from mcp.client.streamable_http import streamable_http_client

    client = _client(headers, ended)
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=LARGEST) as streams:
        yield streams


def _client(headers: Mapping[str, str], ended: Callable[[str], None]) -> Any:
    import httpx2

    class Contained(httpx2.AsyncClient):
        async def send(self, request: Any, **options: Any) -> Any:
            if request.method != "POST":
                return await super().send(request, **options)
            try:
                response = await super().send(request, **options)
                return await _answer(response, ended)
            except (
                httpx2.ConnectError,
                httpx2.ConnectTimeout,
                httpx2.PoolTimeout,
                httpx2.UnsupportedProtocol,
            ) as error:
                said = f"it cannot be reached: {_words(error)}"
                ended(said)
                return _made(request, 503, said, sent=False)
            except httpx2.TransportError as error:
                said = f"the connection broke: {_words(error)}"
                ended(said)
                return _made(request, 502, said)

    timeout = httpx2.Timeout(CONNECT, read=None)
    return Contained(headers=dict(headers), timeout=timeout)


async def _answer(response: Any, ended: Callable[[str], None]) -> Any:
    """The answer, or one that says what is wrong with it."""
    status = response.status_code
    kind = response.headers.get("content-type", "").lower()
    if status < 300 and not kind.startswith("application/json"):
        return response
    body = await _bounded(response)
    request = response.request
    if body is None:
        said = f"it sent a message of more than {LARGEST // 2**20} MB"
        ended(said)
        return _made(request, 502, said)
    if status < 300:
        return _copy(response, body)
    if status in {400, 404} and SESSION in request.headers:
        said = f"it does not know the session (HTTP {status}): {_text(body)}"
        ended(said)
        return _made(request, 503, said, sent=False)
    if status in {401, 403, 408, 425, 429} or status >= 500:
        after = _seconds(response.headers.get("retry-after", ""))
        return _made(request, status, f"HTTP {status}: {_text(body)}", answered=status, retry_after=after)
    return _copy(response, body)


async def _bounded(response: Any) -> bytes | None:
    """The body; None if it is too large."""
    body = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > LARGEST:
                return None
    finally:
        await response.aclose()
    return bytes(body)


def _copy(response: Any, body: bytes) -> Any:
    """The same answer with its body read."""
    import httpx2

    kept = [(name, value) for name, value in response.headers.multi_items()
            if name.lower() not in {"content-encoding", "content-length", "transfer-encoding"}]  # fmt: skip
    return httpx2.Response(response.status_code, headers=kept, content=body, request=response.request)


def _made(request: Any, status: int, said: str, **what: Json) -> Any:
    """An answer of the protocol that says what became of the request."""
    import httpx2

    error = {"code": -32000, "message": said, "data": {CONTAINED: what}}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _text(body: bytes) -> str:
    return " ".join(body[:300].decode("utf-8", "replace").split()) or "no text"


def _seconds(text: str) -> float | None:
    """A `Retry-After` in seconds; a date counts from the answer's own time, which is not known better than now."""
    try:
        seconds = float(text)
    except ValueError:
        with contextlib.suppress(ValueError, TypeError):
            from datetime import UTC, datetime

            seconds = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
            return seconds if seconds > 0 else None
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None
