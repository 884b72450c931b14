"""W6: what it takes to start the command line, for a run of five steps and for its help, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from stepwell.testing.bench import definitions
from stepwell.testing.bench.measure import Measured, middle
from stepwell.testing.bench.workloads import Target, Workload
from stepwell.testing.bench.world import Setup

TOOLS = '''"""The tool of the workload."""

from stepwell.tool import tool


@tool
async def work(number: int, text: str = "") -> dict:
    """Do nothing and say so."""
    return {"number": number + 1, "text": text}
'''


def cached(folder: Path) -> dict[str, str]:
    """The environment of a process that keeps its bytecode, as installed packages do, whatever is said around here."""
    rest = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return rest | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def spent() -> float:
    """Processor seconds of the processes that were started and have ended, user and system."""
    times = os.times()
    return times.children_user + times.children_system


def timed(folder: Path, *given: str) -> float:
    """Wall-clock seconds of `stepwell ...`. Raises RuntimeError if it fails."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "stepwell", *given]
    done = subprocess.run(command, cwd=folder, env=cached(folder), capture_output=True, text=True, check=False)
    taken = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"stepwell {' '.join(given)}: {done.returncode}: {done.stderr}")
    return taken


def cold_starts(setup: Setup, size: int, rounds: int) -> Measured:
    """`rounds` runs of `size` steps, each in a new process; a sample is one command. The first, which fills caches of
    the file system and of bytecode, does not count."""
    (setup.folder / "chain.yaml").write_text(json.dumps(definitions.chain(size)), "utf-8")
    (setup.folder / "tools.py").write_text(TOOLS, "utf-8")
    database = f"sqlite:///{setup.database}"
    command = ("run", "chain.yaml", "--tools", "tools.py", "--database", database, "-i", "number:=1", "--json")
    timed(setup.folder, *command)
    timed(setup.folder, "--help")
    before = spent()
    runs = [timed(setup.folder, *command) for _ in range(rounds)]
    between = spent()
    helps = [timed(setup.folder, "--help") for _ in range(rounds)]
    after = spent()
    facts: dict[str, Any] = {
        "run_s": round(middle(runs), 4),
        "run_cpu_s": round((between - before) / rounds, 4),
        "help_s": round(middle(helps), 4),
        "help_cpu_s": round((after - between) / rounds, 4),
    }
    return Measured(size * rounds, sum(runs), between - before, runs, "a command, start to exit", facts=facts)


async def act(setup: Setup, size: int, rounds: int) -> Measured:
    return await asyncio.to_thread(cold_starts, setup, size, rounds)


COMMANDS = Workload(
    "W6", "cold start as a command", "steps_of_run", 5, 10, act, (Target("run_s", 0.5), Target("help_s", 0.3))
)
