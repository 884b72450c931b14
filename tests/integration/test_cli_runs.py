"""Runs, approvals, knowledge and projects through the command line, as processes and as calls."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stepwell.cli.app import stepwell

SCRIPT = str(Path(sys.executable).with_name("stepwell"))

TOOLS = '''
import os, time
from pathlib import Path
import stepwell

@stepwell.tool
def note(text: str, seconds: float = 0.0) -> dict:
    """Write a line down and take some time."""
    time.sleep(seconds)
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(text + "\\n")
    return {"noted": text}

@stepwell.tool
def flaky(text: str) -> str:
    """Fail the first time."""
    mark = Path(os.environ["NOTES"] + ".flaky")
    if not mark.exists():
        mark.touch()
        raise stepwell.StepFailed("rate_limit", "slow down \\x1b[31m\\u202e", retry_after=0.2)
    return text

@stepwell.tool
def broken() -> None:
    """Always fail."""
    raise ValueError("broken \\x1b[2J for good")
'''

PLAIN = """
workflow: plain
version: "1"
input:
  type: object
  required: [name]
  properties:
    name: {type: string, minLength: 1}
    count: {type: integer, default: 2}
steps:
  - {id: first, type: tool_call, tool: note, arguments: {text: "hello {{workflow_input.name}}"}}
  - {id: again, type: tool_call, tool: flaky, arguments: {text: ok}, retry: {initial_delay: 100ms}}
  - id: each
    type: loop
    over: [1, 2]
    as: n
    steps:
      - {id: inner, type: tool_call, tool: note, arguments: {text: "n {{n}}"}}
output: {name: "{{workflow_input.name}}", count: "{{workflow_input.count}}", each: "{{step.each}}"}
"""

GATED = """
workflow: gated
steps:
  - {id: before, type: tool_call, tool: note, arguments: {text: before}}
  - id: gate
    type: approval
    title: "Pay 40 EUR to 王芳?"
    show: {reason: "line one\\nline two"}
    form:
      type: object
      required: [amount]
      properties: {amount: {type: integer, maximum: 50}}
  - {id: after, type: tool_call, tool: note, arguments: {text: "paid {{step.gate.data.amount}}"}}
"""

SLOW = """
workflow: slow
input: {type: object, properties: {seconds: {type: number, default: 2}}}
steps:
  - {id: one, type: tool_call, tool: note, arguments: {text: one}}
  - {id: two, type: tool_call, tool: note, arguments: {text: two, seconds: "{{workflow_input.seconds}}"}}
  - {id: three, type: tool_call, tool: note, arguments: {text: three}}
"""

FAILING = """
workflow: failing
steps:
  - {id: bad, type: tool_call, tool: broken}
  - {id: never, type: tool_call, tool: note, arguments: {text: never}}
"""

NAPPING = """
workflow: napping
steps:
  - {id: nap, type: wait, for: 1h}
"""


@dataclass(frozen=True)
class Result:
    returncode: int
    stdout: str
    stderr: str


class Project:
    """A folder with workflows and tools; `stepwell` is called in it, or run as a process of its own."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = patch
        self.notes = folder / "notes.txt"
        for name in [name for name in os.environ if name.startswith("STEPWELL_")]:
            patch.delenv(name)
        patch.setenv("NOTES", str(self.notes))
        (folder / "tools.py").write_text(TOOLS)
        (folder / "stepwell.toml").write_text('[project]\ntools = ["tools.py"]\n')
        for name, text in {
            "plain": PLAIN,
            "gated": GATED,
            "slow": SLOW,
            "failing": FAILING,
            "napping": NAPPING,
        }.items():
            (folder / f"{name}.yaml").write_text(text)

    def __call__(self, *args: str, code: int | None = 0, cwd: Path | None = None, stdin: str = "") -> str:
        """What a call prints, once its exit code is as it should be."""
        result = self.result(*args, cwd=cwd, stdin=stdin)
        if code is not None:
            assert result.returncode == code, result.stdout + result.stderr
        return result.stdout

    def result(self, *args: str, cwd: Path | None = None, stdin: str = "") -> Result:
        self.patch.chdir(cwd or self.folder)
        result = CliRunner().invoke(stepwell, list(args), input=stdin, prog_name="stepwell")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Result(result.exit_code, result.stdout, result.stderr)

    def process(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [SCRIPT, *args], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def lines(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def wait_for_line(self, line: str, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 30
        while line not in self.lines():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, f"{line} was never written"
            time.sleep(0.05)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_run_completes_and_json_lines_begin_and_end_with_the_run(project: Project) -> None:
    told = lines_of(project("run", "plain.yaml", "-i", "name=Ana", "-i", "count=3", "--json"))
    first, last = told[0], told[-1]
    assert first["run"] == last["run"]
    assert first["event"] == "run_started"
    assert (last["event"], last["status"]) == ("run_ended", "completed")
    assert last["output"] == {"name": "Ana", "count": 3, "each": [{"noted": "n 1"}, {"noted": "n 2"}]}
    events = [(line["event"], line["path"]) for line in told]
    assert ("step_retrying", "/again") in events
    assert ("step_completed", "/each/1/inner") in events
    assert ("iteration_completed", "/each/1") in events
    assert all(line["run"] == first["run"] for line in told)
    assert project.lines() == ["hello Ana", "n 1", "n 2"]


def test_a_run_is_shown_in_plain_lines_where_nobody_watches(project: Project) -> None:
    out = project("run", "plain.yaml", "-i", "name=Ana")
    assert "completed  first" in out
    assert "retrying   again" in out
    assert "\\x1b[31m\\u202e" in out
    assert "\x1b" not in out
    assert '"count": 2' in out


def test_what_runs_show_tells_is_what_is_promised(project: Project) -> None:
    run = lines_of(project("run", "plain.yaml", "-i", "name=Ana", "--json"))[-1]["run"]
    told = json.loads(project("runs", "show", run, "--json"))
    assert set(told) == {
        "id", "status", "workflow", "input", "output", "error", "waits", "started_at", "ended_at", "active_ms", "usage", "steps",
    }  # fmt: skip
    assert (told["id"], told["status"], told["input"]) == (run, "completed", {"name": "Ana", "count": 2})
    assert [step["path"] for step in told["steps"]] == ["/first", "/again", "/each", "/each/0/inner", "/each/1/inner"]
    again = told["steps"][1]
    assert (again["attempts"], [log["status"] for log in again["attempt_log"]]) == (2, ["failed", "completed"])
    shown = project("runs", "show", run[:12])
    assert "2 attempts" in shown
    assert "completed" in shown
    step = project("runs", "show", run, "--step", "again")
    assert "attempt 1  failed" in step
    assert "rate_limit" in step


def test_runs_are_listed_newest_first_and_found_by_parts_of_their_ids(project: Project) -> None:
    database = project.folder / "stepwell.db"
    assert f"there is no database at {database} yet; `stepwell run FILE` makes one" in project("runs", "list")
    assert json.loads(project("runs", "list", "--json")) == []
    for asked in (["approvals", "list"], ["kb", "list"], ["kb", "search", "x"]):
        assert "there is no database" in project(*asked)
    for asked in (["explain", "019c"], ["runs", "show", "019c"], ["approvals", "approve", "a1b2"]):
        assert "--database" in project.result(*asked).stderr
    project("tools", "list")
    project("run", "plain.yaml", "-i", "name=A", "--dry-run")
    assert not database.exists()
    first = lines_of(project("run", "plain.yaml", "-i", "name=A", "--json"))[0]["run"]
    second = lines_of(project("run", "failing.yaml", "--json", code=1))[0]["run"]
    assert [run["id"] for run in json.loads(project("runs", "--json"))] == [second, first]
    assert [run["id"] for run in json.loads(project("runs", "list", "--status", "failed", "--json"))] == [second]
    assert [run["id"] for run in json.loads(project("runs", "list", "--before", second, "--json"))] == [first]
    assert json.loads(project("runs", "show", first[-8:], "--json"))["id"] == first
    assert "no run zzzz" in project.result("runs", "show", "zzzz").stderr
    ambiguous = project.result("runs", "show", first[:5])
    assert ambiguous.returncode == 2
    assert "2 runs have ids like" in ambiguous.stderr
    assert "succeeded" in project("runs", "history", first)
    assert lines_of(project("runs", "history", first, "--json"))[0]["path"]


def test_a_failed_run_exits_1_and_says_what_failed_where_without_steering_the_terminal(project: Project) -> None:
    result = project.result("run", "failing.yaml")
    assert result.returncode == 1
    assert "tool_error" in result.stdout
    assert "/bad" in result.stdout
    assert "\x1b" not in result.stdout + result.stderr
    assert "runs show" in result.stdout
    last = lines_of(project("run", "failing.yaml", "--json", code=1))[-1]
    assert (last["status"], last["error"]["kind"]) == ("failed", "tool_error")
    told = json.loads(project("runs", "show", last["run"], "--json"))
    assert [(step["id"], step["status"]) for step in told["steps"]] == [("bad", "failed"), ("never", "skipped")]


def test_an_input_that_does_not_fit_is_refused_with_2_and_nothing_is_done(project: Project) -> None:
    result = project.result("run", "plain.yaml", "-i", "count=many")
    assert result.returncode == 2
    assert "name" in result.stderr
    assert "count" in result.stderr
    assert project.lines() == []
    assert json.loads(project("runs", "list", "--json")) == []
    refused = lines_of(project("run", "plain.yaml", "--json", code=2))
    assert (refused[-1]["run"], refused[-1]["status"]) == (None, "refused")


def test_an_unknown_tool_is_refused_before_the_run(project: Project) -> None:
    (project.folder / "wrong.yaml").write_text("workflow: wrong\nsteps:\n  - {id: a, type: tool_call, tool: noet}\n")
    result = project.result("run", "wrong.yaml")
    assert result.returncode == 2
    assert "wrong.yaml:3" in result.stderr
    assert "note" in result.stderr


def test_a_wrong_definition_exits_2_with_every_problem_and_validate_1(project: Project) -> None:
    (project.folder / "wrong.yaml").write_text(
        "workflow: wrong\nsteps:\n  - {id: a, type: tool_cal}\n  - {id: a, type: set}\n"
    )
    result = project.result("run", "wrong.yaml")
    assert result.returncode == 2
    assert "wrong.yaml:3:" in result.stderr
    checked = project.result("validate", "wrong.yaml", "plain.yaml")
    assert checked.returncode == 1
    assert "wrong.yaml:3:" in checked.stdout
    assert "plain.yaml: right" in checked.stdout
    problems = json.loads(project("validate", "wrong.yaml", "--json", code=1))
    assert set(problems[0]) == {"severity", "code", "file", "line", "column", "path", "message", "hint"}
    project("validate", "plain.yaml", "gated.yaml")


def test_validate_tells_unknown_tools_and_models_and_what_else_is_wrong_in_one_go(project: Project) -> None:
    (project.folder / "wrong.yaml").write_text(
        "workflow: wrong\nsteps:\n  - {id: a, type: tool_call, tool: noet}\n"
        "  - {id: b, type: llm_call, model: huge, prompt: x}\n"
        '  - {id: c, type: set, values: {x: "{{step.nope.y}}"}}\n'
    )
    told = json.loads(project("validate", "wrong.yaml", "--json", code=1))
    assert [(row["line"], row["code"]) for row in told] == [(3, "tool"), (4, "model_unknown"), (5, "step")]
    assert told[0]["hint"] == "did you mean 'note'?"
    (project.folder / "recipe.yaml").write_text("workflow: r\nsteps:\n  - {id: b, type: recipe, recipe: nope}\n")
    assert len(json.loads(project("validate", "recipe.yaml", "--json", code=1))) == 1
    (project.folder / "stepwell.toml").write_text('[project]\ntoolz = ["tools.py"]\n')
    told = json.loads(project("validate", "wrong.yaml", "plain.yaml", "--json", code=1))
    assert [(Path(row["file"]).name, row["line"]) for row in told] == [("stepwell.toml", 2), ("wrong.yaml", 5)]
    (project.folder / "stepwell.toml").unlink()
    told = json.loads(project("validate", "wrong.yaml", "--json", code=1))
    assert [row["line"] for row in told] == [4, 5]  # where no tools file is named, a run may name it
    told = json.loads(project("validate", "wrong.yaml", "--json", "--tools", "tools.py", code=1))
    assert [row["line"] for row in told] == [3, 4, 5]
    assert not (project.folder / "stepwell.db").exists()


def test_every_refusal_is_one_object_for_programs(project: Project) -> None:
    (project.folder / "wrong.yaml").write_text("workflow: wrong\nsteps:\n  - {id: a, type: tool_cal}\n")
    project("run", "plain.yaml", "-i", "name=A")
    for args, event, kind in (
        (["run", "wrong.yaml"], "run_refused", "definition"),
        (["run", "none.yaml"], "run_refused", "usage"),
        (["run", "plain.yaml", "--watchh"], "run_refused", "usage"),
        (["run", "plain.yaml", "-i", "x:=["], "run_refused", "usage"),
        (["run", "plain.yaml"], "run_refused", "preflight"),
        (["runs", "show", "zzzz"], "refused", "not_found"),
        (["runs", "cancel", json.loads(project("runs", "--json"))[0]["id"]], "refused", "conflict"),
        (["approvals", "show", "zzzz"], "refused", "not_found"),
        (["approvals", "approve", "zzzz", "--database", "none.db"], "refused", "not_found"),
    ):
        result = project.result(*args, "--json")
        (told,) = lines_of(result.stdout)
        assert (told["run"], told["event"], told["status"]) == (None, event, "refused")
        assert (told["error"]["kind"], bool(told["error"]["message"])) == (kind, True)
        assert result.stderr
    problems = lines_of(project("run", "wrong.yaml", "--json", code=2))[0]["error"]["problems"]
    assert problems[0]["line"] == 3


def test_a_dry_run_shows_the_plan_and_does_nothing(project: Project) -> None:
    out = project("run", "plain.yaml", "-i", "name=A", "--dry-run")
    assert "  inner" in out
    assert "nothing was executed" in out
    assert project.lines() == []
    assert json.loads(project("runs", "list", "--json")) == []


def test_the_same_idempotency_key_gives_the_same_run_and_another_input_is_refused(project: Project) -> None:
    args = ("run", "plain.yaml", "--json", "--idempotency-key", "k1")
    first = lines_of(project(*args, "-i", "name=A"))[-1]
    second = lines_of(project(*args, "-i", "name=A"))[-1]
    assert second["run"] == first["run"]
    assert second["output"] == first["output"]
    assert project.lines().count("hello A") == 1
    refused = project.result(*args, "-i", "name=B")
    assert refused.returncode == 2
    assert refused.stderr


def test_a_run_that_waits_for_a_person_exits_3_and_tells_how_to_decide(project: Project) -> None:
    result = project.result("run", "gated.yaml")
    assert result.returncode == 3
    assert "Pay 40 EUR to 王芳?" in result.stdout
    (wait,) = json.loads(project("approvals", "list", "--json"))
    assert f"stepwell approvals approve {wait['id']}" in result.stdout
    assert {"id", "run", "path", "title"} <= set(wait)
    assert (wait["path"], wait["title"]) == ("/gate", "Pay 40 EUR to 王芳?")
    shown = project("approvals", "show", wait["id"])
    assert "line two" in shown
    assert "Pay 40 EUR" in project("approvals")
    assert "pending_approval" in project("runs", "list")
    assert "waits for a person" in project("runs", "show", wait["run"])


def test_approving_takes_the_form_and_carries_the_run_on_in_the_foreground(project: Project) -> None:
    project("run", "gated.yaml", code=3)
    (wait,) = json.loads(project("approvals", "list", "--json"))
    refused = project.result("approvals", "approve", wait["id"], "-d", "amount=60")
    assert refused.returncode == 1
    assert "amount" in refused.stderr
    assert project.result("approvals", "approve", wait["id"]).returncode == 1
    out = project("approvals", "approve", wait["id"][:6], "-d", "amount=40", "--comment", "fine", "--by", "Ana")
    assert "approved" in out
    assert "completed" in out
    assert project.lines() == ["before", "paid 40"]
    late = project.result("approvals", "reject", wait["id"])
    assert late.returncode == 1
    assert "approved by Ana" in late.stderr
    assert "fine" in late.stderr
    assert json.loads(project("approvals", "list", "--json")) == []
    assert json.loads(project("approvals", "list", "--all", "--json"))[0]["status"] == "decided"


def test_a_decision_without_resume_leaves_the_run_to_be_resumed(project: Project) -> None:
    run = lines_of(project("run", "gated.yaml", "--json", code=3))[-1]
    assert (run["event"], run["status"]) == ("run_parked", "pending_approval")
    wait = run["waits"][0]["id"]
    out = project("approvals", "approve", wait, "--data", '{"amount": 1}', "--no-resume")
    assert "runs resume" in out
    assert project.lines() == ["before"]
    assert "completed" in project("runs", "resume", run["run"])
    assert project.lines() == ["before", "paid 1"]
    again = project.result("runs", "resume", run["run"])
    assert again.returncode == 0
    assert "has ended" in again.stderr


def test_an_approval_that_expired_with_nobody_there_says_how_the_run_goes_on(project: Project) -> None:
    (project.folder / "late.yaml").write_text(
        "workflow: late\nsteps:\n  - {id: gate, type: approval, title: t, expires_in: 200ms, on_expire: reject,"
        " on_reject: continue}\n"
    )
    run = lines_of(project("run", "late.yaml", "--json", code=3))[-1]
    assert run["at"]
    time.sleep(0.3)
    resume = f"stepwell runs resume {run['run']}"
    listed = project("approvals", "list")
    assert "expired" in listed
    assert resume in listed
    for _ in range(2):  # the deadline has passed; and then, that it has passed is stored
        for asked in (["runs", "list"], ["runs", "show", run["run"]], ["explain", run["run"]]):
            told = project(*asked)
            assert "due" in told
            assert resume in told
            assert "approvals approve" not in told
        refused = project.result("approvals", "approve", run["waits"][0]["id"])
        assert refused.returncode == 1
        assert f"the run can go on: {resume}" in refused.stderr
    project("runs", "resume", run["run"], code=1)


def test_the_exit_code_of_a_rejection_speaks_of_the_decision_alone(project: Project) -> None:
    run = lines_of(project("run", "gated.yaml", "--json", code=3))[-1]
    out = project("approvals", "reject", run["waits"][0]["id"], "--comment", "too much")
    assert "too much" in out
    assert json.loads(project("runs", "show", run["run"], "--json"))["status"] == "failed"
    assert project.result("approvals", "approve", "zzzz").returncode == 1


def test_the_approval_is_decided_from_another_folder_with_the_tools_the_run_was_started_with(
    project: Project, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    database = f"sqlite:///{project.folder}/other.db"
    run = lines_of(project("run", "gated.yaml", "--json", "--database", database, code=3))[-1]
    wait = run["waits"][0]["id"]
    project("approvals", "approve", wait, "-d", "amount=2", "--database", database, cwd=elsewhere)
    assert project.lines() == ["before", "paid 2"]
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_parks_the_run_and_resume_goes_on_without_repeating(project: Project, number: signal.Signals) -> None:
    with ended(project.process("run", "slow.yaml")) as process:
        project.wait_for_line("one", process)
        time.sleep(0.3)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, out + err
    assert "stepwell runs resume" in out
    (run,) = json.loads(project("runs", "list", "--json"))
    assert run["status"] == "queued"
    for asked in (["runs", "list"], ["runs", "show", run["id"]], ["explain", run["id"]]):
        told = project(*asked)
        assert "parked before its end" in told
        assert f"stepwell runs resume {run['id']}" in told
    project("runs", "resume", run["id"])
    assert project.lines().count("one") == 1
    assert project.lines()[-1] == "three"


def test_what_tools_print_does_not_spoil_the_json(project: Project) -> None:
    with (project.folder / "tools.py").open("a") as file:
        file.write("\nprint('loaded')\n\n@stepwell.tool\ndef loud() -> int:\n    print('loud')\n    return 1\n")
    (project.folder / "loud.yaml").write_text("workflow: loud\nsteps:\n  - {id: a, type: tool_call, tool: loud}\n")
    result = project.result("run", "loud.yaml", "--json")
    assert lines_of(result.stdout)[-1]["output"] == 1
    assert result.stderr.split() == ["loaded", "loud"]
    assert json.loads(project("runs", "--json"))


def test_a_killed_run_is_resumed_by_its_id(project: Project) -> None:
    with ended(project.process("run", "slow.yaml", "--json")) as process:
        project.wait_for_line("one", process)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    (run,) = json.loads(project("runs", "list", "--json"))
    assert run["status"] == "running"
    for asked in (["runs", "list"], ["runs", "show", run["id"]], ["explain", run["id"]]):
        told = project(*asked)
        assert f"process ({process.pid}-" in told
        assert "runs no more" in told
        assert f"stepwell runs resume {run['id']}" in told
    told = lines_of(project("runs", "resume", run["id"], "--json"))
    assert told[-1]["status"] == "completed"
    assert project.lines().count("one") == 1


def test_a_run_that_another_process_has_is_followed_and_tailed(project: Project) -> None:
    with ended(project.process("run", "slow.yaml", "-i", "seconds=6")) as process:
        project.wait_for_line("one", process)
        (run,) = json.loads(project("runs", "list", "--json"))
        with ended(project.process("runs", "tail", run["id"], "--json")) as tailing:
            followed = project.result("runs", "resume", run["id"])
            told = lines_of(tailing.communicate(timeout=60)[0])
        process.wait(60)
    assert followed.returncode == 0
    assert "another process" in followed.stdout + followed.stderr
    paths = [line["path"] for line in told if line["event"] == "step_completed"]
    assert paths == ["/one", "/two", "/three"]
    assert told[-1]["status"] == "completed"
    assert project.lines() == ["one", "two", "three"]


def test_an_approval_is_decided_from_another_process(project: Project) -> None:
    with ended(project.process("run", "gated.yaml", "--json")) as process:
        run = lines_of(process.communicate(timeout=60)[0])[-1]
    assert process.returncode == 3
    with ended(project.process("approvals", "approve", run["waits"][0]["id"], "-d", "amount=5")) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "completed" in out
    assert project.lines() == ["before", "paid 5"]


def test_a_cancelled_run_is_final_and_says_who_and_why(project: Project) -> None:
    run = lines_of(project("run", "gated.yaml", "--json", code=3))[-1]["run"]
    assert "is cancelled" in project("runs", "cancel", run, "--reason", "wrong customer")
    told = json.loads(project("runs", "show", run, "--json"))
    assert told["status"] == "cancelled"
    assert "wrong customer" in json.dumps(told["error"])
    assert json.loads(project("approvals", "list", "--json")) == []
    assert project.result("runs", "resume", run).returncode == 1
    assert project.result("runs", "cancel", run).returncode == 1


def test_cancelling_without_a_reason_says_it_once(project: Project) -> None:
    run = lines_of(project("run", "gated.yaml", "--json", code=3))[-1]["run"]
    project("runs", "cancel", run)
    for asked in (["runs", "show", run], ["explain", run], ["runs", "list"]):
        assert "cancelled: the run was cancelled" not in project(*asked).splitlines()[-1]
    assert "cancelled  cancelled" not in project("runs", "show", run)
    assert "cancelled: cancelled" not in project("explain", run)
    assert "It was cancelled at " in project("explain", run)


def test_an_unknown_field_of_a_form_is_told_with_what_was_meant(project: Project) -> None:
    wait = lines_of(project("run", "gated.yaml", "--json", code=3))[-1]["waits"][0]["id"]
    refused = project.result("approvals", "approve", wait, "-d", "amout=3")
    assert refused.returncode == 1
    assert "did you mean 'amount'?" in refused.stderr
    assert "required" in refused.stderr
    taken = project.result("approvals", "approve", wait, "-d", "amount=3", "-d", "zz=1")
    assert taken.returncode == 0
    assert "the form has no field 'zz'" in taken.stderr


def test_a_value_that_the_schema_does_not_take_is_told_with_how_to_write_it(project: Project) -> None:
    (project.folder / "hosts.yaml").write_text(
        "workflow: hosts\ninput: {type: object, required: [x], properties: {hosts: {type: array}, n: {type: integer}}}\n"
        "steps:\n  - {id: a, type: set, values: {}}\n"
    )
    told = project.result("run", "hosts.yaml", "-i", "hosts=a", "-i", "n=many").stderr
    assert "use hosts:=[...]" in told
    assert "n=3" in told
    assert "'x' is a required property" in told
    (project.folder / "in.yaml").write_text("hosts: [a]\n")
    assert "the input is JSON" in project.result("run", "hosts.yaml", "--input", "in.yaml").stderr


def test_an_event_that_is_sent_says_how_to_see_what_came_of_it(project: Project) -> None:
    (project.folder / "paid.yaml").write_text(
        "workflow: paid\nsteps:\n  - {id: w, type: wait, event: paid, match: event.data.n == 1}\n"
    )
    assert "no step waits for it in " in project("events", "send", "other")
    project("run", "paid.yaml", code=5)
    told = project("events", "send", "paid", "--data", '{"n": 2}')
    assert "1 waiting step was told" in told
    assert "`match`" in told
    assert "stepwell explain RUN" in told


def test_a_run_that_waits_for_a_time_exits_5_and_says_until_when(project: Project) -> None:
    result = project.result("run", "napping.yaml")
    assert result.returncode == 5
    assert "until 20" in result.stdout
    run = json.loads(project("runs", "list", "--json"))[0]["id"]
    told = json.loads(project("runs", "show", run, "--json"))
    assert told["status"] == "waiting"
    assert told["waits"][0]["deadline"]
    resumed = project.result("runs", "resume", run)
    assert resumed.returncode == 5
    assert "until 20" in resumed.stdout


def test_watch_stays_until_somebody_has_decided(project: Project) -> None:
    with ended(project.process("run", "gated.yaml", "--watch", "--json")) as process:
        project.wait_for_line("before", process)
        deadline = time.monotonic() + 20
        while not (waits := json.loads(project("approvals", "list", "--json"))):
            assert time.monotonic() < deadline
        project("approvals", "approve", waits[0]["id"], "-d", "amount=3")
        out = process.communicate(timeout=30)[0]
    assert process.returncode == 0
    assert lines_of(out)[-1]["status"] == "completed"
    assert project.lines() == ["before", "paid 3"]


def test_the_input_may_come_from_standard_input(project: Project) -> None:
    told = lines_of(project("run", "plain.yaml", "--input", "-", "--json", stdin='{"name": "B"}'))
    assert told[-1]["output"]["name"] == "B"


def test_the_knowledge_base_is_filled_listed_and_searched(project: Project) -> None:
    (project.folder / "refunds.md").write_text(
        "# Refunds\n\nDamaged goods are refunded within 14 days.\n\n退款须在十四天内提出。\n"
    )
    assert "no database" in project("kb", "list")
    assert "refunds" in project("kb", "add", "refunds.md", "--collection", "policies")
    assert "unchanged" in project("kb", "add", "refunds.md", "--collection", "policies")
    assert "refunds" in project("kb", "list")
    (found, *_) = json.loads(project("kb", "search", "damaged goods", "--json"))
    assert "14 days" in found["text"]
    assert json.loads(project("kb", "search", "退款", "--json"))
    assert "refunds" in project("kb", "search", "geld zurück")  # by its meaning alone
    assert "nothing found" in project("kb", "search", "refund", "--collection", "other")
    (project.folder / "x.pdf").write_bytes(b"%PDF")
    assert project.result("kb", "add", "x.pdf").returncode == 2


def test_folders_of_documents_are_added_and_looked_into(project: Project) -> None:
    folder = project.folder / "docs"
    (folder / "hr").mkdir(parents=True)
    (folder / "hr" / "leave.md").write_text("# Leave\n\n28 days a year.\n\n# Sickness\n\nCall before nine.\n")
    (folder / "shop.html").write_text(
        "<html><title>Shop</title><nav>Menu</nav><h1>Hours</h1><p>Open until six.</p></html>"
    )
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nonsense")
    (folder / "picture.png").write_bytes(b"x")
    done = project.result("kb", "add", "docs", "--collection", "handbook", "--department", "care")
    assert done.returncode == 1
    assert "broken.pdf: the file is damaged, or is no PDF" in done.stderr
    assert "1 of 3 files could not be added" in done.stderr
    assert [line.split()[:4] for line in done.stdout.splitlines()[1:]] == [
        ["hr/leave", "1", "2", "added"],
        ["shop", "1", "1", "added"],
    ]
    (folder / "broken.pdf").unlink()
    again = json.loads(project("kb", "add", "docs", "--collection", "handbook", "--json"))
    assert {one["status"] for one in again} == {"unchanged"}
    (folder / "hr" / "leave.md").write_text("# Leave\n\n30 days a year.\n")
    project("kb", "add", "docs", "--collection", "handbook")
    assert "28 days" in project("kb", "show", "hr/leave@1")
    assert "28 days" in project("kb", "show", "hr/leave", "--version", "1")
    assert "30 days" in project("kb", "show", "hr/leave")
    versions = json.loads(project("kb", "history", "hr/leave", "--json"))
    assert [one["version"] for one in versions] == [2, 1]
    assert "in place of version 1" in project("kb", "history", "hr/leave")
    assert project("kb", "collections").splitlines()[1].split() == ["handbook", "care", "2", "-"]
    assert "What holds" in project("kb", "describe", "handbook", "--text", "What holds")
    found = project("kb", "search", "days of leave", "--explain", "--limit", "1")
    assert "hr/leave@2  handbook  Leave" in found
    assert "rank by words: 1, by meaning: 1" in found
    missing = project.result("kb", "show", "hr/leav")
    assert (missing.returncode, "did you mean hr/leave?" in missing.stderr) == (2, True)
    assert project.result("kb", "rm", "shop").returncode == 2
    assert "removed, 1 version" in project("kb", "rm", "shop", "--yes")
    assert [one["document"] for one in json.loads(project("kb", "list", "--json"))] == ["hr/leave"]
    assert "0 vectors made" in project("kb", "index")
    assert "document.remove" in project("audit")
    assert "1 document, 1 of 1 passages with a vector" in project("doctor")


def test_tools_and_doctor_tell_what_there_is(project: Project) -> None:
    (note,) = [tool for tool in json.loads(project("tools", "--json")) if tool["name"] == "note"]
    assert set(note["parameters"]["properties"]) == {"text", "seconds"}
    assert "text, seconds?" in project("tools", "list")
    assert "tools" in project("doctor", code=None)


def test_a_locked_database_is_waited_for_with_a_line_a_second(project: Project) -> None:
    project("runs", "list")
    lock = sqlite3.connect(project.folder / "stepwell.db", isolation_level=None, check_same_thread=False)
    lock.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(2.6, lambda: lock.execute("ROLLBACK"))
    timer.start()
    try:
        result = project.result("run", "plain.yaml", "-i", "name=A")
    finally:
        timer.join()
        lock.close()
    assert result.returncode == 0
    assert 1 <= result.stderr.count("is locked by another process; trying again") <= 6


def test_init_makes_a_project_that_runs_at_once(project: Project, tmp_path: Path) -> None:
    out = project("init", "demo")
    demo = tmp_path / "demo"
    assert "stepwell run demo/workflows/hello.yaml --input demo/inputs/hello.json" in out
    assert sorted(str(file.relative_to(demo)) for file in demo.rglob("*") if file.is_file()) == [
        ".gitignore", "inputs/hello.json", "recipes/mood.yaml", "stepwell.toml", "tests/hello.test.yaml", "tools.py",
        "workflows/hello.yaml",
    ]  # fmt: skip
    assert "right" in project("validate", "workflows/hello.yaml", cwd=demo)
    ran = project("run", "workflows/hello.yaml", "--input", "inputs/hello.json", cwd=demo)
    assert "Bonjour, Ana!\n你好, Ana!" in ran
    assert "Bonjour" in project("run", "demo/workflows/hello.yaml", "-i", "name=Ana")
    asked = project.result("run", "workflows/hello.yaml", "-i", "name=Bo", "-i", "ask=true", cwd=demo)
    assert asked.returncode == 3
    assert "mood" in project("recipes", cwd=demo)
    assert "grateful" in project("recipes", "show", "mood", cwd=demo)
    again = project.result("init", "demo")
    assert again.returncode == 2
    assert "there already" in again.stderr


def test_an_error_is_one_paragraph_and_a_traceback_comes_with_debug_alone(project: Project) -> None:
    args = ("runs", "list", "--database", "oracle://x")
    plain = project.result(*args)
    assert plain.returncode in {1, 2}
    assert "Traceback" not in plain.stderr
    assert len(plain.stderr.strip().splitlines()) <= 3
    with pytest.raises(Exception, match="oracle"):
        CliRunner().invoke(stepwell, [*args, "--debug"], catch_exceptions=False)
    (project.folder / "stepwell.toml").write_text('[project]\ntoolz = ["tools.py"]\n')
    wrong = project.result("runs", "list")
    assert wrong.returncode == 2
    assert "stepwell.toml" in wrong.stderr
    assert "tools" in wrong.stderr
