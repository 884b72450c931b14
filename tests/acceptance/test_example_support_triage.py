"""The example does what its README says: run it, decide from another process, pull the plug."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "support-triage"
TICKETS = EXAMPLE / "tickets"
LABELS: dict[str, str] = json.loads((TICKETS / "labels.json").read_text("utf-8"))
STEPWELL = [sys.executable, "-m", "stepwell"]
RUN = [*STEPWELL, "run", str(EXAMPLE / "workflow.yaml"), "--json", "--input"]

pytestmark = pytest.mark.models


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty working directory, with the ledger of refunds in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIAGE_LEDGER", str(tmp_path / "ledger.jsonl"))
    monkeypatch.setenv("STEPWELL_DATABASE", f"sqlite:///{tmp_path}/stepwell.db")
    return tmp_path


def call(*arguments: str, code: int | None = 0) -> str:
    done = subprocess.run([*STEPWELL, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert code is None or done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run(ticket: Path, code: int) -> dict:
    done = subprocess.run([*RUN, str(ticket)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def shown(run_id: str) -> dict:
    return json.loads(call("runs", "show", run_id, "--json"))


def refunds(project: Path) -> list[dict]:
    ledger = project / "ledger.jsonl"
    return [json.loads(line) for line in ledger.read_text("utf-8").splitlines()] if ledger.exists() else []


def open_approval(run_id: str) -> dict:
    waits = [wait for wait in json.loads(call("approvals", "list", "--json")) if wait["run"] == run_id]
    assert len(waits) == 1
    return waits[0]


def test_there_are_tickets_in_three_languages_and_all_are_labelled():
    files = sorted(file.name for file in TICKETS.glob("*-*.json"))
    assert sorted(LABELS) == files
    assert {language: sum(language in name for name in files) for language in ("en", "zh", "fr")} == {
        "en": 15,
        "zh": 5,
        "fr": 5,
    }


def test_the_workflow_of_the_example_has_no_problem():
    assert json.loads(call("validate", str(EXAMPLE / "workflow.yaml"), "--json")) == []


def test_the_ticket_reaches_an_approval_and_is_refunded_once_another_process_approves(project):
    last = run(EXAMPLE / "ticket.json", code=3)
    assert last["status"] == "pending_approval"
    assert refunds(project) == []
    wait = open_approval(last["run"])
    assert wait["title"] == "Refund 213.00 EUR to Ana Ferreira?"

    call("approvals", "approve", wait["id"], "--comment", "kept well")

    finished = shown(last["run"])
    assert finished["status"] == "completed"
    output = finished["output"]
    assert (output["label"], output["branch"], output["approved"]) == ("refund", "large_refund", True)
    assert "We refund 213.00 EUR" in output["reply"]
    assert "within 14 days of delivery" in output["reply"]
    assert [entry["reference"] for entry in refunds(project)] == [output["reference"]]
    ticket = json.loads((EXAMPLE / "ticket.json").read_text("utf-8"))["ticket"]
    assert all(sentence in ticket for sentence in output["summary"].split("\n"))


def test_a_rejected_refund_is_not_paid_and_the_customer_hears_it(project):
    last = run(EXAMPLE / "ticket.json", code=3)
    call("approvals", "reject", open_approval(last["run"])["id"], "--comment", "too late")
    finished = shown(last["run"])
    assert finished["status"] == "completed"
    assert "cannot refund" in finished["output"]["reply"]
    assert finished["output"]["approved"] is False
    assert refunds(project) == []
    pay = next(step for step in finished["steps"] if step["id"] == "pay_large")
    assert pay["status"] == "skipped"
    assert pay["skip_reason"]["type"] == "condition_false"


def test_a_small_refund_is_paid_without_asking(project):
    last = run(TICKETS / "21-en.json", code=0)
    assert last["status"] == "completed"
    assert (last["output"]["branch"], last["output"]["approved"]) == ("small_refund", None)
    assert [entry["cents"] for entry in refunds(project)] == [10300]


def test_a_ticket_without_an_order_completes_without_a_refund(project):
    last = run(TICKETS / "02-en.json", code=0)
    assert (last["output"]["label"], last["output"]["branch"]) == ("account", "else")
    assert "one working day" in last["output"]["reply"]
    assert refunds(project) == []


@pytest.mark.parametrize(("event", "path"), [("step_completed", "/enrich"), ("step_started", "/draft")])
def test_a_run_killed_in_the_middle_goes_on_and_repeats_nothing_finished(project, event, path):
    process = subprocess.Popen([*RUN, str(EXAMPLE / "ticket.json")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        lines = map(json.loads, process.stdout)
        first = next(lines)
        assert any(line.get("event") == event and line.get("path") == path for line in lines)
        os.kill(process.pid, signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL
    before = {step["path"]: step for step in shown(first["run"])["steps"] if step["status"] == "completed"}
    assert {"/read_policies", "/classify", "/policy"} <= set(before)

    call("runs", "resume", first["run"], code=3)
    after = {step["path"]: step for step in shown(first["run"])["steps"]}
    assert {path: after[path] for path in before} == before

    call("approvals", "approve", open_approval(first["run"])["id"])
    assert shown(first["run"])["status"] == "completed"
    assert len(refunds(project)) == 1


def test_the_table_holds_the_tickets_with_their_labels():
    with (EXAMPLE / "tickets.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = {name: json.loads((TICKETS / name).read_text("utf-8"))["ticket"] for name in LABELS}
    assert {row["file"]: row["ticket"] for row in rows} == texts
    assert {row["file"]: row["expected.label"] for row in rows} == LABELS


def test_an_evaluation_scores_classification_by_embeddings_and_calls_chance_chance(project):
    recipe = str(EXAMPLE / "recipes" / "triage-classify.yaml")
    table = str(EXAMPLE / "tickets.csv")
    found = json.loads(call("recipes", "eval", recipe, "--table", table, "--json", "--min-score", "0.88"))
    [one] = found["candidates"]
    assert found["complete"]
    assert (one["ways"], one["input_tokens"], one["verdicts"]["error"]) == (["embeddings"], 0, 0)
    assert sum(result["verdict"] == "right" for result in one["results"][:20]) >= 18
    assert one["fields"]["label"]["right"] >= 22
    assert sum(row["count"] for row in one["labels"]["label"]["confusion"]) == 25


def test_the_embedded_generator_is_compared_with_embeddings_and_found_worse(project):
    recipes = EXAMPLE / "recipes"
    versions = [str(recipes / f"triage-classify{ending}.yaml") for ending in ("", "@generate")]
    found = json.loads(
        call("recipes", "eval", "triage-classify", "--table", str(EXAMPLE / "tickets.csv"), "--limit", "12", "--json",
             *(part for version in versions for part in ("--version", version)))
    )  # fmt: skip
    first, second = found["candidates"]
    assert (first["ways"], second["ways"]) == (["embeddings"], ["model"])
    assert second["verdicts"]["invalid"] + second["verdicts"]["error"] == 0  # the grammar holds the labels
    assert second["output_tokens"] > 0
    assert first["score"] > second["score"]
    assert found["comparisons"][0]["worse"] > found["comparisons"][0]["better"]
