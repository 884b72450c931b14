"""The test kit with what follows a failure, and with people who vote: each also with a crash after every write."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.testing import Result, ScriptedWorld, every_crash, run_to_end

BOOKING = """
workflow: booking
steps:
  - id: charge
    type: tool_call
    tool: charge
    idempotent: false
    retry: {max_attempts: 1}
    compensate: {steps: [{id: refund, type: tool_call, tool: refund}]}
  - id: book
    type: tool_call
    tool: book
    arguments: {hotel: Inn}
    retry: {max_attempts: 1}
    on_error:
      - {errors: [overloaded], strategy: fallback, steps: [{id: other, type: tool_call, tool: other}]}
      - {errors: [refused], strategy: compensate}
      - {errors: [validation_error], strategy: goto, goto: charge, max_rounds: 2}
      - {strategy: suspend}
  - {id: tell, type: tool_call, tool: tell}
"""


def booked(*book: dict[str, Any]) -> Result:
    scripts = {"charge": {"output": 1}, "refund": {"output": 2}, "other": {"output": 3}, "tell": {"output": 4}}
    return every_crash(BOOKING, {}, {**scripts, "book": list(book)})[0]


def test_a_fallback_is_scripted_by_its_id() -> None:
    result = booked({"error": "overloaded"}).expect("completed")
    assert result.steps["book"].output == 3
    assert result.called("other") == [{}]


def test_what_was_done_is_undone() -> None:
    result = booked({"error": "refused"}).expect("compensated")
    assert (len(result.called("refund")), result.called("tell")) == (1, [])


def test_a_step_is_gone_back_to_and_its_answers_are_read_on() -> None:
    result = booked({"error": "validation_error"}, {"output": "second"}).expect("completed")
    assert result.steps["book"].output == "second"
    assert [call.path for call in result.calls if call.step == "charge"] == ["/charge", "/charge#2"]
    assert [path for path in result.steps if "tell" in path] == ["/tell#2"]  # and no first round that never was


@pytest.mark.parametrize(
    ("acts", "status", "output"),
    [
        ([{"action": "retry", "edits": {"hotel": "Ritz"}, "delay": "1h"}, {"output": "ok"}], "completed", "ok"),
        ([{"action": "provide", "output": 9}], "completed", 9),
        ([{"action": "skip"}], "completed", None),
        ([{"action": "fail", "comment": "no"}], "failed", None),
        ([], "suspended", None),
    ],
)
def test_an_incident_is_settled_as_the_script_says(acts: list[Any], status: str, output: Any) -> None:
    result = booked({"error": "not_found"}, *acts).expect(status)
    assert result.steps["book"].output == output
    if acts and acts[0]["action"] == "retry":
        assert [call["hotel"] for call in result.called("book")] == ["Inn", "Ritz"]


def test_a_call_in_doubt_is_an_incident_for_the_script_too() -> None:
    scripts = {"charge": [{"error": "timeout"}, {"action": "provide", "output": 1}], "book": {"output": 1}}
    result = run_to_end(BOOKING, {}, {**scripts, "tell": {"output": 4}}).expect("completed")
    assert result.steps["charge"].error["kind"] == "in_doubt"  # type: ignore[index]
    assert len(result.called("charge")) == 1


QUORUM = """
workflow: invoice
steps:
  - id: sign
    type: approval
    approvers: {roles: [manager]}
    require: {quorum: 2}
    remind_every: 24h
    escalate: [{after: 2d, to: {roles: [head]}}]
    expires_in: 7d
"""
PEOPLE = [{"name": name, "roles": ["manager"]} for name in ("ana", "ben", "cy")] + [
    {"name": "hedda", "roles": ["head"]}
]


def signed(*acts: dict[str, Any], **world: Any) -> Result:
    return every_crash(QUORUM, {}, lambda: ScriptedWorld({"sign": list(acts)} if acts else {}, people=PEOPLE, **world))[
        0
    ]


def test_votes_are_counted_and_people_are_reminded_in_virtual_days() -> None:
    result = signed(
        {"decision": "approved", "by": "ana", "delay": "1h"},
        {"decision": "approved", "by": "ana"},
        {"decision": "approved", "by": "ben", "delay": "3d"},
    ).expect("completed")
    assert result.steps["sign"].output["by"] == "ben"
    assert len(result.refused) == 1
    assert "ana has decided" in result.refused[0]
    assert {"users": ["hedda"]} in [notice.to for notice in result.notifications]
    assert result.virtual_seconds == pytest.approx(3 * 86_400 + 3600, abs=5)


def test_nobody_who_may_not_decide_decides() -> None:
    result = signed({"decision": "approved", "by": "hedda", "delay": "1h"}, {"decision": "approved", "by": "nobody"})
    assert result.status == "failed"
    assert result.steps["sign"].error["kind"] == "approval_expired"  # type: ignore[index]
    assert len(result.refused) == 2
