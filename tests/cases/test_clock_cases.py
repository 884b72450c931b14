"""Cases of clocks that people and machines set, in virtual time (C026, C125, C126)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwell.ports import Verdict
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.stores.sqlite.database import Database
from stepwell.testing import Result, VirtualClock, run_to_end
from stepwell.testing.store_builders import batch, leased

STEP = {"id": "s", "type": "tool_call", "tool": "t", "timeout": "5s"}
RETRY = {"max_attempts": 3, "initial_delay": "500ms", "jitter": 0}
GATE = {"id": "g", "type": "approval", "expires_in": "1h"}
SCRIPTS: dict[str, Any] = {
    "s": [{"error": "timeout"}, {"output": 1, "delay": "2s"}],
    "g": {"decision": "approved", "delay": "30m"},
}


def _shown(result: Result) -> list[float]:
    """Every duration that is shown of a run: of the run, of its steps and of their attempts."""
    pairs = [(result.run.started, result.run.ended)]
    pairs += [(step.started, step.ended) for step in result.tree.steps]
    return [ended - started for started, ended in pairs]


@pytest.mark.parametrize("hours", [-12, 12])
@pytest.mark.parametrize("after", ["0s", "200ms", "1s"])  # before, during a back-off, during a step
def test_c125_a_clock_that_is_set_ends_no_step_early_and_prolongs_no_back_off(hours: float, after: str) -> None:
    clock = VirtualClock()
    clock.jump(hours=hours, after=after)
    workflow = {"workflow": "w", "steps": [{**STEP, "retry": RETRY}]}
    result = run_to_end(workflow, {}, SCRIPTS, clock=clock).expect("completed")
    assert result.steps["s"].attempts == 2
    assert result.virtual_seconds == pytest.approx(2.5, abs=0.01)
    assert min(_shown(result)) >= 0
    assert result.run.active == pytest.approx(2.5, abs=0.01)


@pytest.mark.parametrize("hours", [-12, 12])
def test_c125_a_deadline_is_an_absolute_time_and_one_jump_moves_it_by_no_more(hours: float) -> None:
    clock = VirtualClock()
    began = clock.now()
    clock.jump(hours=hours, after="10m")
    workflow = {"workflow": "w", "steps": [{**STEP, "retry": RETRY}, GATE]}
    result = run_to_end(workflow, {}, {"s": {"output": 1}}, clock=clock)
    [wait] = result.approvals
    assert wait.deadline == pytest.approx(began + 3600, abs=1)
    assert result.steps["g"].error["kind"] == "approval_expired"  # type: ignore[index]
    assert result.virtual_seconds == pytest.approx(max(600, 3600 - hours * 3600), abs=2)
    assert min(_shown(result)) >= 0


@pytest.mark.parametrize("hours", [-12, 12])
def test_c125_a_pause_of_some_seconds_is_not_prolonged_by_a_clock_that_is_set(hours: float) -> None:
    clock = VirtualClock()
    clock.jump(hours=hours, after="1s")
    result = run_to_end({"workflow": "w", "steps": [{"id": "p", "type": "wait", "for": "20s"}]}, {}, {}, clock=clock)
    assert result.expect().virtual_seconds == pytest.approx(20, abs=0.01)


@pytest.mark.parametrize("hours", [-12, 12])
def test_c125_a_crash_and_a_clock_that_was_set_meanwhile_prolong_no_back_off(hours: float) -> None:
    clock = VirtualClock()
    clock.jump(hours=hours, after="100ms")
    workflow = {"workflow": "w", "steps": [{**STEP, "retry": RETRY | {"initial_delay": "20s"}}]}
    result = run_to_end(workflow, {}, SCRIPTS, clock=clock, crash_after=1).expect("completed")
    assert result.virtual_seconds < 60
    assert min(_shown(result)) >= 0


@pytest.mark.parametrize("skew", [-600.0, 600.0])
async def test_c125_hosts_whose_clocks_differ_lose_and_double_no_lease(tmp_path: Path, skew: float) -> None:
    here = SqliteRunStore.open(tmp_path / "runs.db")
    there = SqliteRunStore(Database.open(tmp_path / "runs.db"), clock=lambda: time.time() + skew)
    try:
        lease = await leased(here)
        assert await there.claim("w2", 15.0, run_id="r1") == []
        assert await there.claim("w2", 15.0, limit=9) == []
        assert await here.renew([lease], 15.0) == []
        await here.append(lease, batch("/a"))
        assert await here.release(lease, batch("/b"), Verdict("waiting", wake_at=time.time() - 700))
        [taken] = await there.claim("w2", 15.0, limit=9)
        assert taken.epoch > lease.epoch
        assert await here.renew([lease], 15.0) == [lease]
    finally:
        await there.close()
        await here.close()


@pytest.fixture(params=["UTC", "Asia/Kolkata", "America/St_Johns"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not hasattr(time, "tzset"):
        pytest.skip("the zone of a process cannot be set here")
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize(
    ("start", "until", "hours"),
    [
        ("2025-03-29T12:00:00+01:00", "2025-03-30T03:30:00+02:00", 14.5),  # an hour is missing in Berlin
        ("2025-10-25T12:00:00+02:00", "2025-10-26T03:30:00+01:00", 16.5),  # an hour is doubled
        ("2028-02-28T12:00:00Z", "2028-02-29T12:00:00Z", 24),
    ],
)
def test_c126_instants_and_deadlines_do_not_depend_on_the_zone_of_the_machine(
    start: str, until: str, hours: float
) -> None:
    steps = [{"id": "w", "type": "wait", "until": until}, {**GATE, "expires_in": "24h", "on_expire": "approve"}]
    result = run_to_end({"workflow": "w", "steps": steps}, {}, {}, clock=VirtualClock(start)).expect("completed")
    moments = {(moment.path, moment.what): moment.at for moment in result.timeline}
    assert moments["/w", "completed"] == pytest.approx(hours * 3600, abs=1)
    assert moments["/g", "completed"] == pytest.approx((hours + 24) * 3600, abs=1)
    told = result.tree.as_json()
    times = [told["started_at"], told["ended_at"], *(step["ended_at"] for step in told["steps"])]
    assert all(text.endswith("Z") for text in times)


@pytest.mark.usefixtures("_zone")
def test_c126_a_time_without_an_offset_is_a_typed_error_everywhere() -> None:
    naive = {"id": "w", "type": "wait", "until": "{{step.t}}"}
    tool = {"id": "t", "type": "tool_call", "tool": "t"}
    scripts = {"t": {"output": "2025-03-30T02:30:00"}}
    result = run_to_end({"workflow": "w", "steps": [tool, naive]}, {}, scripts)
    assert (result.status, result.error["kind"]) == ("failed", "validation_error")  # type: ignore[index]
    assert "has no offset" in result.error["message"]  # type: ignore[index]
    compared = {
        "id": "c", "type": "set", "values": {"ok": 1},
        "condition": 'timestamp(step.t) < timestamp("2025-03-30T02:30:00Z")',
    }  # fmt: skip
    result = run_to_end({"workflow": "w", "steps": [tool, compared]}, {}, scripts)
    assert result.error["kind"] == "expression_error"  # type: ignore[index]
    assert "no offset" in result.error["message"]  # type: ignore[index]


def test_c026_waiting_for_a_person_counts_against_no_deadline() -> None:
    steps = [{**GATE, "expires_in": "24h"}, {"id": "act", "type": "tool_call", "tool": "act"}]
    scripts = {"g": {"decision": "approved", "delay": "3h"}, "act": {"output": 1}}
    result = run_to_end({"workflow": "w", "timeout": "5m", "steps": steps}, {}, scripts).expect("completed")
    assert len(result.called("act")) == 1
    assert result.virtual_seconds >= 3 * 3600
    assert result.run.active < 60
