"""Invoice approval: a quorum without the requester, edits, a question that comes back, a sequence, one payment."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.acceptance.example_runs import EXAMPLES, call, open_approval, run, shown, steps

FOLDER = EXAMPLES / "invoice-approval"


@pytest.fixture
def bank(folder):
    """The people are known; the bank's own book."""
    call("users", "import", str(FOLDER / "people.yaml"))

    def payments() -> list[dict[str, Any]]:
        book = folder / "outside-world" / "bank.json"
        return json.loads(book.read_text("utf-8")) if book.exists() else []

    return payments


def handed_in(name: str = "input") -> str:
    return run("invoice-approval", "--as", "sam", given=json.loads((FOLDER / f"{name}.json").read_text()), code=3)[
        "run"
    ]


def test_two_of_finance_decide_with_edits_and_who_handed_it_in_does_not(bank):
    run_id = handed_in()
    wait = open_approval(run_id)["id"]
    call("approvals", "approve", wait, "--as", "sam", code=1)
    call("approvals", "approve", wait, "--as", "hana", code=1)
    call("approvals", "approve", wait, "--as", "ana", "-d", "amount=-1", code=1)
    call("approvals", "approve", wait, "--as", "ana", "-d", "amount=980", "--comment", "freight was not agreed")
    call("approvals", "approve", wait, "--as", "ana", code=1)
    told = call("approvals", "show", wait)
    assert "1 of 2 approvals" in told
    assert "shown: 1180" in told
    assert "edited: 980" in told
    call("approvals", "approve", wait, "--as", "ben", "-d", "cost_centre=4300")
    output = shown(run_id)["output"]
    assert (output["paid"], output["amount"], output["cost_centre"]) == (True, 980, "4300")
    assert [(one["amount"], one["reference"]) for one in bank()] == [(980, "R-2041")]
    call("approvals", "approve", wait, "--as", "eva", code=1)
    refused = [one for one in json.loads(call("audit", "--json")) if one["action"] == "approval.decide.refused"]
    assert sorted(one["who"] if "who" in one else one["by"] for one in refused) == ["ana", "ana", "eva", "hana", "sam"]


def test_a_question_goes_back_and_comes_again_as_round_2(bank):
    run_id = handed_in()
    first = open_approval(run_id)["id"]
    call("approvals", "changes", first, "--as", "ana", "--comment", "what is the difference of 200?")
    second = open_approval(run_id)["id"]
    told = call("approvals", "show", second)
    assert "round 2" in told
    assert "asked for: what is the difference of 200?" in told
    assert "remarks in round 1:" in told
    call("approvals", "approve", second, "--as", "ben")
    call("approvals", "approve", second, "--as", "eva")
    assert shown(run_id)["output"]["amount"] == 1180
    assert len(bank()) == 1


def test_three_rejections_and_nothing_is_paid(bank):
    run_id = handed_in()
    wait = open_approval(run_id)["id"]
    for name in ("ana", "ben", "eva"):
        call("approvals", "reject", wait, "--as", name, "--comment", f"{name} knows nothing of it")
    output = shown(run_id)["output"]
    assert (output["paid"], output["amount"], output["reason"]) == (False, 0, "eva knows nothing of it")
    assert bank() == []


def test_a_large_sum_goes_to_the_head_and_a_director_and_is_paid_once_although_the_bank_hangs_up(bank):
    run_id = handed_in("large")
    wait = open_approval(run_id)["id"]
    call("approvals", "approve", wait, "--as", "ana")
    call("approvals", "approve", wait, "--as", "ben")
    board = open_approval(run_id)["id"]
    call("approvals", "approve", board, "--as", "dora", code=1)
    call("approvals", "approve", board, "--as", "hana")
    call("approvals", "approve", board, "--as", "dora")
    assert shown(run_id)["output"] | {"reason": None} == {
        "paid": True,
        "amount": 48000,
        "cost_centre": "4200",
        "receipt": "B-0001",
        "reason": None,
    }
    paid = steps(run_id)["/pay"]
    assert (paid["completed_by"], paid["error"]["kind"]) == ("verify", "in_doubt")
    assert [one["amount"] for one in bank()] == [48000]


def test_nobody_outside_decides_and_the_second_run_of_an_invoice_is_refused(bank):
    run_id = handed_in()
    call("approvals", "approve", open_approval(run_id)["id"], "--as", "nobody", code=1)
    call("run", str(FOLDER / "workflow.yaml"), "--input", str(FOLDER / "input.json"), "--as", "sam", code=2)
    assert len(json.loads(call("runs", "list", "--json"))) == 1
