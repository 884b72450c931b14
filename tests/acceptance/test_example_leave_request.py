"""Leave request: rules, a manager with a form, several ends, and one request of a person at a time."""

from __future__ import annotations

import json

from tests.acceptance.example_runs import EXAMPLES, STEPWELL, call, open_approval, run, shown, steps


def asked(employee: str, days: int, code: int = 0) -> dict:
    return run("leave-request", "-i", f"employee={employee}", "-i", f"days={days}", code=code)


def test_short_leave_is_granted_by_rule_at_the_second_call_of_a_busy_system(folder):
    last = asked("sana", 2)
    assert last["output"] | {"booking": ""} == {
        "result": "approved_by_rule",
        "granted": 2,
        "paid": True,
        "note": "",
        "booking": "",
    }
    assert steps(last["run"])["/account"]["attempts"] == 2


def test_more_than_is_left_is_refused_by_rule_and_nothing_is_booked(folder):
    last = asked("emil", 3)
    assert (last["output"]["result"], last["output"]["granted"]) == ("refused_by_rule", 0)
    assert last["output"]["note"] == "only 1 days are left"
    assert steps(last["run"])["/book"]["status"] == "skipped"


def test_somebody_whom_nobody_knows_is_an_end_of_its_own_and_no_failure(folder):
    last = asked("nobody", 1)
    assert last["status"] == "completed"
    assert last["output"] == {"result": "unknown_employee", "granted": 0, "paid": False}
    assert steps(last["run"])["/rule"]["status"] == "skipped"


def test_the_manager_grants_fewer_days_unpaid(folder):
    last = run("leave-request", code=3)
    call("approvals", "approve", open_approval(last["run"])["id"], "-d", "paid=false", "-d", "days=5")
    finished = shown(last["run"])
    assert (finished["status"], finished["output"]["result"]) == ("completed", "approved_by_manager")
    assert (finished["output"]["granted"], finished["output"]["paid"]) == (5, False)
    assert steps(last["run"])["/book"]["output"]["paid"] is False


def test_zero_days_and_an_empty_note_stay_what_they_are(folder):
    last = run("leave-request", code=3)
    data = json.dumps({"paid": False, "days": 0, "note": ""})
    call("approvals", "approve", open_approval(last["run"])["id"], "--comment", "not now", "--data", data)
    output = shown(last["run"])["output"]
    assert (output["granted"], output["paid"], output["note"], output["booking"]) == (0, False, "", None)


def test_an_answer_that_does_not_fit_the_form_is_refused_and_the_request_stays_open(folder):
    last = run("leave-request", code=3)
    wait = open_approval(last["run"])["id"]
    call("approvals", "approve", wait, "--data", '{"paid": true, "days": -1}', code=1)
    assert open_approval(last["run"])["id"] == wait


def test_a_rejection_is_told_and_nothing_is_booked(folder):
    last = run("leave-request", code=3)
    call("approvals", "reject", open_approval(last["run"])["id"], "--comment", "the audit is in that week")
    output = shown(last["run"])["output"]
    assert (output["result"], output["granted"]) == ("refused_by_manager", 0)
    assert output["note"] == "the audit is in that week"


def test_a_second_request_of_the_same_person_waits_for_the_first(folder):
    import subprocess

    first = run("leave-request", code=3)
    command = [*STEPWELL, "run", str(EXAMPLES / "leave-request" / "workflow.yaml"), "--json"]
    second = subprocess.Popen([*command, "-i", "employee=noor", "-i", "days=1"], stdout=subprocess.PIPE, text=True)
    assert asked("emil", 1)["output"]["granted"] == 1
    assert second.poll() is None
    queued = [each for each in json.loads(call("runs", "list", "--json")) if each["status"] == "queued"]
    assert len(queued) == 1
    call("approvals", "reject", open_approval(first["run"])["id"])
    out, _ = second.communicate(timeout=60)
    assert json.loads(out.splitlines()[-1])["output"]["result"] == "approved_by_rule"
