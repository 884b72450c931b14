"""Answers by intent: one of two arms, and whichever answered is taken; in Chinese."""

from __future__ import annotations

import pytest
from tests.acceptance.example_runs import run, steps

pytestmark = pytest.mark.models


def test_a_question_about_the_rules_is_looked_up(folder):
    last = run("intent-answers")
    assert last["output"]["意图"] == "library_rules"
    assert last["output"]["依据"] == "逾期"
    assert last["output"]["回答"].startswith("李雷，您好！逾期的书每本每天收费两角")
    assert steps(last["run"])["/arm/chat"]["status"] == "skipped"


def test_small_talk_is_answered_without_looking_anything_up(folder):
    last = run("intent-answers", "-i", "问题=谢谢你的帮助，再见")
    assert last["output"] == {"意图": "small_talk", "回答": "读者，您好！不客气，祝您阅读愉快。", "依据": "闲聊"}
    assert steps(last["run"])["/arm/look_up"]["status"] == "skipped"
