"""The tool `http` against a real server that answers and fails in every way, and the addresses that it refuses."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import Any

import pytest
from tests.http_server import Web, web

from stepwell.adapters.http_addresses import Addresses
from stepwell.adapters.http_tool import HttpTool
from stepwell.errors import StepFailed
from stepwell.ports import ToolCallContext

Json = Any
CONTEXT = ToolCallContext("run", "/a", 1, "run/a", 20.0, ("outer", "inner"))


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    async with web() as found:
        yield found


@pytest.fixture
async def http() -> AsyncIterator[HttpTool]:
    tool = HttpTool(["127.0.0.1"], max_bytes=1_000_000)
    yield tool
    await tool.aclose()


async def call(http: HttpTool, url: str, **arguments: Json) -> Json:
    return await http.call("http", {"url": url, **arguments}, CONTEXT)


async def failed(http: HttpTool, url: str, **arguments: Json) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        await call(http, url, **arguments)
    return caught.value


# ── asking ──


async def test_a_request_is_sent_as_it_is_written(site: Web, http: HttpTool) -> None:
    got = await call(
        http, site.url("/echo?a=1"), method="post", query={"q": "é &", "n": [1, 2], "no": None, "yes": True},
        headers={"Authorization": "Bearer x", "X-N": 7}, json={"é": [1, None]},
    )  # fmt: skip
    assert got["status"] == 200
    assert got["headers"]["content-type"] == "application/json"
    said = got["json"]
    assert said["method"] == "POST"
    assert said["query"] == {"a": ["1"], "q": ["é &"], "n": ["1", "2"], "yes": ["true"]}
    assert said["body"] == '{"é":[1,null]}'
    assert said["headers"] | {"host": "", "content-length": "", "user-agent": ""} == {
        "host": "", "content-length": "", "user-agent": "", "accept": "*/*", "accept-encoding": "gzip, deflate",
        "authorization": "Bearer x", "x-n": "7", "content-type": "application/json",
        "idempotency-key": "run/a", "stepwell-chain": "outer, inner",
    }  # fmt: skip


async def test_a_body_is_text_or_a_form_and_a_get_has_no_key(site: Web, http: HttpTool) -> None:
    text = (await call(http, site.url("/echo"), method="PUT", body="é"))["json"]
    assert (text["body"], text["headers"]["content-type"]) == ("é", "text/plain; charset=utf-8")
    form = (await call(http, site.url("/echo"), method="POST", body={"a": "1 2", "b": ["x", "y"]}))["json"]
    assert (form["body"], form["headers"]["content-type"]) == (
        "a=1+2&b=x&b=y",
        "application/x-www-form-urlencoded",
    )
    own = await call(
        http, site.url("/echo"), method="POST", headers={"content-type": "text/x", "Idempotency-Key": "k"}, body=""
    )
    assert own["json"]["headers"]["content-type"] == "text/x"
    assert own["json"]["headers"]["idempotency-key"] == "k"
    assert "idempotency-key" not in (await call(http, site.url("/echo")))["json"]["headers"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"url": "ftp://x"}, "begins with http"),
        ({"url": "http://"}, "begins with http"),
        ({"url": "/relative"}, "begins with http"),
        ({"url": "http://u:p@example.org/"}, "no name and password"),
        ({"url": "http://x/", "method": "CONNECT"}, "no method 'CONNECT'"),
        ({"url": "http://x/", "headers": {"x": "a\r\nEvil: 1"}}, "line break"),
        ({"url": "http://x/", "headers": {"x\r\nEvil": "1"}}, "cannot name a header"),
        ({"url": "http://x/", "headers": {"Host": "other"}}, "not for a workflow"),
        ({"url": "http://x/", "headers": {"x": "中"}}, "cannot carry"),
        ({"url": "http://x/", "json": 1, "body": ""}, "exclude each other"),
        ({"url": "http://x/", "json": 1}, "has no body"),
        ({"url": "http://x/", "timeout": "soon"}, "not a duration"),
        ({"url": "http://x/", "timeout": 0}, "more than 0"),
        ({"url": "http://x/", "foo": 1}, "foo"),
        ({"method": "GET"}, "url"),
    ],
)
async def test_a_wrong_request_is_not_sent(http: HttpTool, arguments: Json, said: str) -> None:
    with pytest.raises(StepFailed, match=said) as caught:
        await http.call("http", arguments, CONTEXT)
    assert caught.value.kind == "validation_error"


# ── answers ──


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("text", {"text": "é中"}),
        ("latin", {"text": "é"}),
        ("bom", {"json": {}}),
        ("big", {"json": {"n": 123456789012345678901234567890}}),
        ("png", {"base64": base64.b64encode(b"\x89PNG\0\xff").decode()}),
        ("plain", {"text": "just text"}),
        ("odd", {"base64": "/wA="}),
        ("gzip", {"json": {"ok": True}}),
        ("empty", {"text": ""}),
    ],
)
async def test_a_body_is_read_as_what_it_is(site: Web, http: HttpTool, path: str, expected: Json) -> None:
    got = await call(http, site.url(f"/body/{path}"))
    assert {name: value for name, value in got.items() if name not in {"status", "headers"}} == expected


@pytest.mark.parametrize("path", ["bad-json", "nan", "deep", "not-gzip"])
async def test_a_body_that_is_not_what_it_says_fails(site: Web, http: HttpTool, path: str) -> None:
    assert (await failed(http, site.url(f"/body/{path}"))).kind == "output_invalid"


@pytest.mark.parametrize("path", ["/flood", "/body/bomb"])
async def test_a_body_without_end_is_cut(site: Web, http: HttpTool, path: str) -> None:
    failure = await failed(http, site.url(path))
    assert failure.kind == "output_too_large"
    assert failure.detail["limit"] == 1_000_000


async def test_no_cookie_is_kept(site: Web, http: HttpTool) -> None:
    got = await call(http, site.url("/body/cookie"))
    assert "set-cookie" not in got["headers"]
    assert got["headers"]["x-a"] == "1"
    await call(http, site.url("/echo"))
    assert "cookie" not in site.asked[-1].headers


async def test_a_head_has_headers_alone(site: Web, http: HttpTool) -> None:
    got = await call(http, site.url("/body/text"), method="HEAD")
    assert (got["status"], got["text"]) == (200, "")


# ── failures ──


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request", False),
        (401, "auth_error", False),
        (403, "auth_error", False),
        (404, "not_found", False),
        (408, "timeout", True),
        (409, "invalid_request", False),
        (425, "overloaded", True),
        (429, "rate_limit", True),
        (500, "server_error", True),
        (503, "server_error", True),
    ],
)
async def test_a_status_is_a_kind(site: Web, http: HttpTool, status: int, kind: str, retryable: bool) -> None:
    failure = await failed(http, site.url(f"/status/{status}"))
    assert (failure.kind, failure.retryable, failure.detail["status"]) == (kind, retryable, status)
    assert "said no" in failure.detail["body"]
    assert site.url(f"/status/{status}") in failure.message


async def test_expected_statuses_are_results_and_others_are_not(site: Web, http: HttpTool) -> None:
    assert (await call(http, site.url("/status/404"), expect=[200, 404]))["status"] == 404
    assert (await failed(http, site.url("/echo"), expect=404)).detail["status"] == 200
    assert (await call(http, site.url("/to/302/echo"), expect=302))["headers"]["location"] == "/echo"


@pytest.mark.parametrize(
    ("said", "low", "high"),
    [("7", 7, 7), (None, 25, 31), ("0", None, None), ("-1", None, None), ("soon", None, None), ("1e9", None, None)],
)
async def test_retry_after_is_seconds_or_a_date(
    site: Web, http: HttpTool, said: str | None, low: float | None, high: float | None
) -> None:
    said = said if said is not None else formatdate(time.time() + 30, usegmt=True)
    failure = await failed(http, site.url("/status/429"), query={"retry-after": said})
    assert failure.retry_after is None if low is None else low <= failure.retry_after <= high  # type: ignore[operator]


async def test_a_refused_connection_was_surely_not_sent(http: HttpTool) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    failure = await failed(http, f"http://127.0.0.1:{port}/")
    assert (failure.kind, failure.retryable, failure.detail) == ("connection_error", True, {"sent": False})


@pytest.mark.parametrize("path", ["/drop", "/half", "/nonsense"])
async def test_a_connection_lost_after_sending_may_have_been_heard(site: Web, http: HttpTool, path: str) -> None:
    failure = await failed(http, site.url(path), method="POST", json=1)
    assert failure.kind == "connection_error"
    assert failure.detail is None


async def test_a_call_ends_on_time(site: Web, http: HttpTool) -> None:
    begun = time.monotonic()
    failure = await failed(http, site.url("/hang"), timeout="3s")  # time enough to send it on a busy machine
    assert (failure.kind, failure.detail) == ("timeout", None)
    assert time.monotonic() - begun < 20
    short = ToolCallContext("run", "/a", 1, "k", 3.0)
    with pytest.raises(StepFailed, match=r"no answer within 3 s"):
        await http.call("http", {"url": site.url("/hang"), "timeout": 60}, short)


async def test_a_name_that_is_nowhere_was_not_sent() -> None:
    async def nowhere(_host: str, _port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    tool = HttpTool(resolve=nowhere)
    failure = await failed(tool, "http://nowhere.example/")
    assert (failure.kind, failure.detail) == ("connection_error", {"sent": False})
    assert "Name or service not known" in failure.message
    await tool.aclose()


# ── redirects ──


@pytest.mark.parametrize(
    ("status", "method", "after", "keeps_body"),
    [
        (301, "POST", "GET", False),
        (302, "POST", "GET", False),
        (303, "PUT", "GET", False),
        (302, "PUT", "PUT", True),
        (307, "POST", "POST", True),
        (308, "POST", "POST", True),
    ],
)
async def test_a_redirect_keeps_the_method_or_becomes_a_get(
    site: Web, http: HttpTool, status: int, method: str, after: str, keeps_body: bool
) -> None:  # fmt: skip
    got = await call(http, site.url(f"/to/{status}/echo"), method=method, json={"a": 1}, headers={"x-k": "v"})
    assert got["json"]["method"] == after
    assert got["json"]["body"] == ('{"a":1}' if keeps_body else "")
    assert got["json"]["headers"]["x-k"] == "v"
    assert ("idempotency-key" in got["json"]["headers"]) is keeps_body


async def test_another_host_gets_no_header_that_could_hold_a_secret_and_no_body(site: Web) -> None:
    tool = HttpTool(["127.0.0.1", "localhost"])
    elsewhere = site.url("/echo", host="localhost")
    got = await call(tool, site.url("/to/302/x"), query={"at": elsewhere},
                     headers={"Authorization": "Bearer x", "X-Api-Key": "k", "Accept": "a/b"})  # fmt: skip
    headers = got["json"]["headers"]
    assert headers["accept"] == "a/b"
    assert not {"authorization", "x-api-key", "stepwell-chain"} & headers.keys()
    failure = await failed(tool, site.url("/to/307/x"), query={"at": elsewhere}, method="POST", json={"k": 1})
    assert failure.kind == "refused"
    await tool.aclose()


async def test_redirects_end_and_lead_to_no_forbidden_place(site: Web, http: HttpTool) -> None:
    failure = await failed(http, site.url("/round"))
    assert (failure.kind, len(failure.detail["hops"])) == ("refused", 6)
    assert failure.message.startswith("more than 5 redirects: ")
    for place in ("http://169.254.169.254/latest/", "http://10.0.0.1/", "http://[::1]:80/", "file:///etc/passwd"):
        failure = await failed(http, site.url("/to/302/x"), query={"at": place})
        assert failure.kind in {"refused", "validation_error"}
    assert (await failed(http, site.url("/status/304"))).kind == "invalid_request"
    assert len(site.asked) < 20


# ── addresses ──


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fd00::1", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:a9fe:a9fe", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:0:0:0:0:80ff:fffe", "192.0.2.1",
    ],
)  # fmt: skip
async def test_no_address_inside_is_connected_to(address: str) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return [address]

    with pytest.raises(StepFailed, match="not public") as caught:
        await Addresses(resolve=resolve).of("innocent.example", 80)
    assert caught.value.kind == "refused"
    assert caught.value.detail["sent"] is False
    assert 'add "innocent.example" to allow_private' in caught.value.message


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "localhost", "127.0.0.1"])
async def test_no_spelling_of_the_loopback_gets_through(site: Web, host: str) -> None:
    tool = HttpTool()
    failure = await failed(tool, f"http://{host}:{site.port}/echo")
    assert failure.kind in {"refused", "validation_error"}
    assert site.asked == []
    await tool.aclose()


async def test_a_name_that_changes_between_two_looks_is_looked_up_once(site: Web) -> None:
    looks = []

    async def rebinding(_host: str, _port: int) -> list[str]:
        looks.append(1)
        return ["93.184.216.34"] if len(looks) == 1 else ["127.0.0.1"]

    addresses = Addresses(resolve=rebinding)
    assert await addresses.of("rebind.example", 80) == ["93.184.216.34"]
    with pytest.raises(StepFailed, match="not public"):
        await addresses.of("rebind.example", 80)


@pytest.mark.parametrize(
    ("allowed", "host", "address", "fits"),
    [
        ("localhost", "LOCALHOST", "127.0.0.1", True),
        ("localhost:8000", "localhost", "127.0.0.1", False),
        ("localhost:80", "localhost", "127.0.0.1", True),
        ("10.0.0.0/8", "crm.internal", "10.2.3.4", True),
        ("10.0.0.0/8", "crm.internal", "192.168.0.1", False),
        ("[::1]", "x", "::1", True),
        ("10.0.0.0/8", "x", "::ffff:10.0.0.1", True),
        ("*", "x", "169.254.169.254", True),
        ("localhost", "x", "93.184.216.34", True),
    ],
)
async def test_what_the_settings_allow(allowed: str, host: str, address: str, fits: bool) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return [address]

    rule = Addresses([allowed], resolve=resolve)
    if fits:
        assert await rule.of(host, 80) == [address]
    else:
        with pytest.raises(StepFailed, match="not public"):
            await rule.of(host, 80)


async def test_of_several_addresses_only_those_outside_are_tried() -> None:
    async def mixed(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1", "93.184.216.34"]

    assert await Addresses(resolve=mixed).of("x", 80) == ["93.184.216.34"]


async def test_the_name_is_kept_for_the_server_while_the_address_is_pinned(site: Web) -> None:
    async def pinned(_host: str, _port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    tool = HttpTool(["127.0.0.0/8"], resolve=pinned)
    got = await call(tool, f"http://crm.example:{site.port}/echo")
    assert got["json"]["headers"]["host"] == f"crm.example:{site.port}"
    await tool.aclose()


async def test_many_requests_at_once(site: Web, http: HttpTool) -> None:
    got = await asyncio.gather(*(call(http, site.url(f"/echo?n={n}")) for n in range(40)))
    assert [one["json"]["query"]["n"] for one in got] == [[str(n)] for n in range(40)]
