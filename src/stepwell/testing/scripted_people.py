"""Scripted people: they decide, send events and settle incidents, as the scripts say and when they say so.

The law of the file: every act goes the way in which a person's act goes, through the engine; what the engine refuses
is kept, and the next act comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.engine.incidents import Action
from stepwell.errors import StepwellError
from stepwell.journal import path as paths
from stepwell.testing.fitting import fitting
from stepwell.testing.scripts import Answer, bare

if TYPE_CHECKING:
    from stepwell.engine.engine import Engine
    from stepwell.ports import Wait
    from stepwell.testing.scripted_world import ScriptedWorld

Json: TypeAlias = Any


class ScriptedPeople:
    """Acts on the waits of one run. `changed` is called after each act, and when one has been refused."""

    def __init__(self, world: ScriptedWorld, changed: Callable[[], None]) -> None:
        self.refused: list[str] = []
        self.waiting: dict[str, Wait] = {}
        """Waits for which nobody has an act (any more), by path."""
        self.acts = 0
        """How many acts there were, refused ones included."""
        self._world = world
        self._changed = changed
        self._engine: Engine | None = None
        self._acting: dict[str, asyncio.Task[None]] = {}
        self._next: dict[str, int] = {}

    @property
    def busy(self) -> bool:
        """Whether an act is still to come."""
        return any(not task.done() for task in self._acting.values())

    def use(self, engine: Engine) -> None:
        """Act through this engine from now on; what was about to be done through another is begun again."""
        self._engine = engine
        self._acting.clear()

    def opened(self, wait: Wait) -> None:
        """A wait is there; it is acted upon once, however often this is told."""
        if wait.id not in self._acting and wait.kind != "timer":
            self._acting[wait.id] = asyncio.get_running_loop().create_task(self._act_on(wait))

    async def _act_on(self, wait: Wait) -> None:
        place = bare(wait.path.partition("/!")[0])
        while (answer := self._answer(wait, place)) is not None:
            await asyncio.sleep(answer.delay)
            assert self._engine is not None
            if (await self._engine.wait(wait.id)).status != "pending":
                break
            try:
                await self._act(answer, wait)
            except StepwellError as refusal:
                self.refused.append(f"{wait.path}: {refusal}")
            self._next[place] = self._next.get(place, 0) + 1
            self.acts += 1
            self._changed()
            if (await self._engine.wait(wait.id)).status != "pending" or wait.kind == "event":
                return
        else:
            self.waiting[wait.path] = wait
        self._changed()

    def _answer(self, wait: Wait, place: str) -> Answer | None:
        """What is done next for a wait. The last answer repeats for another round, but not within one."""
        script = self._world.answers().find(wait.path.partition("/!")[0])
        acts = [answer for answer in script.acts if _fits(answer, wait.kind)] if script else []
        if not acts:
            return _usual(wait) if self._world.people_agree else None
        rounds = sum(int(segment.partition("#")[2] or 1) - 1 for segment in wait.path.split("/") if "#" in segment)
        at = max(self._next.get(place, 0), min(rounds, len(acts) - 1))
        if at < len(acts):
            return acts[at]
        begun = self._next.setdefault(f"{place}\0{wait.id}", self._next.get(place, 0))
        return acts[-1] if begun == self._next.get(place, 0) and paths.round_number(wait.path) > 1 else None

    async def _act(self, answer: Answer, wait: Wait) -> None:
        engine = self._engine
        assert engine is not None
        if answer.word == "decision":
            await engine.decide(wait.id, answer.value, comment=answer.comment, data=answer.data, by=answer.by)
        elif answer.word == "event":
            await engine.send_event(wait.topic, answer.value)
        else:
            await act_on_incident(engine, wait, answer)


async def act_on_incident(engine: Engine, wait: Wait, answer: Answer) -> None:
    """Settle an incident as an operator would."""
    action = Action(answer.value, answer.edits, answer.output)
    await engine.incidents.settle(wait.id, action, by=answer.by)


def _fits(answer: Answer, kind: str) -> bool:
    return {"approval": "decision", "event": "event", "incident": "action"}.get(kind) == answer.word


def _usual(wait: Wait) -> Answer | None:
    """What happens where nothing is scripted and something must: people agree, and events come."""
    if wait.kind == "approval":
        form = (wait.request or {}).get("form")
        return Answer("decision", "approved", data=fitting(form) if form else None)
    return Answer("event", None) if wait.kind == "event" else None
