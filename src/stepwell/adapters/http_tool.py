"""The built-in tool `http`: one request, bounded in time, size, redirects and in where it may connect to.

The law of the file: no header that could hold a secret and no body follows a redirect to another origin; a failure says
whether the request can have left.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlencode

import msgspec

from stepwell.adapters.http_addresses import Addresses, Resolve
from stepwell.adapters.http_answer import answer_of, body_of, failure_of, headers_of
from stepwell.adapters.http_connecting import checking_backend
from stepwell.definition.fields import seconds
from stepwell.definition.http_call import HTTP, METHODS, PARAMETERS, REPEATABLE, WITHOUT_BODY
from stepwell.definition.schemas import problems_of
from stepwell.errors import StepFailed
from stepwell.extras import installing
from stepwell.ports import Tool, ToolCallContext

if TYPE_CHECKING:
    from httpcore2 import AsyncConnectionPool
    from httpx2 import URL

Json: TypeAlias = Any

MAX_BYTES = 5 * 1024 * 1024
REDIRECTS = 5
CONNECT = 10.0
"""Seconds in which a connection must be made."""
AT_ONCE = 100
"""Connections of one project at the same time."""
_NAME = re.compile(r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "expect", "te", "trailer"})
_HARMLESS = frozenset({"accept", "accept-language", "user-agent", "accept-encoding"})
"""Headers that may go to whatever host a redirect names."""
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, checked."""

    method: str
    url: URL
    headers: dict[str, str]
    body: bytes
    expect: frozenset[int] | None
    hops: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Where it goes, without what a query may hold."""
        return f"{self.url.scheme}://{self.url.netloc.decode().rpartition('@')[2]}{self.url.path}"

    def expects(self, status: int) -> bool:
        return 200 <= status < 300 if self.expect is None else status in self.expect


class HttpTool:
    """Implements `ports.Tools` for the one tool `http`."""

    keeps_time = True

    def __init__(
        self, allow_private: Iterable[str] = (), *, max_bytes: int = MAX_BYTES, resolve: Resolve | None = None
    ) -> None:
        self._addresses = Addresses(allow_private, resolve=resolve)
        self._limit = max_bytes
        described = Tool(
            HTTP, "Makes an HTTP request. A step may repeat it by its method.", PARAMETERS, idempotent=False
        )
        self._tool = described if find_spec("httpx2") is not None else None

    def get(self, name: str) -> Tool | None:
        return self._tool if name == HTTP else None

    def names(self) -> list[str]:
        return [HTTP] if self._tool else []

    async def call(self, name: str, arguments: dict[str, Json], context: ToolCallContext) -> Json:
        """`{status, headers, json or text or base64}`. Raises StepFailed, by the status or by what failed."""
        if name != HTTP or self._tool is None:
            raise StepFailed("not_found", f"there is no tool {name!r}: {installing('http')}")
        _checked(arguments)
        asked = _asked(arguments, context)
        time = min(_timeout(arguments), context.timeout or float("inf"))
        sent = _Sent()
        try:
            async with asyncio.timeout(time if time < float("inf") else None):
                return await self._follow(asked, sent)
        except StepFailed as failure:
            raise sent.so_says(failure) from None
        except TimeoutError:
            detail = None if sent.any else {"sent": False}
            raise StepFailed(
                "timeout", f"{asked.method} {asked.place}: no answer within {time:g} s", detail=detail
            ) from None

    async def aclose(self) -> None:
        if "_pool" in self.__dict__:
            await self._pool.aclose()

    @cached_property
    def _pool(self) -> AsyncConnectionPool:
        import httpcore2

        return httpcore2.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(),
            max_connections=AT_ONCE,
            max_keepalive_connections=0,
            network_backend=checking_backend(self._addresses),
        )

    async def _follow(self, asked: Asked, sent: _Sent) -> Json:
        """The answer, behind at most `REDIRECTS` redirects."""
        while True:
            status, headers, body = await self._request(asked, sent)
            location = headers.get("location", "")
            if 300 <= status < 400 and status != 304 and location and not asked.expects(status):
                asked = _redirected(asked, status, location)
                continue
            answer = answer_of(status, headers, body) if asked.expects(status) else _leniently(status, headers, body)
            if asked.expects(status):
                return answer
            raise failure_of(asked.method, asked.place, answer)

    async def _request(self, asked: Asked, sent: _Sent) -> tuple[int, dict[str, str], bytes]:
        import httpcore2

        extensions = {"timeout": {"connect": CONNECT, "pool": None, "read": None, "write": None}, "trace": sent.note}
        content = asked.body if asked.body or asked.method not in WITHOUT_BODY else None
        url = httpcore2.URL(
            scheme=asked.url.raw_scheme, host=asked.url.raw_host, port=asked.url.port, target=asked.url.raw_path
        )
        headers = [(name.encode(), value.encode("latin-1")) for name, value in asked.headers.items()]
        try:
            async with self._pool.stream(
                asked.method, url, headers=headers, content=content, extensions=extensions
            ) as response:
                told = headers_of(response.headers)
                body = b"" if asked.method == "HEAD" else await body_of(response.aiter_stream(), told, self._limit)
                return response.status, told, body
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise _broken(asked, error, sent) from None


class _Sent:
    """Whether anything of a request, or of one that a redirect led on from, can have left."""

    def __init__(self) -> None:
        self.any = False

    def so_says(self, failure: StepFailed) -> StepFailed:
        """The failure, without the claim that nothing was sent if that holds for a later hop alone."""
        if self.any and isinstance(failure.detail, dict):
            failure.detail = {key: value for key, value in failure.detail.items() if key != "sent"} or None
        return failure

    async def note(self, event: str, _facts: dict[str, Any]) -> None:
        if event.endswith("send_request_headers.started"):
            self.any = True


def _broken(asked: Asked, error: Exception, sent: _Sent) -> StepFailed:
    """What became of a request that got no whole answer."""
    detail: dict[str, Json] = {} if sent.any else {"sent": False}
    cause = error.__cause__
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
    said = " ".join(str(cause or error).split())[:300] or type(error).__name__
    where = f"{asked.method} {asked.place}"
    if isinstance(cause, ssl.SSLError):
        return StepFailed("connection_error", f"{where}: {said}", retryable=False, detail=detail or None)
    if "Timeout" in type(error).__name__:
        return StepFailed("timeout", f"{where}: no connection within {CONNECT:g} s", detail=detail or None)
    return StepFailed("connection_error", f"{where}: {said}", detail=detail or None)


def _leniently(status: int, headers: dict[str, str], body: bytes) -> dict[str, Json]:
    """An answer that is a failure anyway, whatever its body is."""
    try:
        return answer_of(status, headers, body)
    except StepFailed:
        return answer_of(status, headers | {"content-type": "text/plain"}, body)


def _redirected(asked: Asked, status: int, location: str) -> Asked:
    """The request that a redirect asks for. Raises StepFailed (refused) for one that is not made."""
    hops = (*asked.hops, asked.place)
    if len(hops) > REDIRECTS:
        raise StepFailed("refused", f"more than {REDIRECTS} redirects: {' > '.join(hops)}", detail={"hops": [*hops]})
    url = _led_to(asked, location)
    if asked.url.scheme == "https" and url.scheme != "https":
        raise StepFailed("refused", f"{asked.place} redirects to an address without encryption: {url.host}")
    method, body, headers = asked.method, asked.body, asked.headers
    if (status == 303 and method != "HEAD") or (status in {301, 302} and method == "POST"):
        method, body = "GET", b""
        headers = {name: value for name, value in headers.items() if name not in {"content-type", "idempotency-key"}}
    if (url.scheme, url.host, url.port) != (asked.url.scheme, asked.url.host, asked.url.port):
        if body:
            said = f"{asked.place} redirects the request with its body to another host: {url.host}"
            raise StepFailed("refused", said, detail={"location": f"{url.scheme}://{url.host}{url.path}"})
        headers = {name: value for name, value in headers.items() if name in _HARMLESS}
    return replace(asked, method=method, url=url, headers=headers, body=body, hops=hops)


def _led_to(asked: Asked, location: str) -> URL:
    import httpx2

    try:
        return _url(str(asked.url.join(location)))
    except (StepFailed, httpx2.InvalidURL, ValueError) as error:
        why = error.message.removeprefix("http: ") if isinstance(error, StepFailed) else " ".join(str(error).split())
        shown = location.partition("?")[0]
        shown = shown if len(shown) <= 200 else f"{shown[:200]}…"
        said = f"{asked.place} redirects to what is no address for a request: {shown!r} ({why[:200]})"
        raise StepFailed("refused", said) from None


# ── reading the arguments ──


def _checked(arguments: dict[str, Json]) -> None:
    problems = list(problems_of(PARAMETERS, arguments))
    if problems:
        raise StepFailed("validation_error", f"http: {problems[0]}", detail={"arguments": problems[:20]})


def _asked(arguments: dict[str, Json], context: ToolCallContext) -> Asked:
    method = str(arguments.get("method") or "GET").upper()
    if method not in METHODS:
        raise _wrong(f"there is no method {method[:20]!r}; there are {', '.join(METHODS)}")
    url = _url(arguments["url"], arguments.get("query"))
    body, kind = _body(arguments, method)
    headers = {"accept": "*/*", "user-agent": "stepwell", "accept-encoding": "gzip, deflate"}
    if kind:
        headers["content-type"] = kind
    if context.chain:
        headers["stepwell-chain"] = ", ".join(context.chain)
    if method not in REPEATABLE or method in {"PUT", "DELETE"}:
        headers["idempotency-key"] = context.key
    for name, value in (arguments.get("headers") or {}).items():
        key, text = _header(name, value)
        headers[key] = text
    expect = arguments.get("expect")
    statuses = None if expect is None else frozenset([expect] if isinstance(expect, int) else expect)
    return Asked(method, url, headers, body, statuses)


def _url(text: str, query: dict[str, Json] | None = None) -> URL:
    import httpx2

    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError) as error:
        raise _wrong(f"the address cannot be read: {error}") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise _wrong("an address begins with http:// or https:// and names a host")
    if url.userinfo:
        raise _wrong("an address holds no name and password; send them as a header")
    return url.copy_merge_params(_query(query)) if query else url


def _query(query: dict[str, Json]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in query.items():
        values = value if isinstance(value, list) else [value]
        if texts := [_text(one) for one in values if one is not None]:
            found[name] = texts
    return found


def _text(value: Json) -> str:
    return (
        ("true" if value else "false") if isinstance(value, bool) else value if isinstance(value, str) else str(value)
    )


def _body(arguments: dict[str, Json], method: str) -> tuple[bytes, str]:
    """The body, and its media type."""
    if "json" in arguments and "body" in arguments:
        raise _wrong("`json` and `body` exclude each other")
    if method in WITHOUT_BODY and (arguments.keys() & {"json", "body"}):
        raise _wrong(f"a {method} request has no body; use `query`, or another method")
    if "json" in arguments:
        return _encode(arguments["json"]), "application/json"
    body = arguments.get("body")
    if body is None:
        return b"", ""
    if isinstance(body, str):
        return body.encode("utf-8", "replace"), "text/plain; charset=utf-8"
    return urlencode(_query(body), doseq=True).encode(), "application/x-www-form-urlencoded"


def _header(name: str, value: Json) -> tuple[str, str]:
    key, text = name.lower(), _text(value)
    if not _NAME.match(name):
        raise _wrong(f"{name[:40]!r} cannot name a header")
    if key in _OURS:
        raise _wrong(f"the header {key!r} is not for a workflow to set")
    if any(letter < " " and letter != "\t" for letter in text) or "\x7f" in text:
        raise _wrong(f"the header {key!r} has a line break or another control character in its value")
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        raise _wrong(f"the header {key!r} has letters in its value that a header cannot carry") from None
    return key, text.strip()


def _timeout(arguments: dict[str, Json]) -> float:
    given = arguments.get("timeout")
    if given is None:
        return float("inf")
    try:
        found = seconds(given)
    except ValueError as error:
        raise _wrong(str(error)) from None
    if found <= 0:
        raise _wrong("`timeout` is more than 0 seconds")
    return found


def _wrong(message: str) -> StepFailed:
    return StepFailed("validation_error", f"http: {message}", detail={"sent": False})
