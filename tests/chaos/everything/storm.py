"""The storm over a workflow with everything in it: workers killed, their clocks set, people and operators at work.

The law of the file: what every run has come to is compared with a reference execution, in which nobody is killed and
no clock is set, and with what its number says (`fate.py`); what was charged is asked of the payment service.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from stepwell.engine.engine import Engine, open_engine
from stepwell.engine.settings import Settings
from stepwell.ports import FINAL, Run
from tests.chaos.crew import Crew
from tests.chaos.everything.board import PEOPLE
from tests.chaos.everything.fate import input_of, status_of
from tests.chaos.everything.operator import ask
from tests.chaos.ledger import compare, read_ledger
from tests.chaos.member import Member
from tests.chaos.storm import ended, integrity

Json: TypeAlias = Any
PROJECT = Path(__file__).parent / "project"
LEFT_OUT = re.compile(r"^/race|^/~undo|/~verify|^/(pay|fee)/")
"""Paths that depend on the moment: who won a race, the order in which concurrent work is undone, and how often a charge
was looked up. How the steps around them ended is compared all the same."""
SIDELINE = "/sideline"
"""It goes on beside the step that fails: withdrawn or done, as it happens, where the run does not complete."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How many runs and kills; `interval` is the mean between kills and `pause` that of a call's duration (seconds)."""

    runs: int = 200
    kills: int = 100
    workers: int = 3
    boards: int = 2
    operators: int = 2
    interval: float = 1.0
    pause: float = 0.4
    seed: int = 0
    patience: float = 600.0
    """Seconds that the runs get to end once nobody is killed any more."""
    nap: str = "31s"
    """How long every fourth run waits for a timer."""


@dataclass(slots=True)
class Figures:
    """What came out. The lists name each single case; all of them ought to be empty."""

    runs: int = 0
    kills: int = 0
    jumps: int = 0
    open_at_the_last_kill: int = 0
    entries: int = 0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    votes: int = 0
    second: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    settled: Counter[str] = field(default_factory=Counter)
    verified: int = 0
    doubts: int = 0
    service: dict[str, int] = field(default_factory=dict)
    compared: int = 0
    different: list[str] = field(default_factory=list)
    charged: list[str] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    contradicted: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def broken_promises(self) -> dict[str, list[str]]:
        """Every case against a promise, by which promise."""
        return {
            "differences from the reference execution": self.different,
            "charges that are not exactly one": self.charged,
            "steps begun by two owners": self.owners,
            "acknowledgements contradicted": self.contradicted,
            "runs lost": self.lost,
            "damage to the database": self.damaged,
        }

    def lines(self) -> list[str]:
        """For people."""

        def each(counts: Mapping[str, int]) -> str:
            return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "none"

        said = [
            (
                f"{self.runs} runs ({self.open_at_the_last_kill} open at the last kill), {self.kills} kills, "
                f"{self.jumps} clock jumps, {self.seconds:.0f} s; {self.entries} journal entries"
            ),
            f"ended: {each(self.statuses)}",
            f"votes acknowledged: {self.votes}; came second: {self.second}; refused: {each(self.refused)}",
            f"incidents settled: {each(self.settled)}",
            f"charges: {each(self.service)}; in doubt {self.doubts}, settled by verify {self.verified}",
            f"steps compared: {self.compared}",
        ]
        said += [f"{what}: {len(cases)}" for what, cases in self.broken_promises().items()]
        return said + [f"  {case}" for cases in self.broken_promises().values() for case in cases[:10]]


@dataclass(slots=True)
class Outcome:
    """Runs and their steps (status, kind of error, by path), by number."""

    runs: dict[int, Run]
    steps: dict[int, dict[str, tuple[str, str | None]]]
    votes: dict[str, list[str]]
    """Whose votes count, by wait."""
    entries: int = 0
    verified: int = 0
    doubts: int = 0
    charges: dict[str, str] = field(default_factory=dict)
    """How each step that charges ended, by its idempotency key."""


async def storm(plan: Plan, folder: Path) -> Figures:
    """Run the storm and the reference, and compare. Everything is kept in `folder`."""
    began = time.monotonic()
    figures = Figures(runs=plan.runs)
    calm, jumps = folder / "calm", folder / "jumps"
    async with _payments(plan.pause, calm, folder) as port:
        environ = _environ(plan, folder / "storm.ledger", port)
        environ |= {"CHAOS_CALM": str(calm), "CHAOS_PAUSE": str(plan.pause), "CHAOS_JUMPS": str(jumps)}
        roles = {"worker": plan.workers, "board": plan.boards, "operator": plan.operators}
        async with _crew(folder / "storm.db", environ, roles) as crew:
            await crew.start({str(n): input_of(n, long=plan.nap) for n in range(plan.runs)})
            chance = random.Random(plan.seed)
            while (left := plan.kills - len(crew.deaths)) > 0:
                await asyncio.sleep(chance.uniform(0.05, 2 * plan.interval))
                await crew.kill(chance, left)
            figures.open_at_the_last_kill = plan.runs - await ended(crew)
            calm.touch()
            await _all_ended(crew, plan)
        report = await asyncio.to_thread(ask, port, "/report")
    found = await _read(crew.database)
    figures.kills, figures.contradicted = len(crew.deaths), crew.contradicted
    figures.jumps = len(jumps.read_text("utf-8").splitlines())
    figures.owners = compare(read_ledger(folder / "storm.ledger"), {}, crew.deaths).unexcused
    figures.damaged = integrity(crew.database)
    _count(found, report, crew, figures)
    _judge_charges(found, report, figures)
    _judge_ends(found, crew, figures)
    _compare(found, await _reference(plan, folder), figures)
    figures.seconds = time.monotonic() - began
    return figures


def _environ(plan: Plan, ledger: Path, port: int) -> dict[str, str]:
    return {"CHAOS_LEDGER": str(ledger), "CHAOS_PAYMENTS": str(port), "CHAOS_RUNS": str(plan.runs)}


@asynccontextmanager
async def _payments(pause: float, calm: Path, folder: Path) -> AsyncIterator[int]:
    """The port of a payment service that nobody kills."""
    member = await Member.hire("payments", [str(pause), str(calm)], {}, folder / "payments.log")
    try:
        said = await member.hear()
        assert said is not None
        yield said["port"]
    finally:
        await member.bury()


@asynccontextmanager
async def _crew(database: Path, environ: Mapping[str, str], roles: Mapping[str, int]) -> AsyncIterator[Crew]:
    async with _looking(database) as engine:
        await engine.people.add(PEOPLE)
    async with Crew(database, environ, roles=roles, project=PROJECT, workflow="everything.yaml") as crew:
        yield crew


@asynccontextmanager
async def _looking(database: Path) -> AsyncIterator[Engine]:
    async with open_engine(f"sqlite:///{database}", settings=Settings(database.parent)) as engine:
        yield engine


async def _all_ended(crew: Crew, plan: Plan) -> None:
    """Wait until everything that was to be started has ended; whoever is not patient enough finds it lost."""
    deadline = time.monotonic() + plan.patience
    while time.monotonic() < deadline:
        if len(crew.started) == plan.runs and await ended(crew) >= plan.runs:
            return
        await asyncio.sleep(0.25)


async def _reference(plan: Plan, folder: Path) -> Outcome:
    """The same runs with nobody killed and no clock set. The service behaves as badly as it did."""
    calm = folder / "reference.calm"
    calm.touch()
    async with _payments(0.0, calm, folder) as port:
        environ = _environ(plan, folder / "reference.ledger", port) | {"CHAOS_CALM": str(calm)}
        async with _crew(folder / "reference.db", environ, {"worker": 1, "board": 1, "operator": 1}) as crew:
            await crew.start({str(n): input_of(n, long="100ms") for n in range(plan.runs)})
            await _all_ended(crew, plan)
    return await _read(crew.database)


async def _read(database: Path) -> Outcome:
    """Everything that a database tells."""
    async with _looking(database) as engine:
        runs = {int(run.idempotency_key): run for run in await engine.runs(limit=100_000)}
        votes = {}
        for wait in await engine.waits(pending_only=False):
            decision = wait.decision or {}
            votes[wait.id] = [vote["by"] for vote in decision.get("votes") or [decision] if "by" in vote]
        outcome = Outcome(runs, {}, votes)
        for n, run in runs.items():
            outcome.entries += len(await engine.history(run.id))
            outcome.steps[n] = {}
            for step in (await engine.tree(run.id)).steps:
                outcome.steps[n][step.path] = (step.status, (step.error or {}).get("kind"))
                if step.id in {"pay", "fee"}:
                    outcome.charges[f"{run.id}{step.path}"] = step.status
                    outcome.doubts += (step.error or {}).get("kind") == "in_doubt"
                    outcome.verified += step.completed_by == "verify"
    return outcome


def _count(found: Outcome, report: dict[str, Json], crew: Crew, figures: Figures) -> None:
    figures.entries, figures.verified, figures.doubts = found.entries, found.verified, found.doubts
    figures.statuses.update(run.status for run in found.runs.values())
    figures.service = {
        "made": sum(report["charges"].values()),
        "asked for": sum(report["asked"].values()),
        "put off": report["put_off"],
        "hung up": report["hung_up"],
        "answered late": report["answered_late"],
        "paid back": len(report["refunds"]),
    }
    for said in crew.told:
        figures.votes += "vote" in said
        figures.second += "second" in said
        if "refused" in said:
            figures.refused[said["refused"]] += 1
        if "action" in said:
            figures.settled[said["action"]] += 1


def _judge_charges(found: Outcome, report: dict[str, Json], figures: Figures) -> None:
    """Exactly one charge for each step that completed, none for one that did not run, and none that nobody asked for.

    What was completed and then undone was paid back, and nothing else was.
    """
    charges: dict[str, int] = report["charges"]
    for key, status in found.charges.items():
        wanted = 1 if status in {"completed", "compensated"} else 0
        if charges.get(key, 0) != wanted:
            figures.charged.append(f"{key} is {status} and was charged {charges.get(key, 0)} times")
        if (status == "compensated") != (key in report["refunds"]):
            figures.charged.append(f"{key} is {status}; paid back: {key in report['refunds']}")
    figures.charged += [f"{key} was charged and is no step" for key in charges if key not in found.charges]


def _judge_ends(found: Outcome, crew: Crew, figures: Figures) -> None:
    """Every start and vote that was acknowledged is there, and every run ended as its number says."""
    there = {run.id for run in found.runs.values()}
    figures.lost += [f"start {name}: there is no run {run}" for name, run in crew.started.items() if run not in there]
    if len(crew.started) < figures.runs:
        figures.lost.append(f"{figures.runs - len(crew.started)} starts were never acknowledged")
    for n, run in sorted(found.runs.items()):
        if run.status not in FINAL:
            figures.lost.append(f"run {n} has not ended: it is {run.status}, {run.error}")
        elif run.status != status_of(n):
            figures.different.append(f"run {n} is {run.status} {run.error}, and its number says {status_of(n)}")
    for said in crew.told:
        if "vote" in said and said["name"] not in found.votes.get(said["vote"], []):
            votes = found.votes.get(said["vote"])
            figures.contradicted.append(f"{said['name']} voted in {said['vote']}, and there are {votes}")


def _compare(found: Outcome, expected: Outcome, figures: Figures) -> None:
    """Every run has the status, the output and the steps of the reference execution."""
    for n, run in expected.runs.items():
        if (other := found.runs.get(n)) is None:
            continue
        for what, one, two in (
            ("status", other.status, run.status),
            ("output", other.output, run.output),
            ("error", (other.error or {}).get("kind"), (run.error or {}).get("kind")),
        ):
            if one != two:
                figures.different.append(f"run {n} {what}: {one}, not {two}")
        here, there = found.steps[n], expected.steps[n]
        for path in sorted(here.keys() | there.keys()):
            if LEFT_OUT.search(path) or (path == SIDELINE and run.status != "completed"):
                continue
            one, two = here.get(path), there.get(path)
            if path in {"/pay", "/fee"} and one and two:  # the doubt that was settled stays told of it
                one, two = (one[0], None), (two[0], None)
            figures.compared += 1
            if one != two:
                figures.different.append(f"run {n} {path}: {one}, not {two}")


def as_record(plan: Plan, figures: Figures) -> Mapping[str, Json]:
    """For machines: counts only."""
    broken = {what: len(cases) for what, cases in figures.broken_promises().items()}
    counts = {name: value for name, value in asdict(figures).items() if not isinstance(value, list)}
    return json.loads(json.dumps({**asdict(plan), **counts, "broken": broken}))
