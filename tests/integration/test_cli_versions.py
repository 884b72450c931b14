"""`stepwell publish`, `workflows`, `diff` and `runs migrate` on the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stepwell.cli.app import stepwell

FIRST = """\
workflow: refund
version: beta
# asks once
steps:
  - id: ask
    type: approval
    title: "Pay {{workflow_input.n}}?"
  - id: pay
    type: set
    values: {paid: "{{workflow_input.n}}"}
"""
SECOND = FIRST.replace("paid:", "payed:").replace("beta", "gamma")
BEFORE_IT = FIRST.replace(
    "steps:\n", "steps:\n  - {id: early, type: set, values: {}}\n  - {id: w, type: wait, for: 2h}\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("STEPWELL_USER", "STEPWELL_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "refund.yaml").write_text(FIRST, "utf-8")
    (tmp_path / "second.yaml").write_text(SECOND, "utf-8")
    return tmp_path


def call(*args: str, code: int = 0, typed: str = "") -> Result:
    result = CliRunner().invoke(stepwell, list(args), input=typed)
    assert result.exit_code == code, result.output
    return result


def told(*args: str, code: int = 0) -> Any:
    return json.loads(call(*args, "--json", code=code).stdout)


def parked(name: str = "refund.yaml") -> str:
    call("run", name, "-i", "n=5", code=3)
    return str(told("runs", "list")[0]["id"])


def test_versions_are_published_listed_and_shown() -> None:
    assert told("workflows", "list") == []
    [first] = told("publish", "refund.yaml", "--note", "the first")
    assert (first["id"], first["number"], first["label"], first["note"], first["new"]) == (
        "refund", 1, "beta", "the first", True,
    )  # fmt: skip
    assert "nothing to publish" in call("publish", "refund.yaml").stdout
    assert "refund@2" in call("publish", "second.yaml").stdout
    assert [one["number"] for one in told("workflows", "versions", "refund")] == [2, 1]
    assert [one["number"] for one in told("workflows", "list")] == [2]
    assert "# asks once" in call("workflows", "show", "refund@beta").stdout
    assert call("workflows", "show", "refund@1", "--text").stdout == FIRST
    missing = call("workflows", "show", "refund@7", code=2)
    assert "it has 2 (gamma), 1 (beta)" in missing.stderr


def test_what_was_published_before_a_file_that_is_refused_is_told(folder: Path) -> None:
    (folder / "calls.yaml").write_text(
        "workflow: calls\nsteps:\n- {id: s, type: sub_workflow, workflow: none}\n", "utf-8"
    )
    refused = call("publish", "refund.yaml", "calls.yaml", code=2)
    assert "refund@1" in refused.stdout
    assert "there is no workflow 'none'" in refused.stderr
    assert [one["id"] for one in told("workflows", "list")] == ["refund"]
    (folder / "wrong.yaml").write_text("workflow: wrong\n", "utf-8")
    assert "@" not in call("publish", "second.yaml", "wrong.yaml", code=2).stdout


def test_a_published_workflow_runs_by_its_name_and_a_file_comes_first(folder: Path) -> None:
    unmade = call("run", "refund", code=2)
    assert "there is no file refund, and there is no database at" in unmade.stderr
    call("publish", "refund.yaml", "second.yaml")
    for name in ("refund.yaml", "second.yaml"):
        (folder / name).unlink()
    assert told("runs", "show", parked("refund@1"))["workflow"]["version"] == "beta"
    assert told("runs", "show", parked("refund"))["workflow"]["version"] == "gamma"
    (folder / "refund").write_text(FIRST.replace("beta", "of a file"), "utf-8")
    assert told("runs", "show", parked("refund"))["workflow"]["version"] == "of a file"
    nothing = call("run", "nothing", code=2)
    assert "there is no file nothing, and there is no workflow 'nothing' in the library" in nothing.stderr
    call("run", "nothing.yaml", code=2)


def test_a_run_of_a_version_goes_on_after_its_version_was_published_anew(folder: Path) -> None:
    call("publish", "refund.yaml")
    run = parked("refund@1")
    call("publish", "second.yaml")
    wait = told("approvals", "list")[0]["id"]
    call("approvals", "approve", wait)
    assert told("runs", "show", run)["output"] == {"paid": "5"}


def test_a_version_is_rolled_back_and_deleted_once_no_run_uses_it() -> None:
    call("publish", "refund.yaml", "second.yaml")
    run = parked("refund@1")
    refused = call("workflows", "delete", "refund@1", code=1)
    assert run in refused.stderr
    back = told("workflows", "rollback", "refund@1")
    assert (back["number"], back["origin"], back["new"]) == (3, "rollback of 1", True)
    assert "nothing to do" in call("workflows", "rollback", "refund@1").stdout
    call("runs", "cancel", run)
    assert "deleted refund@1" in call("workflows", "delete", "refund@1").stdout
    assert [one["number"] for one in told("workflows", "versions", "refund")] == [3, 2]
    call("workflows", "delete", "refund@beta", code=2)
    call("workflows", "rollback", "refund", code=2)


def test_a_diff_names_steps_fields_and_lines_and_exits_like_diff(folder: Path) -> None:
    call("publish", "refund.yaml", "second.yaml")
    shown = call("diff", "refund@1", "refund", code=1).stdout
    assert "/pay  values.paid" in shown
    assert "line 10" in shown
    found = told("diff", "refund.yaml", "second.yaml", code=1)
    assert found["cosmetic"] is False
    assert {one["field"] for one in found["differences"]} == {"version", "values.paid", "values.payed"}
    (folder / "named.yaml").write_text("# new\n" + FIRST.replace("beta", "delta\nname: Refund"), "utf-8")
    assert "no change in what is done" in call("diff", "refund@1", "named.yaml").stdout
    assert told("diff", "refund@1", "refund.yaml")["same"] is True
    assert "values.payed" in call("diff", parked(), "second.yaml", code=1).stdout
    (folder / "wrong.yaml").write_text("workflow: x\n", "utf-8")
    for bad in ("wrong.yaml", "nothing.yaml", "nothing@3"):
        call("diff", "refund@1", bad, code=2)


def test_a_parked_run_is_moved_after_a_plan() -> None:
    call("publish", "refund.yaml", "second.yaml")
    run = parked("refund@1")
    [plan] = told("runs", "migrate", run, "--to", "refund@2", "--dry-run")
    assert (plan["migrated"], plan["conflicts"]) == (False, [])
    assert told("runs", "show", run)["workflow"]["version"] == "beta"
    assert "moved" in call("runs", "migrate", run[-8:], "--to", "2").stdout
    assert "has it already" in call("runs", "migrate", run, "--to", "gamma").stdout
    assert "/~migrated" in call("runs", "history", run).stdout
    call("explain", run)
    call("approvals", "approve", told("approvals", "list")[0]["id"])
    assert told("runs", "show", run)["output"] == {"payed": "5"}
    acts = [(one["action"], one["object"]) for one in told("audit")]
    assert ("run.migrate", run) in acts
    assert ("workflow.publish", "refund@2") in acts


def test_conflicts_are_told_with_what_to_do_and_leave_the_run_alone(folder: Path) -> None:
    run = parked()
    (folder / "before.yaml").write_text(BEFORE_IT, "utf-8")
    refused = call("runs", "migrate", run, "--to", "before.yaml", code=1).stdout
    assert "conflict /ask: waits (approval)" in refused
    assert "comes first: /w" in refused
    assert "hint:" in refused
    assert told("runs", "show", run)["workflow"]["version"] == "beta"
    assert told("runs", "migrate", run, "--to", "before.yaml", code=1)[0]["conflicts"][0]["path"] == "/ask"


def test_all_parked_runs_of_a_workflow_are_moved_after_a_table(folder: Path) -> None:
    call("publish", "refund.yaml", "second.yaml")
    runs = {parked("refund@1"), parked("refund@1"), parked("refund@2")}
    shown = call("runs", "migrate", "--workflow", "refund", "--all", "--to", "2", typed="n\n").stdout
    assert shown.count("can be moved") >= 2
    assert {told("runs", "show", run)["workflow"]["version"] for run in runs} == {"beta", "gamma"}
    call("runs", "migrate", "--workflow", "refund", "--all", "--to", "2", typed="y\n")
    assert {told("runs", "show", run)["workflow"]["version"] for run in runs} == {"gamma"}
    (folder / "before.yaml").write_text(BEFORE_IT, "utf-8")
    found = told("runs", "migrate", "--workflow", "refund", "--all", "--yes", "--to", "before.yaml", code=1)
    assert len(found) == 3
    assert told("runs", "migrate", "--workflow", "other", "--all", "--to", "1") == []
    for wrong in (["--to", "2"], ["--to", "2", "--all"], [found[0]["run"], "--to", "2", "--workflow", "x", "--all"]):
        call("runs", "migrate", *wrong, code=2)


def test_validate_knows_what_is_published(folder: Path) -> None:
    (folder / "recipes").mkdir()
    (folder / "recipes/mood.yaml").write_text(
        'recipe: mood\nversion: "2"\nprompt: "Mood of {{input.text}}?"\n', "utf-8"
    )
    asks = "workflow: asks\nsteps:\n- {id: m, type: recipe, recipe: mood@2, inputs: {text: hi}}\n"
    (folder / "asks.yaml").write_text(asks, "utf-8")
    calls = "workflow: calls\nsteps:\n- {id: s, type: sub_workflow, workflow: refund@beta, inputs: {n: 1}}\n"
    (folder / "calls.yaml").write_text(calls.replace("refund@beta", "refund@1"), "utf-8")
    assert "there is no workflow 'refund@1'" in call("validate", "calls.yaml", code=1).stdout
    call("publish", "refund.yaml", "asks.yaml")
    (folder / "recipes/mood.yaml").unlink()
    call("validate", "calls.yaml", "asks.yaml")
    call("run", "calls.yaml", code=3)
    (folder / "calls.yaml").write_text(calls.replace("beta", "9"), "utf-8")
    assert "the library has no version '9' of 'refund'" in call("validate", "calls.yaml", code=1).stdout


def test_who_may_not_publish_or_move_is_refused_and_noted() -> None:
    call("users", "add", "ana", "--role", "viewer")
    call("users", "add", "eva", "--role", "editor", "--role", "operator")
    call("publish", "refund.yaml", "--as", "ana", code=1)
    call("publish", "refund.yaml", "second.yaml", "--as", "eva")
    call("users", "add", "bo", "--role", "approver")
    run = parked("refund@1")
    call("runs", "migrate", run, "--to", "2", "--as", "ana", code=1)
    call("runs", "migrate", run, "--to", "2", "--as", "eva")
    acts = [(one["by"], one["action"], one["object"]) for one in told("audit", "--limit", "50")]
    assert ("ana", "workflow.publish.refused", "refund") in acts
    assert ("eva", "workflow.publish", "refund@2") in acts
    assert ("ana", "run.migrate.refused", run) in acts
    assert ("eva", "run.migrate", run) in acts


_KILLED = """
import asyncio, os, signal, sys
from stepwell.engine.engine import open_engine
from stepwell.stores.sqlite import creating

async def work():
    async with open_engine() as engine:
        made = creating.repin
        if sys.argv[2] == "inside":
            def repin(*given):
                made(*given)
                os.kill(os.getpid(), signal.SIGKILL)
            creating.repin = repin
        else:
            async def move(*given):
                os.kill(os.getpid(), signal.SIGKILL)
            engine.versions._migrations.move = move
        await engine.versions.migrate(sys.argv[1], await engine.versions.get("refund@2"))

asyncio.run(work())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
@pytest.mark.parametrize("where", ["between", "inside"])
def test_a_move_that_is_killed_before_its_commit_leaves_nothing(where: str) -> None:
    call("publish", "refund.yaml", "second.yaml")
    run = parked("refund@1")
    before = call("runs", "history", run).stdout
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, run, where], env=dict(os.environ), capture_output=True, timeout=120, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert told("runs", "show", run)["workflow"]["version"] == "beta"
    assert call("runs", "history", run).stdout == before
    assert not [one for one in told("audit") if one["action"] == "run.migrate"]
    call("runs", "migrate", run, "--to", "2")
    call("approvals", "approve", told("approvals", "list")[0]["id"])
    assert told("runs", "show", run)["output"] == {"payed": "5"}


_PUBLISHES = """
import asyncio, sys
from pathlib import Path
from stepwell.engine.engine import open_engine

async def work(who):
    async with open_engine() as engine:
        for number in range(8):
            file = Path(f"{who}-{number}.yaml")
            file.write_text(f"workflow: w\\nsteps:\\n- {{id: a, type: set, values: {{n: {who}-{number}}}}}\\n")
            print((await engine.versions.publish(engine.load(file)))[0].number)

asyncio.run(work(sys.argv[1]))
"""


def test_processes_that_publish_at_once_never_get_one_number() -> None:
    command = [sys.executable, "-c", _PUBLISHES]
    started = [subprocess.Popen([*command, f"p{one}"], stdout=subprocess.PIPE, text=True) for one in range(3)]
    found = [int(line) for one in started for line in one.communicate(timeout=120)[0].split()]
    assert all(one.returncode == 0 for one in started)
    assert sorted(found) == list(range(1, 25))
    assert len(told("workflows", "versions", "w")) == 24
