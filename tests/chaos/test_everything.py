"""Thirty runs of the two hundred: `python -m tests.chaos --everything --runs 200 --kills 100` makes them all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.chaos.everything.fate import ACTIONS, action_for, status_of
from tests.chaos.everything.figures import Figures, Plan
from tests.chaos.everything.judging import Outcome, judge_charges, judge_ends, same
from tests.chaos.everything.payments import Payments
from tests.chaos.everything.storm import storm


async def test_runs_with_everything_in_them_end_as_in_a_reference_execution(tmp_path: Path) -> None:
    plan = Plan(runs=30, kills=12, pause=0.15)
    figures = await storm(plan, tmp_path)
    print("\n".join(figures.lines()))
    assert {what: cases[:5] for what, cases in figures.broken_promises().items() if cases} == {}
    assert figures.kills == plan.kills
    assert figures.jumps > 0  # else too little was tried
    assert figures.hit > 0
    assert figures.statuses == {"completed": 21, "failed": 5, "compensated": 4}
    assert {word.partition(" ")[0] for word in figures.settled} == set(ACTIONS)
    assert figures.settled["skip (row)"] == plan.runs
    assert figures.compared > 50 * plan.runs
    assert figures.service["made"] == 2 * plan.runs
    assert figures.verified > 0  # what the service did was in doubt, whoever was killed
    assert figures.doubts > figures.verified


def test_numbers_say_every_end_and_every_action() -> None:
    assert {status_of(n) for n in range(30)} == {"completed", "failed", "compensated"}
    assert {action_for(n) for n in range(0, 12, 2)} == set(ACTIONS)


@pytest.mark.parametrize(
    ("status", "charges", "refunds", "found"),
    [
        ("completed", {"k": 1}, {}, 0),
        ("completed", {"k": 2}, {}, 1),
        ("completed", {}, {}, 1),
        ("skipped", {"k": 1}, {}, 1),
        ("compensated", {"k": 1}, {"k": 2}, 0),
        ("compensated", {"k": 1}, {}, 1),
        ("completed", {"k": 1}, {"k": 1}, 1),
        ("completed", {"k": 1, "other": 1}, {}, 1),
    ],
)
def test_charges_that_are_not_exactly_one_are_found(
    status: str, charges: dict[str, int], refunds: dict[str, int], found: int
) -> None:
    figures = Figures()
    outcome = Outcome({}, {}, {}, charges={"k": status})
    judge_charges(outcome, {"charges": charges, "refunds": refunds}, figures)
    assert len(figures.charged) == found


def ended(status: str = "completed", output: object = None) -> SimpleNamespace:
    return SimpleNamespace(id="r", status=status, output=output, error=None)


def outcome(run: SimpleNamespace, **steps: str) -> Outcome:
    told = {f"/{path}": (status, None) for path, status in steps.items()}
    return Outcome({1: run}, {1: told}, {"w": ["ana"]})  # type: ignore[dict-item]


def test_a_run_that_differs_from_the_reference_is_found() -> None:
    expected = outcome(ended(), a="completed", race="completed")
    for found, number in (
        (outcome(ended(), a="completed", race="failed"), 0),
        (outcome(ended("failed"), a="completed"), 1),
        (outcome(ended(output=1), a="completed"), 1),
        (outcome(ended(), a="failed"), 1),
        (outcome(ended(), a="completed", b="completed"), 1),
        (outcome(ended()), 1),
    ):
        figures = Figures()
        same(found, expected, figures)
        assert len(figures.different) == number


def test_a_run_that_has_not_ended_and_a_vote_that_is_gone_are_found() -> None:
    told = [
        {"vote": "w", "name": "ana"},
        {"vote": "w", "name": "ben"},
        {"second": "w", "first": "cyd"},
        {"incident": "i", "action": "skip"},
    ]
    figures = Figures(runs=2)
    judge_ends(outcome(ended("waiting")), SimpleNamespace(started={"1": "r"}, told=told), figures)  # type: ignore[arg-type]
    assert len(figures.lost) == 2  # it, and the start that nobody acknowledged
    assert len(figures.contradicted) == 3


@pytest.mark.parametrize(("n", "statuses", "made"), [(0, [200, 200], 2), (1, [0, 200], 2), (3, [503, 200], 1)])
def test_the_service_charges_as_often_as_it_is_asked(tmp_path: Path, n: int, statuses: list[int], made: int) -> None:
    service = Payments(0.0, tmp_path / "calm")
    assert [service.answer("POST", "/charges", {"key": "r/pay", "n": n})[0] for _ in statuses] == statuses
    assert service.answer("GET", "/charges/r%2Fpay", {})[1] == {"count": made}
