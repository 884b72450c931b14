"""The storm over a workflow with everything in it: workers killed, their clocks set, people and operators at work.

The law of the file: what every run has come to is compared with a reference execution, in which nobody is killed and
no clock is set, and with what its number says (`fate.py`); what was charged is asked of the payment service.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.chaos.crew import Crew
from tests.chaos.everything.board import PEOPLE
from tests.chaos.everything.fate import input_of
from tests.chaos.everything.figures import Figures, Plan, as_record
from tests.chaos.everything.judging import Outcome, count, judge_charges, judge_ends, looking, read, same
from tests.chaos.everything.operator import ask
from tests.chaos.ledger import compare, read_ledger
from tests.chaos.member import Member
from tests.chaos.storm import ended, integrity

__all__ = ["Plan", "as_record", "storm"]
PROJECT = Path(__file__).parent / "project"


async def storm(plan: Plan, folder: Path) -> Figures:
    """Run the storm and the reference, and compare. Everything is kept in `folder`."""
    began = time.monotonic()
    figures = Figures(runs=plan.runs)
    calm, jumps = folder / "calm", folder / "jumps"
    async with _payments(plan.pause, calm, folder) as port:
        environ = _environ(plan, folder / "storm.ledger", port)
        environ |= {"CHAOS_CALM": str(calm), "CHAOS_PAUSE": str(plan.pause), "CHAOS_JUMPS": str(jumps)}
        environ["CHAOS_FAULT"] = plan.fault
        roles = {"worker": plan.workers, "board": plan.boards, "operator": plan.operators}
        async with _crew(folder / "storm.db", environ, roles) as crew:
            chance = random.Random(plan.seed)
            while (left := plan.kills - len(crew.deaths)) > 0:
                await crew.start(_next(plan, len(crew.deaths)))
                await asyncio.sleep(chance.uniform(0.05, 2 * plan.interval))
                await crew.kill(chance, left)
            figures.open_at_the_last_kill = plan.runs - await ended(crew)
            calm.touch()
            await crew.start(_next(plan, plan.kills))
            await _all_ended(crew, plan)
        report = await asyncio.to_thread(ask, port, "/report")
    found = await read(crew.database)
    figures.kills, figures.contradicted = len(crew.deaths), crew.contradicted
    figures.jumps = len(jumps.read_text("utf-8").splitlines())
    told = compare(read_ledger(folder / "storm.ledger"), {}, crew.deaths)
    figures.hit, figures.cut_off, figures.owners = told.hit, told.cut_off, told.unexcused
    figures.damaged = integrity(crew.database)
    count(found, report, crew, figures)
    judge_charges(found, report, figures)
    judge_ends(found, crew, figures)
    same(found, await _reference(plan, folder), figures)
    figures.seconds = time.monotonic() - began
    return figures


def _next(plan: Plan, kills: int) -> dict[str, dict[str, int | str]]:
    """The runs that are started after so many kills: at every moment some are at their beginning and others charge."""
    most = plan.runs if kills >= plan.kills else plan.runs * (kills + plan.kills // 10 + 1) // plan.kills
    return {str(n): input_of(n, long=plan.nap) for n in range(min(most, plan.runs))}


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
    async with looking(database) as engine:
        await engine.people.add(PEOPLE)
    async with Crew(database, environ, roles=roles, project=PROJECT, workflow="everything.yaml") as crew:
        yield crew


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
    return await read(crew.database)
