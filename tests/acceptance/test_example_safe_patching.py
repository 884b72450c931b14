"""Safe patching: what is tolerated, tried again, and rolled back after a failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess

from tests.acceptance.example_runs import EXAMPLES, STEPWELL, call, run, shown, steps

WORKFLOW = str(EXAMPLES / "safe-patching" / "workflow.yaml")


def given(host: str, *, boot: str = "0s") -> dict:
    return {"host": host, "patches": ["kernel-6.1.99"], "boot": boot}


def test_a_machine_is_patched_although_one_patch_does_not_fit_and_the_boot_takes_long(folder):
    last = run("safe-patching", "--watch")
    output = last["output"]
    assert output["applied"] == ["openssl-3.0.15", "kernel-6.1.99"]
    assert {index: error["kind"] for index, error in output["left_out"].items()} == {"2": "refused"}
    assert 2 <= output["checks"] <= 10
    assert not any(path.startswith("/on_failure") for path in steps(last["run"]))


def test_a_machine_that_stays_silent_is_rolled_back_and_somebody_is_woken(folder):
    last = run("safe-patching", "--watch", given=given("db-1"), code=1)
    assert (last["status"], last["error"]["kind"]) == ("failed", "connection_error")
    found = steps(last["run"])
    assert found["/health"]["attempts"] == 10
    assert found["/report"]["status"] == "skipped"
    assert found["/on_failure/restore"]["output"] == {"text": "db-1 is back at snap-db-1."}
    told = found["/on_failure/wake_somebody"]["input"]
    assert told["subject"] == "db-1: connection_error at /health"
    assert told["message"].endswith("db-1 is back at snap-db-1.")


def test_without_a_snapshot_there_is_nothing_to_roll_back(folder):
    last = run("safe-patching", given=given("unknown-9"), code=1)
    found = steps(last["run"])
    assert last["error"]["kind"] == "not_found"
    assert found["/on_failure/restore"]["status"] == "skipped"
    assert found["/on_failure/wake_somebody"]["input"]["message"].endswith("There was nothing to roll back.")


def test_a_run_killed_while_it_boots_goes_on_and_patches_nothing_again(folder):
    (folder / "long.json").write_text(json.dumps(given("web-3", boot="4s")), "utf-8")
    command = [*STEPWELL, "run", WORKFLOW, "--json", "--input", "long.json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        lines = map(json.loads, process.stdout)
        run_id = next(lines)["run"]
        assert any(line.get("path") == "/reboot" and line["event"] == "step_completed" for line in lines)
        os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    before = steps(run_id)["/apply/0/apply_patch"]
    call("runs", "resume", run_id, "--wait")
    assert shown(run_id)["status"] == "completed"
    assert steps(run_id)["/apply/0/apply_patch"] == before


def test_a_second_run_for_a_machine_that_is_being_patched_is_refused(folder):
    (folder / "long.json").write_text(json.dumps(given("web-4", boot="1h")), "utf-8")
    first = json.loads(call("run", WORKFLOW, "--json", "--input", "long.json", code=5).splitlines()[-1])
    call("run", WORKFLOW, "--input", "long.json", code=2)
    call("runs", "cancel", first["run"])
    assert [each["status"] for each in json.loads(call("runs", "list", "--json"))] == ["cancelled"]
