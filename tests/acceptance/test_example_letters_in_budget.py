"""Letters in budget: a run that stops before its tokens are exceeded, and goes on once it may spend more."""

from __future__ import annotations

import json

import pytest
from tests.acceptance.example_runs import call, run, shown

pytestmark = pytest.mark.models


def test_the_run_stops_inside_its_budget_and_goes_on_when_it_is_raised(folder):
    last = run("letters-in-budget", code=4)
    (budget,) = json.loads(call("budget", "show", last["run"], "--json"))
    assert 0 < budget["spent_tokens"] <= budget["tokens"] == 500
    assert "stepwell budget raise" in call("explain", last["run"])
    before = json.loads(call("usage", "--by", "run", "--json"))[0]
    assert before["cost_usd"] == 0

    raised = call("budget", "raise", last["run"], "--tokens", "4000", "--json")
    assert json.loads(raised.splitlines()[0])["continued"][0]["run"] == last["run"]
    finished = shown(last["run"])
    assert finished["status"] == "completed"
    assert len(finished["output"]["answers"]) == 8
    after = json.loads(call("usage", "--by", "run", "--json"))[0]
    assert (after["requests"], before["requests"] < 8) == (8, True)
