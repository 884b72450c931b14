"""Cases of secrets: a canary is planted, everything is run, and it is nowhere but where it was sent."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.http_server import Web, web

Json = Any
CANARY = "CANARY-9f3/+k&x"
SOURCE = Path(__file__).parents[2] / "src"

TOOLS = """
import base64, logging, os, sys
from pathlib import Path
from urllib.parse import quote
import stepwell

GOT = Path(os.environ["GOT"])

def got(value):
    with GOT.open("a") as file:
        file.write(value + "\\n")

@stepwell.tool
def echo(auth: str, note: str = "") -> dict:
    got(auth)
    raw = auth.encode()
    return {
        "auth": auth, "note": note, "list": [{auth: auth}], "url": quote(auth, safe=""), "hex": raw.hex(),
        "basic": base64.b64encode(b"user:" + raw).decode(), "safe": base64.urlsafe_b64encode(b"x" + raw).decode(),
        "reversed": auth[::-1], "json": '{"a": "%s"}' % auth.replace("/", "\\\\/"), "html": auth.replace("&", "&amp;"),
    }

@stepwell.tool
def explode(auth: str) -> None:
    got(auth)
    raise RuntimeError(f"the service refused {auth} and {quote(auth)}")

@stepwell.tool
def refuse(auth: str) -> None:
    raise stepwell.StepFailed("no_luck", f"no luck with {auth}", detail={"sent": {auth: [auth]}})

@stepwell.tool(idempotent=False)
def once(auth: str) -> str:
    got(auth)
    return auth

@stepwell.tool
def leak(auth: str) -> str:
    print("printed", auth)
    print("printed", auth, file=sys.stderr)
    sys.stdout.write(auth[:7]); sys.stdout.flush(); sys.stdout.write(auth[7:] + "\\n")
    logging.getLogger("x").warning("logged %s", auth)
    stepwell.logger("y").error("logged", exc_info=ValueError(auth))
    return auth

@stepwell.tool
def wordy(auth: str, width: int) -> None:
    raise RuntimeError("x" * width + auth)

@stepwell.tool
def plain(text: str) -> str:
    got(text)
    return text
"""

MAIN = """
workflow: main
input: {{type: object, properties: {{rows: {{type: array}}}}}}
steps:
- {{id: echo, type: tool_call, tool: echo, arguments: {{auth: "Bearer {{{{secret.KEY}}}}", note: "{{{{workflow_input.rows[0]}}}}"}}}}
- {{id: once, type: tool_call, tool: once, arguments: {{auth: "{{{{secret.KEY}}}}"}}}}
- id: web
  type: tool_call
  tool: http
  arguments:
    url: {url}
    method: POST
    query: {{k: "{{{{secret.KEY}}}}"}}
    headers: {{authorization: "Bearer {{{{secret.KEY}}}}"}}
    json: {{deep: [{{k: "{{{{secret.KEY}}}}"}}], data: "{{{{workflow_input.rows}}}}"}}
- id: web-fails
  type: tool_call
  tool: http
  arguments: {{url: {url}, headers: {{x-key: "{{{{secret.KEY}}}}"}}, expect: 201}}
  on_error: continue
- id: web-moves
  type: tool_call
  tool: http
  arguments: {{url: {moves}, headers: {{x-key: "{{{{secret.KEY}}}}"}}}}
  on_error: continue
- id: explode
  type: tool_call
  tool: explode
  arguments: {{auth: "{{{{secret.KEY}}}}"}}
  retry: {{max_attempts: 2, initial_delay: 10ms, on: [tool_error]}}
  on_error: continue
- {{id: refuse, type: tool_call, tool: refuse, arguments: {{auth: "{{{{secret.KEY}}}}"}}, on_error: continue}}
- {{id: leak, type: tool_call, tool: leak, arguments: {{auth: "{{{{secret.KEY}}}}"}}}}
- {{id: write, type: kb_write, document: notes, content: "{{{{step.echo}}}} {{{{steps.explode.error}}}}"}}
- {{id: find, type: kb_search, query: refused}}
- {{id: tell, type: handoff, to: {{users: [ana]}}, message: "{{{{step.web.json}}}} {{{{steps.refuse.error}}}}"}}
- {{id: child, type: sub_workflow, workflow: child, inputs: {{seen: "{{{{step.echo.auth}}}}"}}}}
- id: rows
  type: loop
  over: "{{{{workflow_input.rows}}}}"
  steps:
  - {{id: each, type: tool_call, tool: plain, arguments: {{text: "Item {{{{loop_item}}}}"}}}}
- {{id: stuck, type: tool_call, tool: explode, arguments: {{auth: "x {{{{secret.KEY}}}}"}}, on_error: suspend}}
- {{id: ask, type: approval, title: "Send {{{{step.echo.auth}}}}?", show: {{all: "{{{{step.web}}}}", why: "{{{{steps.refuse.error}}}}"}}}}
output: {{echo: "{{{{step.echo}}}}", web: "{{{{step.web}}}}", child: "{{{{step.child}}}}"}}
"""

CHILD = """
workflow: child
input: {type: object, properties: {seen: {type: string}}}
steps:
- {id: inner, type: tool_call, tool: echo, arguments: {auth: "{{secret.KEY}}"}}
output: {inner: "{{step.inner}}", seen: "{{workflow_input.seen}}"}
"""

FAILING = """
workflow: failing
steps:
- {id: a, type: tool_call, tool: explode, arguments: {auth: "{{secret.KEY}}"}}
on_failure:
  steps:
  - {id: after, type: tool_call, tool: echo, arguments: {auth: "{{secret.KEY}}", note: "{{error.message}}"}}
"""


@dataclass(slots=True)
class Project:
    """A project in a folder, used through the command line alone."""

    root: Path
    environ: dict[str, str]
    told: list[str] = field(default_factory=list)

    async def stepwell(self, *words: str) -> str:
        """What a command prints on both streams, kept to be searched."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "stepwell", *words, cwd=self.root, env=self.environ,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        self.told += [out.decode(), err.decode()]
        return out.decode()

    def everything(self) -> dict[str, bytes]:
        """All that was printed and all files of the project but what the tools themselves noted."""
        files = {str(path): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        return files | {"printed": "\n".join(self.told).encode()}


@pytest.fixture
async def site():
    async with web() as found:
        yield found


@pytest.fixture
def project(tmp_path: Path, site: Web) -> Project:
    root = tmp_path / "project"
    root.mkdir()
    (root / "stepwell.toml").write_text(
        '[project]\ntools = ["tools.py"]\n[secrets]\nKEY = "env:THE_KEY"\nABSENT = "env:NOT_SET"\n'
        '[http]\nallow_private = ["127.0.0.1"]\n'
    )
    (root / "tools.py").write_text(TOOLS)
    moves = site.url("/to/302/x?at=http%3A%2F%2F169.254.169.254%2F")
    (root / "main.yaml").write_text(MAIN.format(url=site.url("/echo"), moves=moves))
    (root / "child.yaml").write_text(CHILD)
    (root / "failing.yaml").write_text(FAILING)
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "THE_KEY": CANARY, "GOT": str(tmp_path / "got")}
    return Project(root, environ)


def spelt() -> set[bytes]:
    raw = CANARY.encode()
    found = {raw, raw[::-1], raw.hex().encode(), b"CANARY", quote(CANARY, safe="").encode()}
    for before in (b"", b"u", b"us", b"use"):
        whole = base64.b64encode(before + raw)
        found.add(whole[(len(before) * 8 + 5) // 6 : (len(before) + len(raw)) * 8 // 6])
    return found


def assert_nowhere(project: Project) -> None:
    for name, held in project.everything().items():
        for form in spelt():
            at = held.find(form)
            assert at < 0, f"{name}: {held[max(0, at - 200) : at + 100]!r}"


async def test_c034_a_canary_is_nowhere_but_where_it_was_sent(project: Project, site: Web, tmp_path: Path) -> None:
    rows = json.dumps(["{{secret.KEY}}", "[secret KEY]", "{{ secret.KEY }}", "plain"])
    await project.stepwell("run", "main.yaml", "--json", "-i", f"rows:={rows}")
    run = json.loads(await project.stepwell("runs", "list", "--json"))[0]
    assert run["status"] == "suspended", project.told
    incident = json.loads(await project.stepwell("incidents", "list", "--json"))[0]
    await project.stepwell("incidents", "show", incident["id"])
    await project.stepwell("incidents", "retry", incident["id"])
    incident = json.loads(await project.stepwell("incidents", "list", "--json"))[0]
    await project.stepwell("incidents", "skip", incident["id"])
    wait = json.loads(await project.stepwell("approvals", "list", "--json"))[0]
    await project.stepwell("approvals", "show", wait["id"])
    await project.stepwell("approvals", "approve", wait["id"])
    shown = await project.stepwell("runs", "show", run["id"], "--json")
    for words in (("runs", "show", run["id"]), ("explain", run["id"]), ("runs", "tail", run["id"]), ("audit",),
                  ("runs", "export", run["id"], "--as-test", "made.test.yaml"), ("kb", "search", "refused"),
                  ("doctor",), ("tools", "list")):  # fmt: skip
        await project.stepwell(*words)
    await project.stepwell("run", "failing.yaml")
    await project.stepwell("run", "failing.yaml", "--debug")
    assert_nowhere(project)
    got = (tmp_path / "got").read_text()
    assert got.splitlines().count(CANARY) >= 6
    assert f"Bearer {CANARY}" in got
    assert f"x {CANARY}" in got
    asked = next(request for request in site.asked if request.method == "POST")
    assert asked.headers["authorization"] == f"Bearer {CANARY}"
    assert asked.query["k"] == [CANARY]
    assert json.loads(asked.body)["deep"] == [{"k": CANARY}]
    steps = {step["path"]: step for step in json.loads(shown)["steps"]}
    assert json.loads(shown)["status"] == "completed"
    assert steps["/echo"]["input"]["auth"] == "Bearer {{secret.KEY}}"
    assert steps["/echo"]["output"]["auth"] == "Bearer [secret KEY]"
    assert "refused [secret KEY] and [secret KEY]" in steps["/explode"]["error"]["message"]
    assert steps["/web"]["output"]["json"]["headers"]["authorization"] == "Bearer [secret KEY]"


async def test_c034_a_message_that_is_cut_in_the_middle_of_a_value_shows_no_piece_of_it(project: Project) -> None:
    steps = [
        f"- {{id: s{width}, type: tool_call, tool: wordy, on_error: continue,"
        f' arguments: {{auth: "{{{{secret.KEY}}}}", width: {width}}}}}'
        for width in (1986, 1988, 1992)
    ]
    (project.root / "wordy.yaml").write_text("workflow: wordy\nsteps:\n" + "\n".join(steps) + "\n")
    told = await project.stepwell("run", "wordy.yaml", "--json")
    assert json.loads(told.splitlines()[-1])["status"] == "completed"
    assert_nowhere(project)


async def test_c034_what_is_said_of_an_incident_or_a_rerun_is_refused_with_a_value(project: Project) -> None:
    (project.root / "stuck.yaml").write_text(
        "workflow: stuck\nsteps:\n- {id: a, type: tool_call, tool: explode, on_error: suspend,"
        ' arguments: {auth: "{{secret.KEY}}"}}\n'
    )
    await project.stepwell("run", "stuck.yaml")
    incident = json.loads(await project.stepwell("incidents", "list", "--json"))[0]
    for words in (
        ("incidents", "retry", incident["id"], "-i", f"auth={CANARY}"),
        ("incidents", "provide", incident["id"], "--output", json.dumps({"a": CANARY})),
        ("incidents", "provide", incident["id"], "--output", "{}", "--comment", f"for {CANARY}"),
        ("runs", "rerun", incident["run"], "--from", "/a", "-i", f"auth={CANARY}"),
    ):
        await project.stepwell(*words)
        assert "the value of the secret 'KEY' stands in" in project.told[-1]
    assert len(json.loads(await project.stepwell("incidents", "list", "--json"))) == 1
    assert_nowhere(project)


async def test_c036_data_that_looks_like_a_secret_is_sent_as_it_is(project: Project, tmp_path: Path) -> None:
    rows = json.dumps(["{{secret.KEY}}", "[secret KEY]", "{{ secret.KEY }}"])
    await project.stepwell("run", "main.yaml", "-i", f"rows:={rows}")
    got = (tmp_path / "got").read_text().splitlines()
    assert [line for line in got if line.startswith("Item")] == [
        "Item {{secret.KEY}}", "Item [secret KEY]", "Item {{ secret.KEY }}"
    ]  # fmt: skip


async def test_c034_a_run_does_not_begin_without_its_secrets(project: Project, tmp_path: Path) -> None:
    (project.root / "child.yaml").write_text(CHILD.replace("secret.KEY", "secret.ABSENT"))
    (project.root / "failing.yaml").write_text(FAILING.replace("secret.KEY", "secret.KEYS"))
    await project.stepwell("run", "main.yaml", "-i", "rows:=[]")
    assert "error[secret] step inner: the secret 'ABSENT' is not there" in project.told[-1]
    assert "the environment variable NOT_SET is not set" in project.told[-1]
    await project.stepwell("run", "failing.yaml")
    assert "failing.yaml:4:62: error[secret] step a: there is no secret 'KEYS'" in project.told[-1]
    assert "did you mean 'KEY'?" in project.told[-1]
    assert not (tmp_path / "got").exists()
    assert_nowhere(project)


async def test_c034_no_value_comes_in_by_another_way(project: Project, tmp_path: Path) -> None:
    rows = json.dumps([f"x {CANARY}"])
    await project.stepwell("run", "main.yaml", "-i", f"rows:={rows}")
    assert "error[secret] the value of the secret 'KEY' stands in the input" in project.told[-1]
    (project.root / "pasted.yaml").write_text(
        f"workflow: pasted\nsteps:\n- {{id: a, type: tool_call, tool: plain, arguments: {{text: '{CANARY}'}}}}\n"
    )
    await project.stepwell("run", "pasted.yaml")
    assert "the value of the secret 'KEY' stands in the definition" in project.told[-1]
    (project.root / "pasted.yaml").unlink()
    (project.root / "asks.yaml").write_text(
        "workflow: asks\nsteps:\n- {id: told, type: wait, event: news, expires_in: 1h}\n"
        "- {id: ask, type: approval, title: Sure?}\noutput: {said: '{{step.ask.comment}}', told: '{{step.told}}'}\n"
    )
    await project.stepwell("run", "asks.yaml")
    await project.stepwell("events", "send", "news", "--data", json.dumps({"token": CANARY}))
    await project.stepwell("runs", "resume", json.loads(await project.stepwell("runs", "list", "--json"))[0]["id"])
    wait = json.loads(await project.stepwell("approvals", "list", "--json"))[0]
    await project.stepwell("approvals", "approve", wait["id"], "--comment", f"use {CANARY}")
    assert "use [secret KEY]" in await project.stepwell("runs", "show", wait["run"], "--json")
    assert not (tmp_path / "got").exists()
    assert_nowhere(project)


async def test_c034_scripted_runs_need_no_secret_and_get_none(project: Project, tmp_path: Path) -> None:
    (project.root / "failing.yaml").write_text(FAILING.replace("secret.KEY", "secret.ABSENT"))
    (project.root / "mock.yaml").write_text("a: {output: 1}\n")
    told = await project.stepwell("run", "failing.yaml", "--mock", "mock.yaml", "--json")
    assert json.loads(told.splitlines()[-1])["status"] == "completed"
    assert not (tmp_path / "got").exists()
