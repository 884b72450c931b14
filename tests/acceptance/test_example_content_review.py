"""Content review: a loop until a person approves, with what was said before at hand."""

from __future__ import annotations

import pytest
from tests.acceptance.example_runs import call, open_approval, run, shown, steps

pytestmark = pytest.mark.models


def decide(run_id: str, word: str, *arguments: str) -> dict:
    """Decide the open review in another process; what it showed."""
    wait = open_approval(run_id)
    call("approvals", word, wait["id"], *arguments)
    return wait


def test_remarks_are_worked_in_until_the_editor_approves(folder):
    last = run("content-review", code=3)
    first = decide(last["run"], "reject", "--comment", "shorter, please")
    second = decide(last["run"], "approve", "-d", "headline=Water at the foot of the stair")
    assert first["title"] == "Publish “How a stepwell keeps water”? (draft 1 of 3)"
    assert "this is the first draft" in first["show"]["your_last_remark"]
    assert second["title"].endswith("(draft 2 of 3)")
    assert second["show"]["your_last_remark"] == "shorter, please"
    assert len(second["show"]["draft"]) < len(first["show"]["draft"])
    assert first["show"]["teaser"].split("\n")[0] in first["show"]["draft"]

    finished = shown(last["run"])
    assert finished["status"] == "completed"
    assert finished["output"]["drafts"] == 2
    assert finished["output"]["remarks"] == ["shorter, please", ""]
    assert finished["output"]["url"].startswith("https://magazine.example/")
    found = steps(last["run"])
    assert found["/outcome/publish"]["output"]["headline"] == "Water at the foot of the stair"
    assert found["/rounds/0/draft"]["output"]["text"] == first["show"]["draft"]


def test_three_rejections_end_with_the_desk_and_nothing_is_published(folder):
    last = run("content-review", code=3)
    for remark in ("say where the first one was built", "shorter", "no"):
        decide(last["run"], "reject", "--comment", remark)
    finished = shown(last["run"])
    assert finished["status"] == "completed"
    assert finished["output"] == {
        "url": None,
        "drafts": 3,
        "remarks": ["say where the first one was built", "shorter", "no"],
    }
    found = steps(last["run"])
    assert found["/outcome/publish"]["status"] == "skipped"
    assert found["/outcome/tell_desk"]["status"] == "completed"
    assert "Say where the first one was built." in found["/rounds/1/draft"]["output"]["text"]
