"""Incidents, redrive and rerun through the command line, over a database on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import stepwell as package
from stepwell.cli.app import stepwell

HERE = str(Path(package.__file__).parents[1])

TOOLS = '''
import os, time
from pathlib import Path
import stepwell

def write(line):
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(line + "\\n")

@stepwell.tool
def note(text: str) -> dict:
    """Write a line down."""
    write(text)
    return {"noted": text}

@stepwell.tool
def pay(to: str, amount: int = 1) -> dict:
    """Pay, once the bank is open."""
    write(f"pay {to} {amount}")
    if not Path("open").exists():
        raise stepwell.StepFailed("server_error", f"the bank is closed for {to}")
    if Path("slow").exists():
        time.sleep(60)
    return {"paid": to, "amount": amount}

@stepwell.tool(idempotent=False)
def charge(cents: int) -> dict:
    """Charge a card; nobody hears of it."""
    write(f"charge {cents}")
    if not Path("open").exists():
        raise TimeoutError("no answer")
    return {"charged": cents}
'''

PAYING = """
workflow: paying
input: {type: object, properties: {to: {type: array, default: [ana]}}}
steps:
  - {id: before, type: tool_call, tool: note, arguments: {text: before}}
  - id: each
    type: loop
    over: "{{workflow_input.to}}"
    concurrency: 3
    as: who
    steps:
      - id: pay
        type: tool_call
        tool: pay
        arguments: {to: "{{who}}", amount: 3}
        retry: {max_attempts: 1}
        on_error: suspend
  - {id: after, type: tool_call, tool: note, arguments: {text: after}}
output: "{{step.each}}"
"""

CHARGING = """
workflow: charging
steps:
  - {id: charge, type: tool_call, tool: charge, arguments: {cents: 500}}
"""

UNDOING = """
workflow: undoing
steps:
  - id: book
    type: tool_call
    tool: note
    arguments: {text: book}
    compensate: {steps: [{id: unbook, type: tool_call, tool: note, arguments: {text: unbook}}]}
  - {id: tell, type: tool_call, tool: note, arguments: {text: tell}}
  - {id: pay, type: tool_call, tool: pay, arguments: {to: ana}, retry: {max_attempts: 1}, on_error: compensate}
"""

MENDED = """
workflow: mended
steps:
  - id: pay
    type: tool_call
    tool: pay
    arguments: {to: ana}
    retry: {max_attempts: 1}
    on_error:
      strategy: fallback
      steps: [{id: owe, type: tool_call, tool: note, arguments: {text: "owed: {{error.kind}}"}}]
output: "{{step.pay}}"
"""

BROKEN = """
workflow: broken
steps:
  - {id: first, type: tool_call, tool: note, arguments: {text: first}}
  - {id: charge, type: tool_call, tool: charge, arguments: {cents: 7}, on_error: [{errors: [in_doubt], strategy: fail}]}
  - {id: pay, type: tool_call, tool: pay, arguments: {to: ana, amount: 3}, retry: {max_attempts: 1}}
  - {id: last, type: tool_call, tool: note, arguments: {text: "paid {{step.pay.amount}}"}}
output: "{{step.pay}}"
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


class Project:
    """A folder with workflows and tools; `stepwell` is called in it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.notes = folder / "notes.txt"
        for name in [name for name in os.environ if name.startswith("STEPWELL_")]:
            patch.delenv(name)
        patch.setenv("NOTES", str(self.notes))
        patch.chdir(folder)
        (folder / "tools.py").write_text(TOOLS)
        (folder / "stepwell.toml").write_text('[project]\ntools = ["tools.py"]\n')
        for name, text in {
            "paying": PAYING, "charging": CHARGING, "undoing": UNDOING, "mended": MENDED, "broken": BROKEN,
        }.items():  # fmt: skip
            (folder / f"{name}.yaml").write_text(text)

    def __call__(self, *args: str, code: int = 0) -> str:
        """What a call prints, once its exit code is as it should be."""
        result = self.result(*args)
        assert result.code == code, result.out + result.err
        return result.out

    def result(self, *args: str) -> Result:
        result = CliRunner().invoke(stepwell, list(args), prog_name="stepwell")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Result(result.exit_code, result.stdout, result.stderr)

    def started(self, name: str, *args: str, code: int) -> str:
        """The id of a run of a workflow that was left with this exit code."""
        told = self("run", f"{name}.yaml", "--json", *args, code=code).splitlines()
        return str(json.loads(told[-1])["run"])

    def process(self, *args: str) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": HERE}
        command = [sys.executable, "-m", "stepwell", *args]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, env=env, stdout=pipe, stderr=pipe, text=True)

    def incidents(self, *args: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self("incidents", "list", "--json", *args))
        return found

    def run(self, run: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self("runs", "show", run, "--json"))
        return told

    def open_bank(self) -> None:
        (self.folder / "open").touch()

    def lines(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


# ── incidents ──


def test_a_suspended_run_exits_4_and_tells_how_to_settle_it(project: Project) -> None:
    out = project("run", "paying.yaml", code=4)
    (incident,) = project.incidents()
    assert incident == {
        "id": incident["id"],
        "run": incident["run"],
        "path": "/each/0/pay",
        "kind": "server_error",
        "message": "the bank is closed for ana",
        "actions": ["retry", "provide", "skip", "compensate", "fail"],
    }
    for told in (out, project("runs", "show", incident["run"]), project("runs", "resume", incident["run"], code=4)):
        assert "the bank is closed for ana" in told
        assert f"stepwell incidents show {incident['id']}" in told
        assert all(f"stepwell incidents {word} {incident['id']}" in told for word in incident["actions"])
    assert "the bank is closed" in project("incidents")
    shown = project("incidents", "show", incident["id"][:6])
    assert '"amount": 3' in shown
    assert f"stepwell incidents provide {incident['id']} --output JSON" in shown
    told = json.loads(project("incidents", "show", incident["id"], "--json"))
    assert (told["status"], told["arguments"], told["step"]) == ("pending", {"to": "ana", "amount": 3}, "pay")
    assert project.lines() == ["before", "pay ana 3"]


def test_a_retry_with_other_arguments_shows_them_beside_the_old_ones_and_carries_the_run_on(project: Project) -> None:
    run = project.started("paying", code=4)
    (incident,) = project.incidents()
    project.open_bank()
    out = project("incidents", "retry", incident["id"], "-i", "amount=5", "--comment", "open again", "--as", "ana")
    assert "amount: 3 → 5" in out
    assert "completed" in out
    assert project.lines() == ["before", "pay ana 3", "pay ana 5", "after"]
    assert project.run(run)["output"] == [{"paid": "ana", "amount": 5}]
    late = project.result("incidents", "fail", incident["id"])
    assert late.code == 1
    assert "retry by ana" in late.err
    assert "open again" in late.err
    assert project.incidents() == []
    assert "decided" in project("incidents", "list", "--all")
    assert "settled: retry by ana" in project("incidents", "show", incident["id"])
    trail = [(one["by"], one["action"], one["detail"]) for one in json.loads(project("audit", "--json"))]
    assert trail[1][:2] == ("ana", "incident.retry")
    assert trail[1][2]["edits"] == {"amount": 5}
    assert trail[0][1] == "incident.fail.refused"
    assert "decided already" in trail[0][2]["because"]


@pytest.mark.parametrize(
    ("args", "status", "output"),
    [
        (["provide", "--output", '{"by": "hand"}'], "completed", [{"by": "hand"}]),
        (["provide", "--output", "@given.json"], "completed", [{"by": "file"}]),
        (["skip", "--comment", "not needed"], "completed", [None]),
        (["fail"], "failed", None),
        (["compensate"], "compensated", None),
    ],
)
def test_an_incident_is_settled_by_each_action_and_the_exit_code_speaks_of_it_alone(
    project: Project, args: list[str], status: str, output: Any
) -> None:
    (project.folder / "given.json").write_text('{"by": "file"}')
    run = project.started("paying", code=4)
    (incident,) = project.incidents()
    project("incidents", args[0], incident["id"], *args[1:])
    told = project.run(run)
    assert (told["status"], told["output"]) == (status, output)
    assert project.lines().count("pay ana 3") == 1


def test_an_action_that_is_not_offered_is_refused_and_the_incident_stays_open(project: Project) -> None:
    project.started("paying", code=4)
    (incident,) = project.incidents()
    refused = project.result("incidents", "fallback", incident["id"], "--json")
    assert refused.code == 1
    assert "not offered here" in refused.err
    (told,) = json.loads(refused.out)
    assert (told["taken"], told["error"]["kind"]) == (False, "input")
    assert project.incidents() == [incident]
    assert project.result("incidents", "retry", "zzzz").code == 1
    assert "no incident zzzz" in project.result("incidents", "show", "zzzz").err
    unsaid = project.result("incidents", "skip")
    assert unsaid.code == 2
    assert "which incident" in unsaid.err
    assert project.result("incidents", "provide", "zzzz", "--output", "{").code == 2


def test_many_incidents_are_settled_at_once_only_with_all_and_after_they_were_shown(project: Project) -> None:
    run = project.started("paying", "-i", 'to:=["ana", "ben", "eva"]', code=4)
    assert len(project.incidents()) == 3
    assert project.incidents("--kind", "timeout") == []
    assert len(project.incidents("--workflow", "paying", "--step", "pay", "--run", run)) == 3
    asked = project.result("incidents", "retry", "--kind", "server_error")
    assert asked.code == 2
    assert "3 incidents are meant" in asked.err
    assert "closed for ben" in asked.out
    nothing = project.result("incidents", "retry", "--kind", "timeout", "--all")
    assert nothing.code == 1
    assert len(project.incidents()) == 3
    first = project.incidents()[0]
    project("incidents", "skip", first["id"], "--no-resume")
    assert len(project.incidents()) == 2
    project.open_bank()
    lines = project("incidents", "retry", "--run", run, "--all", "--json").splitlines()
    results = json.loads(lines[0])
    assert [one["taken"] for one in results] == [True, True]
    assert {one["run"] for one in results} == {run}
    assert json.loads(lines[-1])["status"] == "completed"
    assert project.lines().count("after") == 1
    assert [step["status"] for step in project.run(run)["steps"] if step["id"] == "pay"].count("skipped") == 1


def test_without_resume_the_run_is_left_and_said_to_be_due(project: Project) -> None:
    run = project.started("paying", code=4)
    (incident,) = project.incidents()
    out = project("incidents", "skip", incident["id"], "--no-resume")
    assert f"stepwell runs resume {run}" in out
    assert "after" not in project.lines()
    for asked in (["runs", "list"], ["runs", "show", run], ["explain", run]):
        assert "due" in project(*asked), asked
    project("runs", "resume", run)
    assert project.lines()[-1] == "after"


def test_a_call_in_doubt_is_told_with_its_key_and_its_arguments(project: Project) -> None:
    out = project("run", "charging.yaml", code=4)
    (incident,) = project.incidents()
    assert incident["kind"] == "in_doubt"
    for told in (out, project("incidents", "show", incident["id"])):
        assert "nobody knows whether it took effect" in told
        assert f"its key: {incident['run']}/charge" in told
        assert 'its arguments: {"cents": 500}' in told
    assert "it may then have been made twice" in project("incidents", "show", incident["id"])
    assert "nobody knows whether it took effect" in project("explain", incident["run"])
    project("incidents", "provide", incident["id"], "--output", '{"charged": 500}')
    assert project.lines() == ["charge 500"]
    assert project.run(incident["run"])["status"] == "completed"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL here")
def test_a_process_that_dies_while_it_retries_repeats_nothing_that_was_done(project: Project) -> None:
    run = project.started("paying", "-i", 'to:=["ana", "ben"]', code=4)
    ids = [incident["id"] for incident in project.incidents()]
    project("incidents", "skip", ids[1], "--no-resume")
    project.open_bank()
    (project.folder / "slow").touch()
    process = project.process("incidents", "retry", ids[0], "-i", "amount=9")
    try:
        until = time.monotonic() + 60
        while not any(line.endswith(" 9") for line in project.lines()):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until, "the call was never made"
            time.sleep(0.05)
    finally:
        process.kill()
        process.communicate()
    (project.folder / "slow").unlink()
    assert project.incidents() == []
    project("runs", "resume", run)
    lines = project.lines()
    assert (lines.count("before"), lines.count("after")) == (1, 1)
    assert len([line for line in lines if line.endswith(" 9")]) == 2  # it may be repeated, and was in flight
    assert sorted(line for line in lines if line.endswith(" 3")) == ["pay ana 3", "pay ben 3"]


# ── redrive and rerun ──


def test_a_redrive_is_planned_first_and_done_only_as_planned(project: Project) -> None:
    run = project.started("broken", code=1)
    project.open_bank()
    out = project("runs", "show", run)
    assert f"stepwell runs redrive {run}" in out
    plan = project("runs", "redrive", run)
    assert "nothing has been done" in plan
    assert "/charge  failed: in_doubt" in plan
    assert "uses again 1: /first" in plan
    assert "may not be repeated" in plan
    told = json.loads(project("runs", "redrive", run, "--json"))
    assert [one["path"] for one in told["executes"]][:1] == ["/charge"]
    assert told["repeats"] == [{"path": "/charge", "status": "failed", "error": "in_doubt"}]
    assert f"--confirm {told['hash']}" in plan
    wrong = project.result("runs", "redrive", run, "--confirm", "0123456789ab")
    assert wrong.code == 1
    assert told["hash"] in wrong.err
    careful = project.result("runs", "redrive", run, "--yes")
    assert careful.code == 1
    assert "would be made again: /charge" in careful.err
    assert project.lines() == ["first", "charge 7"]
    done = project("runs", "redrive", run, "--confirm", told["hash"], "--as", "ana")
    assert "completed" in done
    assert project.lines() == ["first", "charge 7", "charge 7", "pay ana 3", "paid 3"]
    assert "run.redrive" in project("audit")
    again = project.result("runs", "redrive", run)
    assert again.code == 1
    assert "is completed" in again.err


def test_a_redrive_with_yes_goes_on_in_the_foreground_with_the_exit_code_of_the_run(project: Project) -> None:
    run = project.started("broken", code=1)
    told = project("runs", "redrive", run, "--yes", "--repeat-anyway", code=1)  # the bank is still closed
    assert "in_doubt" in told
    project.open_bank()
    lines = project("runs", "redrive", run, "--yes", "--repeat-anyway", "--json").splitlines()
    assert json.loads(lines[0])["event"] == "run_redrive"
    assert json.loads(lines[-1])["output"] == {"paid": "ana", "amount": 3}
    assert project.lines().count("first") == 1


def test_a_rerun_from_a_path_takes_other_arguments_and_executes_what_comes_after(project: Project) -> None:
    project.open_bank()
    run = project.started("broken", code=0)
    plan = project("runs", "rerun", run, "--from", "pay", "-i", "amount=8")
    assert "/pay" in plan
    assert "amount becomes 8" in plan
    assert "asked for" in plan
    assert "comes after" in plan
    (command,) = [line.strip() for line in plan.splitlines() if "--confirm" in line]
    assert f"stepwell runs rerun {run} --from pay -i amount=8 --confirm " in command
    assert "--as ana --confirm " in project("runs", "rerun", run, "--from", "pay", "--as", "ana")
    project(*command.split()[1:])
    assert project.lines() == ["first", "charge 7", "pay ana 3", "paid 3", "pay ana 8", "paid 8"]
    told = project.run(run)
    assert told["output"] == {"paid": "ana", "amount": 8}
    assert [step["path"] for step in told["steps"]] == ["/first", "/charge", "/pay", "/last", "/pay#2", "/last#2"]


def test_a_rerun_as_a_new_run_leaves_the_old_one_as_it_is(project: Project) -> None:
    project.open_bank()
    run = project.started("broken", code=0)
    out = project("runs", "rerun", run, "--from", "/pay", "-i", "amount=9", "--new-run", "--yes")
    new = json.loads(project("runs", "list", "--json"))[0]["id"]
    assert new != run
    assert f"run {new} begins with what run {run} has" in out
    assert project.run(run)["output"] == {"paid": "ana", "amount": 3}
    assert project.run(new)["output"] == {"paid": "ana", "amount": 9}
    assert project.lines().count("charge 7") == 1


def test_a_wrong_path_is_refused_with_the_nearest_ones(project: Project) -> None:
    project.open_bank()
    run = project.started("paying", "-i", 'to:=["ana", "ben"]', code=0)
    near = project.result("runs", "rerun", run, "--from", "/each/1/pya")
    assert near.code == 2
    assert "did you mean" in near.err
    assert "/each/1/pay" in near.err
    many = project.result("runs", "rerun", run, "--from", "pay")
    assert many.code == 2
    assert "2 places" in many.err
    assert project.result("runs", "rerun", run, "--from", "/each/@1").code == 2
    wrong = project.result("runs", "rerun", run, "--from", "/each", "-i", "x=1")
    assert wrong.code == 2
    assert "no arguments to edit" in wrong.err
    project("runs", "rerun", run, "--from", "/each/1/pay", "--yes")
    assert project.lines().count("pay ben 3") == 2
    assert project.lines().count("pay ana 3") == 1


# ── what people see ──


def test_a_fallback_is_told_while_it_runs_and_afterwards(project: Project) -> None:
    out = project("run", "mended.yaml")
    assert "its fallback runs" in out
    assert "completed  pay/~fallback/owe" in out
    assert "by its fallback owe" in out
    run = json.loads(project("runs", "list", "--json"))[0]["id"]
    shown = project("runs", "show", run)
    assert "by its fallback owe  after server_error" in shown
    assert "~" not in shown
    assert "Its fallback owe completed it" in project("explain", run)
    assert "completed  by its fallback owe" in project("runs", "show", run, "--step", "pay")
    tail = project("runs", "tail", run)
    assert "its fallback runs" in tail
    assert "completed  pay/~fallback/owe" in tail
    events = [json.loads(line) for line in project("runs", "tail", run, "--json").splitlines()]
    (recovering,) = [event for event in events if event["event"] == "step_recovering"]
    assert (recovering["path"], recovering["strategy"], recovering["error"]["kind"]) == (
        "/pay", "fallback", "server_error",
    )  # fmt: skip
    steps = {step["path"]: step for step in project.run(run)["steps"]}
    assert (steps["/pay"]["status"], steps["/pay"]["completed_by"]) == ("completed", "fallback")


def test_a_compensated_run_exits_1_and_says_what_was_undone_and_what_was_not(project: Project) -> None:
    out = project("run", "undoing.yaml", code=1)
    run = json.loads(project("runs", "list", "--json"))[0]["id"]
    assert "undoing    book" in out
    for told in (out, project("runs", "show", run)):
        assert "compensated  server_error: the bank is closed for ana  at /pay" in told
        assert "undone:     /book" in told
        assert "not undone: /tell  (no compensate says how)" in told
        assert "redrive" not in told
    assert "undo book" in project("runs", "show", run)
    assert "It completed and was undone." in project("explain", run)
    assert {step["path"]: step["status"] for step in project.run(run)["steps"]}["/book"] == "compensated"
    assert project.lines() == ["book", "tell", "pay ana 1", "unbook"]
    assert "undone     book" in project("runs", "tail", run, code=1)


def test_who_settled_what_is_told_of_the_steps(project: Project) -> None:
    run = project.started("paying", "-i", 'to:=["ana", "ben"]', code=4)
    by_path = {incident["path"]: incident["id"] for incident in project.incidents()}
    project("incidents", "skip", by_path["/each/0/pay"], "--as", "eva", "--comment", "gone", "--no-resume")
    project("incidents", "provide", by_path["/each/1/pay"], "--as", "leo", "--output", "7")
    shown = project("runs", "show", run)
    assert "by eva: gone" in shown
    assert "by leo  after server_error" in shown
    told = project("explain", run)
    assert "eva skipped it: gone." in told
    assert "leo gave its output, after it had failed: server_error" in told


def test_a_call_in_doubt_of_a_run_that_ended_is_told_plainly(project: Project) -> None:
    out = project("run", "broken.yaml", code=1)
    run = json.loads(project("runs", "list", "--json"))[0]["id"]
    for told in (out, project("runs", "show", run)):
        assert "in doubt:   /charge" in told
        assert f"its key: {run}/charge" in told
        assert 'its arguments: {"cents": 7}' in told
    assert f"Nobody knows whether the call took effect; its key is {run}/charge" in project("explain", run)
    assert f"its key: {run}/charge" in project("runs", "show", run, "--step", "charge")


def test_a_run_that_went_back_says_when_and_by_whom(project: Project) -> None:
    project.open_bank()
    run = project.started("broken", code=0)
    project("runs", "rerun", run, "--from", "/pay", "--yes", "--as", "ana")
    shown = project("runs", "show", run)
    assert "rerun from /pay by ana at " in shown
    assert "pay (round 2)" in shown
    project("runs", "rerun", run, "--from", "/pay", "--new-run", "--yes", "--as", "ben")
    new = json.loads(project("runs", "list", "--json"))[0]["id"]
    assert f"made of run {run} from /pay by ben" in project("runs", "show", new)


def test_what_cannot_be_undone_is_an_incident_that_says_what_it_was_to_undo(project: Project) -> None:
    stuck = UNDOING.replace(
        "tool: note, arguments: {text: unbook}}", "tool: pay, arguments: {to: back}, retry: {max_attempts: 1}}"
    )
    (project.folder / "undoing.yaml").write_text(stuck)
    out = project("run", "undoing.yaml", code=4)
    (incident,) = project.incidents()
    run = incident["run"]
    assert incident["actions"] == ["retry", "skip", "fail"]
    for told in (out, project("runs", "show", run)):
        assert "suspended  book could not be undone: the bank is closed for back  at /book" in told
    assert "wants an operator: book could not be undone" in project("runs", "show", run)
    assert "what is left to undo waits" in project("incidents", "show", incident["id"])
    project.open_bank()
    told = project("incidents", "retry", incident["id"])
    assert "undone:     /book" in told
    assert project.run(run)["status"] == "compensated"
