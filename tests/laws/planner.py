"""Carrying a run on by its plans alone: plan, do one thing that is wanted, record it, plan again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from stepwell.engine.advance import facts
from stepwell.engine.performer import CallContext
from stepwell.errors import StepFailed
from stepwell.interpreter.normalise import normalised_json
from stepwell.interpreter.plan import Known, Plan, Wanted, WantedWait, any_tool
from stepwell.interpreter.planning import frontier
from stepwell.interpreter.runtime import Attempt
from stepwell.interpreter.whole import Conclusion
from stepwell.journal import path as paths
from stepwell.journal.entry import Entry
from stepwell.ports import Run
from tests.laws.worlds import ACCOUNT, Pinned, Script, action_for

Json = Any


def run_of(value: Json) -> Run:
    return Run("r1", ACCOUNT, "law", "", "d", value, "running", created=1_700_000_000.0)


@dataclass
class Driver:
    """A run without store, worker and clock. What it does next is chosen by `chance` among what the plan wants."""

    pinned: Pinned
    script: Script
    value: Json
    chance: Random
    now: float = 1_700_000_000.0
    entries: list[Entry] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    answers: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    messages: dict[str, Json] = field(default_factory=dict)
    open: dict[str, float] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def known(self) -> Known:
        run = run_of(self.value)
        return Known(
            run.id,
            self.pinned.main,
            run.input,
            facts(run),
            tuple(self.entries),
            self.now,
            answers=self.answers,
            messages=self.messages,
            open=self.open,
            names=self.names,
            workflows=self.pinned.children.plans,
            fetch=self.blobs.__getitem__,
            repeatable=lambda name: name != "once",
            offer=lambda name: any_tool(name) | {"idempotent": name != "once"},
        )

    async def to_the_end(self) -> Conclusion:
        """Plan until there is an outcome."""
        for _ in range(2000):
            plan = await self.settled()
            if plan.outcome is not None:
                return plan.outcome
            await self.do(self.chance.choice([*plan.effects, *plan.waits, *plan.names]))
        raise AssertionError("the plans do not end")

    async def settled(self) -> Plan:
        """The plan once everything that follows is in the journal: what has failed lets fewer things start."""
        while (plan := await frontier(self.known())).entries:
            self.keep(plan.entries)
            for wait in plan.waits:
                self.expect(wait)
        for wait in plan.waits:
            self.expect(wait)
        again = await frontier(self.known())
        assert again.entries == ()
        assert told(again) == told(plan)
        return plan

    def expect(self, wait: WantedWait) -> None:
        """Open a wait."""
        if wait.kind != "sleep":
            self.open.setdefault(wait.path, self.now)

    def keep(self, entries: tuple[Entry, ...]) -> None:
        """Append to the journal; what was answered is in it from now on."""
        for entry in entries:
            assert entry.order == len(self.entries) + 1
            self.blobs |= dict(entry.blobs)
            self.entries.append(replace(entry, blobs=()))
            self.open.pop(entry.path.removesuffix("/?"), None)
        self.answers.clear()
        self.messages.clear()

    async def do(self, wanted: Wanted | WantedWait | str) -> None:
        self.now += 0.001
        match wanted:
            case Wanted():
                if wanted.intent is not None:
                    self.keep((replace(wanted.intent, order=len(self.entries) + 1),))
                await self.perform(wanted)
            case str():
                self.names[wanted] = await self.pinned.children.resolve(ACCOUNT, wanted, "")
            case WantedWait(kind="sleep"):
                self.now = max(self.now, wanted.at)
            case WantedWait(kind="timer"):
                self.messages[wanted.path] = {"decision": "due"}
            case WantedWait(kind="incident"):
                self.messages[wanted.path] = action_for(wanted.path, wanted.request["actions"])
            case _:
                self.messages[wanted.path] = {"decision": "approved", "by": "ana", "comment": wanted.path}

    async def perform(self, wanted: Wanted) -> None:
        attempt = Attempt(wanted.number, self.now)
        context = CallContext(ACCOUNT, "r1", wanted.path, wanted.number, f"r1{wanted.path}", 60.0)
        try:
            performed = await self.script.perform(wanted.effect, context)
            attempt.value, attempt.text = normalised_json(performed.value)
        except StepFailed as failure:
            attempt.failure = failure
        attempt.ended = self.now
        self.answers[wanted.path, wanted.number] = attempt

    def paths(self) -> set[str]:
        return {entry.path for entry in self.entries}


def told(plan: Plan) -> Any:
    """What a plan wants, without times."""
    effects = {(one.path, one.number, one.digest, one.intent is not None) for one in plan.effects}
    waits = {(one.path, one.kind) for one in plan.waits}
    return effects, waits, plan.names, plan.outcome


def started(path: str) -> bool:
    """Whether an entry says of an attempt or a container only that it has begun."""
    return path.endswith(paths.start(""))
