"""`run --mock`, `run --dry-run` and `runs export --as-test`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from stepwell.cli.app import stepwell

WORKFLOW = """
workflow: refund
input: {type: object, properties: {amount: {type: number, default: 10}}}
steps:
  - id: classify
    type: llm_call
    prompt: "What is this?"
    output_schema: {type: object, required: [label], properties: {label: {enum: [refund, other]}}}
  - {id: sign, type: approval}
  - id: each
    type: loop
    over: [1, 2]
    steps:
      - {id: pay, type: tool_call, tool: pay, arguments: {part: "{{loop_item}}"},
         retry: {max_attempts: 3, initial_delay: 10ms}}
  - {id: second, type: approval}
  - {id: heard, type: wait, event: pong}
  - {id: last, type: tool_call, tool: last, retry: {max_attempts: 1}, on_error: suspend}
output: {paid: "{{step.each}}", heard: "{{step.heard.data}}", last: "{{step.last}}"}
"""
MOCK = """
sign: {decision: approved, by: ana, comment: fine, delay: 100ms}
pay: [{error: {kind: timeout, message: slow}}, {output: paid}]
/each/1/pay: {output: at once}
heard: {event: {ping: 1}}
last: [{error: not_found}, {action: provide, output: given}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "refund.yaml").write_text(WORKFLOW)
    (tmp_path / "mock.yaml").write_text(MOCK)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(stepwell, list(arguments))


def last_line(done: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_mocked_run_is_a_run_whose_steps_answer_from_the_file_also_in_another_process(folder: Path) -> None:
    done = run("run", "refund.yaml", "--mock", "mock.yaml", "--json")
    assert done.exit_code == 3, done.output
    [wait] = last_line(done)["waits"]
    assert wait["path"] == "/second"  # `sign` was decided as the script says, `second` is nobody's
    (folder / "mock.yaml").unlink()  # the run keeps its scripts
    decided = run("approvals", "approve", wait["id"])
    assert decided.exit_code == 0, decided.output
    told = json.loads(run("runs", "show", last_line(done)["run"], "--json").stdout)
    assert told["status"] == "completed"
    assert told["output"] == {"paid": ["paid", "at once"], "heard": {"ping": 1}, "last": "given"}
    steps = {step["path"]: step for step in told["steps"]}
    assert steps["/each/0/pay"]["attempts"] == 2
    assert steps["/classify"]["output"] == {"label": "refund"}  # fits the schema, where nothing is scripted
    assert steps["/sign"]["output"]["by"] == "ana"


def test_nothing_of_a_mocked_run_becomes_real(folder: Path) -> None:
    (folder / "tools.py").write_text(
        "import stepwell\nfrom pathlib import Path\n\n\n@stepwell.tool\ndef pay() -> str:\n"
        '    Path("paid").touch()\n    return "really"\n'
    )
    (folder / "pay.yaml").write_text("workflow: p\nsteps: [{id: pay, type: tool_call, tool: pay}]\n")
    (folder / "mock.yaml").write_text("pay: {output: not really}\n")
    done = run("run", "pay.yaml", "--mock", "mock.yaml", "--tools", "tools.py", "--json")
    assert last_line(done)["output"] == "not really"
    (folder / "mock.yaml").write_text("{}\n")
    done = run("run", "pay.yaml", "--mock", "mock.yaml", "--tools", "tools.py", "--json")
    assert done.exit_code == 1
    assert "pay: {output: ...}" in last_line(done)["error"]["message"]
    assert not (folder / "paid").exists()


def test_a_wrong_mock_file_is_told_with_its_places(folder: Path) -> None:
    (folder / "mock.yaml").write_text("sign: {decison: x}\npay:\n  - {output: 1, delay: soon}\n")
    done = run("run", "refund.yaml", "--mock", "mock.yaml")
    assert done.exit_code == 2
    assert "mock.yaml:1:1: error[script]" in done.output
    assert "mock.yaml:3:17: error[script]" in done.output


def test_a_dry_run_shows_what_would_be_done_and_does_nothing(folder: Path) -> None:
    done = run("run", "refund.yaml", "--dry-run", "--mock", "mock.yaml", "--json")
    assert done.exit_code == 0, done.output
    told = last_line(done)
    assert told["status"] == "checked"
    assert told["walk"]["status"] == "completed"
    would = {step["path"]: step["would"] for step in told["walk"]["steps"]}
    assert would["/each/1/pay"] == {"kind": "tool", "tool": "pay", "arguments": {"part": 2}}
    assert would["/classify"]["arguments"]["prompt"] == "What is this?"
    assert not (folder / "stepwell.db").exists()
    done = run("run", "refund.yaml", "--dry-run", "--mock", "mock.yaml")
    assert "/each/0/pay  completed  tool pay" in done.output
    (folder / "mock.yaml").write_text("last: {output: 1}\n")
    done = run("run", "refund.yaml", "--dry-run", "--mock", "mock.yaml")
    assert done.exit_code == 0
    assert "the walk ends where an answer is not known" in done.output
    assert "pay: {output: ...}" in done.output


def test_a_run_is_exported_as_a_test_that_passes(folder: Path) -> None:
    done = run("run", "refund.yaml", "--mock", "mock.yaml", "--json")
    run("approvals", "approve", last_line(done)["waits"][0]["id"])
    run_id = last_line(done)["run"]
    exported = run("runs", "export", run_id, "--as-test", "tests/again.test.yaml")
    assert exported.exit_code == 0, exported.output
    [test] = yaml.safe_load((folder / "tests/again.test.yaml").read_text())["tests"]
    assert test["mock"]["/each/0/pay"][0]["error"]["kind"] == "timeout"
    assert test["mock"]["sign"]["by"] == "ana"
    assert {"action": "provide", "output": "given"}.items() <= test["mock"]["last"][1].items()
    checked = run("test")
    assert checked.exit_code == 0, checked.output
    assert run("test", "--crash").exit_code == 0
    assert run("runs", "export", run_id, "--as-test", "tests/again.test.yaml").exit_code == 2  # it is there already
    assert json.loads(run("runs", "export", run_id).stdout)["id"] == run_id
