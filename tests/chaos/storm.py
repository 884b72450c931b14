"""The storm: runs that are worked on by several processes while SIGKILL ends one of them after the other.

What is looked at afterwards: the acknowledgements that the crew heard, the journals, and the ledger that the tools
wrote. What ought to have come out is asked of a reference execution of the same runs, in a database of its own, with
nobody killed.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from stepwell.journal.entry import Entry, decode, read_body
from stepwell.ports import FINAL, Run
from stepwell.stores.sqlite import SqliteRunStore
from tests.chaos.crew import Crew
from tests.chaos.ledger import ONCE, Verdict, compare, read_ledger

Json: TypeAlias = Any
ACCOUNT = "default"


@dataclass(frozen=True, slots=True)
class Plan:
    """How many runs and kills; `interval` is the mean between kills and `pause` that of a call's duration (seconds)."""

    runs: int = 200
    kills: int = 100
    workers: int = 3
    deciders: int = 2
    interval: float = 1.0
    pause: float = 1.0
    laps: int = 6
    seed: int = 0
    patience: float = 300.0
    """Seconds that the runs get to end once nobody is killed any more."""
    nap: str = "31s"
    """How long every fourth run waits for a timer."""
    fault: str = ""
    """One of `faults.py`: a promise ought to be broken then."""


@dataclass(slots=True)
class Figures:
    """What came out. The lists name each single case; all of them ought to be empty."""

    runs: int = 0
    kills: int = 0
    open_at_the_last_kill: int = 0
    entries: int = 0
    decisions: int = 0
    seconds: float = 0.0
    told: Verdict = field(default_factory=Verdict)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    contradicted: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def broken_promises(self) -> dict[str, list[str]]:
        """Every case against a promise, by which promise."""
        told = self.told
        return {
            "finished steps repeated": told.repeated,
            "steps begun by two owners": told.unexcused,
            "calls that may not be repeated, repeated": told.twice,
            "results without a call": told.uncalled,
            "runs lost": self.lost,
            "runs in a wrong state": self.wrong,
            "acknowledgements contradicted": self.contradicted,
            "damage to the database": self.damaged,
        }

    def lines(self) -> list[str]:
        """For people."""
        told = self.told
        runs = f"{self.runs} runs ({self.open_at_the_last_kill} open at the last kill)"
        again = f"{told.cut_off} of them cut off and made again, {told.in_doubt} reported as in doubt"
        said = [
            f"{self.kills} kills ({told.hit} of processes that had made calls), {runs}, {self.seconds:.0f} s",
            f"{told.calls} calls, {again}, {self.decisions} decisions, {self.entries} journal entries",
        ]
        said += [f"{what}: {len(cases)}" for what, cases in self.broken_promises().items()]
        return said + [f"  {case}" for cases in self.broken_promises().values() for case in cases[:5]]


@dataclass(slots=True)
class Outcome:
    """Runs with their journals, by the name of their start."""

    runs: dict[str, Run]
    journals: dict[str, list[Entry]]
    values: dict[str, dict[str, Json]]
    deciders: dict[str, str]
    """Whose decision counts, by wait."""


async def storm(plan: Plan, folder: Path) -> Figures:
    """Run the storm and the reference, and compare. Everything is kept in `folder`."""
    began = time.monotonic()
    figures = Figures(runs=plan.runs)
    calm = folder / "calm"
    calm.unlink(missing_ok=True)
    environ = {"CHAOS_LEDGER": str(folder / "storm.ledger"), "CHAOS_CALM": str(calm), "CHAOS_PAUSE": str(plan.pause)}
    environ["CHAOS_FAULT"] = plan.fault
    crew = Crew(folder / "storm.db", environ, roles={"worker": plan.workers, "decider": plan.deciders})
    async with crew:
        await crew.start(inputs(plan, long=plan.nap))
        chance = random.Random(plan.seed)
        while (left := plan.kills - len(crew.deaths)) > 0:
            await asyncio.sleep(chance.uniform(0.05, 2 * plan.interval))
            await crew.kill(chance, left)
        figures.open_at_the_last_kill = plan.runs - await ended(crew)
        calm.touch()
        await _all_ended(crew, plan)
    found = await read(crew.database)
    figures.kills, figures.contradicted = len(crew.deaths), crew.contradicted
    figures.decisions = len(found.deciders)
    figures.entries = sum(map(len, found.journals.values()))
    _acknowledged(crew, found, figures)
    journals = {run.id: found.journals[name] for name, run in found.runs.items()}
    figures.told = compare(read_ledger(folder / "storm.ledger"), journals, crew.deaths)
    figures.damaged = integrity(crew.database)
    _same(found, await reference(plan, folder, found), figures)
    figures.seconds = time.monotonic() - began
    return figures


def inputs(plan: Plan, *, long: str) -> dict[str, dict[str, Json]]:
    """The input of every run, by the name of its start."""
    laps = list(range(1, plan.laps + 1))
    return {str(n): {"n": n, "laps": laps, "nap": long if n % 4 == 0 else "100ms"} for n in range(plan.runs)}


async def reference(plan: Plan, folder: Path, found: Outcome) -> Outcome:
    """The same runs with nobody killed; what the storm left in doubt is in doubt here as well."""
    doubt = folder / "doubt"
    doubt.write_text("\n".join(_doubtful(found)), "utf-8")
    environ = {"CHAOS_LEDGER": str(folder / "reference.ledger"), "CHAOS_DOUBT": str(doubt)}
    async with Crew(folder / "reference.db", environ, roles={"worker": 1, "decider": 1}) as crew:
        await crew.start(inputs(plan, long="100ms"))
        await _all_ended(crew, plan)
    return await read(crew.database)


async def read(database: Path) -> Outcome:
    """Everything that a database holds."""
    store = SqliteRunStore.open(database)
    try:
        runs = {run.idempotency_key: run for run in await store.runs(ACCOUNT, limit=100_000)}
        journals = {name: await store.history(ACCOUNT, run.id) for name, run in runs.items()}
        waits = await store.waits(ACCOUNT, pending_only=False, kind="approval", limit=1_000_000)
        deciders = {wait.id: (wait.decision or {}).get("by", "") for wait in waits}
        return Outcome(runs, journals, {name: values(entries) for name, entries in journals.items()}, deciders)
    finally:
        await store.close()


def values(entries: list[Entry]) -> dict[str, Json]:
    """What every step, iteration and container came to, by path, without what may differ from time to time."""
    told = {}
    for entry in entries:
        if any(mark in entry.path for mark in ("/~", "/@", "/?")) or entry.path.startswith("/race"):
            continue
        body = read_body(entry)
        value = decode(body.value)
        if entry.path.endswith("/gate"):
            value = value["approved"]
        told[entry.path] = (entry.kind, body.status, value, (body.error or {}).get("kind"))
    return told


def _doubtful(found: Outcome) -> list[str]:
    marks = []
    for name, told in found.values.items():
        for path, (_, _, _, kind) in told.items():
            if path.endswith(ONCE) and kind == "in_doubt":
                lap = int(path.split("/")[2]) + 1
                marks.append(f"{name}/{lap}")
    return marks


async def ended(crew: Crew) -> int:
    def count() -> int:
        connection = sqlite3.connect(f"file:{crew.database}?mode=ro", uri=True, timeout=30)
        try:
            marks = ", ".join("?" * len(FINAL))
            return int(connection.execute(f"SELECT count(*) FROM run WHERE status IN ({marks})", FINAL).fetchone()[0])
        finally:
            connection.close()

    return await asyncio.to_thread(count)


async def _all_ended(crew: Crew, plan: Plan) -> None:
    """Wait until everything that was to be started has ended; whoever is not patient enough finds it lost."""
    deadline = time.monotonic() + plan.patience
    while time.monotonic() < deadline:
        if len(crew.started) == plan.runs and await ended(crew) >= plan.runs:
            return
        await asyncio.sleep(0.25)


def _acknowledged(crew: Crew, found: Outcome, figures: Figures) -> None:
    """Every start and decision that was acknowledged is there, and every run has ended."""
    there = {run.id: run for run in found.runs.values()}
    for name, run_id in crew.started.items():
        if run_id not in there:
            figures.lost.append(f"run {run_id} ({name}) was acknowledged and is not there")
    if len(crew.started) < figures.runs:
        figures.lost.append(f"{figures.runs - len(crew.started)} starts were never acknowledged")
    for run in there.values():
        if run.status not in FINAL:
            figures.lost.append(f"run {run.id} has not ended: it is {run.status}, {run.error}")
    for wait, by in crew.decided.items():
        if found.deciders.get(wait) != by:
            figures.contradicted.append(f"{by} decided {wait}, and {found.deciders.get(wait)!r} counts")


def _same(found: Outcome, expected: Outcome, figures: Figures) -> None:
    """Every run is in the state, and came to the values, of the reference execution."""
    for name, run in expected.runs.items():
        other = found.runs.get(name)
        if other is None:
            continue
        if (other.status, other.output) != (run.status, run.output):
            figures.wrong.append(
                f"run {name} is {other.status} {other.output} {other.error}, not {run.status} {run.output}"
            )
            continue
        here, there = found.values[name], expected.values[name]
        for path in sorted(here.keys() | there.keys()):
            if here.get(path) != there.get(path):
                figures.wrong.append(f"run {name} {path}: {here.get(path)}, not {there.get(path)}")


def integrity(database: Path) -> list[str]:
    connection = sqlite3.connect(database)
    try:
        said = [row[0] for row in connection.execute("PRAGMA integrity_check").fetchall()]
        doubled = connection.execute(
            "SELECT run, path, generation, count(*) FROM journal GROUP BY run, path, generation HAVING count(*) > 1"
        ).fetchall()
    finally:
        connection.close()
    return [line for line in said if line != "ok"] + [f"entries of one place: {row}" for row in doubled]


def as_record(plan: Plan, figures: Figures) -> Mapping[str, Json]:
    """For machines: counts only."""
    told = figures.told
    counts = {"hit": told.hit, "calls": told.calls, "cut_off": told.cut_off, "in_doubt": told.in_doubt}
    broken = {what: len(cases) for what, cases in figures.broken_promises().items()}
    seen = {"entries": figures.entries, "decisions": figures.decisions, "seconds": round(figures.seconds, 1)}
    return {**asdict(plan), **counts, **seen, "open_at_the_last_kill": figures.open_at_the_last_kill, "broken": broken}
