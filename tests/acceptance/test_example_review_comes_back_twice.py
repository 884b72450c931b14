"""A review that comes back twice: remarks that are read, rounds side by side, ids that decide one round alone."""

from __future__ import annotations

import json

from tests.acceptance.example_runs import EXAMPLES, call, open_approval, run, shown, steps

FIRST, SECOND = "customers do not know app-1 and app-2", "say what they have to do"


def sent_back(folder) -> tuple[str, list[str]]:
    """A run in its third round, and the ids of its approvals."""
    run_id = run("review-comes-back-twice", code=3)["run"]
    ids = [open_approval(run_id)["id"]]
    call("approvals", "changes", ids[0], "--as", "ana", "--comment", FIRST, "-d", "leave_out=app-2")
    ids.append(open_approval(run_id)["id"])
    call("approvals", "changes", ids[1], "--as", "ben", "--comment", SECOND, "-d", "must_say=You have nothing to do.")
    return run_id, [*ids, open_approval(run_id)["id"]]


def test_two_remarks_are_read_and_the_third_round_is_published(folder):
    run_id, ids = sent_back(folder)
    assert len(set(ids)) == 3
    call("approvals", "approve", ids[2], "--as", "ana")
    output = shown(run_id)["output"]
    assert (output["approved_by"], output["remarks"]) == ("ana", [FIRST, SECOND])
    assert "app-2" not in output["text"]
    assert output["text"].endswith("You have nothing to do.")
    assert (folder / "outside-world" / "status-page.txt").read_text("utf-8").endswith(output["text"] + "\n")


def test_the_rounds_stand_side_by_side(folder):
    run_id, ids = sent_back(folder)
    told = call("approvals", "show", ids[2])
    assert "round 3" in told
    assert "text in round 1: On Tuesday from 9:10 to 9:52 the shop could not be reached. The standby app-2" in told
    assert "changes_requested by ben at " in told
    assert SECOND in told
    found = steps(run_id)
    texts = [found[path]["output"]["text"] for path in ("/draft", "/draft#2", "/draft#3")]
    assert len(set(texts)) == 3
    read = [[one["comment"] for one in found[path]["input"]["reviews"]] for path in ("/draft", "/draft#2", "/draft#3")]
    assert read == [[], [FIRST], [FIRST, SECOND]]


def test_an_earlier_round_can_no_longer_be_decided_and_a_rejection_publishes_nothing(folder):
    run_id, ids = sent_back(folder)
    call("approvals", "approve", ids[0], "--as", "ana", code=1)
    assert open_approval(run_id)["id"] == ids[2]
    call("approvals", "reject", ids[2], "--as", "ana", "--comment", "too late by now")
    assert json.loads(call("runs", "list", "--json"))[0]["status"] == "failed"
    assert not (folder / "outside-world").exists()


def test_what_people_see_of_the_way_back(folder):
    run_id, ids = sent_back(folder)
    told = call("runs", "show", run_id)
    assert f"changes requested by ana: {FIRST}" in told
    assert told.count("publish") == 1
    assert f"It sent the run back: changes requested by ben: {SECOND}." in call("explain", run_id)
    call("approvals", "approve", ids[2])
    assert call("runs", "show", run_id).count("publish") == 1


def test_a_run_that_waits_says_how_to_ask_for_changes(folder):
    folder_of = EXAMPLES / "review-comes-back-twice"
    told = call("run", str(folder_of / "workflow.yaml"), "--input", str(folder_of / "input.json"), code=3)
    assert "  changes: " in told
