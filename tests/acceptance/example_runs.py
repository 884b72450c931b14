"""Running an example as a reader does: the command line, each command in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

Json = Any

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPWELL = [sys.executable, "-m", "stepwell"]


def call(*arguments: str, code: int = 0) -> str:
    """The standard output of a command that ends with `code`."""
    done = subprocess.run([*STEPWELL, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run(example: str, *arguments: str, code: int = 0, given: Json = None) -> Json:
    """Run an example, with its own `input.json` unless arguments or an input are given; the last line of `--json`."""
    folder = EXAMPLES / example
    if given is not None:
        Path("given.json").write_text(json.dumps(given), "utf-8")
        arguments = ("--input", "given.json", *arguments)
    elif "-i" not in arguments:
        arguments = ("--input", str(folder / "input.json"), *arguments)
    return json.loads(call("run", str(folder / "workflow.yaml"), "--json", *arguments, code=code).splitlines()[-1])


def shown(run_id: str) -> Json:
    return json.loads(call("runs", "show", run_id, "--all", "--json"))


def steps(run_id: str) -> dict[str, Json]:
    """The steps of a run, by path."""
    return {step["path"]: step for step in shown(run_id)["steps"]}


def open_approval(run_id: str) -> Json:
    waits = json.loads(call("approvals", "list", "--run", run_id, "--json"))
    assert len(waits) == 1
    return waits[0]
