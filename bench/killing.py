"""W7: the process is killed (SIGKILL) in the middle of W3 and another takes over.

Counted from a file to which every call of a tool writes the step's idempotency key: which steps ran twice, and whether
one that is not idempotent did. `python -m bench.killing FOLDER RUNS first|again` is the process that is killed, and the
one that goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.commands import cached
from stepwell.ports import FINAL
from stepwell.testing.bench import definitions
from stepwell.testing.bench.measure import Measured, middle
from stepwell.testing.bench.workloads import CHAIN, Target, Workload, workflow
from stepwell.testing.bench.world import Setup, bench_engine, watched
from stepwell.tool import IdempotencyKey, tool

CHARGE = 5
"""Which step of each run is not idempotent."""
ROOT = Path(__file__).resolve().parent.parent


def logged_tools(folder: Path) -> tuple[Any, Any]:
    """The two tools, each call of which is written to `calls` before it does anything."""
    calls = os.open(folder / "calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @tool
    async def work(number: int, key: IdempotencyKey, text: str = "") -> dict[str, Any]:
        os.write(calls, f"{key}\n".encode())
        return {"number": number + 1, "text": text}

    @tool(idempotent=False)
    async def charge(number: int, key: IdempotencyKey, text: str = "") -> dict[str, Any]:
        os.write(calls, f"{key}\n".encode())
        return {"number": number + 1, "text": text}

    return work, charge


async def first(setup: Setup, count: int) -> None:
    """Start the runs, write down each that was acknowledged, and carry them on until somebody kills this process."""
    flow = workflow(definitions.chain(CHAIN, charge_at=CHARGE))
    acknowledged = os.open(setup.folder / "acknowledged", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with bench_engine(setup, tools=logged_tools(setup.folder)) as engine:

        async def one() -> None:
            handle = await engine.start(flow, {"number": 1})
            os.write(acknowledged, f"{handle.run_id}\n".encode())
            await watched(handle)

        await asyncio.gather(*(one() for _ in range(count)))
        print("done", flush=True)
        await asyncio.Event().wait()


async def again(setup: Setup, count: int) -> None:
    """Carry on whatever the database holds until nothing is left to do; prints how the runs ended."""
    async with bench_engine(setup, serves=True, tools=logged_tools(setup.folder)) as engine:
        while await engine.runs(statuses=("queued", "running"), limit=1):  # noqa: ASYNC110 -- as another process would see it
            await asyncio.sleep(0.005)
        taken = time.process_time()
        runs = await engine.runs(limit=count + 10)
        ends = {run.id: run.status for run in runs}
        print(json.dumps({"ends": ends, "cpu": taken}), flush=True)


def started(setup: Setup, count: int, role: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.killing", str(setup.folder), str(count), role, setup.durability]
    return subprocess.Popen(command, cwd=ROOT, env=cached(setup.folder.parent), stdout=subprocess.PIPE, text=True)


def killed(setup: Setup, count: int, at: int) -> int:
    """Kill the first process once `at` calls were made; returns how many there were then."""
    process, calls = started(setup, count, "first"), setup.folder / "calls"
    try:
        while process.poll() is None:
            if calls.exists() and calls.read_bytes().count(b"\n") >= at:
                break
            time.sleep(0.001)
        if process.poll() is not None:
            raise RuntimeError(f"the first process ended by itself: {process.returncode}")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return calls.read_bytes().count(b"\n")


def recovered(setup: Setup, count: int, at: int) -> tuple[float, float, dict[str, Any]]:
    """Wall-clock seconds from the start of the second process to the last end of a run, its CPU seconds, and facts."""
    before = killed(setup, count, at)
    began = time.perf_counter()
    process = started(setup, count, "again")
    assert process.stdout is not None
    line = process.stdout.readline()
    taken = time.perf_counter() - began
    process.communicate(timeout=60)
    told = json.loads(line)
    calls = Counter((setup.folder / "calls").read_text("ascii").split())
    repeated = {key: times - 1 for key, times in calls.items() if times > 1}
    acknowledged = (setup.folder / "acknowledged").read_text("ascii").split()
    facts = {
        "recovery_s": round(taken, 3),
        "calls_at_kill": before,
        "calls": sum(calls.values()),
        "twice": sum(repeated.values()),
        "twice_in_one_run_at_most": max(Counter(key.partition("/")[0] for key in repeated).values(), default=0),
        "twice_not_idempotent": sum(times for key, times in repeated.items() if key.endswith(f"/s{CHARGE}")),
        "acknowledged": len(acknowledged),
        "lost": sum(run not in told["ends"] for run in acknowledged),
        "unfinished": sum(status not in {*FINAL, "suspended"} for status in told["ends"].values()),
        "in_doubt": sum(status == "suspended" for status in told["ends"].values()),
        "ends": dict(Counter(told["ends"].values())),
    }
    return taken, told["cpu"], facts


def kills(setup: Setup, size: int, rounds: int) -> Measured:
    """`rounds` times `size` runs killed; a sample is one recovery, process start to the last end of a run.

    The runs go nearly in step: one round is killed before the calls that may not be repeated, one amidst, one behind.
    """
    samples, cpu, steps, each = [], 0.0, 0, []
    for number in range(rounds):
        inner = Setup(setup.folder / str(number), "sqlite", setup.durability)
        inner.folder.mkdir()
        taken, used, facts = recovered(inner, size, CHARGE * size + number % 3 * size // 2)
        samples.append(taken)
        cpu += used
        steps += facts["calls"] - facts["calls_at_kill"]
        each.append(facts)
    whole = {
        "recovery_s": round(middle(samples), 3),
        "twice_not_idempotent": sum(facts["twice_not_idempotent"] for facts in each),
        "lost": sum(facts["lost"] for facts in each),
        "each": each,
    }
    return Measured(steps, sum(samples), cpu, samples, "a recovery, process start to last end", facts=whole)


async def act(setup: Setup, size: int, rounds: int) -> Measured:
    return await asyncio.to_thread(kills, setup, size, rounds)


KILLED = Workload(
    "W7", "killed in W3 and started again", "runs", 200, 3, act,
    (Target("recovery_s", 1.0), Target("twice_not_idempotent", 0), Target("lost", 0)),
)  # fmt: skip

if __name__ == "__main__":
    folder, runs, role, durability = sys.argv[1:]
    chosen = Setup(Path(folder), "sqlite", "normal" if durability == "normal" else "full")
    asyncio.run((first if role == "first" else again)(chosen, int(runs)))
