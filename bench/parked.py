"""100,000 runs parked at an approval: what starting beside them costs in time and memory, and resuming one of them.

A new process opens the database and serves it, once with hardly any parked runs and once with all of them.
`python -m bench.parked DATABASE-FOLDER` is that process.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from stepwell.testing.bench import definitions
from stepwell.testing.bench.measure import Measured, Meter, middle, resident
from stepwell.testing.bench.workloads import AT_ONCE, Target, Workload, disk, park, resume, workflow
from stepwell.testing.bench.world import Setup, bench_engine

ROOT = Path(__file__).resolve().parent.parent
FEW = 20


async def opened(setup: Setup) -> dict[str, Any]:
    """What a process that serves the database sees: start-up, memory, resumes."""
    wall, cpu = time.perf_counter(), time.process_time()
    async with bench_engine(setup, serves=True) as engine:
        await engine.runs(limit=1)
        start, start_cpu = time.perf_counter() - wall, time.process_time() - cpu
        await asyncio.sleep(1.0)
        settled, memory = time.process_time() - cpu - start_cpu, resident()
    async with bench_engine(setup) as engine:  # one that does not serve: who resumes a run is then known
        chosen = (await engine.waits())[:FEW]
        samples = [await resume(engine, wait) for wait in chosen]
        resumed = time.process_time()
    return {
        "start_ms": round(1000 * start, 2),
        "start_cpu_ms": round(1000 * start_cpu, 2),
        "first_second_cpu_ms": round(1000 * settled, 2),
        "resident_mb": None if memory is None else round(memory / 1e6, 1),
        "resume_p50_ms": round(1000 * middle(samples), 2),
        "cpu_s": resumed,
        "samples": samples,
    }


def beside(setup: Setup) -> dict[str, Any]:
    """The same, in a process of its own."""
    command = [sys.executable, "-m", "bench.parked", str(setup.folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def act(setup: Setup, size: int, rounds: int) -> Measured:
    """Park `size` runs, then open the database in a new process `rounds` times; a sample is one resume."""
    if setup.store != "sqlite":
        raise RuntimeError("runs in memory are not there for another process")
    flow, meter = workflow(definitions.approval()), Meter()
    async with bench_engine(setup) as engine:
        await park(engine, flow, rounds * FEW + 1)
    few = [await asyncio.to_thread(beside, setup) for _ in range(rounds)]
    async with bench_engine(setup) as engine:
        await park(engine, flow, AT_ONCE)
        before, held = disk(setup), resident()
        meter.start()
        await park(engine, flow, size)
        meter.stop()
        after, holds = disk(setup), resident()
    many = [await asyncio.to_thread(beside, setup) for _ in range(rounds)]
    samples = [sample for found in many for sample in found["samples"]]
    assert before is not None
    assert after is not None
    facts: dict[str, Any] = {
        "parked_per_s": round(size / meter.wall, 1),
        "disk_bytes_per_run": round((after - before) / size),
        "memory_bytes_per_run": None if held is None or holds is None else round((holds - held) / size),
    }
    for name in ("start_ms", "start_cpu_ms", "first_second_cpu_ms", "resident_mb", "resume_p50_ms"):
        facts[name] = middle([found[name] for found in many])
        facts[f"{name}_beside_few"] = middle([found[name] for found in few])
    facts["start_growth"] = round(facts["start_cpu_ms"] / facts["start_cpu_ms_beside_few"], 2)
    return Measured(2 * size, meter.wall, meter.cpu, samples, "a resume, decision to end", facts=facts)


PARKED = Workload(
    "W5-start", "starting beside parked runs", "runs", 100_000, 3, act,
    (Target("memory_bytes_per_run", 1024), Target("resume_p50_ms", 3), Target("start_growth", 1.5)),
)  # fmt: skip

if __name__ == "__main__":
    print(json.dumps(asyncio.run(opened(Setup(Path(sys.argv[1]))))))
