"""Thirty kills of the hundred: `python -m tests.chaos --kills 100` makes them all."""

from __future__ import annotations

from pathlib import Path

from stepwell.journal.entry import Body, Draft, Entry
from tests.chaos.ledger import Call, Death, compare, read_ledger
from tests.chaos.storm import Plan, storm


async def test_thirty_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    plan = Plan(runs=200, kills=30, laps=3, interval=0.8)
    figures = await storm(plan, tmp_path)
    print("\n".join(figures.lines()))
    assert {what: cases[:5] for what, cases in figures.broken_promises().items() if cases} == {}
    assert figures.told.hit >= plan.kills / 3  # else too little was tried
    assert figures.told.cut_off > 0
    assert figures.open_at_the_last_kill > 0
    assert figures.decisions == plan.runs * plan.laps


def recorded(path: str, *, at: float, error: dict[str, str] | None = None) -> Entry:
    draft = Draft(path, "failed" if error else "succeeded", Body(error=error), digest="d")
    return draft.entry(generation=0, at=at)


def killed(at: float) -> dict[int, Death]:
    return {1: Death(at, at + 0.1)}


def test_a_call_after_its_result_was_recorded_is_found() -> None:
    made = {"r/a": [Call("r/a", 1, 1.0, "end"), Call("r/a", 2, 3.0, "end")]}
    told = compare(made, {"r": [recorded("/a", at=2.0)]}, killed(2.5))
    assert len(told.repeated) == 1
    assert told.cut_off == 1


def test_a_second_call_needs_the_death_of_the_first_callers_process() -> None:
    first, second = Call("r/a", 1, 1.0), Call("r/a", 2, 2.0, "end")
    journals = {"r": [recorded("/a", at=3.0)]}
    assert len(compare({"r/a": [first, second]}, journals, {}).unexcused) == 1
    assert len(compare({"r/a": [first, second]}, journals, killed(2.5)).unexcused) == 1
    assert len(compare({"r/a": [first, second]}, journals, killed(0.5)).unexcused) == 1
    assert compare({"r/a": [first, second]}, journals, killed(1.5)).unexcused == []


def test_a_call_that_said_that_it_failed_may_be_followed_by_another() -> None:
    made = {"r/a": [Call("r/a", 1, 1.0, "fail"), Call("r/a", 1, 2.0, "end")]}
    assert compare(made, {"r": [recorded("/a", at=3.0)]}, {}).unexcused == []


def test_a_second_charge_has_no_excuse() -> None:
    made = {"r/charge": [Call("r/charge", 1, 1.0), Call("r/charge", 2, 2.0, "end")]}
    assert len(compare(made, {"r": []}, killed(1.5)).twice) == 1


def test_a_result_that_no_tool_gave_is_found_and_doubts_are_counted() -> None:
    doubt = recorded("/charge", at=1.0, error={"kind": "in_doubt"})
    told = compare({"r/b": [Call("r/b", 1, 1.0)]}, {"r": [recorded("/a", at=2.0), recorded("/b", at=2.0), doubt]}, {})
    assert len(told.uncalled) == 2
    assert told.in_doubt == 1


def test_a_line_of_the_ledger_that_a_kill_tore_spoils_no_other(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    file.write_text(
        '\n{"word": "call", "key": "a", "pid": 1, "at": 1.0}\n'
        '\n{"word": "call", "key": "b", "p'
        '\n{"word": "call", "key": "a", "pid": 2, "at": 2.0}\n'
        '\n{"word": "end", "key": "a", "pid": 2, "at": 2.5}\n',
        "utf-8",
    )
    assert read_ledger(file) == {"a": [Call("a", 1, 1.0), Call("a", 2, 2.0, "end")]}
