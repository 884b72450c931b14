"""`stepwell worker`: runs go on by themselves, each with the tools of its own project."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WORKFLOW = """
workflow: w
steps:
- {id: g, type: approval, title: "go?"}
- {id: t, type: tool_call, tool: greet, arguments: {name: Ana}}
- {id: w, type: wait, event: paid, match: "event.data.order == 7"}
output: {said: "{{step.t}}", paid: "{{step.w.data.sum}}"}
"""
TOOLS = """
import stepwell


@stepwell.tool
def greet(name: str) -> str:
    return f"hello {name}"
"""


def stepwell(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stepwell", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Path]:
    """A folder with a database that a worker without any tools of its own serves."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    database = f"sqlite:///{tmp_path}/runs.db"
    with subprocess.Popen(
        [sys.executable, "-m", "stepwell", "worker", "--database", database],
        cwd=elsewhere,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("serving")
        yield tmp_path
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def until(folder: Path, run: str, status: str) -> dict[str, Any]:
    for _ in range(400):
        found = json.loads(
            stepwell(folder, "runs", "show", run, "--json", "--database", f"sqlite:///{folder}/runs.db").stdout
        )
        if found["status"] == status:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{found['status']} is not {status}: {found['error']}")


def test_a_worker_carries_a_run_on_after_a_decision_and_an_event_with_the_tools_of_its_project(worker: Path):
    (worker / "w.yaml").write_text(WORKFLOW)
    (worker / "tools.py").write_text(TOOLS)
    database = ("--database", f"sqlite:///{worker}/runs.db")
    started = stepwell(worker, "run", "w.yaml", "--tools", "tools.py", "--json", *database)
    assert started.returncode == 3, started.stderr
    run = json.loads(started.stdout.splitlines()[-1])["run"]
    approval = json.loads(stepwell(worker, "approvals", "list", "--json", *database).stdout)[0]["id"]
    assert stepwell(worker, "approvals", "approve", approval, *database).returncode == 0
    until(worker, run, "waiting")
    assert stepwell(worker, "events", "send", "paid", "--data", '{"order": 7, "sum": 12}', *database).returncode == 0
    assert until(worker, run, "completed")["output"] == {"said": "hello Ana", "paid": 12}


def test_a_run_whose_tools_are_gone_is_stuck_and_goes_on_when_they_are_back(worker: Path):
    (worker / "w.yaml").write_text(WORKFLOW)
    (worker / "tools.py").write_text(TOOLS)
    database = ("--database", f"sqlite:///{worker}/runs.db")
    started = stepwell(worker, "run", "w.yaml", "--tools", "tools.py", "--json", *database)
    run = json.loads(started.stdout.splitlines()[-1])["run"]
    (worker / "tools.py").rename(worker / "away.py")
    approval = json.loads(stepwell(worker, "approvals", "list", "--json", *database).stdout)[0]["id"]
    assert stepwell(worker, "approvals", "approve", approval, *database).returncode == 0
    found = until(worker, run, "stuck")
    assert "tools.py" in found["error"]["message"]
    (worker / "away.py").rename(worker / "tools.py")
    resumed = stepwell(worker, "runs", "resume", run, *database)
    assert resumed.returncode == 5, resumed.stderr


def test_a_run_whose_tools_are_gone_can_be_cancelled(worker: Path):
    (worker / "w.yaml").write_text(WORKFLOW)
    (worker / "tools.py").write_text(TOOLS)
    database = ("--database", f"sqlite:///{worker}/runs.db")
    started = stepwell(worker, "run", "w.yaml", "--tools", "tools.py", "--json", *database)
    run = json.loads(started.stdout.splitlines()[-1])["run"]
    (worker / "tools.py").unlink()
    assert stepwell(worker, "runs", "cancel", run, *database).returncode == 0
    assert until(worker, run, "cancelled")["error"]["kind"] == "cancelled"
