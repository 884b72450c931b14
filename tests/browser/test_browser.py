"""`browser_action` with the real server of Playwright and a real Chromium, on local pages."""

from __future__ import annotations

import asyncio
import base64
import csv
import json
import os
import signal
from pathlib import Path

import psutil
import pytest
import yaml

from stepwell.adapters.mcp.pool import Pool
from stepwell.adapters.mcp.tools import McpTools
from stepwell.engine.engine import open_engine
from stepwell.errors import InputError, StepFailed
from stepwell.ports import ToolCallContext
from tests.browser.office import PASSWORD, USER
from tests.browser.real import URL, arguments, one_browser, open_office, server

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

SIGN_IN = [
    {"name": "user", "type": "textbox", "target": "#user", "value": USER},
    {"name": "password", "type": "textbox", "target": "#password", "value": PASSWORD},
]
ROWS = "() => [...document.querySelectorAll('#orders tr')].slice(1).map(r => [...r.cells].map(c => c.innerText))"


@pytest.fixture(scope="module")
def browser():
    with one_browser() as paths:
        yield paths


def processes() -> list[psutil.Process]:
    """What is left of servers and browsers that this process started."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE and any(
                word in " ".join(child.cmdline()) for word in ("chrom", "playwright")
            ):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


class Session:
    """The browser of one run."""

    def __init__(self, tools: McpTools, run: str, timeout: float = 60.0) -> None:
        self._tools = tools
        self._context = ToolCallContext(run, "/a", 1, "k", timeout, own_session=True)

    async def __call__(self, tool: str, **given):
        return await self._tools.call(f"browser.browser_{tool}", given, self._context)

    async def sign_in(self, address: str) -> None:
        await self("navigate", url=f"{address}/orders")
        await self("fill_form", fields=SIGN_IN)
        done = await self("click", target="#enter")
        assert done["page"] == {"url": f"{address}/orders", "title": "Orders"}


@pytest.fixture
async def tools(browser, tmp_path):
    pool = Pool()
    try:
        yield McpTools([server(browser, tmp_path)], pool)
    finally:
        await pool.aclose()
        _gone, left = psutil.wait_procs(processes(), timeout=10)
        assert not left, [process.cmdline() for process in left]


async def test_log_in_fill_in_send_read_and_fetch(tools, tmp_path):
    with open_office() as (office, address):
        act = Session(tools, "r1")
        await act.sign_in(address)
        await act("navigate", url=f"{address}/orders/new")
        fields = [
            {"name": "number", "type": "textbox", "target": "#number", "value": "A-7"},
            {"name": "customer", "type": "textbox", "target": "#customer", "value": "浅田商店 & Söhne <b>"},
            {"name": "article", "type": "combobox", "target": "#article", "value": "desk"},
            {"name": "express", "type": "checkbox", "target": "#express", "value": "true"},
        ]
        await act("fill_form", fields=fields)
        await act("click", target="#save")
        assert office.orders == [
            {"number": "A-7", "customer": "浅田商店 & Söhne <b>", "article": "desk", "quantity": "1", "express": "yes"}
        ]
        assert (await act("evaluate", function=ROWS))["result"] == [["A-7", "浅田商店 & Söhne <b>", "desk", "1", "yes"]]
        seen = await act("snapshot")
        assert 'cell "A-7"' in seen["snapshot"]

        (file,) = (await act("click", target="#export")).get("downloads") or (await act("wait_for", time=2))[
            "downloads"
        ]
        assert file["name"] == "orders.csv"
        (row,) = csv.DictReader((tmp_path / file["path"]).read_text("utf-8").splitlines())
        assert row["customer"] == "浅田商店 & Söhne <b>"
        picture = await act("take_screenshot")
        assert base64.b64decode(picture["attachments"][0]["data"]).startswith(b"\x89PNG")
        if folder := os.environ.get("STEPWELL_SCREENSHOTS"):
            Path(folder, "back-office.png").write_bytes(base64.b64decode(picture["attachments"][0]["data"]))


async def test_runs_do_not_see_each_others_sessions_and_share_one_browser(tools):
    with open_office() as (_, address):
        first, second = Session(tools, "r1"), Session(tools, "r2")
        await first.sign_in(address)
        opened = await second("navigate", url=f"{address}/orders")
        assert opened["page"]["title"] == "Sign in"
        assert (await first("evaluate", function="() => document.title"))["result"] == "Orders"
        servers = [one for one in processes() if any(part.endswith("cli.js") for part in one.cmdline()[:2])]
        assert len(servers) == 1


async def test_a_browser_that_was_killed_is_told_and_not_taken_for_the_runs(tools):
    with open_office() as (_, address):
        act = Session(tools, "r1")
        await act.sign_in(address)
        for process in processes():
            if "chrom" in process.name():
                process.send_signal(signal.SIGKILL)
        await asyncio.sleep(1)
        for _ in range(2):  # each attempt has a new session, and its page is nobody's
            with pytest.raises(StepFailed, match="the run's page is lost") as caught:
                await act("evaluate", function="() => document.title")
            assert (caught.value.kind, caught.value.detail) == ("connection_error", {"sent": False})
        with pytest.raises(StepFailed, match="page is lost") as caught:
            await act("click", target="e5")
        assert caught.value.kind == "connection_error"
        await act.sign_in(address)


async def test_a_script_that_never_ends_costs_its_session_and_no_other(tools):
    with open_office() as (_, address):
        stuck, other = Session(tools, "r1", timeout=15.0), Session(tools, "r2")
        await stuck.sign_in(address)
        await other.sign_in(address)
        hanging = asyncio.create_task(stuck("evaluate", function="() => new Promise(() => {})"))
        assert (await other("evaluate", function="() => document.title"))["result"] == "Orders"
        with pytest.raises(StepFailed, match="no answer within 15 s"):
            await hanging
        assert (await stuck("navigate", url=f"{address}/orders"))["page"]["title"] == "Sign in", "a new session"
        assert (await other("evaluate", function="() => document.title"))["result"] == "Orders"


async def test_what_the_page_does_not_have_is_a_failure_of_the_tool(tools):
    with open_office() as (_, address):
        act = Session(tools, "r1")
        await act("navigate", url=address)
        with pytest.raises(StepFailed, match="does not match any elements") as caught:
            await act("click", target="#nothing")
        assert caught.value.kind == "tool_error"
        with pytest.raises(StepFailed) as caught:
            await act("navigate", url="http://127.0.0.1:9/")
        assert caught.value.kind == "tool_error"
        assert "\x1b" not in caught.value.message


async def test_a_workflow_of_browser_actions_is_checked_before_it_runs(browser, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (program, *script), chromium = browser
    Path("stepwell.toml").write_text(
        f"[mcp.browser]\ncommand = {json.dumps(program)}\nargs = {json.dumps([*script, *arguments(chromium, tmp_path)])}\nurl = {json.dumps(URL)}\n"
    )
    wrong = {
        "id": "a",
        "type": "browser_action",
        "server": "browser",
        "tool": "browser_click",
        "arguments": {"where": "#x"},
    }
    Path("w.yaml").write_text(yaml.safe_dump({"workflow": "w", "steps": [wrong]}))
    async with open_engine() as engine:
        with pytest.raises(InputError) as caught:
            await engine.start(engine.load("w.yaml"), {})
        assert [problem.message for problem in caught.value.problems] == [
            "step a: browser.browser_click needs the argument 'target'",
            "step a: browser.browser_click has no argument 'where'",
        ]
        told = {name.partition(".")[2]: engine.tools.get(name).idempotent for name in engine.tools.names()}
        assert (told["browser_snapshot"], told["browser_click"]) == (True, False)
