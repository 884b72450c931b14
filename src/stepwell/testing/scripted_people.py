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
        self._due: dict[tuple[str, int], float] = {}
        """When each act is due: people do not begin anew because an engine did."""

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
        done = 0
        while (found := self._answer(wait, place, done)) is not None:
            at, answer = found
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(self._due.setdefault((wait.id, at), now + answer.delay) - now)
            assert self._engine is not None
            if (await self._engine.wait(wait.id)).status != "pending":
                break
            try:
                await self._act(answer, wait)
            except StepwellError as refusal:
                self.refused.append(f"{wait.path}: {refusal}")
            self._next[place] = at + 1
            done += 1
            self.acts += 1
            self._changed()
            if (await self._engine.wait(wait.id)).status != "pending" or wait.kind == "event":
                return
        else:
            self.waiting[wait.path] = wait
        self._changed()

    def _answer(self, wait: Wait, place: str, done: int) -> tuple[int, Answer] | None:
        """What is done next for a wait to which so much was `done`, with its place in the list.

        A list is read on by the rounds of a step; the last answer repeats for another round, but not within one.
        """
        script = self._world.answers().find(wait.path.partition("/!")[0])
        acts = [answer for answer in script.acts if _fits(answer, wait.kind)] if script else []
        if not acts:
            usual = _usual(wait) if self._world.people_agree and not done else None
            return None if usual is None else (0, usual)
        rounds = sum(int(segment.partition("#")[2] or 1) - 1 for segment in wait.path.split("/"))
        at = max(self._next.get(place, 0), min(rounds, len(acts) - 1))  # rounds of another process are not counted here
        if at >= len(acts) and (done or not rounds):
            return None
        at = min(at, len(acts) - 1)
        return at, acts[at]

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
