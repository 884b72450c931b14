"""Incident response: fallbacks by the kind of error, undoing across a loop and a sub-workflow, a person's way out."""

from __future__ import annotations

import json

from tests.acceptance.example_runs import EXAMPLES, call, run, shown, steps

UP = [
    "start app-1-south",
    "traffic of app-1 to app-1-south",
    "start app-2-south",
    "traffic of app-2 to app-2-south",
    "start app-3-south",
    "traffic of app-3 to app-3-south",
    "freeze {0}",
    "{0} is led by south",
]
BACK = [
    "{0} is led by north",
    "thaw {0}",
    "traffic of app-3-south to app-3",
    "stop app-3-south",
    "traffic of app-2-south to app-2",
    "stop app-2-south",
    "traffic of app-1-south to app-1",
    "stop app-1-south",
]


def given(service: str) -> dict:
    return json.loads((EXAMPLES / "incident-response" / f"{service}.json").read_text("utf-8"))


def done(folder, *lines: str, service: str) -> bool:
    """Whether this, and in this order, is what was done to the world after somebody was told."""
    log = (folder / "outside-world" / "incident-response.log").read_text("utf-8").splitlines()
    return log[1:] == [line.format(service) for line in lines]


def incident(run_id: str) -> dict:
    (one,) = json.loads(call("incidents", "list", "--run", run_id, "--json"))
    return one


def test_too_many_calls_go_to_the_small_model_and_a_chat_that_hangs_to_the_phone(folder):
    last = run("incident-response")
    output = last["output"]
    assert (output["action"], output["assessed_by"], output["told_by"]) == ("failover", "fallback", "text message")
    assert output["database"] == {"leads": "south", "record": "checkout.example.org -> south"}
    found = steps(last["run"])
    assert found["/assess"]["error"]["kind"] == "rate_limit"
    assert found["/assess/~fallback/small_model"]["output"]["label"] == "failover"
    assert found["/tell"]["error"]["kind"] == "timeout"
    assert done(folder, *UP, "{0}.example.org points to south", service="checkout")


def test_an_answer_that_cannot_be_read_is_read_again_and_what_is_not_healthy_is_undone_in_reverse(folder):
    last = run("incident-response", given=given("search"), code=1)
    assert (last["status"], last["error"]["kind"]) == ("compensated", "unhealthy")
    found = steps(last["run"])
    assert found["/assess/~fallback/read_again"]["output"] == {"action": "failover", "severity": "high"}
    assert found["/act/hosts/0/standby"]["status"] == found["/act/database/lead"]["status"] == "compensated"
    moved = ["{0}.example.org points to south", "{0}.example.org points to north"]
    assert done(folder, *UP, *moved, *BACK, service="search")


def test_a_locked_zone_waits_for_a_person_who_overrides_the_lock(folder):
    last = run("incident-response", given=given("payments"), code=4)
    assert last["status"] == "suspended"
    assert done(folder, *UP, service="payments")
    waiting = incident(last["run"])
    assert (waiting["path"], waiting["kind"]) == ("/act/database/name", "zone_locked")
    call("incidents", "retry", waiting["id"], "-i", "override:=true", "--as", "ana")
    assert shown(last["run"])["output"]["database"]["record"] == "payments.example.org -> south"
    assert done(folder, *UP, "{0}.example.org points to south", service="payments")
    call("incidents", "retry", waiting["id"], code=1)


def test_a_locked_zone_waits_for_a_person_who_has_everything_undone(folder):
    last = run("incident-response", given=given("payments"), code=4)
    call("incidents", "compensate", incident(last["run"])["id"], "--comment", "the lock is right")
    assert shown(last["run"])["status"] == "compensated"
    assert done(folder, *UP, *BACK, service="payments")


def test_a_run_that_was_let_fail_goes_on_by_a_rerun_that_was_planned_and_confirmed(folder):
    last = run("incident-response", given=given("payments"), code=4)
    call("incidents", "fail", incident(last["run"])["id"])
    assert shown(last["run"])["status"] == "failed"
    rerun = ("runs", "rerun", last["run"], "--from", "/act/database/name", "-i", "override:=true")
    plan = json.loads(call(*rerun, "--json"))
    assert plan["executes"][0]["path"] == "/act/database/name"
    assert plan["repeats"] == []
    call(*rerun, "--confirm", "000000000000", code=1)
    assert done(folder, *UP, service="payments")
    call(*rerun, "--confirm", plan["hash"])
    assert shown(last["run"])["output"]["database"]["record"] == "payments.example.org -> south"
    assert done(folder, *UP, "{0}.example.org points to south", service="payments")
