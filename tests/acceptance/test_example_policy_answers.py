"""Answers from the house rules: a collection that models are given sources of, and what they cite."""

from __future__ import annotations

import json

import pytest
from tests.acceptance.example_runs import EXAMPLES, call, run, steps

pytestmark = pytest.mark.models
RULES = str(EXAMPLES / "policy-answers" / "policies")


@pytest.fixture
def filled(folder):
    added = json.loads(call("kb", "add", RULES, "--collection", "house-rules", "--json"))
    assert [(one["document"], one["status"]) for one in added] == [
        ("remote-work", "added"),
        ("travel", "added"),
        ("访客", "added"),
    ]
    return folder


def test_the_model_is_given_the_right_passage_and_citations_name_what_it_was_given(filled):
    last = run("policy-answers")
    assert last["output"]["from"] == "remote-work"
    assert "twenty days a year" in last["output"]["rule"]
    told = call("runs", "show", last["run"], "--step", "draft")
    assert "sources in house-rules" in told
    assert "[1] remote-work@1  Working elsewhere > Abroad" in told
    draft = steps(last["run"])["/draft"]
    assert last["output"]["cited"] == draft["output"]["citations"]
    assert {one["document"] for one in last["output"]["cited"]} <= {"remote-work", "travel", "访客"}


def test_questions_are_answered_across_languages(filled):
    last = run("policy-answers", "-i", "question=May visitors take pictures in the laboratory?")
    assert last["output"]["from"] == "访客"
    last = run("policy-answers", "-i", "question=フランス出張の日当はいくらですか")
    assert last["output"]["from"] == "travel"
    assert "| Japan" in last["output"]["rule"]


def test_without_the_collection_the_run_is_refused_before_it_starts(folder):
    last = run("policy-answers", code=2)
    assert "there is no collection or document 'house-rules' in the knowledge base" in json.dumps(last)
