"""The pool of MCP connections against servers that die, hang, flood and lie. Each test leaves no process and no task."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import psutil
import pytest

from stepwell.adapters.mcp.failures import (
    McpCallTimeout,
    McpConnectError,
    McpConnectionLost,
    McpError,
    McpPoolBusy,
    McpRefused,
)
from stepwell.adapters.mcp.server import McpServer
from tests.mcp.servers import HttpServer, calls, children, pool_of, respond, rpc, rude


async def call(pool, *args, **options):
    """The answer alone."""
    return (await pool.call(*args, **options))[0]


pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


async def test_fifty_callers_make_one_connection(tmp_path):
    marks = tmp_path / "starts"
    server = rude("slow", env={"STARTS": str(marks)})
    async with pool_of() as pool:
        said = await asyncio.gather(*(call(pool, server, "echo", {"say": str(n)}, timeout=20) for n in range(50)))
        assert [one.content[0].text for one in said] == [str(n) for n in range(50)]
    assert calls(marks) == 1


async def test_a_caller_that_is_cancelled_while_connecting_takes_nothing_from_the_others(tmp_path):
    server = rude("slow", env={"STARTS": str(tmp_path / "starts")})
    async with pool_of() as pool:
        tasks = [asyncio.create_task(call(pool, server, "echo", {"say": str(n)}, timeout=20)) for n in range(10)]
        await asyncio.sleep(0.3)
        for task in tasks[::2]:
            task.cancel()
        said = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in said] == [True, False] * 5
    assert calls(tmp_path / "starts") == 1


async def test_a_server_that_dies_in_the_middle_of_a_call_is_lost_at_once_and_started_again(tmp_path):
    server = rude(env={"STARTS": str(tmp_path / "starts")})
    async with pool_of() as pool:
        began = time.monotonic()
        with pytest.raises(McpConnectionLost, match=r"exit code 3.*I cannot go on"):
            await call(pool, server, "die", {}, timeout=30)
        assert time.monotonic() - began < 20
        assert (await call(pool, server, "echo", {"say": "again"}, timeout=20)).content[0].text == "again"
    assert calls(tmp_path / "starts") == 2


async def test_a_call_is_never_sent_again_by_the_pool(tmp_path):
    async with pool_of() as pool:
        with pytest.raises(McpConnectionLost):
            await call(pool, rude(), "die", {"file": str(tmp_path / "calls")}, timeout=30)
    assert calls(tmp_path / "calls") == 1


async def test_a_server_killed_between_two_calls_is_noticed_before_the_second_is_sent():
    async with pool_of() as pool:
        await call(pool, rude(), "echo", {"say": "a"}, timeout=20)
        for child in children():
            child.kill()
        await asyncio.sleep(0.3)
        assert (await call(pool, rude(), "echo", {"say": "b"}, timeout=20)).content[0].text == "b"


async def test_a_server_that_stands_still_is_noticed_before_a_call_is_sent():
    async with pool_of() as pool:
        await call(pool, rude(), "echo", {"say": "a"}, timeout=20)
        (child,) = children()
        child.send_signal(signal.SIGSTOP)
        await asyncio.sleep(1.2)
        assert (await call(pool, rude(), "echo", {"say": "b"}, timeout=20)).content[0].text == "b"
        assert not psutil.pid_exists(child.pid) or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("tool", "given"), [("mute", {}), ("foreign", {}), ("progress", {}), ("sleep", {"seconds": 60})]
)
async def test_a_call_without_an_answer_ends_in_time_and_hurts_no_other(tool, given):
    async with pool_of() as pool:
        beside = asyncio.create_task(call(pool, rude(), "sleep", {"seconds": 2}, timeout=30))
        await call(pool, rude(), "echo", {"say": "warm"}, timeout=20)
        began = time.monotonic()
        with pytest.raises(McpCallTimeout):
            await call(pool, rude(), tool, given, timeout=1)
        assert time.monotonic() - began < 4
        assert (await beside).content[0].text == "slept"


async def test_a_call_that_is_cancelled_hurts_no_other(tmp_path):
    server = rude(env={"STARTS": str(tmp_path / "starts")})
    async with pool_of() as pool:
        tasks = [asyncio.create_task(call(pool, server, "sleep", {"seconds": 1}, timeout=30)) for _ in range(20)]
        await asyncio.sleep(0.7)
        for task in tasks[:5]:
            task.cancel()
        said = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in said[:5]] == [asyncio.CancelledError] * 5
        assert all(one.content[0].text == "slept" for one in said[5:])
    assert calls(tmp_path / "starts") == 1


async def test_a_flood_of_fifty_megabytes_ends_the_connection_and_not_the_process():
    async with pool_of() as pool:
        await call(pool, rude(), "echo", {"say": "warm"}, timeout=20)
        before = psutil.Process().memory_info().rss
        with pytest.raises(McpConnectionLost, match="more than 8 MB"):
            await call(pool, rude(), "flood", {"megabytes": 50}, timeout=30)
        assert psutil.Process().memory_info().rss - before < 60 * 2**20
        assert (await call(pool, rude(), "echo", {"say": "on"}, timeout=20)).content[0].text == "on"


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (rude("exit"), r"exit code 4.*no configuration"),
        (McpServer("none", command="/no/such/program"), "cannot be started: No such file"),
        (McpServer("closed", url="http://127.0.0.1:9/mcp"), "cannot be reached"),
        (McpServer("secret", command="x", missing="the environment variable X is not set"), "X is not set"),
        (McpServer("both", command="sleep", args=("0",), url="http://127.0.0.1:{port}/mcp"), "process ended"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_a_server_that_cannot_be_had_got_nothing(server, said):
    async with pool_of() as pool:
        with pytest.raises(McpConnectError, match=said) as caught:
            await call(pool, server, "echo", {}, timeout=20)
        assert caught.value.detail == {"sent": False}


async def test_a_server_that_is_mute_from_the_start_is_given_up_in_time_and_killed_with_the_pool():
    async with pool_of() as pool:
        began = time.monotonic()
        with pytest.raises(McpConnectError, match="cannot be connected to within 1 s"):
            await call(pool, rude("mute"), "echo", {}, timeout=1)
        assert time.monotonic() - began < 4


async def test_no_more_connections_than_allowed_and_the_one_unused_longest_goes_first(tmp_path):
    async with pool_of(largest=2) as pool:
        for scope in ("a", "b", "c"):
            await call(pool, rude(), "echo", {"say": scope}, timeout=20, scope=scope)
            assert len(children()) <= 2
        assert sorted(scope for _, scope in pool._open) == ["b", "c"]
        await call(pool, rude(), "echo", {"say": "shared"}, timeout=20)
        await call(pool, rude(), "echo", {"say": "d"}, timeout=20, scope="d")
        assert sorted(scope for _, scope in pool._open) == ["c", "d"], "what is nobody's own goes first"


async def test_without_room_a_call_is_refused_in_time_and_was_not_sent(tmp_path):
    async with pool_of(largest=1) as pool:
        busy = asyncio.create_task(call(pool, rude(), "sleep", {"seconds": 3}, timeout=30, scope="a"))
        await asyncio.sleep(1)
        with pytest.raises(McpPoolBusy) as caught:
            await call(pool, rude(), "count", {"file": str(tmp_path / "n")}, timeout=0.5, scope="b")
        assert (caught.value.kind, caught.value.detail) == ("overloaded", {"sent": False})
        waits = asyncio.create_task(call(pool, rude(), "echo", {"say": "then"}, timeout=30, scope="b"))
        assert (await busy).content[0].text == "slept"
        assert (await waits).content[0].text == "then"
    assert calls(tmp_path / "n") == 0


async def test_at_most_max_inflight_calls_are_under_way(tmp_path):
    server = rude(max_inflight=2)
    async with pool_of() as pool:
        await call(pool, server, "echo", {"say": "warm"}, timeout=20)
        busy = [asyncio.create_task(call(pool, server, "sleep", {"seconds": 2}, timeout=30)) for _ in range(2)]
        await asyncio.sleep(0.1)
        with pytest.raises(McpPoolBusy):
            await call(pool, server, "count", {"file": str(tmp_path / "n")}, timeout=0.3)
        await asyncio.gather(*busy)
    assert calls(tmp_path / "n") == 0


async def test_an_idle_connection_is_closed_and_one_in_use_is_not():
    async with pool_of(idle=0.4, keepalive=0.4) as pool:
        busy = asyncio.create_task(call(pool, rude(), "sleep", {"seconds": 3}, timeout=30, scope="busy"))
        await call(pool, rude(), "echo", {"say": "a"}, timeout=20)
        await asyncio.sleep(1.5)
        assert {scope for _, scope in pool._open} == {"busy"}
        assert (await busy).content[0].text == "slept"


async def test_the_sessions_of_a_scope_are_their_own_and_end_with_it():
    async with pool_of() as pool:
        for scope in ("r1", "r2", ""):
            await call(pool, rude(), "echo", {"say": "a"}, timeout=20, scope=scope)
        assert len(children()) == 3
        pool.release("r1")
        assert {scope for _, scope in pool._open} == {"r2", ""}


async def test_an_own_session_that_did_not_answer_is_given_up():
    async with pool_of() as pool:
        await call(pool, rude(), "echo", {"say": "a"}, timeout=20, scope="r")
        (first,) = children()
        with pytest.raises(McpCallTimeout):
            await call(pool, rude(), "mute", {}, timeout=0.5, scope="r")
        await call(pool, rude(), "echo", {"say": "b"}, timeout=20, scope="r")
        assert first.pid not in {child.pid for child in children()}


async def test_settings_and_secrets_tell_connections_apart_and_are_printed_nowhere():
    one, other = rude(env={"TOKEN": "first-secret"}), rude(env={"TOKEN": "second-secret"})
    assert one.key() != other.key()
    assert "secret" not in f"{one!r}{one.key()}"
    async with pool_of() as pool:
        assert (await call(pool, one, "env", {"name": "TOKEN"}, timeout=20)).content[0].text == "first-secret"
        assert (await call(pool, other, "env", {"name": "TOKEN"}, timeout=20)).content[0].text == "second-secret"
        os.environ["STEPWELL_CANARY"] = "seen"
        try:
            assert (await call(pool, rude(env={"A": "b"}), "env", {"name": "STEPWELL_CANARY"}, timeout=20)).content[
                0
            ].text == "-"
        finally:
            del os.environ["STEPWELL_CANARY"]


async def test_five_megabytes_on_standard_error_block_nobody():
    async with pool_of() as pool:
        assert (await call(pool, rude(), "stderr", {}, timeout=30)).content[0].text == "written"
        with pytest.raises(McpConnectionLost, match="the last words"):
            await call(pool, rude(), "die", {}, timeout=30)


async def test_an_error_of_the_protocol_is_an_answer_and_ends_nothing(tmp_path):
    server = rude(env={"STARTS": str(tmp_path / "starts")})
    async with pool_of() as pool:
        with pytest.raises(McpRefused, match="not like this") as caught:
            await call(pool, server, "refuse", {}, timeout=20)
        assert caught.value.kind == "validation_error"
        await call(pool, server, "echo", {"say": "on"}, timeout=20)
    assert calls(tmp_path / "starts") == 1


# ── over HTTP ──


async def test_http_connections_are_shared_and_get_their_headers():
    async with HttpServer() as web, pool_of() as pool:
        server = McpServer("web", url=web.url, headers={"Authorization": "Bearer t0ken"})
        await asyncio.gather(*(call(pool, server, "act", {}, timeout=20) for _ in range(20)))
        assert len(web.sessions) == 1
        assert {headers.get("authorization") for _, headers, _ in web.requests} == {"Bearer t0ken"}


async def test_an_http_server_that_vanishes_between_two_calls_is_noticed_and_found_again():
    async with HttpServer() as web, pool_of() as pool:
        server = McpServer("web", url=web.url)
        await call(pool, server, "act", {}, timeout=20)
        await web.stop()
        with pytest.raises(McpConnectError, match="cannot be reached"):
            await call(pool, server, "act", {}, timeout=20)
        await web.start()
        await call(pool, server, "act", {}, timeout=20)
        assert web.called == 2


async def test_an_http_server_that_forgot_the_session_got_nothing_and_the_next_call_has_a_new_one():
    async with HttpServer() as web, pool_of() as pool:
        server = McpServer("web", url=web.url)
        await call(pool, server, "act", {}, timeout=20)
        web.sessions.clear()
        with pytest.raises(McpConnectError, match="does not know the session"):
            await call(pool, server, "act", {}, timeout=20)
        await call(pool, server, "act", {}, timeout=20)
        assert web.called == 2


async def broken(writer):
    writer.transport.abort()


async def half(writer):
    writer.write(b'HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"half":')
    await writer.drain()
    writer.transport.abort()


async def stream_cut(writer):
    writer.write(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n\r\n: keep-alive\r\n\r\n")
    await writer.drain()
    writer.close()


async def flood(writer):
    writer.write(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 52428800\r\n\r\n")
    try:
        for _ in range(50):
            writer.write(b"x" * 2**20)
            await writer.drain()
    except ConnectionError:
        pass


async def alive_for_ever(writer):
    writer.write(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n\r\n")
    try:
        while True:
            writer.write(b": keep-alive\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)
    except ConnectionError:
        pass


async def foreign(writer):
    await respond(writer, 200, rpc(987654, {"content": []}))


@pytest.mark.parametrize(
    ("manner", "error", "kind"),
    [
        (broken, McpConnectionLost, "connection_error"),
        (half, McpConnectionLost, "connection_error"),
        (stream_cut, McpConnectionLost, "connection_error"),
        (flood, McpConnectionLost, "connection_error"),
        (alive_for_ever, McpCallTimeout, "timeout"),
        (foreign, McpCallTimeout, "timeout"),
        ((500, b"oh"), McpRefused, "server_error"),
        ((429, b"slowly", {"retry-after": "7"}), McpRefused, "rate_limit"),
        ((401, b"who?"), McpRefused, "auth_error"),
        ((200, b"not json"), McpRefused, "tool_error"),
        ((302, b"", {"location": "http://127.0.0.1:9/"}), McpRefused, "tool_error"),
    ],
    ids=["broken", "half", "cut", "flood", "keep-alive", "foreign id", "500", "429", "401", "no json", "redirect"],
)
async def test_every_wrong_answer_over_http_is_an_error_of_that_call_alone(manner, error, kind):
    def answer(message, web):
        wrong = message["params"].get("arguments", {}).get("wrong")
        return manner if wrong else slow()

    async def slow():
        await asyncio.sleep(0.5)
        return "done"

    async with HttpServer(answer) as web, pool_of() as pool:
        server = McpServer("web", url=web.url)
        await call(pool, server, "act", {}, timeout=20)
        began = time.monotonic()
        with pytest.raises(McpError) as caught:
            await call(pool, server, "act", {"wrong": True}, timeout=2)
        assert time.monotonic() - began < 6
        assert (type(caught.value), caught.value.kind) == (error, kind)
        assert caught.value.retry_after == (7.0 if kind == "rate_limit" else None)
        assert (await call(pool, server, "act", {}, timeout=20)).content[0].text == "done"


# ── all of it at once ──


async def test_fifty_calls_at_once_while_servers_are_killed_stopped_and_restarted(tmp_path):
    """Each call ends, with its own answer or a class that says what is known; afterwards everything works."""
    stop = asyncio.Event()

    async def trouble():
        turn = 0
        while not stop.is_set():
            await asyncio.sleep(0.4)
            for child in children()[:1]:
                child.send_signal((signal.SIGKILL, signal.SIGSTOP)[turn % 2])
            turn += 1

    async def one(number):
        await asyncio.sleep(number * 0.05)
        server = rude(name=f"s{number % 2}", env={"N": str(number % 2)})
        try:
            said = await call(
                pool, server, "echo" if number % 3 else "sleep", {"say": str(number), "seconds": 0.2}, timeout=5
            )
        except McpError as error:
            return error
        return said.content[0].text == (str(number) if number % 3 else "slept")

    async with pool_of(keepalive=1.0) as pool:
        shaking = asyncio.create_task(trouble())
        ended = await asyncio.wait_for(asyncio.gather(*(one(number) for number in range(50))), 90)
        stop.set()
        await shaking
        await asyncio.sleep(1.2)  # for so long a connection is used without being asked whether it is alive
        assert all(one is True or isinstance(one, McpError) for one in ended), ended
        assert any(one is True for one in ended)
        for number in (0, 1):
            server = rude(name=f"s{number}", env={"N": str(number)})
            assert (await call(pool, server, "echo", {"say": "well"}, timeout=30)).content[0].text == "well"
