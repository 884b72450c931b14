"""The scripted world: which answer counts, what an unscripted step says, and what a run looks like afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.errors import DefinitionError, InputError
from stepwell.testing import NotScripted, ScriptedWorld, every_crash, run_to_end
from stepwell.testing.fitting import fitting
from stepwell.testing.scripts import Scripts

REFUND = """
workflow: refund
input: {type: object, properties: {amount: {type: number, default: 10}}}
steps:
  - id: classify
    type: llm_call
    prompt: "What is this?"
    output_schema: {type: object, required: [label], properties: {label: {enum: [refund, other]}}}
  - {id: rest, type: wait, for: 3d}
  - id: sign-off
    type: approval
    expires_in: 7d
  - id: each
    type: loop
    over: [1, 2, 3]
    concurrency: 3
    steps:
      - {id: pay, type: tool_call, tool: pay, arguments: {part: "{{loop_item}}"}, retry: {max_attempts: 3}}
  - {id: heard, type: wait, event: pong}
output: {paid: "{{step.each}}", form: "{{step.sign-off.data}}", heard: "{{step.heard.data}}"}
"""
SCRIPTS: dict[str, Any] = {
    "classify": {"output": {"label": "refund"}},
    "sign-off": {"decision": "approved", "by": "ana", "data": {"amount": 9}, "delay": "2h"},
    "pay": [{"error": {"status": 503}}, {"output": "paid", "delay": "2s"}],
    "/each/1/pay": {"output": "at once"},
    "heard": {"event": {"ping": 1}, "delay": "1h"},
}


def test_days_of_waiting_people_and_retries_run_at_once() -> None:
    result = run_to_end(REFUND, {}, SCRIPTS).expect("completed")
    assert result.output == {"paid": ["paid", "at once", "paid"], "form": {"amount": 9}, "heard": {"ping": 1}}
    assert result.steps["sign-off"].output["by"] == "ana"
    assert [result.steps[f"/each/{index}/pay"].attempts for index in range(3)] == [2, 1, 2]
    assert sorted(call["part"] for call in result.called("pay")) == [1, 1, 2, 3, 3]
    assert 3 * 86_400 + 3 * 3600 < result.virtual_seconds < 3 * 86_400 + 4 * 3600
    assert [wait.status for wait in result.approvals] == ["decided"]
    moments = {(moment.path, moment.what): moment.at for moment in result.timeline}
    assert moments["/sign-off", "completed"] - moments["/sign-off", "started"] == pytest.approx(7200, abs=1)


def test_a_crash_after_every_write_changes_nothing() -> None:
    results = every_crash(REFUND, {}, SCRIPTS)
    assert len(results) == results[0].appends + 1 > 15
    assert all(result.status == "completed" and not result.repeated for result in results)


def test_a_crash_that_changes_the_result_is_told_with_both_runs() -> None:
    worlds = iter(["a", "b", "b"])

    def world() -> ScriptedWorld:
        return ScriptedWorld({"ask": {"output": next(worlds)}})

    with pytest.raises(AssertionError, match="after a crash at write 1: output is") as told:
        every_crash({"workflow": "w", "steps": [{"id": "ask", "type": "tool_call", "tool": "t"}]}, {}, world)
    assert "without: run of w: completed" in str(told.value)


def test_a_step_without_a_script_says_how_to_write_one() -> None:
    with pytest.raises(NotScripted) as told:
        run_to_end(REFUND, {}, {})
    assert "classify: {output: {'label': 'refund'}}" in str(told.value)
    assert "✗ /classify failed" in str(told.value)


def test_where_it_is_not_strict_a_schema_is_answered_for_and_people_agree() -> None:
    world = ScriptedWorld({"pay": {"output": 1}}, strict=False, people_agree=True)
    result = run_to_end(REFUND, {}, world).expect("completed")
    assert result.steps["classify"].output == {"label": "refund"}
    assert result.output["paid"] == [1, 1, 1]


def test_a_wait_that_no_script_answers_is_left_open() -> None:
    result = run_to_end(REFUND, {}, {"classify": SCRIPTS["classify"]})
    assert result.status == "failed"  # nobody decided within seven days
    assert result.steps["sign-off"].error["kind"] == "approval_expired"  # type: ignore[index]
    held = run_to_end(REFUND, {}, {name: said for name, said in SCRIPTS.items() if name != "heard"})
    assert (held.status, [wait.path for wait in held.waits]) == ("waiting", ["/heard"])
    with pytest.raises(AssertionError, match="waits: /heard"):
        held.expect("completed")


def test_rounds_read_a_list_on_and_a_path_counts_before_an_id() -> None:
    inner = {"type": "tool_call", "tool": "t", "retry": {"max_attempts": 1}}
    body = [{"id": "draft", **inner}, {"id": "check", **inner}]
    loop = {"id": "box", "type": "loop", "over": [7], "retry": {"max_attempts": 3}, "steps": body}
    scripts = {
        "draft": [{"output": "first"}, {"output": "second"}, {"output": "third"}],
        "check": [{"error": "overloaded"}, {"error": "overloaded"}, {"output": "fine"}],
        "/box#2/0/draft": {"output": "from the path"},
    }
    result = run_to_end({"workflow": "w", "steps": [loop]}, {}, scripts).expect("completed")
    rounds = ["/box/0/draft", "/box#2/0/draft", "/box#3/0/draft"]
    assert [call.path for call in result.calls if call.step == "draft"] == rounds
    assert [result.steps[path].output for path in rounds] == ["first", "from the path", "third"]
    assert result.steps["/box"].round == 3


def test_a_delay_over_the_timeout_is_a_timeout() -> None:
    step = {"id": "slow", "type": "tool_call", "tool": "slow", "timeout": "30s", "retry": {"max_attempts": 1}}
    result = run_to_end({"workflow": "w", "steps": [step]}, {}, {"slow": {"output": 1, "delay": "10m"}})
    assert (result.status, result.error["kind"]) == ("failed", "timeout")  # type: ignore[index]
    assert result.virtual_seconds < 60


def test_an_answer_may_be_a_function_of_the_arguments() -> None:
    step = {"id": "add", "type": "tool_call", "tool": "add", "arguments": {"n": 2}}
    result = run_to_end({"workflow": "w", "steps": [step]}, {}, {"add": {"output": lambda given: given["n"] + 1}})
    assert result.output == 3


def test_an_act_that_the_engine_refuses_is_kept_and_the_next_one_comes() -> None:
    form = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "number"}}}
    steps = [{"id": "ask", "type": "approval", "form": form}]
    acts = [{"decision": "approved", "data": {}}, {"decision": "approved", "data": {"amount": 2}, "delay": "1h"}]
    result = run_to_end({"workflow": "w", "steps": steps}, {}, {"ask": acts}).expect("completed")
    assert result.output["data"] == {"amount": 2}
    assert len(result.refused) == 1
    assert "amount" in result.refused[0]


def test_the_input_is_checked_as_every_input_is() -> None:
    with pytest.raises(InputError):
        run_to_end(REFUND, {"amount": "much"}, SCRIPTS)


def test_all_problems_of_scripts_are_told_at_once_with_their_places() -> None:
    with pytest.raises(DefinitionError) as told:
        Scripts(
            {
                "a": {"outptu": 1},
                "b": [{"decision": "yes"}, {"output": 1, "error": "x"}],
                "c": {"error": {"kid": "timeout"}},
                "d": {"output": 1, "delay": "soon"},
                "e": [],
                "f": 3,
                "g": {"output": 1, "by": "ana"},
            }
        )
    assert [problem.path for problem in told.value.problems] == [
        "/a", "/b/0/decision", "/b/1", "/c/error/kid", "/c/error", "/d/delay", "/e", "/f", "/g/by",
    ]  # fmt: skip
    assert all(problem.severity == "error" for problem in told.value.problems)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (None, None),
        ({"type": "integer", "minimum": 3}, 3),
        ({"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5}, 0.5),
        ({"type": "string", "format": "date"}, "2026-01-05"),
        ({"type": "string", "minLength": 6}, "textxx"),
        ({"type": ["null", "boolean"]}, True),
        ({"type": "array", "items": {"enum": ["a"]}, "minItems": 2}, ["a", "a"]),
        ({"anyOf": [{"const": 4}, {"type": "string"}]}, 4),
        ({"properties": {"n": {"type": "integer"}}, "required": ["n", "free"]}, {"n": 1, "free": None}),
    ],
)
def test_a_value_is_found_that_fits_a_schema(schema: Any, value: Any) -> None:
    assert fitting(schema) == value


def test_what_cannot_be_fitted_is_said() -> None:
    with pytest.raises(ValueError, match="no value was found"):
        fitting({"type": "string", "pattern": "^[0-9]{4}$"})
