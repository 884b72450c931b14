"""The workloads W1 to W5: sequence, fan-out, many runs at once, a long loop, runs parked at an approval.

The law of the file: a run that did not complete is an error, never a figure.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.testing.bench import definitions
from stepwell.testing.bench.measure import Measured, Meter, middle, resident
from stepwell.testing.bench.world import Setup, Watched, bench_engine, completed, loaded, watched
from stepwell.tool import tool

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.engine.engine import Engine
    from stepwell.ports import Wait

Json: TypeAlias = Any
Act: TypeAlias = Callable[[Setup, int, int], Awaitable[Measured]]
CHAIN = 10
"""Steps of each run of W3."""
AT_ONCE = 200
"""Runs that are parked at once in W5."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure is meant to be: at most `bound`, or at least if `least`."""

    figure: str
    bound: float
    least: bool = False

    def judged(self, found: dict[str, Json]) -> dict[str, Json]:
        """The target beside the figure; `met` is null where the figure was not measured."""
        value = found.get(self.figure)
        met = None if value is None else value >= self.bound if self.least else value <= self.bound
        return {"figure": self.figure, "at_least" if self.least else "at_most": self.bound, "met": met}


@dataclass(frozen=True, slots=True)
class Workload:
    """`act` measures it with a setup, a size (what it counts says `unit`) and a number of rounds."""

    name: str
    title: str
    unit: str
    size: int
    rounds: int
    act: Act
    targets: tuple[Target, ...] = ()

    async def measure(self, setup: Setup, size: int = 0, rounds: int = 0) -> dict[str, Json]:
        """The object that is printed of it; 0 stands for the workload's own size and rounds.

        Raises RuntimeError if a run did not complete.
        """
        size, rounds = size or self.size, rounds or self.rounds
        measured = await self.act(setup, size, rounds)
        about = {"workload": self.name, "title": self.title, **setup.about(), self.unit: size, "rounds": rounds}
        found = measured.as_json(**about)
        return found | {"targets": [target.judged(found) for target in self.targets]}


def workflow(data: dict[str, Json]) -> LoadedWorkflow:
    """A definition through the loader and all of its checks."""
    return loaded(json.dumps(data))


async def run_once(engine: Engine, flow: LoadedWorkflow, **given: Json) -> Watched:
    """One run to its end or wait."""
    return await watched(await engine.start(flow, {"number": 1, **given}))


async def sequence(setup: Setup, size: int, rounds: int) -> Measured:
    """W1: one run of `size` steps, one after the other; a sample is one step."""
    flow, meter = workflow(definitions.chain(size)), Meter()
    samples: list[float] = []
    events = 0
    async with bench_engine(setup) as engine:
        await run_once(engine, flow)
        for _ in range(rounds):
            meter.start()
            found = await run_once(engine, flow)
            meter.stop()
            completed(found.run)
            samples += found.between()
            events += found.events
    steps = size * rounds
    facts = {"ms_per_step": round(1000 * meter.wall / steps, 4), "events": events}
    return Measured(steps, meter.wall, meter.cpu, samples, "a step, durable to durable", facts=facts)


async def fan_out(setup: Setup, size: int, rounds: int) -> Measured:
    """W2: `size` steps at once and a join; a sample is a whole run. The same as a loop is told beside it."""
    flow, looped, meter = workflow(definitions.fan(size)), workflow(definitions.spread()), Meter()
    samples, as_loop = [], []
    async with bench_engine(setup) as engine:
        await run_once(engine, flow)
        for _ in range(rounds):
            meter.start()
            found = await run_once(engine, flow)
            samples.append(meter.stop())
            completed(found.run)
        for _ in range(rounds):
            began = time.perf_counter()
            completed((await run_once(engine, looped, items=list(range(size)))).run)
            as_loop.append(time.perf_counter() - began)
    facts = {"loop_p50_ms": round(1000 * middle(as_loop), 3)}
    return Measured((size + 2) * rounds, meter.wall, meter.cpu, samples, "a fan-out and its join", facts=facts)


async def many_runs(setup: Setup, size: int, rounds: int) -> Measured:
    """W3: `size` runs of ten steps at once; a sample is one step. Starting them and reading how they ended counts."""
    flow, meter = workflow(definitions.chain(CHAIN)), Meter()
    samples: list[float] = []
    rates: list[float] = []
    used: list[float] = []
    events = 0
    async with bench_engine(setup) as engine:
        await run_once(engine, flow)
        for _ in range(rounds):
            before = meter.cpu
            meter.start()
            found = await asyncio.gather(*(run_once(engine, flow) for _ in range(size)))
            rates.append(CHAIN * size / meter.stop())
            used.append((meter.cpu - before) / (CHAIN * size))
            for one in found:
                completed(one.run)
                samples += one.between()
                events += one.events
    steps = CHAIN * size * rounds
    facts = {
        "loop_cpu_s_per_1000_steps": round(1000 * meter.own / steps, 4),
        "best_round_cpu_s_per_1000_steps": round(1000 * min(used), 4),
        "best_round_steps_per_s": round(max(rates), 1),
        "events": events,
    }
    return Measured(steps, meter.wall, meter.cpu, samples, "a step, durable to durable", rates=rates, facts=facts)


async def long_loop(setup: Setup, size: int, rounds: int) -> Measured:
    """W4: a loop of `size` iterations of two steps; a sample is one step.

    What the last tenth of the iterations cost beside the first is told in processor time, which no neighbour disturbs.
    """
    marks: list[float] = []

    @tool(name="work")
    async def marking(number: int, text: str = "") -> dict[str, Json]:
        marks.append(time.process_time())
        return {"number": number + 1, "text": text}

    flow, meter, tenth = workflow(definitions.loop()), Meter(), max(1, size // 10)
    samples, firsts, lasts, walls = [], [], [], []
    async with bench_engine(setup, tools=(marking,)) as engine:
        await run_once(engine, flow, items=list(range(min(size, 50))))
        for _ in range(rounds):
            marks.clear()
            meter.start()
            found = await run_once(engine, flow, items=list(range(size)))
            walls.append(meter.stop())
            completed(found.run)
            samples += found.between("/s")
            firsts.append(marks[2 * tenth - 1] - marks[0])
            lasts.append(marks[-1] - marks[-2 * tenth])
    first, last = middle(firsts), middle(lasts)
    facts = {
        "loop_s": round(middle(walls), 4),
        "first_tenth_cpu_ms": round(1000 * first, 3),
        "last_tenth_cpu_ms": round(1000 * last, 3),
        "growth": round(last / first, 3) if first else None,
    }
    return Measured(2 * size * rounds, meter.wall, meter.cpu, samples, "a step, durable to durable", facts=facts)


async def parked_runs(setup: Setup, size: int, rounds: int) -> Measured:
    """W5: `size` runs parked at an approval; a sample is one resume, from the decision to the end of the run.

    100 of them (or as many as there are) are resumed one after the other, in each round. Only one database is filled.
    """
    flow, parking, resuming = workflow(definitions.approval()), Meter(), Meter()
    samples: list[float] = []
    async with bench_engine(setup) as engine:
        await park(engine, flow, min(size, AT_ONCE))  # what so many at once take is not what a parked run keeps
        before, on_disk = resident(), disk(setup)
        parking.start()
        await park(engine, flow, size)
        parking.stop()
        after, grown = resident(), disk(setup)
        for _ in range(rounds):
            chosen = (await engine.waits())[:100]
            resuming.start()
            samples += [await resume(engine, wait) for wait in chosen]
            resuming.stop()
    resumed = len(samples)
    facts = {
        "parked_per_s": round(size / parking.wall, 1),
        "cpu_ms_per_parked": round(1000 * parking.cpu / size, 4),
        "cpu_ms_per_resumed": round(1000 * resuming.cpu / resumed, 4),
        "memory_bytes_per_run": None if before is None or after is None else round((after - before) / size),
        "disk_bytes_per_run": None if on_disk is None or grown is None else round((grown - on_disk) / size),
    }
    steps, wall, cpu = 2 * size + 2 * resumed, parking.wall + resuming.wall, parking.cpu + resuming.cpu
    return Measured(steps, wall, cpu, samples, "a resume, decision to end", facts=facts)


async def park(engine: Engine, flow: LoadedWorkflow, count: int) -> None:
    """Start so many runs and wait until each has parked at its approval."""
    for first in range(0, count, AT_ONCE):
        parked = await asyncio.gather(*(run_once(engine, flow) for _ in range(min(AT_ONCE, count - first))))
        if any(one.run.status != "pending_approval" for one in parked):
            raise RuntimeError(f"runs did not park: {sorted({one.run.status for one in parked})}")


async def resume(engine: Engine, wait: Wait) -> float:
    """Approve a wait and carry its run on to its end; the seconds that it took."""
    began = time.perf_counter()
    await engine.decide(wait.id, "approved")
    found = await watched(await engine.resume(wait.run_id))
    taken = time.perf_counter() - began
    completed(found.run)
    return taken


def disk(setup: Setup) -> int | None:
    """Bytes of the database's pages, the log folded in; None for a store without a file."""
    if setup.store != "sqlite":
        return None
    import sqlite3

    reading = sqlite3.connect(setup.database)
    try:
        return int(
            reading.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]
        )
    finally:
        reading.close()


WORKLOADS: dict[str, Workload] = {
    one.name: one
    for one in (
        Workload("W1", "one run in sequence", "steps_of_run", 100, 10, sequence, (Target("ms_per_step", 0.8),)),
        Workload("W2", "fan-out and join", "width", 100, 20, fan_out, (Target("p50_ms", 20),)),
        Workload(
            "W3", "runs of ten steps at once", "runs", 200, 10, many_runs,
            (Target("steps_per_s", 7000, least=True), Target("cpu_s_per_1000_steps", 0.15)),
        ),
        Workload(
            "W4", "loop of two steps", "iterations", 1000, 5, long_loop,
            (Target("loop_s", 0.6), Target("growth", 1.1)),
        ),
        Workload(
            "W5", "runs parked at an approval", "runs", 1000, 1, parked_runs,
            (Target("memory_bytes_per_run", 1024), Target("p50_ms", 3)),
        ),
    )
}  # fmt: skip
