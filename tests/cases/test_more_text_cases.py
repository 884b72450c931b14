"""Neighbours of the cases of template_injection, expression, typing, braces, serialisation, llm_json, yaml and timeout.

Whole runs: through real tools, a real model server, the database and the command line.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cases.test_expression_cases import CANARY, INJECTIONS, NUMBER_LIKE, SPELLINGS
from tests.cases.test_pause_cases import gate
from tests.cases.test_serialisation_cases import Project
from tests.cases.test_step_cases import run_to_end, tool
from tests.engine_world import engine_with, workflow

from stepwell.engine.engine import Engine, open_engine
from stepwell.engine.secret import Secret
from stepwell.engine.settings import ModelSettings, Settings
from stepwell.errors import StepFailed
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.testing.provider_server import ProviderServer, Reply
from stepwell.testing.scripted import ScriptedTools

Json = Any
ROOT = Path(__file__).parents[2]


def with_model(folder: Path, server: ProviderServer) -> Settings:
    model = ModelSettings("m", "openai", server.base_url, Secret(server.key, ""), "some-model")
    return Settings(root=folder, models={"m": model}, default_model="m")


# ── template injection ──

ECHO = "import stepwell\n@stepwell.tool\ndef echo(text: str) -> dict:\n    return {'text': text}\n"
HOPS = {
    "input": {"type": "object"},
    "steps": [
        {"id": "L", "type": "loop", "over": "{{workflow_input.rows}}",
         "steps": [{"id": "t", "type": "tool_call", "tool": "echo", "arguments": {"text": "Item {{loop_item.name}}"}}]},
        {"id": "m", "type": "llm_call", "prompt": "Summarise {{step.L}}"},
        {"id": "again", "type": "tool_call", "tool": "echo", "arguments": {"text": "{{step.m.text}}"}},
        {"id": "kid", "type": "sub_workflow", "workflow": "kid", "inputs": {"text": "{{step.again.text}}"}},
        {"id": "kb", "type": "kb_write", "document": "notes", "content": "{{step.kid.text}} {{step.L}}"},
        {"id": "found", "type": "kb_search", "query": "{{step.again.text}}"},
        {"id": "h", "type": "handoff", "to": "user:ana", "subject": "{{step.again.text}}", "message": "{{step.L}}"},
        {"id": "g", "type": "approval", "title": "{{step.again.text}}", "show": {"rows": "{{step.L}}"}},
        {"id": "last", "type": "tool_call", "tool": "echo", "arguments": {"text": "{{step.g.comment}} {{step.g.data.note}}"}},
    ],
}  # fmt: skip
KID = {"steps": [{"id": "k", "type": "tool_call", "tool": "echo", "arguments": {"text": "{{workflow_input.text}}"}}]}


async def test_c036_syntax_in_data_is_never_resolved_on_any_way_through_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tools.py").write_text(ECHO)
    (tmp_path / "w.json").write_text(json.dumps({"workflow": "w", **HOPS}))
    (tmp_path / "kid.json").write_text(json.dumps({"workflow": "kid", **KID}))
    evil = " ".join(INJECTIONS)
    rows = [{"name": name} for name in INJECTIONS]
    async with ProviderServer([Reply(f"I say {evil}")]) as server:
        url = f"sqlite:///{tmp_path}/s.db"
        async with open_engine(url, settings=with_model(tmp_path, server), tools=[tmp_path / "tools.py"]) as engine:
            handle = await engine.start(engine.load(tmp_path / "w.json"), {"rows": rows, "api_key": CANARY})
            run = await handle.wait()
            assert run.status == "pending_approval", run.error
            (wait,) = await engine.waits(run_id=run.id)
            await engine.decide(wait.id, "approved", comment=evil, data={"note": evil})
            run = await (await engine.resume(run.id)).wait()
            assert (run.status, run.output) == ("completed", {"text": f"{evil} {evil}"})
            told = {one["path"]: one for one in (await engine.tree(run.id)).as_json()["steps"]}
            assert [told[f"/L/{n}/t"]["input"]["text"] for n in range(len(rows))] == [f"Item {n}" for n in INJECTIONS]
            assert told["/again"]["output"] == told["/kid/k"]["output"] == {"text": f"I say {evil}"}
            assert wait.request["title"] == f"I say {evil}"
            asked = "".join(json.dumps(request.json, ensure_ascii=False) for request in server.requests)
            for part in ("{{workflow_input.api_key}}", "{% for i in range(9**9) %}", "{{step.m.x}}"):
                assert part in asked
            sent = [str(one) for one in await engine.notifications(run.id)]
            assert any("{{workflow_input.api_key}}" in one for one in sent)
            kept = await engine.knowledge.document("default", "notes")
            bodies = [entry.body.decode() for entry in await engine.history(run.id)]
        for text in (asked, *sent, str(kept), *bodies, json.dumps(told, default=str), str(wait), caplog.text):
            assert CANARY not in text


async def test_c036_syntax_in_an_error_reaches_rules_and_what_follows_a_failure_as_text() -> None:
    evil = "{{workflow_input.api_key}}"
    tools = ScriptedTools(answers={"bad": [StepFailed("refused", evil)]})
    after = {"steps": [tool("tell", arguments={"text": "{{error.message}}"})]}
    steps = [
        tool("bad", on_error={"strategy": "continue", "when": f"error.message == '{evil}'"}),
        tool("seen", arguments={"text": "{{steps.bad.error.message}}"}),
        {"id": "stop", "type": "end", "status": "failed", "message": "{{steps.bad.error.message}}"},
    ]
    run, _ = await run_to_end(steps, tools, {"api_key": CANARY})
    assert run.error is not None
    assert (tools.called("seen"), run.error["message"]) == ([{"text": evil}], evil)
    run, _ = await run_to_end([tool("bad")], tools, {"api_key": CANARY}, on_failure=after)
    assert tools.called("tell") == [{"text": evil}]


# ── expressions ──


@pytest.mark.parametrize("source", SPELLINGS)
async def test_c039_no_spelling_of_an_attribute_gets_past_a_run(source: str) -> None:
    """Refused when it is loaded, or an error of the step; never a value, and no other step sees one."""
    from stepwell.errors import DefinitionError

    tools = ScriptedTools()
    steps = [tool("a"), tool("t", condition=source), tool("u", arguments={"x": f"{{{{ {source} }}}}"})]
    try:
        loaded = workflow(steps)
    except DefinitionError as error:
        refused = error
        assert refused.problems
        return
    async with engine_with(tools) as engine:
        run = await (await engine.start(loaded, {})).wait()
        assert run.error is not None
        assert (run.status, run.error["kind"]) == ("failed", "expression_error")
        assert [call.tool for call in tools.calls] == ["a"]


VALIDATED = """
import json, os, sys
from click.testing import CliRunner
from stepwell.cli.app import stepwell
from stepwell.cli import validate  # what validate imports lazily is imported by a first, harmless call
CliRunner().invoke(stepwell, ["validate", "fine.yaml"])
events = []
def note(event, arguments):
    kind = event.split(".")[0]
    if kind in {"socket", "subprocess", "shutil", "ctypes"} or event in {"os.system", "os.exec", "os.remove", "os.rename", "os.mkdir"}:
        events.append(event)
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        events.append(f"open {arguments[0]}")
    if event == "open" and str(arguments[0]).endswith("tools.py"):
        events.append(f"open {arguments[0]}")
sys.addaudithook(note)
result = CliRunner().invoke(stepwell, ["validate", "hostile.yaml", "--json"])
print(json.dumps({"events": list(events), "code": result.exit_code, "said": result.output}))
"""


def test_c040_validating_from_the_command_line_opens_writes_and_calls_nothing(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    (tmp_path / "tools.py").write_text(
        f"open({str(canary)!r}, 'w').close()\nimport stepwell\n@stepwell.tool\ndef t(x): return x\n"
    )
    (tmp_path / "stepwell.toml").write_text('[project]\ntools = ["tools.py"]\n')
    (tmp_path / "fine.yaml").write_text("workflow: fine\nsteps:\n- {id: a, type: set, values: {x: 1}}\n")
    attacks = [f"open('{canary}', 'w')", f"__import__('os').system('touch {canary}')", "size(1/0) > 0", *SPELLINGS]
    steps = [
        tool(f"s{n}", tool="t", condition=text, arguments={"x": f"{{{{ {text} }}}}"}) for n, text in enumerate(attacks)
    ]
    (tmp_path / "hostile.yaml").write_text(json.dumps({"workflow": "hostile", "steps": steps}))
    child = subprocess.run(
        [sys.executable, "-c", VALIDATED], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("STEPWELL_")},
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    report = json.loads(child.stdout)
    assert report["events"] == []
    assert report["code"] == 1
    assert {problem["severity"] for problem in json.loads(report["said"])} >= {"error"}
    assert not canary.exists()
    assert sorted(file.name for file in tmp_path.iterdir() if file.name != "__pycache__") == [
        "fine.yaml", "hostile.yaml", "stepwell.toml", "tools.py",
    ]  # fmt: skip


async def test_c040_preflight_evaluates_nothing_that_only_a_run_can_know() -> None:
    tools = ScriptedTools()
    steps = [tool("t", arguments={"x": "{{ 1 / workflow_input.zero }}"}, condition="workflow_input.missing.deep")]
    async with engine_with(tools) as engine:
        assert await engine.preflight(workflow(steps), {"zero": 0}) == []
        assert (tools.calls, await engine.runs()) == ([], [])


# ── typing and braces ──

TYPED = """
workflow: typed
input:
  type: object
  properties:
    id: {type: string}
    n: {type: integer}
steps:
  - {id: t, type: tool_call, tool: kind, arguments: {v: "{{workflow_input.id}}"}}
  - {id: n, type: tool_call, tool: kind, arguments: {v: "{{workflow_input.n ?? 0}}"}}
output: {t: "{{step.t}}", n: "{{step.n}}"}
"""
KIND = "import stepwell\n@stepwell.tool\ndef kind(v) -> list:\n    return [type(v).__name__, v]\n"


def typed_run(folder: Path, *given: str, stdin: str = "") -> Json:
    from click.testing import CliRunner

    from stepwell.cli.app import stepwell

    (folder / "typed.yaml").write_text(TYPED)
    (folder / "tools.py").write_text(KIND)
    args = [
        "run",
        str(folder / "typed.yaml"),
        "--tools",
        str(folder / "tools.py"),
        "--database",
        f"sqlite:///{folder}/s.db",
    ]
    result = CliRunner().invoke(stepwell, [*args, *given, "--json"], input=stdin, prog_name="stepwell")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])["output"]


@pytest.mark.parametrize("text", [*NUMBER_LIKE, "", " 7 ", "NaN", "-0", "[1]", '"quoted"', "½", "a=b", ":=1"])
def test_c100_text_arrives_as_the_same_text_on_every_way_in(text: str, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(json.dumps({"id": text}))
    for given, stdin in (
        (["-i", f"id={text}"], ""), (["-i", f"id:={json.dumps(text)}"], ""),
        (["--input", str(tmp_path / "in.json")], ""), (["--input", "-"], json.dumps({"id": text})),
    ):  # fmt: skip
        assert typed_run(tmp_path, *given, stdin=stdin)["t"] == ["str", text]


@pytest.mark.parametrize("number", [9007199254740993, -9007199254740993, 2**63, 10**30])
def test_c100_large_integers_come_through_command_line_database_and_tool_exactly(number: int, tmp_path: Path) -> None:
    for given in (f"n={number}", f"n:={number}"):
        assert typed_run(tmp_path, "-i", "id=x", "-i", given)["n"] == ["int", number]


async def test_c101_text_that_looks_like_a_value_is_text_behind_a_tool_and_a_restart(tmp_path: Path) -> None:
    given = {"phone": "+48100200300", "us": "123_123_123", "bits": "0011101.001", "list": "[1, 2]", "dict": "{'a': 1}",
             "json": '{"a": 1}', "expr": "1 + 1", "none": "null"}  # fmt: skip
    use = tool("t", arguments={name: f"{{{{step.s.{name}}}}}" for name in given} | {"c": "x{{step.s.bits}}"})
    tools = ScriptedTools(answers={"s": [given]})
    async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
        run_id = (await engine.start(workflow([tool("s"), gate("g"), use]), {})).run_id
        await engine.settled(run_id)
    async with engine_with(tools, SqliteRunStore.open(tmp_path / "r.db")) as engine:
        (wait,) = await engine.waits(run_id=run_id)
        await engine.decide(wait.id, "approved")
        await (await engine.resume(run_id)).wait()
    assert tools.called("t") == [given | {"c": "x0011101.001"}]


async def test_c103_a_body_written_as_text_and_one_written_as_data_reach_the_tool_whole() -> None:
    value = {"obj": {"a": {"b": 1}}, "s": 'quote " backslash \\ newline \n}}'}
    steps = [
        tool("text", arguments={"body": '{"q":{{workflow_input.obj}},"e":{},"s":{{workflow_input.s | json}}}'}),
        tool("data", arguments={"body": {"q": "{{workflow_input.obj}}", "e": {}, "s": "{{workflow_input.s}}"}}),
        tool("tight", arguments={"body": "{{{workflow_input.obj}}}"}),
    ]
    tools = ScriptedTools()
    run, _ = await run_to_end(steps, tools, value)
    assert run.status == "completed"
    whole = {"q": value["obj"], "e": {}, "s": value["s"]}
    assert json.loads(tools.called("text")[0]["body"]) == tools.called("data")[0]["body"] == whole
    assert tools.called("tight") == [{"body": '{{"a": {"b": 1}}}'}]


# ── serialisation ──


async def test_c106_the_command_line_shows_a_run_with_hostile_text(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from stepwell.cli.app import stepwell

    given = r"{'nul': 'a\x00b', 'lone': '\ud800', 'bom': '\ufeffx', 'k\x00': 1, 'line': '\u2028', 'esc': '\x1b[2J'}"
    project = Project(tmp_path, f"@stepwell.tool\ndef s(): return {given}\n")
    run, _ = await project.run([{"id": "s", "type": "tool_call", "tool": "s"}])
    assert run.status == "completed"
    for more in (["--json"], []):
        args = ["runs", "show", run.id, "--database", f"sqlite:///{tmp_path}/s.db", *more]
        result = await asyncio.to_thread(CliRunner().invoke, stepwell, args)
        assert result.exit_code == 0, result.output
        assert "\x1b" not in result.output
        assert "\x00" not in result.output
        if more:
            assert json.loads(result.stdout)["output"] == run.output


@pytest.mark.parametrize("source", [
    "True", "[[], {}, '']", "0.1 + 0.2", "5e-324", "1.7976931348623157e308", "-0.0", "2**64", "'\\ud83d\\ude00'", "{'': {'': []}}",
    "'x' * 100_000", "{str(n): n for n in range(5000)}", "'\\r\\n\\t\\x7f\\u2028'",
])  # fmt: skip
async def test_c107_what_a_step_sees_before_a_restart_it_sees_after_it(tmp_path: Path, source: str) -> None:
    project = Project(tmp_path, f"@stepwell.tool\ndef s(): return {source}\n")
    use = {"type": "tool_call", "tool": "use", "arguments": {"v": "{{step.s}}"}}
    steps = [{"id": "s", "type": "tool_call", "tool": "s"}, {"id": "before", **use}, {"id": "g", "type": "approval"},
             {"id": "after", **use}]  # fmt: skip
    run, told = await project.run(steps)
    assert run.status == "pending_approval"
    async with project.engine() as engine:
        await engine.decide((await engine.waits(run_id=run.id))[0].id, "approved")
        run, later = await project.told(engine, await (await engine.resume(run.id)).wait())
    assert run.status == "completed"
    assert repr(told["/before"]["output"]) == repr(later["/after"]["output"]) == repr(run.output)
    assert repr(told["/before"]["output"]) == repr(eval(source.replace("\\ud83d\\ude00", "😀")))


# ── answers of models, in a run ──

CUT = '{"items":[{"a":1},{"a":'
SCHEMA = {"type": "object", "required": ["items"], "properties": {"items": {"type": "array"}}}


async def asked(folder: Path, replies: list[Reply], **more: Json) -> tuple[Json, Json, int]:
    """The run, its one model step and how often the model was asked."""
    step = {"id": "l", "type": "llm_call", "prompt": "?", "output_schema": SCHEMA, **more}
    (folder / "w.json").write_text(json.dumps({"workflow": "w", "steps": [step]}))
    async with ProviderServer(replies) as server:
        async with open_engine(f"sqlite:///{folder}/s.db", settings=with_model(folder, server)) as engine:
            run = await (await engine.start(engine.load(folder / "w.json"), {})).wait()
            (told,) = (await engine.tree(run.id)).as_json()["steps"]
        return run, told, len(server.requests)


ONCE_MORE = {"max_retries": 1, "initial_delay": "1ms"}


@pytest.mark.parametrize(("reply", "kind", "requests"), [
    (Reply(CUT, finish_reason="length"), "truncated_output", 2),
    (Reply(CUT), "output_invalid", 4),
    (Reply(""), "output_invalid", 4),
    (Reply("I cannot help."), "output_invalid", 4),
    (Reply(refusal="I will not."), "refused", 1),
], ids=["cut", "cut without saying so", "empty", "prose", "refusal"])  # fmt: skip
async def test_c110_a_bad_answer_counts_against_the_attempts_and_every_token_is_summed(
    tmp_path: Path, reply: Reply, kind: str, requests: int
) -> None:
    """An attempt is an answer and one repair of it; a cut answer is not repaired, a refusal not asked for again."""
    run, told, count = await asked(tmp_path, [reply], retry=ONCE_MORE)
    assert run.error is not None
    assert (run.status, run.error["kind"], count) == ("failed", kind, requests)
    assert told["attempts"] == (1 if kind == "refused" else 2)
    assert told["output"] is None
    assert run.usage["input_tokens"] == 10 * count
    assert run.usage["output_tokens"] == 5 * count


async def test_c110_a_good_answer_after_a_cut_one_is_taken_and_both_are_paid_for(tmp_path: Path) -> None:
    good = Reply('{"items": []}', input_tokens=7, output_tokens=3)
    run, told, count = await asked(tmp_path, [Reply(CUT, finish_reason="length"), good], retry=ONCE_MORE)
    assert (run.status, run.output, count, told["attempts"]) == ("completed", {"items": []}, 2, 2)
    assert told["attempt_log"][0]["error"]["kind"] == "truncated_output"
    assert (run.usage["input_tokens"], run.usage["output_tokens"]) == (17, 8)


@pytest.mark.parametrize(("status", "kind", "attempts"), [
    (400, "invalid_request", 1), (401, "auth_error", 1), (403, "auth_error", 1), (404, "not_found", 1),
    (409, "invalid_request", 1), (422, "invalid_request", 1), (408, "timeout", 3), (425, "overloaded", 3),
    (429, "rate_limit", 3), (500, "server_error", 3), (502, "server_error", 3), (503, "server_error", 3),
    (504, "server_error", 3),
])  # fmt: skip
async def test_c052_the_answer_of_a_model_service_decides_whether_it_is_asked_again(
    tmp_path: Path, status: int, kind: str, attempts: int
) -> None:
    retry = {"max_attempts": 3, "initial_delay": "1ms"}
    run, told, count = await asked(tmp_path, [Reply("no", status=status)], retry=retry)
    assert run.error is not None
    assert (run.error["kind"], count, told["attempts"]) == (kind, attempts, attempts)
    assert [one["error"]["kind"] for one in told["attempt_log"]] in ([kind] * attempts, [kind] * (attempts - 1))


@pytest.mark.parametrize(("reply", "kind"), [
    (Reply("x", reset=True), "connection_error"), (Reply("x" * 999, truncate=20), "connection_error"), (Reply(hang=True), "timeout"),
])  # fmt: skip
async def test_c052_a_connection_that_breaks_or_hangs_is_tried_again(tmp_path: Path, reply: Reply, kind: str) -> None:
    retry = {"max_attempts": 2, "initial_delay": "1ms"}
    run, told, count = await asked(tmp_path, [reply], retry=retry, timeout="0.5s")
    assert run.error is not None
    assert (run.error["kind"], count, told["attempts"]) == (kind, 2, 2)


# ── timeout ──


@contextmanager
def dripping() -> Iterator[int]:
    """The port of a server that answers one byte every half second and never ends."""
    stop = threading.Event()

    def serve(listening: socket.socket) -> None:
        while not stop.is_set():
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            with connection:
                try:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                    while not stop.wait(0.5):
                        connection.sendall(b"x")
                except OSError:
                    continue

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        listening.settimeout(0.1)
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            stop.set()
            thread.join()


async def longest_gap(gaps: list[float]) -> None:
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.01)
        gaps.append(time.monotonic() - before)


async def test_c059_a_server_that_drips_cannot_hold_up_its_step(tmp_path: Path) -> None:
    project = Project(
        tmp_path,
        "import urllib.request\n@stepwell.tool\ndef s(port: int):\n"
        "    with urllib.request.urlopen(f'http://127.0.0.1:{port}/') as answer: return len(answer.read())\n",
    )
    with dripping() as port:
        steps = [
            {"id": "s", "type": "tool_call", "tool": "s", "arguments": {"port": port}, "timeout": "1s",
             "retry": {"max_attempts": 1}, "on_error": "continue"},
            {"id": "use", "type": "tool_call", "tool": "use", "arguments": {"v": 1}},
        ]  # fmt: skip
        gaps: list[float] = []
        async with project.engine() as engine:
            watcher = asyncio.create_task(longest_gap(gaps))
            handle = await engine.start(engine.load(project.workflow(steps)), {})
            run, told = await project.told(engine, await handle.wait())
            watcher.cancel()
        assert (run.status, told["/s"]["error"]["kind"]) == ("completed", "timeout")
        assert 1.0 <= run.ended - run.started < 4  # the tool blocks for 5 s
        assert max(gaps) < 1  # a loop held up by the tool would not answer for 4 s


# ── yaml ──

HOSTILE = {
    "deep list": "workflow: w\nsteps: " + "[" * 100_000,
    "deep mapping": "workflow: w\nsteps: " + "{a: " * 50_000,
    "deep blocks": "workflow: w\n" + "\n".join(" " * level + "a:" for level in range(3000)),
    "alias of itself": "workflow: w\nsteps: &a [*a]",
    "bomb of keys": "a: &a {x: 1}\n? [*a, *a]\n: 1\nworkflow: w\nsteps: []",
    "wide aliases": "a: &a [" + "x, " * 1000 + "]\nb: [" + "*a, " * 1000 + "]\nworkflow: w\nsteps: []",
    "long number": "workflow: w\nsteps:\n- {id: a, type: set, values: {x: " + "9" * 1_000_000 + "}}",
    "nul": "workflow: w\x00\nsteps: []",
    "python name": "workflow: !!python/name:os.system\nsteps: []",
    "python apply in a value": "workflow: w\nsteps:\n- {id: a, type: set, values: {x: !!python/object/apply:os.system [touch hacked]}}",
    "json deep": '{"workflow": "w", "steps": ' + "[" * 100_000,
    "json twice": '{"workflow": "w", "steps": [], "steps": []}',
    "json nan": '{"workflow": "w", "steps": [{"id": "a", "type": "set", "values": {"x": NaN}}]}',
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_c112_hostile_files_are_refused_quickly_with_a_place_and_without_a_traceback(name: str, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from stepwell.cli.app import stepwell

    file = tmp_path / ("h.json" if name.startswith("json") else "h.yaml")
    file.write_text(HOSTILE[name])
    began = time.process_time()
    result = CliRunner().invoke(stepwell, ["validate", str(file)])
    assert time.process_time() - began < 8
    assert result.exit_code == 1, result.output
    assert f"{file}:" in result.output
    assert "error[" in result.output
    assert "Traceback" not in result.output
    assert len(result.output) < 20_000
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("text", ["workflow: w\nsteps:\n- {id: é, type: set, values: {x: 1}}", "workflow: w"])
@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-32"])
def test_c112_a_file_in_another_encoding_is_refused_not_guessed(text: str, encoding: str, tmp_path: Path) -> None:
    from stepwell.definition.load import load_file
    from stepwell.errors import DefinitionError
    from stepwell.kinds import discover

    (tmp_path / "w.yaml").write_bytes(text.encode(encoding))
    with pytest.raises(DefinitionError) as caught:
        load_file(tmp_path / "w.yaml", kinds=discover())
    assert caught.value.problems


# ── recursion ──


async def test_c079_a_workflow_that_waits_for_itself_by_name_in_a_loop_ends_with_the_depth(tmp_path: Path) -> None:
    again = {"id": "c", "type": "sub_workflow", "workflow": "{{workflow_input.name}}", "inputs": {"name": "self"}}
    inside = {
        "id": "p",
        "type": "parallel",
        "branches": {"b": [{"id": "L", "type": "loop", "over": [1], "steps": [again]}]},
    }
    (tmp_path / "self.json").write_text(json.dumps({"workflow": "self", "steps": [inside]}))
    async with open_engine(f"sqlite:///{tmp_path}/s.db", settings=Settings(root=tmp_path)) as engine:
        run = await ended(engine, tmp_path / "self.json")
    assert run.error is not None
    assert (run.status, run.error["kind"]) == ("failed", "depth_exceeded")
    assert run.error["path"].count("/c") == 8


async def ended(engine: Engine, file: Path) -> Json:
    return await (await engine.start(engine.load(file), {"name": "self"})).wait()


AGAIN = """
import asyncio
from pathlib import Path
import stepwell
from stepwell.engine.engine import open_engine
from stepwell.engine.settings import Settings

@stepwell.tool
def again(folder: str) -> dict:
    async def start():
        root = Path(folder)
        found = Settings(root=root)
        async with open_engine(f"sqlite:///{root}/s.db", settings=found, tools=[root / "tools.py"]) as engine:
            run = await (await engine.start(engine.load(root / "w.json"), {"folder": folder})).wait()
            return {"status": run.status, "error": run.error and run.error["kind"], "inner": run.output}
    return asyncio.run(start())
"""


async def test_c079_depth_travels_through_a_blocking_tool_that_opens_an_engine_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(AGAIN)
    step = {"id": "t", "type": "tool_call", "tool": "again", "arguments": {"folder": "{{workflow_input.folder}}"}}
    (tmp_path / "w.json").write_text(json.dumps({"workflow": "w", "steps": [step]}))
    url = f"sqlite:///{tmp_path}/s.db"
    async with open_engine(url, settings=Settings(root=tmp_path), tools=[tmp_path / "tools.py"]) as engine:
        run = await (await engine.start(engine.load(tmp_path / "w.json"), {"folder": str(tmp_path)})).wait()
        assert run.status == "completed"
        inner, depth = run.output, 1
        while inner["status"] == "completed":
            inner, depth = inner["inner"], depth + 1
        assert (inner["error"], depth) == ("depth_exceeded", 7)
        assert len(await engine.runs(limit=50)) == 8
