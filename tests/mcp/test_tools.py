"""The tools of MCP servers as workflows see them: names, results, failures, settings, checks before a run."""

from __future__ import annotations

import json
import os
import sys

import pytest
import yaml
from click.testing import CliRunner

from stepwell.adapters.mcp.tools import McpTools
from stepwell.cli.app import stepwell as stepwell_command
from stepwell.engine.engine import open_engine
from stepwell.engine.settings import Settings
from stepwell.errors import DefinitionError, InputError, StepFailed
from stepwell.ports import ToolCallContext
from tests.mcp.servers import RUDE, calls, pool_of, rude

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


def context(timeout=30.0, **more):
    return ToolCallContext("r1", "/a", 1, "r1/a", timeout, **more)


async def test_tools_have_the_name_of_their_server_before_their_own():
    async with pool_of() as pool:
        tools = McpTools([rude()], pool)
        assert tools.get("rude.echo").idempotent is False, "as long as the server has not told, nobody knows"
        assert await tools.reach(["rude", "other"]) == {}
        assert "rude.echo" in tools.names()
        assert tools.get("rude.nothing") is None
        assert tools.get("other.echo") is None
        echo = tools.get("rude.echo")
        assert echo.parameters["required"] == ["say"]
        assert echo.description == "It does echo."
        said = {name: tools.get(f"rude.{name}").idempotent for name in ("echo", "count", "charge", "mute")}
        assert said == {"echo": True, "count": False, "charge": False, "mute": True}


@pytest.mark.parametrize(
    ("tool", "given", "result"),
    [
        ("echo", {"say": "hi"}, "hi"),
        ("structured", {}, {"seven": 7}),
        ("json", {}, {"seven": [7, None]}),
        (
            "picture",
            {},
            {"text": "look", "attachments": [{"type": "image", "mime_type": "image/png", "data": "A" * 8}]},
        ),
        (
            "picture",
            {"size": 2_000_000},
            {
                "text": "look",
                "attachments": [
                    {"type": "image", "mime_type": "image/png", "left_out": "2000000 characters of base64"}
                ],
            },
        ),
    ],
    ids=["text", "structured", "json", "picture", "large picture"],
)
async def test_what_a_call_gives(tool, given, result):
    async with pool_of() as pool:
        assert await McpTools([rude()], pool).call(f"rude.{tool}", given, context()) == result


@pytest.mark.parametrize(
    ("tool", "kind", "said", "detail"),
    [
        ("fail", "tool_error", "rude.fail: no [redacted]", None),
        ("refuse", "validation_error", "not like this", None),
        ("die", "connection_error", "exit code 3", None),
        ("mute", "timeout", "no answer within 2 s", None),
    ],
)
async def test_how_a_call_fails(tool, kind, said, detail):
    async with pool_of() as pool:
        tools = McpTools([rude(env={"TOKEN": "tok-very-secret"}, secrets=("tok-very-secret",))], pool)
        with pytest.raises(StepFailed, match=f"rude.{tool}") as caught:
            await tools.call(f"rude.{tool}", {}, context(2.0))
        assert (caught.value.kind, caught.value.detail) == (kind, detail)
        assert said in caught.value.message
        assert "\x1b" not in caught.value.message


async def test_the_server_is_told_what_led_to_the_call():
    async with pool_of() as pool:
        said = await McpTools([rude()], pool).call("rude.meta", {}, context(chain=("a", "b")))
        assert said == {"stepwell/chain": ["a", "b"], "stepwell/run": "r1", "stepwell/key": "r1/a"}


# ── settings ──


def write(folder, text):
    (folder / "stepwell.toml").write_text(text, encoding="utf-8")


def test_a_server_is_a_command_or_an_address_or_both(tmp_path):
    (tmp_path / "key.txt").write_text("file-secret\n")
    write(
        tmp_path,
        '[mcp.files]\ncommand = "npx"\nargs = ["files", "."]\nenv = {TOKEN = "env:A_TOKEN", MODE = "quick"}\n'
        '[mcp.web]\nurl = "https://x/mcp"\nheaders = {Authorization = "Bearer file:key.txt"}\ntimeout = 5\nmax_inflight = 2\n'
        '[mcp.browser]\ncommand = "npx"\nargs = ["--port", "{port}"]\nurl = "http://localhost:{port}/mcp"\n',
    )
    found = Settings.load(tmp_path, {"A_TOKEN": "env-secret"}).mcp
    assert found["files"].env == {"TOKEN": "env-secret", "MODE": "quick"}
    assert found["web"].headers == {"Authorization": "Bearer file-secret"}
    assert (found["web"].timeout, found["web"].max_inflight) == (5.0, 2)
    assert (found["web"].secrets, found["files"].secrets) == (("file-secret",), ("env-secret",))
    assert found["browser"].command
    assert found["browser"].url
    assert "secret" not in repr(found)
    assert Settings.load(tmp_path, {}).mcp["files"].missing == "the environment variable A_TOKEN is not set"


def test_what_is_wrong_with_servers_is_told_at_once_and_repeats_no_secret(tmp_path):
    write(
        tmp_path,
        '[mcp.a]\n[mcp.b]\ncommand = "x"\nargs = "y"\n[mcp."c.d"]\ncommand = "x"\n[mcp.e]\nurl = "ftp://x"\n'
        '[mcp.f]\nurl = "https://u:canary@x/"\nheaders = {Authorization = "canary"}\n[mcp.g]\ncommand = "x"\nenv = {API_KEY = "canary"}\n'
        '[mcp.h]\ncommand = "x"\nurl = "http://x/"\n[mcp.i]\nurl = "http://x/"\nargs = ["y"]\n[mcp.j]\ncomand = "x"\ntimeout = 0\nmax_inflight = 0\n',
    )
    with pytest.raises(DefinitionError) as caught:
        Settings.load(tmp_path, {})
    told = [problem.message for problem in caught.value.problems]
    assert told == [
        "the server 'a' has neither command nor url",
        "args is a list of texts",
        "'c.d' cannot name a server",
        "url begins with http:// or https://",
        "a password is not written into stepwell.toml",
        "the secret Authorization is not written into stepwell.toml",
        "the secret API_KEY is not written into stepwell.toml",
        "{port} stands for the free port of a server with both command and url",
        "args belongs to a command, and there is none",
        "there is no key 'comand'",
        "timeout is a number of seconds, at most a day",
        "max_inflight is a whole number of calls, at least 1",
        "the server 'j' has neither command nor url",
    ]
    assert "canary" not in str(caught.value)


# ── in a project ──


@pytest.fixture
def project(tmp_path, monkeypatch):
    write(
        tmp_path,
        f'[project]\ntools = ["tools.py"]\n[mcp.rude]\ncommand = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(RUDE))}]\n',
    )
    (tmp_path / "tools.py").write_text("import stepwell\n@stepwell.tool\ndef own() -> str:\n    return 'mine'\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flow(folder, *steps, **parts):
    file = folder / "w.yaml"
    file.write_text(yaml.safe_dump({"workflow": "w", "steps": list(steps), **parts}, sort_keys=False))
    return file


def call(tool, arguments=None, **more):
    return {"id": "c", "type": "tool_call", "tool": tool, "arguments": arguments or {}, **more}


async def ended(engine, file, value=None):
    handle = await engine.start(engine.load(file), value or {})
    return await handle.wait()


async def test_a_run_calls_own_tools_and_those_of_servers(project):
    file = flow(
        project,
        call("own"),
        {**call("rude.echo", {"say": "{{steps.c.output}}"}), "id": "d"},
        output="{{steps.d.output}}",
    )
    async with open_engine() as engine:
        run = await ended(engine, file)
        assert (run.status, run.output) == ("completed", "mine")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (call("rude.eco"), "the MCP server 'rude' offers no tool 'eco'"),
        (call("rude.echo"), "rude.echo needs the argument 'say'"),
        (call("rude.echo", {"say": 7}), "the argument 'say' of rude.echo does not fit"),
        (call("rude.echo", {"say": "x", "loud": True}), "rude.echo has no argument 'loud'"),
        (call("other.echo"), "no tool 'other.echo' is registered"),
        ({"id": "b", "type": "browser_action", "server": "rud", "tool": "echo"}, "there is no MCP server 'rud'"),
    ],
)
async def test_a_wrong_call_is_told_before_anything_is_executed(project, step, said):
    async with open_engine() as engine:
        with pytest.raises(InputError) as caught:
            await engine.start(engine.load(flow(project, step)), {})
        (problem,) = caught.value.problems
        assert said in problem.message
        assert problem.line


async def test_a_server_that_cannot_be_asked_is_told_before_anything_is_executed(project):
    write(project, '[mcp.gone]\ncommand = "/no/such/program"\n')
    async with open_engine() as engine:
        with pytest.raises(
            InputError, match="the MCP server 'gone' cannot be asked: its command '/no/such/program' cannot"
        ):
            await engine.start(engine.load(flow(project, call("gone.x"))), {})


def test_validate_makes_no_connection_and_says_what_it_did_not_look_at(project):
    started = project / "started"
    write(project, f'[mcp.slow]\ncommand = "touch"\nargs = [{json.dumps(str(started))}]\n')
    file = flow(project, call("slow.x"))
    told = CliRunner().invoke(stepwell_command, ["validate", str(file), "--json"])
    assert told.exit_code == 0, told.output
    (note,) = json.loads(told.stdout)
    assert (note["severity"], note["code"]) == ("note", "server_unasked")
    assert "looked at when a run starts" in note["message"]
    assert not started.exists()
    assert CliRunner().invoke(stepwell_command, ["run", str(file)]).exit_code == 2
    assert started.exists()


async def test_an_own_tool_may_not_be_named_as_those_of_a_server(project):
    (project / "tools.py").write_text("import stepwell\n@stepwell.tool(name='rude.echo')\ndef own(): ...\n")
    with pytest.raises(DefinitionError, match="named as those of the MCP server 'rude'"):
        async with open_engine():
            pass


async def test_a_call_that_may_not_be_repeated_is_in_doubt_when_its_server_dies(project):
    count = project / "calls"
    step = call("rude.die", {"file": str(count)}, idempotent=False, retry={"max_attempts": 3, "initial_delay": "10ms"})
    async with open_engine() as engine:
        await ended(engine, flow(project, step))
        (doubt,) = [wait.request["error"] for wait in await engine.incidents.open()]
        assert doubt["kind"] == "in_doubt"
        assert doubt["detail"]["cause"]["kind"] == "connection_error"
    assert calls(count) == 1


def test_tools_list_shows_what_servers_offer_and_which_do_not_answer(project):
    write(
        project,
        f'[project]\ntools = ["tools.py"]\n[mcp.rude]\ncommand = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(RUDE))}]\n'
        '[mcp.gone]\ncommand = "/no/such/program"\n',
    )
    told = CliRunner().invoke(stepwell_command, ["tools", "list", "--json"])
    assert told.exit_code == 0, told.output
    found = {tool["name"]: tool for tool in json.loads(told.stdout)}
    assert {"own", "rude.echo", "rude.count"} <= found.keys()
    assert (found["rude.echo"]["idempotent"], found["rude.count"]["idempotent"]) == (True, False)
    assert "the MCP server 'gone' cannot be asked: its command" in told.stderr
    assert "server 'gone'" in CliRunner().invoke(stepwell_command, ["doctor"]).output
