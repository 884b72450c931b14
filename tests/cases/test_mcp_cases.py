"""Cases of tools of other servers: C113, C115, and C079 where a run is started over MCP."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

import pytest
import yaml
from tests.mcp.servers import RUDE, HttpServer, calls
from tests.mcp.test_pool import alive_for_ever, broken, flood, foreign

from stepwell.engine.engine import open_engine

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

SLACK = 4.0
"""Seconds beyond the sum of the timeouts that a busy machine may take."""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import mcp  # noqa: F401 -- half a second that no timeout of a test should pay

    return tmp_path


def settings(folder, *, url="", **env):
    server = f"url = {json.dumps(url)}" if url else (
        f"command = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(RUDE))}]\n"
        f"env = {{{', '.join(f'{name} = {json.dumps(value)}' for name, value in env.items())}}}"
    )  # fmt: skip
    (folder / "stepwell.toml").write_text(f"[mcp.s]\n{server}\n", encoding="utf-8")


def flow(folder, *steps, **parts):
    file = folder / "w.yaml"
    file.write_text(yaml.safe_dump({"workflow": "w", "steps": list(steps), **parts}, sort_keys=False))
    return file


def action(tool, arguments=None, **more):
    retry = {"max_retries": 1, "initial_delay_ms": 10}
    return {"id": "b", "type": "browser_action", "server": "s", "tool": tool, "arguments": arguments or {}, "timeout": "2s",
            "retry": retry, **more}  # fmt: skip


async def attempts(engine, run_id):
    return next(step for step in (await engine.tree(run_id)).as_json()["steps"] if step["path"] == "/b")


@pytest.mark.parametrize(
    ("tool", "given", "kind", "seconds"),
    [
        ("die", {}, "connection_error", 0.0),
        ("foreign", {}, "timeout", 4.0),
        ("progress", {}, "timeout", 4.0),
        ("flood", {"megabytes": 50}, "connection_error", 4.0),
    ],
)
async def test_c113_a_server_over_stdio_that_fails_in_a_call_ends_it_in_time_and_the_next_has_a_new_one(
    project, tool, given, kind, seconds
):
    settings(project, STARTS=str(project / "starts"))
    async with open_engine() as engine:
        loaded = engine.load(flow(project, action(tool, given)))
        await engine.preflight(loaded, {})
        before = calls(project / "starts")
        began = time.monotonic()
        run = await (await engine.start(loaded, {})).wait()
        assert time.monotonic() - began < seconds + SLACK
        assert (run.status, run.error["kind"]) == ("failed", kind)
        assert (await attempts(engine, run.id))["attempts"] == 2
        assert calls(project / "starts") - before == 2


async def test_c113_the_second_attempt_on_a_new_connection_succeeds(project):
    settings(project)
    given = {"file": str(project / "calls"), "times": 1}
    async with open_engine() as engine:
        run = await (await engine.start(engine.load(flow(project, action("die", given))), {})).wait()
        assert (run.status, calls(project / "calls")) == ("completed", 2)


@pytest.mark.parametrize(
    ("manner", "kind"),
    [
        (broken, "connection_error"),
        (flood, "connection_error"),
        (alive_for_ever, "timeout"),
        (foreign, "timeout"),
        (404, "connection_error"),
        (400, "connection_error"),
    ],
    ids=["broken", "flood", "keep-alive", "foreign id", "unknown session", "unknown session, said by a 400"],
)
async def test_c113_a_server_over_http_that_fails_in_a_call_ends_it_in_time_and_the_next_has_a_new_session(
    project, manner, kind
):
    def answer(message, web):
        if not isinstance(manner, int):
            return manner
        web.sessions.clear()
        return (manner, b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Session not found"}}')

    async with HttpServer(answer) as web:
        settings(project, url=web.url)
        async with open_engine() as engine:
            began = time.monotonic()
            run = await (await engine.start(engine.load(flow(project, action("act"))), {})).wait()
            assert time.monotonic() - began < 4.0 + SLACK
            assert (run.status, run.error["kind"]) == ("failed", kind)
            assert web.called == 2
            used = [
                headers["mcp-session-id"] for _, headers, said in web.requests if said.get("method") == "tools/call"
            ]
            assert len(set(used)) == 2


@pytest.mark.parametrize("kind", ["tool_call", "browser_action"])
async def test_c115_cancelled_runs_hurt_no_other_run_whether_they_share_a_session_or_not(project, kind):
    """Twenty runs with loops, ten iterations at once; five are cancelled in the middle, one call is answered with 500."""

    cancelled, broken = asyncio.Event(), []

    async def answer(message, web):
        number = web.called
        await cancelled.wait()  # so that no run has ended before
        await asyncio.sleep(0.02)
        if number != 100:
            return "done"
        broken.append(number)
        return (500, b"oh")

    body = {"id": "b", "type": kind, "timeout": "60s", "retry": {"max_retries": 2, "initial_delay_ms": 10}}
    body |= {"tool": "s.act"} if kind == "tool_call" else {"server": "s", "tool": "act"}
    step = {"id": "L", "type": "loop", "over": list(range(40)), "concurrency": 10, "steps": [body]}
    async with HttpServer(answer) as web:
        (project / "stepwell.toml").write_text(f'[mcp.s]\nurl = "{web.url}"\nmax_inflight = 200\n')
        async with open_engine() as engine:
            loaded = engine.load(flow(project, step))
            handles = [await engine.start(loaded, {}) for _ in range(20)]
            while web.called < 80:  # of 800; at most 200 are in flight
                await asyncio.sleep(0.02)
            for handle in handles[:5]:
                await engine.cancel(handle.run_id)
            cancelled.set()
            runs = [await handle.wait() for handle in handles]
            assert [run.status for run in runs[:5]] == ["cancelled"] * 5
            assert [(run.status, run.error) for run in runs[5:]] == [("completed", None)] * 15
            assert broken == [100]
            assert (len(web.sessions) == 1) == (kind == "tool_call")
