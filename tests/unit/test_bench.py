"""Every workload runs in a tiny size and says what it must. Nothing is timed here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from stepwell.cli.app import stepwell
from stepwell.testing.bench.measure import Measured, share
from stepwell.testing.bench.workloads import Target

ROOT = Path(__file__).resolve().parent.parent.parent
KEYS = {
    "workload", "store", "steps", "steps_per_s", "cpu_s_per_1000_steps", "p50_ms", "p99_ms", "peak_rss_mb", "load", "targets",
}  # fmt: skip
TINY = [
    ("W1", 3, "sqlite"), ("W2", 3, "sqlite"), ("W3", 3, "sqlite"), ("W4", 10, "sqlite"), ("W5", 4, "sqlite"),
    ("W1", 3, "memory"), ("W2", 3, "memory"), ("W3", 3, "memory"), ("W4", 10, "memory"), ("W5", 4, "memory"),
    ("W5-start", 3, "sqlite"), ("W6", 2, "sqlite"), ("W7", 4, "sqlite"),
]  # fmt: skip


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT))
    import bench.__main__ as bench

    yield bench
    for name in [name for name in sys.modules if name == "bench" or name.startswith("bench.")]:
        del sys.modules[name]


@pytest.mark.parametrize(("name", "size", "store"), TINY, ids=str)
def test_a_workload_ends_with_one_json_object(name, size, store, bench, tmp_path, capsys):
    bench.main([name, "--size", str(size), "--rounds", "1", "--store", store, "--folder", str(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(found) >= KEYS
    assert found["workload"] == name
    assert found["store"] == store
    assert found["steps"] > 0
    assert found["steps_per_s"] > 0
    assert found["p99_ms"] >= found["p50_ms"] > 0
    assert len(found["targets"]) == len(bench.ALL[name].targets)
    assert list(tmp_path.iterdir()) == []


def test_every_run_of_w3_is_listened_to(bench, tmp_path, capsys):
    bench.main(["W3", "--size", "2", "--rounds", "1", "--folder", str(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["events"] >= 2 * found["steps"]  # begun and completed


def test_a_kill_loses_no_run_and_repeats_no_step_that_may_not_be_repeated(bench, tmp_path, capsys):
    bench.main(["W7", "--size", "6", "--rounds", "1", "--folder", str(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["lost"] == 0
    assert found["twice_not_idempotent"] == 0
    assert all(one["twice_in_one_run_at_most"] <= 1 and one["unfinished"] == 0 for one in found["each"])


def test_the_bare_performer_is_told_in_the_answer(bench, tmp_path, capsys):
    bench.main(["W1", "--size", "2", "--rounds", "1", "--performer", "bare", "--folder", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)["performer"] == "bare"


def test_people_are_told_whether_targets_are_met(bench, tmp_path, capsys):
    bench.main(["W1", "--size", "2", "--rounds", "1", "--folder", str(tmp_path)])
    assert "target: ms_per_step at most 0.8" in capsys.readouterr().out


def test_the_command_prints_a_table_and_leaves_nothing_behind(tmp_path):
    result = CliRunner().invoke(stepwell, ["bench", "--store", "memory", "--folder", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.output.splitlines()[1:4]] == ["W1", "W3", "W5"]
    assert list(tmp_path.iterdir()) == []


def test_a_target_is_met_at_its_bound_and_unknown_without_a_figure():
    assert Target("rate", 10, least=True).judged({"rate": 10})["met"] is True
    assert Target("rate", 10, least=True).judged({"rate": 9})["met"] is False
    assert Target("ms", 10).judged({"ms": 11})["met"] is False
    assert Target("ms", 10).judged({"ms": None})["met"] is None


def test_what_was_not_measured_is_null():
    found = Measured(0, 0.0, 0.0, [], "a step").as_json()
    assert found["steps_per_s"] is None
    assert found["cpu_s_per_1000_steps"] is None
    assert found["p50_ms"] is None


@pytest.mark.parametrize(("part", "expected"), [(0.0, 1), (0.5, 51), (0.99, 100), (1.0, 100)])
def test_a_percentile_is_one_of_the_samples(part, expected):
    assert share(range(100, 0, -1), part) == expected
