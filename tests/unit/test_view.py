"""The view of a run, from handmade journals."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from stepwell.definition.workflow import Workflow
from stepwell.journal.entry import Body, Entry
from stepwell.journal.view import build, instant
from stepwell.kinds import discover
from stepwell.ports import Run, Wait

T = 1_700_000_000.0
TOOL = {"type": "tool_call", "tool": "t"}


def workflow(*steps: dict[str, Any], names: tuple[str, ...] = ()) -> Workflow:
    context = {"kinds": discover(), "names": frozenset(names)}
    return Workflow.model_validate({"workflow": "w", "steps": list(steps)}, context=context)


def run(status: str = "completed", **fields: Any) -> Run:
    told = {"id": "r1", "account": "a", "workflow": "w", "version": "1", "definition": "d", "input": {"x": 1}}
    return Run(**told | {"status": status, "created": T, "started": T} | fields)


class Journal:
    """Entries in the order in which they are written."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(self, path: str, kind: str, generation: int = 0, **body: Any) -> Journal:
        for name in ("value", "args"):
            if name in body:
                body[name] = msgspec.Raw(json.dumps(body[name]).encode())
        order = len(self.entries) + 1
        text = msgspec.json.encode(Body(**body))
        self.entries.append(Entry(path, kind, text, order=order, at=T + order, generation=generation))
        return self

    def done(self, path: str, value: Any = None, **body: Any) -> Journal:
        return self.add(path, "succeeded", value=value, attempts=1, **body)

    def settled(self, path: str, status: str = "completed", value: Any = None, **body: Any) -> Journal:
        return self.add(path, "settled", status=status, value=value, **body)


def told(journal: Journal, of: Workflow | None, row: Run | None = None, waits: tuple[Wait, ...] = ()) -> dict[str, Any]:
    return build(row or run(), of, journal.entries, list(waits)).as_json()


def statuses(view: dict[str, Any]) -> dict[str, str]:
    return {step["path"]: step["status"] for step in view["steps"]}


def test_a_completed_step_shows_what_went_in_and_what_came_out() -> None:
    journal = Journal().done("/a", {"n": 1}, args={"q": "x"}, started=T, ended=T + 2)
    view = told(journal, workflow({"id": "a", **TOOL}))
    assert view["steps"] == [
        {
            "path": "/a",
            "id": "a",
            "type": "tool_call",
            "status": "completed",
            "round": 1,
            "index": None,
            "attempts": 1,
            "attempt_log": [
                {
                    "number": 1,
                    "status": "completed",
                    "started_at": instant(T),
                    "ended_at": instant(T + 2),
                    "error": None,
                    "retry_at": None,
                }
            ],
            "input": {"q": "x"},
            "output": {"n": 1},
            "error": None,
            "skip_reason": None,
            "started_at": instant(T),
            "ended_at": instant(T + 2),
        }
    ]


def test_the_run_has_exactly_the_promised_keys() -> None:
    view = told(Journal(), None, run(active=1.2345, usage={"tokens": 3}, ended=T + 9, output=[1]))
    assert {key: value for key, value in view.items() if key != "steps"} == {
        "id": "r1",
        "status": "completed",
        "workflow": {"id": "w", "version": "1", "digest": "d"},
        "input": {"x": 1},
        "output": [1],
        "error": None,
        "waits": [],
        "started_at": "2023-11-14T22:13:20.000Z",
        "ended_at": "2023-11-14T22:13:29.000Z",
        "active_ms": 1234,
        "usage": {"tokens": 3},
    }


def test_integers_of_any_length_and_falsy_values_are_shown_as_they_are() -> None:
    values = [0, False, "", [], {}, None, 12345678901234567890123456789]
    steps = [{"id": f"s{at}", **TOOL} for at in range(len(values))]
    journal = Journal()
    for at, value in enumerate(values):
        journal.done(f"/s{at}", value)
    assert [step["output"] for step in told(journal, workflow(*steps))["steps"]] == values


def test_every_attempt_is_listed_with_its_error_and_when_the_next_was_due() -> None:
    error = {"kind": "rate_limit", "message": "slow down", "retryable": True}
    journal = Journal()
    journal.add("/a/@1", "failed", error=error, started=T, ended=T + 1, retry_at=T + 3)
    journal.add("/a/@2", "failed", error=error, started=T + 3, ended=T + 4, retry_at=T + 8)
    journal.add("/a", "succeeded", value="v", attempts=3, started=T + 8, ended=T + 9)
    (step,) = told(journal, workflow({"id": "a", **TOOL}))["steps"]
    assert step["attempts"] == 3
    assert [(one["number"], one["status"], one["retry_at"]) for one in step["attempt_log"]] == [
        (1, "failed", instant(T + 3)),
        (2, "failed", instant(T + 8)),
        (3, "completed", None),
    ]
    assert step["started_at"] == instant(T)
    assert step["attempt_log"][2]["started_at"] == instant(T + 8)


def test_a_step_between_two_attempts_is_running_and_in_a_parked_run_waiting() -> None:
    journal = Journal().add("/a/@1", "failed", error={"kind": "timeout"}, started=T, ended=T, retry_at=T + 900)
    of = workflow({"id": "a", **TOOL})
    assert statuses(told(journal, of, run("running"))) == {"/a": "running"}
    parked = told(journal, of, run("waiting", wake_at=T + 900))
    assert statuses(parked) == {"/a": "waiting"}
    assert [(wait["kind"], wait["deadline"]) for wait in parked["waits"]] == [("timer", instant(T + 900))]


CHOICE = {
    "id": "c",
    "type": "condition",
    "when": "true",
    "then": [{"id": "yes", **TOOL}],
    "else": [{"id": "no", **TOOL}, {"id": "par", "type": "parallel", "branches": {"l": [{"id": "deep", **TOOL}]}}],
}


def test_steps_of_the_branch_not_taken_are_skipped_with_the_reason_at_any_depth() -> None:
    journal = Journal().add("/c/~start", "started", value={"branch": "then"})
    journal.done("/c/yes", 1).settled("/c", value={"branch": "then", "output": 1})
    view = told(journal, workflow(CHOICE))
    assert statuses(view) == {
        "/c": "completed",
        "/c/no": "skipped",
        "/c/par": "skipped",
        "/c/par/l/deep": "skipped",
        "/c/yes": "completed",
    }
    reasons = [step["skip_reason"] for step in view["steps"] if step["status"] == "skipped"]
    assert reasons == [{"type": "branch_not_taken", "taken": "then"}] * 3


def test_a_named_case_is_found_by_its_name_and_an_unnamed_one_by_its_number() -> None:
    cases = [
        {"when": "false", "steps": [{"id": "x", **TOOL}]},
        {"when": "true", "name": "big", "steps": [{"id": "y", **TOOL}]},
    ]
    of = workflow({"id": "c", "type": "condition", "cases": cases})
    for taken, skipped in (("big", "/c/x"), ("case_0", "/c/y")):
        view = told(Journal().add("/c/~start", "started", value={"branch": taken}), of, run("running"))
        assert [path for path, status in statuses(view).items() if status == "skipped"] == [skipped]


def test_a_skipped_container_has_skipped_steps_for_the_same_reason() -> None:
    reason = {"type": "condition_false", "expression": "1 > 2", "values": {}}
    view = told(Journal().settled("/c", "skipped", reason=reason), workflow(CHOICE))
    assert set(statuses(view).values()) == {"skipped"}
    assert len(view["steps"]) == 5
    assert all(step["skip_reason"] == reason for step in view["steps"])


def test_the_index_is_that_of_the_innermost_iteration_and_iterations_are_no_steps() -> None:
    inner = {"id": "inner", "type": "loop", "over": [1, 2], "steps": [{"id": "leaf", **TOOL}]}
    of = workflow({"id": "outer", "type": "loop", "over": ["a"], "steps": [{"id": "first", **TOOL}, inner]})
    journal = Journal().add("/outer/~start", "started", value={"over": ["a"]}).done("/outer/0/first")
    journal.add("/outer/0/inner/~start", "started", value={"over": [1, 2]})
    for at in range(2):
        journal.done(f"/outer/0/inner/{at}/leaf", at).settled(f"/outer/0/inner/{at}")
    journal.settled("/outer/0/inner").settled("/outer/0").settled("/outer")
    view = told(journal, of)
    assert [(step["path"], step["index"]) for step in view["steps"]] == [
        ("/outer", None),
        ("/outer/0/first", 0),
        ("/outer/0/inner", 0),
        ("/outer/0/inner/0/leaf", 0),
        ("/outer/0/inner/1/leaf", 1),
    ]


def test_a_branch_called_like_a_step_is_no_step() -> None:
    of = workflow({"id": "p", "type": "parallel", "branches": {"a": [{"id": "a", **TOOL}], "b": []}})
    journal = Journal().add("/p/~start", "started", value={}).done("/p/a/a", 1)
    journal.settled("/p/a").settled("/p/b").settled("/p")
    assert statuses(told(journal, of)) == {"/p": "completed", "/p/a/a": "completed"}


def test_rounds_are_steps_of_their_own() -> None:
    journal = Journal().done("/a", 1).done("/a#2", 2)
    view = told(journal, workflow({"id": "a", **TOOL}))
    assert [(step["path"], step["round"], step["output"]) for step in view["steps"]] == [("/a", 1, 1), ("/a#2", 2, 2)]


def test_of_several_generations_the_newest_counts() -> None:
    journal = Journal().add("/a", "failed", error={"kind": "x"}).add("/a", "succeeded", generation=1, value=5)
    (step,) = told(journal, workflow({"id": "a", **TOOL}))["steps"]
    assert (step["status"], step["output"], step["error"]) == ("completed", 5, None)


GATE = {"id": "gate", "type": "approval", "title": "Go?"}


def gate(path: str = "/gate", status: str = "pending", **more: Any) -> Wait:
    return Wait("w1", path, "approval", {"title": "Go?", "show": {"d": 1}}, opened=T + 1, status=status, **more)


def test_an_open_approval_is_pending_shows_its_request_and_is_what_the_run_waits_for() -> None:
    view = told(Journal(), workflow(GATE), run("pending_approval"), (gate(deadline=T + 100),))
    (step,) = view["steps"]
    assert (step["status"], step["input"], step["started_at"]) == (
        "pending_approval",
        {"title": "Go?", "show": {"d": 1}},
        instant(T + 1),
    )
    assert view["waits"] == [
        {
            "id": "w1",
            "kind": "approval",
            "path": "/gate",
            "title": "Go?",
            "status": "pending",
            "opened_at": instant(T + 1),
            "deadline": instant(T + 100),
        }
    ]


def test_a_decided_approval_keeps_the_request_and_is_waited_for_no_more() -> None:
    journal = Journal().add("/gate/?", "succeeded", value={"decision": "approved"})
    journal.settled("/gate", value={"approved": True})
    view = told(journal, workflow(GATE), waits=(gate(status="decided"),))
    assert view["waits"] == []
    assert [(step["path"], step["status"], step["output"]) for step in view["steps"]] == [
        ("/gate", "completed", {"approved": True})
    ]
    assert view["steps"][0]["input"]["title"] == "Go?"


def test_an_approval_is_there_between_its_decision_and_the_pass_that_reads_it() -> None:
    view = told(Journal(), workflow(GATE), run("pending_approval"), (gate(status="decided"),))
    assert statuses(view) == {"/gate": "running"}
    assert view["steps"][0]["started_at"] == instant(T + 1)
    assert view["waits"] == []


def test_a_withdrawn_approval_is_cancelled_and_says_why() -> None:
    reason = {"type": "withdrawn", "message": "branch b failed"}
    of = workflow({"id": "p", "type": "parallel", "branches": {"a": [GATE], "b": [{"id": "t", **TOOL}]}})
    journal = Journal().add("/p/~start", "started", value={}).add("/p/b/t", "failed", error={"kind": "x"}, attempts=1)
    journal.add("/p/a/gate/?", "settled", status="cancelled", reason=reason).settled("/p/a", "cancelled", reason=reason)
    journal.settled("/p", "failed", error={"kind": "x"})
    view = told(journal, of, run("failed"), (gate("/p/a/gate", status="withdrawn"),))
    assert statuses(view) == {"/p": "failed", "/p/b/t": "failed", "/p/a/gate": "cancelled"}
    assert view["steps"][-1]["skip_reason"] == reason


def test_a_timer_belongs_to_the_step_that_sleeps() -> None:
    of = workflow({"id": "nap", "type": "wait", "for": "2h"}, {"id": "a", **TOOL})
    journal = Journal().add("/nap/~start", "started", value={"until": T + 7200}, started=T)
    timer = Wait("t1", "/nap/~sleep", "timer", None, opened=T, deadline=T + 7200)
    view = told(journal, of, run("waiting"), (timer,))
    assert statuses(view) == {"/nap": "waiting"}
    assert [(wait["path"], wait["kind"], wait["deadline"]) for wait in view["waits"]] == [
        ("/nap", "timer", instant(T + 7200))
    ]
    journal.add("/nap/~sleep/?", "succeeded", value=None).settled("/nap", value={"woken_by": "timer"})
    assert statuses(told(journal, of, run("running"))) == {"/nap": "completed"}


def test_a_call_that_may_not_be_repeated_runs_from_its_recorded_intent_on() -> None:
    journal = Journal().add("/a/@1/~start", "started", started=T, args={"cents": 5})
    view = told(journal, workflow({"id": "a", **TOOL}), run("running"))
    assert statuses(view) == {"/a": "running"}
    assert (view["steps"][0]["input"], view["steps"][0]["started_at"]) == ({"cents": 5}, instant(T))


def test_an_open_container_of_a_parked_run_says_what_is_waited_for_inside() -> None:
    of = workflow({"id": "p", "type": "parallel", "branches": {"a": [GATE], "b": [{"id": "t", **TOOL}]}})
    journal = Journal().add("/p/~start", "started", value={}).done("/p/b/t", 1).settled("/p/b")
    waits = (gate("/p/a/gate"),)
    expected = {"/p": "pending_approval", "/p/b/t": "completed", "/p/a/gate": "pending_approval"}
    assert statuses(told(journal, of, run("pending_approval"), waits)) == expected
    assert statuses(told(journal, of, run("running"), waits)) == expected | {"/p": "running"}


def test_a_failed_run_shows_unreached_steps_as_skipped_and_unfinished_ones_as_cancelled() -> None:
    of = workflow({"id": "p", "type": "parallel", "branches": {"l": [{"id": "slow", **TOOL}]}}, {"id": "b", **TOOL})
    journal = Journal().add("/p/~start", "started", value={}).add("/p/l/slow/~start", "started")
    view = told(journal, of, run("failed", error={"kind": "timeout", "message": "m"}))
    assert statuses(view) == {"/p": "cancelled", "/p/l/slow": "cancelled", "/b": "skipped"}
    assert view["steps"][-1]["skip_reason"] == {"type": "upstream_failed"}
    ended = told(Journal().settled("/e"), workflow({"id": "e", "type": "end"}, {"id": "b", **TOOL}))
    assert ended["steps"][-1]["skip_reason"] == {"type": "run_ended"}


def test_steps_that_may_still_come_are_not_listed() -> None:
    view = told(Journal().done("/a"), workflow({"id": "a", **TOOL}, {"id": "b", **TOOL}), run("running"))
    assert statuses(view) == {"/a": "completed"}


def test_a_large_value_is_fetched_where_that_is_possible_and_referred_to_where_not() -> None:
    journal = Journal().add("/a", "succeeded", value_ref="d1", args_ref="d2", attempts=1)
    of = workflow({"id": "a", **TOOL})
    (step,) = build(run(), of, journal.entries, []).as_json()["steps"]
    assert (step["input"], step["output"]) == ({"$ref": "d2"}, {"$ref": "d1"})
    blobs = {"d1": b"[1]", "d2": b'{"q":2}'}
    (step,) = build(run(), of, journal.entries, [], blobs.__getitem__).as_json()["steps"]
    assert (step["input"], step["output"]) == ({"q": 2}, [1])


def test_a_run_whose_definition_is_gone_still_shows_its_steps() -> None:
    journal = Journal().done("/loop/3/leaf", 1).settled("/loop/3").settled("/loop")
    view = told(journal, None)
    assert [(step["id"], step["type"], step["index"]) for step in view["steps"]] == [
        ("loop", "", None),
        ("leaf", "", 3),
    ]


def test_the_order_is_that_of_the_journal_with_containers_before_their_parts() -> None:
    of = workflow({"id": "b", "depends_on": [], **TOOL}, {"id": "a", "depends_on": [], **TOOL})
    assert list(statuses(told(Journal().done("/a").done("/b"), of))) == ["/a", "/b"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, None), (T, "2023-11-14T22:13:20.000Z"), (T + 0.5, "2023-11-14T22:13:20.500Z")]
)
def test_instants_are_utc_with_milliseconds(seconds: float, text: str | None) -> None:
    assert instant(seconds) == text


def test_a_view_of_thirty_thousand_entries_takes_less_than_two_seconds_of_processor_time() -> None:
    from time import process_time

    of = workflow(
        {"id": "l", "type": "loop", "over": "workflow_input.x", "steps": [{"id": "a", **TOOL}, {"id": "b", **TOOL}]}
    )
    journal = Journal().add("/l/~start", "started", value={"over": list(range(10_000))})
    for at in range(10_000):
        journal.done(f"/l/{at}/a", at).done(f"/l/{at}/b", at).settled(f"/l/{at}")
    start = process_time()
    view = told(journal, of, run("running"))
    assert len(view["steps"]) == 20_001
    assert process_time() - start < 10
