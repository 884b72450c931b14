"""Races: branches of which the first to settle decide for all.

The law of the file: a race is decided by journal order alone. The entry of the branch that decides and the mark that it
is decided go in one append, so that no replay starts a loser again or finds another winner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.errors import StepFailed
from stepwell.interpreter.interruption import Interruption, Withdrawn
from stepwell.interpreter.settle import Crew
from stepwell.journal.entry import Body, Draft

if TYPE_CHECKING:
    from stepwell.definition.step import Location
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Rule:
    """How many branches must complete for the whole to complete, and how many must fail for it to fail."""

    wins: int
    losses: int


class Race:
    """One race at a place, between blocks of the step there."""

    def __init__(self, scope: Scope, blocks: Mapping[str, Location], rule: Rule, width: int) -> None:
        self._scope = scope
        self._blocks = blocks
        self._rule = rule
        self._width = width
        self._mark = f"{scope.path}/~decided"
        self._settled: dict[str, Outcome] = {}
        self._decided = False

    async def run(self) -> dict[str, Outcome | None]:
        """How the branches settled that took part in the decision; None stands for those cut off."""
        scope = self._scope
        recalled = {
            name: found for name in self._blocks if (found := scope.branch(name, self._blocks[name]).recalled())
        }
        if (mark := scope.runtime.recall(self._mark)) is not None:
            return {name: recalled[name] if name in mark.value["by"] else None for name in self._blocks}
        self._settled = dict(sorted(recalled.items(), key=lambda pair: pair[1].order))
        crew = Crew(scope)
        waiting = iter([name for name in self._blocks if name not in recalled])

        async def lane() -> None:
            for name in waiting:
                if self._decided:
                    return
                await self._branch(name, crew)

        for _ in range(min(self._width, len(self._blocks) - len(recalled))):
            crew.spawn(lane())
        try:
            await crew.settled()
        except Withdrawn:
            if not self._decided:  # else the mark is in the journal, and counts on every replay
                raise
        self._give_up_losers()
        return {name: self._settled.get(name) for name in self._blocks}

    async def _branch(self, name: str, crew: Crew) -> None:
        where = self._blocks[name]
        inner = self._scope.branch(name, where)
        try:
            await inner.run_block(where)
            draft = inner.draft("completed", inner.last_output(where))
        except StepFailed as failure:
            draft = inner.failure(failure)
        except Interruption:
            if self._decided:
                return  # how a loser is left is of no interest
            raise  # it waits, or something in or around the race has ended or failed: nothing is decided here
        if self._decided:
            return
        self._decided = self._decides(draft)
        if not self._decided:
            self._settled[name] = await self._scope.runtime.record(draft)
            return
        recorded = self._scope.settle_together([draft, self._marked([*self._settled, name])])
        outcomes = await asyncio.shield(asyncio.ensure_future(recorded))
        self._settled[name] = outcomes[0]
        await self._scope.withdraw("the race was decided")
        crew.cut()

    def _decides(self, draft: Draft) -> bool:
        states = [outcome.status for outcome in self._settled.values()] + [draft.body.status]
        completed = states.count("completed")
        return completed >= self._rule.wins or len(states) - completed >= self._rule.losses

    def _marked(self, names: list[str]) -> Draft:
        mark = Draft(self._mark, "started", Body(started=self._scope.runtime.clock()))
        mark.value({"by": names})
        return mark

    def _give_up_losers(self) -> None:
        for name, where in self._blocks.items():
            inner = self._scope.branch(name, where)
            if name not in self._settled and self._scope.runtime.recall(inner.path) is None:
                self._scope.runtime.ride(inner.draft("cancelled", None, reason={"type": "race_lost"}))
