"""What the runs came to, held against the payment service, the acknowledgements, their numbers and a reference.

The law of the file: whatever is left out of a comparison is named here, with the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from stepwell.engine.engine import ACCOUNT, Engine, open_engine
from stepwell.engine.settings import Settings
from stepwell.ports import FINAL, Run, Wait
from tests.chaos.crew import Crew
from tests.chaos.everything.fate import status_of
from tests.chaos.everything.figures import Figures

Json: TypeAlias = Any
LEFT_OUT = re.compile(r"^/race|^/~undo|/~verify|^/(pay|fee)/")
"""Paths that depend on the moment: who won a race, the order in which concurrent work is undone, and how often a charge
was looked up. How the steps around them ended is compared all the same."""
SIDELINE = "/sideline"
"""It goes on beside the step that fails: withdrawn or done, as it happens, where the run does not complete."""


@dataclass(slots=True)
class Outcome:
    """Runs and their steps (status, kind of error, by path), by number."""

    runs: dict[int, Run]
    steps: dict[int, dict[str, tuple[str, str | None]]]
    votes: dict[str, list[str]]
    """Whose votes count, by wait."""
    actions: dict[str, str] = field(default_factory=dict)
    """What was done about each incident."""
    settled: Counter[str] = field(default_factory=Counter)
    """Incidents, by what was done about them and on which occasion."""
    entries: int = 0
    verified: int = 0
    doubts: int = 0
    charges: dict[str, str] = field(default_factory=dict)
    """How each step that charges ended, by its idempotency key."""


@asynccontextmanager
async def looking(database: Path) -> AsyncIterator[Engine]:
    """An engine that carries nothing on."""
    async with open_engine(f"sqlite:///{database}", settings=Settings(database.parent)) as engine:
        yield engine


async def read(database: Path) -> Outcome:
    """Everything that a database tells."""
    async with looking(database) as engine:
        runs = {int(run.idempotency_key): run for run in await engine.runs(limit=100_000)}
        votes = {}
        for wait in await _waits(engine, "approval"):
            decision = wait.decision or {}
            votes[wait.id] = [vote["by"] for vote in decision.get("votes") or [decision] if "by" in vote]
        outcome = Outcome(runs, {}, votes)
        for wait in await _waits(engine, "incident"):
            occasion = "undoing" if "undoes" in wait.request else wait.request["step"]
            action = outcome.actions[wait.id] = (wait.decision or {}).get("action", wait.status)
            outcome.settled[f"{action} ({occasion})"] += 1
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


async def _waits(engine: Engine, kind: str) -> list[Wait]:
    return await engine._store.waits(ACCOUNT, kind=kind, pending_only=False, limit=1_000_000)


def count(found: Outcome, report: dict[str, Json], crew: Crew, figures: Figures) -> None:
    figures.entries, figures.verified, figures.doubts = found.entries, found.verified, found.doubts
    figures.settled = found.settled
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


def judge_charges(found: Outcome, report: dict[str, Json], figures: Figures) -> None:
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


def judge_ends(found: Outcome, crew: Crew, figures: Figures) -> None:
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
        if "action" in said and found.actions.get(said["incident"]) != said["action"]:
            action = found.actions.get(said["incident"])
            figures.contradicted.append(f"{said['action']} settled {said['incident']}, and {action} counts")
        if "vote" in said and said["name"] not in found.votes.get(said["vote"], []):
            votes = found.votes.get(said["vote"])
            figures.contradicted.append(f"{said['name']} voted in {said['vote']}, and there are {votes}")
        if "second" in said and said["first"] not in (votes := found.votes.get(said["second"], [])):
            figures.contradicted.append(f"{said['first']} was first in {said['second']}, and there are {votes}")


def same(found: Outcome, expected: Outcome, figures: Figures) -> None:
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
