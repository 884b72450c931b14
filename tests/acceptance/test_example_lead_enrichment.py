"""Lead enrichment: races, joins, iterations that are tolerated, routes."""

from __future__ import annotations

import json

from tests.acceptance.example_runs import EXAMPLES, run, steps

LEADS = json.loads((EXAMPLES / "lead-enrichment" / "input.json").read_text("utf-8"))["leads"]


def test_leads_are_looked_up_scored_and_routed_and_the_unknown_one_is_named(folder):
    last = run("lead-enrichment")
    assert last["status"] == "completed"
    assert last["output"] == {
        "routed": [
            {"company": "Tidewater Freight", "route": "hot", "score": 90},
            {"company": "Pinhal Móveis", "route": "normal", "score": 35},
            {"company": "하늘 스튜디오", "route": "else", "score": 4},
        ],
        "unknown": ["asdf"],
    }
    found = steps(last["run"])
    assert found["/enrich/0/firm/registry/ask_registry"]["status"] == "cancelled"
    assert found["/enrich/0/firm/directory/ask_directory"]["status"] == "completed"
    assert found["/enrich/1/firm/registry/ask_registry"]["status"] == "completed"
    assert found["/enrich/1/page"]["attempts"] == 2
    assert found["/enrich/2/page"]["status"] == "failed"
    assert found["/enrich/2/score"]["status"] == "completed"
    assert found["/enrich/3/score"]["status"] == "skipped"
    assert found["/enrich"]["status"] == "completed"


def test_a_list_in_which_most_companies_are_unknown_fails(folder):
    unknown = [lead | {"company": f"nobody {index}", "email": f"n{index}@x"} for index, lead in enumerate(LEADS[:3])]
    last = run("lead-enrichment", given={"leads": [LEADS[0], *unknown]}, code=1)
    assert last["status"] == "failed"
    assert last["error"]["kind"] == "not_found"
    assert all(not path.startswith("/route/") for path in steps(last["run"]))


def test_an_address_that_stands_twice_is_an_error_before_anything_is_asked(folder):
    last = run("lead-enrichment", given={"leads": [LEADS[0], LEADS[0]]}, code=1)
    assert last["error"]["kind"] == "validation_error"
    assert "same key" in last["error"]["message"]
