"""`stepwell mcp`: a real process of it, and a real client."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from stepwell.adapters.mcp.pool import Pool
from stepwell.adapters.mcp.result import plain
from stepwell.adapters.mcp.server import McpServer
from stepwell.engine.engine import open_engine
from stepwell.interpreter.scope import DEEPEST
from stepwell.ports import Person

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

GREET = {
    "workflow": "greet",
    "description": "Says hello.",
    "input": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    "steps": [{"id": "say", "type": "set", "values": {"text": "hello {{workflow_input.name}}"}}],
    "output": "{{step.say.text}}",
}
GATE = {
    "workflow": "gate",
    "steps": [{"id": "ok", "type": "approval", "title": "May it go on?", "show": {"amount": 7}}],
    "output": "{{step.ok.decision}}",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("workflows").mkdir()
    for one in (GREET, GATE, {"workflow": "broken", "steps": []}):
        Path("workflows", f"{one['workflow']}.yaml").write_text(yaml.safe_dump(one, sort_keys=False))
    Path("stepwell.toml").write_text('[project]\nworkflows = "workflows"\ntools = ["tools.py"]\n')
    Path("tools.py").write_text("print('tools files may print')\n")
    return tmp_path


@contextlib.asynccontextmanager
async def client(folder, *args):
    env = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    server = McpServer(
        "stepwell", command=sys.executable, args=("-m", "stepwell", "mcp", *args), env=env, folder=folder
    )
    pool = Pool()

    async def call(tool, /, *, meta=None, fails="", **given):
        answer, _ = await pool.call(server, tool, given, timeout=60, meta=meta)
        if fails:
            assert answer.is_error
            assert fails in answer.content[0].text, answer.content[0].text
            return None
        return plain(answer)

    try:
        yield call
    finally:
        await pool.aclose()


async def test_workflows_are_listed_started_and_read(project):
    async with client(project) as call:
        text = json.dumps((await call("list_workflows"))["workflows"])
        assert "Says hello." in text
        assert "broken" in text
        run = await call("start_workflow", workflow="greet", input={"name": "Ana"}, wait_seconds=30)
        assert (run["status"], run["output"]) == ("completed", "hello Ana")
        assert run["steps"] == [{"path": "/say", "status": "completed"}]
        assert (await call("get_run", run=run["run"]))["output"] == "hello Ana"
        again = [
            await call("start_workflow", workflow="greet", input={"name": "B"}, idempotency_key="k") for _ in range(2)
        ]
        assert again[0]["run"] == again[1]["run"]
        await call("start_workflow", workflow="greet", fails="name")
        await call("start_workflow", workflow="nothing", fails="list_workflows shows what there is")
        await call("start_workflow", workflow="../workflows/greet", fails="no name of a workflow")
        await call(
            "start_workflow", workflow="greet@99", input={"name": "A"}, fails="list_workflows shows what there is"
        )
        await call("start_workflow", workflow="greet", input={"name": "A"}, meta={"stepwell/chain": ["a"] * 10_000},
                   fails=f"deep: {' > '.join(['a'] * 50)} > greet")  # fmt: skip
        await call("get_run", run="nothing", fails="no run")


async def test_a_person_decides_and_nobody_does_not(project):
    async with client(project) as call:
        run = await call("start_workflow", workflow="gate", wait_seconds=30)
        (approval,) = run["approvals"]
        said = {"approval": approval["id"], "decision": "approved", "digest": approval["digest"]}
        await call("decide_approval", **said, fails="nothing is decided here without a person's key")
    async with client(project, "--as", "ana") as call:
        await call("decide_approval", **said, fails="nothing is decided here without a person's key")
    async with open_engine() as engine:
        await engine.people.add([Person("ana", roles=("approver",)), Person("bo", roles=("viewer",))])
        keys = {name: (await engine.people.issue_key(name))[0] for name in ("ana", "bo")}
    for name, key in keys.items():
        Path(f"{name}.key").write_text(f"{key}\n")
    async with client(project, "--key", "file:bo.key") as call:
        await call("decide_approval", **said, fails="bo may not")
    async with client(project, "--key", "file:ana.key") as call:
        assert (await call("list_approvals"))["approvals"][0]["show"] == {"amount": 7}
        await call("decide_approval", **said, meta={"stepwell/chain": ["w"]}, fails="a workflow decides no approval")
        await call("decide_approval", **{**said, "digest": "of something else"}, fails="changed")
        assert (await call("decide_approval", **said, comment="fine"))["status"] == "decided"
        ended = await call("get_run", run=run["run"], wait_seconds=30)
        assert (ended["status"], ended["output"]) == ("completed", "approved")
    async with open_engine() as engine:
        (act,) = [record for record in await engine.people.trail() if record.action == "approval.decide"]
        assert (act.by, act.channel) == ("ana", "mcp")


async def test_c079_the_depth_travels_over_mcp_and_the_limit_holds(project):
    """A run that is started from inside another, through an MCP server in another process, counts as one deeper."""
    inner = {"workflow": "inner", "steps": [{"id": "x", "type": "set", "values": {"a": 1}}], "output": "{{step.x.a}}"}
    outer = {
        "workflow": "outer",
        "steps": [
            {
                "id": "start", "type": "tool_call", "tool": "me.start_workflow", "timeout": "60s",
                "arguments": {"workflow": "inner", "wait_seconds": 30},
            }
        ],
        "output": "{{step.start.run}}",
    }  # fmt: skip
    for one in (inner, outer):
        Path("workflows", f"{one['workflow']}.yaml").write_text(yaml.safe_dump(one, sort_keys=False))
    with Path("stepwell.toml").open("a") as settings:
        env = f"env = {{PYTHONPATH = {json.dumps(os.environ['PYTHONPATH'])}}}\n" if os.environ.get("PYTHONPATH") else ""
        settings.write(f'[mcp.me]\ncommand = {json.dumps(sys.executable)}\nargs = ["-m", "stepwell", "mcp"]\n{env}')
    async with open_engine() as engine:
        run = await (await engine.start(engine.load("workflows/outer.yaml"), {})).wait()
        assert run.status == "completed", run.error
        child = await engine.run(run.output)
        assert (child.status, child.project["chain"]) == ("completed", ["outer"])
    async with client(project) as call:
        deep = {"stepwell/chain": [f"w{number}" for number in range(DEEPEST)]}
        await call("start_workflow", workflow="inner", meta=deep, fails="depth_exceeded")
        near = {"stepwell/chain": [f"w{number}" for number in range(DEEPEST - 1)]}
        assert (await call("start_workflow", workflow="inner", meta=near, wait_seconds=30))["status"] == "completed"
