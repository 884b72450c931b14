"""`stepwell approvals` with people: who decides, what is shown to them, and what they are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stepwell.cli.app import stepwell

TWO = """\
workflow: two
steps:
- id: g
  type: approval
  title: "Pay {{workflow_input.amount}}?"
  show: {amount: "{{workflow_input.amount}}"}
  approvers: [role:finance]
  require: {quorum: 2}
  form: {type: object, properties: {amount: {type: integer}}}
  remind_every: 1d
  expires_in: 7d
"""
REVIEW = """\
workflow: review
steps:
- {id: draft, type: set, values: {text: "v{{(step.g?.comment ?? '') == '' ? 1 : 2}}"}}
- id: g
  type: approval
  title: good?
  show: {text: "{{step.draft.text}}"}
  on_changes: {goto: draft}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("STEPWELL_USER", "STEPWELL_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "two.yaml").write_text(TWO)
    (tmp_path / "review.yaml").write_text(REVIEW)
    return tmp_path


def call(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(stepwell, list(args))
    assert result.exit_code == code, result.output
    return result


def told(*args: str) -> Any:
    return json.loads(call(*args, "--json").stdout)


@pytest.fixture
def people() -> None:
    for name in ("ana", "ben", "cid"):
        call("users", "add", name, "--role", "finance")
    call("users", "add", "root", "--role", "admin")


def open_gate(file: str = "two.yaml", *args: str) -> str:
    call("run", file, *args, code=3)
    [wait] = told("approvals", "list")
    return str(wait["id"])


@pytest.mark.usefixtures("people")
def test_two_of_three_decide_and_each_sees_what_is_missing() -> None:
    wait = open_gate("two.yaml", "-i", "amount:=50", "--as", "ben")
    assert [one["id"] for one in told("approvals", "list", "--mine", "--as", "ana")] == [wait]
    assert told("approvals", "list", "--mine", "--as", "ben") == []
    assert told("approvals", "list", "--mine") == []
    shown = call("approvals", "show", wait).stdout
    assert "0 of 2 approvals" in shown
    assert "may decide: ana, cid" in shown
    assert "next reminder" in shown
    refused = call("approvals", "approve", wait, code=1)
    assert "may not decide" in refused.stderr
    own = call("approvals", "approve", wait, "--as", "ben", code=1)
    assert "may not decide" in own.stderr
    first = call("approvals", "approve", wait, "--as", "ana", "-i", "amount:=40", "--comment", "less")
    assert "1 of 2 approvals; may still decide: cid" in first.stdout
    shown = call("approvals", "show", wait).stdout
    assert "approved by ana" in shown
    assert "shown: 50" in shown
    assert "edited: 40" in shown
    again = call("approvals", "reject", wait, "--as", "ana", code=1)
    assert "counted once" in again.stderr
    last = told("approvals", "approve", wait, "--as", "cid", "-i", "amount:=45", "--no-resume")
    assert (last["status"], last["decision"]["data"]) == ("decided", {"amount": 45})
    late = call("approvals", "reject", wait, "--as", "cid", code=1)
    assert "the decision that counts: approved by cid" in late.stderr
    trail = [(one["by"], one["action"], one["channel"]) for one in told("audit", "--object", wait)]
    assert trail == [
        ("cid", "approval.decide.refused", "cli"),
        ("cid", "approval.decide", "cli"),
        ("ana", "approval.decide.refused", "cli"),
        ("ana", "approval.decide", "cli"),
        ("ben", "approval.decide.refused", "cli"),
        ("local operator", "approval.decide.refused", "cli"),
    ]


@pytest.mark.usefixtures("people")
def test_what_one_filled_in_is_told_to_those_who_decide_after_them(folder: Path) -> None:
    (folder / "bare.yaml").write_text(TWO.replace('  show: {amount: "{{workflow_input.amount}}"}\n', ""))
    run = call("run", "bare.yaml", "-i", "amount:=50", "--as", "root", code=3)
    [one] = told("approvals", "list")
    assert f"approvals approve {one['id']} -d NAME=VALUE" in run.stdout
    call("approvals", "approve", one["id"], "--as", "ana", "-d", "amount=40")
    assert 'data: {"amount": 40}' in call("approvals", "show", one["id"]).stdout


@pytest.mark.usefixtures("people")
def test_an_approval_is_handed_on_and_explain_says_who_is_waited_for() -> None:
    wait = open_gate("two.yaml", "-i", "amount:=1", "--as", "root")
    call("users", "add", "dan", "--role", "finance")
    handed = call("approvals", "reassign", wait, "--to", "dan", "--as", "ana")
    assert "may decide: dan, ben, cid" in handed.stdout
    assert "may not" in call("approvals", "reassign", wait, "--to", "dan", "--as", "ana", code=1).stderr
    [run] = told("runs", "list")
    why = call("explain", run["id"]).stdout
    assert "role finance" in why
    assert "next reminder" in why
    assert "(then it counts as rejected)" in why


def test_a_decision_is_bound_to_what_was_shown() -> None:
    wait = open_gate("two.yaml", "-i", "amount:=1")
    assert "has changed" in call("approvals", "approve", wait, "--digest", "0" * 32, code=1).stderr
    digest = told("approvals", "show", wait)["digest"]
    assert digest in call("approvals", "show", wait).stdout
    call("approvals", "approve", wait, "--digest", digest)


def test_the_form_may_come_from_a_file(folder: Path) -> None:
    wait = open_gate("two.yaml", "-i", "amount:=1")
    (folder / "form.json").write_text('{"amount": "many"}')
    assert "/amount" in call("approvals", "approve", wait, "--data", "@form.json", code=1).stderr
    (folder / "form.json").write_text('{"amount": 7}')
    assert told("approvals", "approve", wait, "--data", "@form.json", "--no-resume")["decision"]["data"] == {
        "amount": 7
    }


def test_changes_lead_back_and_rounds_stand_side_by_side() -> None:
    wait = open_gate("review.yaml")
    assert f"approvals changes {wait}" in call("approvals", "show", wait).stdout
    call("approvals", "changes", wait, "--comment", "again, please")
    [second] = told("approvals", "list")
    assert (second["round"], second["show"]) == (2, {"text": "v2"})
    shown = call("approvals", "show", second["id"]).stdout
    assert "text in round 1: v1" in shown
    assert "changes_requested by local operator" in shown
    assert "again, please" in shown
    assert [one["show"] for one in told("approvals", "show", second["id"])["rounds"]] == [{"text": "v1"}]
    late = call("approvals", "approve", wait, code=1)
    assert "decided already" in late.stderr
    call("approvals", "approve", second["id"])
    assert told("runs", "list")[0]["status"] == "completed"


def test_changes_are_refused_where_they_are_not_offered() -> None:
    wait = open_gate("two.yaml", "-i", "amount:=1")
    assert "not offered" in call("approvals", "changes", wait, code=1).stderr
