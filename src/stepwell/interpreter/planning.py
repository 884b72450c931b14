"""The planner: what a run wants next, worked out from its journal alone.

The law of the file: nothing is performed, read or waited for. The same knowledge gives the same plan, and whoever
records the entries of a plan, does one of the things it wants and plans again comes to where a live run comes. That
a container has used up its time is the one thing that a plan does not see: whoever runs it measures that.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.errors import StepFailed
from stepwell.interpreter.interruption import Interruption, Pause, Withdrawn
from stepwell.interpreter.plan import Plan, Wanted, WantedWait
from stepwell.interpreter.rerun import taken_over
from stepwell.interpreter.runtime import Attempt
from stepwell.interpreter.scope import Scope
from stepwell.interpreter.undo import to_undo
from stepwell.interpreter.whole import conclude
from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft, Entry, Outcome
from stepwell.journal.fold import Fold

if TYPE_CHECKING:
    from stepwell.definition.compile import StepPlan
    from stepwell.interpreter.definition import Definition
    from stepwell.interpreter.effect import Effect
    from stepwell.interpreter.plan import Known
    from stepwell.interpreter.whole import Conclusion

Json: TypeAlias = Any


class Wanting(Interruption):
    """A branch goes no further until something is done: like a call in flight, it holds back whatever awaits it."""


async def frontier(known: Known) -> Plan:
    """What a run wants next. Nothing is awaited but the interpreter's own tasks."""
    runtime = PlanningRuntime(known)
    scope = Scope.root(runtime, known.definition, known.workflow_input, known.facts)
    try:
        outcome = await conclude(scope)
    except (Pause, Wanting):
        outcome = None
    return runtime.plan(outcome)


class PlanningRuntime:
    """The interpreter's runtime over what is known: it records into a list, and blocks where the world would act."""

    def __init__(self, known: Known) -> None:
        self.run_id = known.run_id
        self._known = known
        self._fold = Fold(known.entries, known.fetch)
        self._outcomes = self._fold.outcomes
        self._derived: list[Entry] = []
        self._order = self._fold.order
        self._active = max(known.active, self._fold.active)
        self._tokens = 1
        self._blocked: dict[str, tuple[asyncio.Future[None], Interruption]] = {}
        self._effects: dict[str, Wanted] = {}
        self._waits: dict[str, WantedWait] = {}
        self._names: dict[str, None] = {}
        self._asked = 0
        self._closed: dict[str, str] = {}
        self._used: set[str] = set()

    def plan(self, outcome: Conclusion | None) -> Plan:
        """What the pass has come to."""
        wanted = () if outcome else tuple(self._effects.values())
        waits = () if outcome else tuple(self._waits.values())
        return Plan(tuple(self._derived), wanted, waits, tuple(self._names), outcome)

    # ── what is recorded ──

    def recall(self, path: str) -> Outcome | None:
        return self._outcomes.get(path)

    def has_begun(self, path: str) -> bool:
        return self._fold.has_begun(path)

    def is_live(self, path: str) -> bool:
        """Never: nothing is done in a plan, so no time is used up."""
        del path
        return False

    def round_of(self, path: str) -> int:
        return self._fold.round_of(path)

    def rewinds_by(self, cause: str) -> int:
        return self._fold.rewinds.get(cause, 0)

    def cause_of(self, block: str) -> tuple[str, str] | None:
        return self._fold.causes.get(block)

    def edits_of(self, path: str) -> dict[str, Json]:
        return self._fold.edits.get(path, {})

    def next_round(self, path: str) -> int:
        return self._fold.next_round(path)

    async def take_over(self, rounds: Sequence[tuple[str, str]], *, only_doubts: bool = False) -> None:
        entries = [*self._known.entries, *self._derived]
        for draft in taken_over(entries, rounds, self._known.fetch, only_doubts=only_doubts):
            if self.recall(draft.path) is None:
                self.ride(draft)

    async def undo_plan(self) -> list[dict[str, Json]]:
        return to_undo([*self._known.entries, *self._derived], self._known.fetch)

    async def rewind(self, block: str, cause: str, stale: Sequence[str], failed: Draft) -> None:
        draft = Draft(f"{cause}/~rewound", "rewound", Body(started=self.clock()))
        draft.value({"block": block, "cause": cause, "stale": list(stale)})
        for path in stale:
            left = paths.with_round(path, self.round_of(path))
            troubles = [place for place in [*self._known.open, *self._waits] if paths.is_below(place, left)]
            for place in (left, *troubles):
                await self.withdraw(place, "another round begins")
        self.ride(failed)
        self._fold.rewound(self.ride(draft).value)

    def ride(self, draft: Draft) -> Outcome:
        self._order += 1
        self._derived.append(self._entry(draft))
        outcome = draft.outcome()
        outcome.order = self._order
        self._fold.remember(draft.path, outcome)
        return outcome

    def _entry(self, draft: Draft) -> Entry:
        draft.body.active = round(self.active(), 3)
        return replace(draft.entry(generation=self._known.generation, at=self.clock()), order=self._order)

    async def record(self, draft: Draft, *, outgoing: Sequence[Any] = ()) -> Outcome:
        del outgoing
        return self.ride(draft)

    # ── what is known of the world ──

    async def definition(self, digest: str) -> Definition:
        return self._known.workflows[digest]

    async def resolve(self, name: str, file: str) -> str:
        del file
        while name not in self._known.names:
            self._names[name] = None
            self._asked += 1
            await self._block(f"={self._asked}", Wanting())
        return self._known.names[name]

    def tool_is_idempotent(self, tool: str) -> bool:
        return self._known.repeatable(tool)

    def offer(self, tool: str) -> dict[str, Json]:
        return self._known.offer(tool)

    def active(self) -> float:
        return self._active

    def remaining(self) -> float:
        return self._known.definition.plan.workflow.timeout - self._active

    def clock(self) -> float:
        return self._known.now

    # ── what is wanted ──

    async def perform(
        self, plan: StepPlan, path: str, number: int, effect: Effect, text: bytes, digest: str
    ) -> Attempt:
        place = paths.start(paths.attempt(path, number))
        said = self.recall(place) is not None
        intent = None
        if not effect.again() and not said:
            intent = Draft(place, "started", Body(started=self.clock()), digest=digest)
            intent.arguments(text)
        made = self._known.answers.get((path, number))
        if made is not None:
            if intent is not None:
                self.ride(intent)
            return made
        if not effect.again() and said:
            return _in_doubt(number, self.clock())
        early = replace(self._entry(intent), order=0) if intent else None
        self._effects[path] = Wanted(path, number, effect, digest, plan.timeout, early)
        try:
            await self._block(f"!{path}", Wanting())
        except asyncio.CancelledError:
            del self._effects[path]
            raise
        raise AssertionError(path)

    async def wait(self, path: str, kind: str, request: Json, *, deadline: float = 0.0, on_expire: str = "") -> Outcome:
        place = paths.wait(path)
        if self.recall(place) is None:
            if path not in self._known.messages:
                at = self._opened(path) + deadline if deadline else 0.0
                await self._want(WantedWait(path, kind, request, at, on_expire))
            draft = Draft(place, "succeeded", Body(started=self._opened(path), ended=self.clock()))
            draft.value(self._known.messages[path])
            return self.ride(draft)
        return self._found(place)

    async def wait_event(
        self, path: str, name: str, accept: Callable[[Json], bool], *, deadline: float = 0.0
    ) -> Outcome:
        place = paths.wait(path)
        if self.recall(place) is None:
            event = self._event(name, accept)
            if event is None and path not in self._known.messages:
                at = self._opened(path) + deadline if deadline else 0.0
                await self._want(WantedWait(path, "event", {"event": name}, at, "expired"))
            draft = Draft(place, "succeeded", Body(started=self._opened(path), ended=self.clock()))
            draft.value({"woken_by": "event" if event else "expired", "event": event})
            return self.ride(draft)
        return self._found(place)

    def _event(self, name: str, accept: Callable[[Json], bool]) -> dict[str, Json] | None:
        """The first event that the wait takes; each satisfies one wait."""
        for event in self._known.events:
            if event["name"] == name and event["id"] not in self._used and accept(event):
                self._used.add(event["id"])
                return event
        return None

    def _found(self, place: str) -> Outcome:
        found = self._outcomes[place]
        if found.status == "cancelled":
            reason = found.reason or {}
            raise Withdrawn(str(reason.get("message", "")), str(reason.get("place", "")))
        return found

    def _opened(self, path: str) -> float:
        return self._known.open.get(path, self.clock())

    async def sleep_until(self, path: str, at: float, *, longest: float = math.inf, idle: bool = False) -> None:
        del longest, idle  # no time passes in a plan
        if self.recall(paths.wait(path)) is not None:
            self._found(paths.wait(path))
        elif at <= self.clock():
            return
        elif at - self.clock() > self._known.near or path in self._known.messages or path in self._known.open:
            await self.wait(path, "timer", None, deadline=at - self._opened(path), on_expire="due")
        else:
            self._waits[path] = WantedWait(path, "sleep", at=at)
            await self._block(f"~{path}", Wanting())

    async def _want(self, wait: WantedWait) -> None:
        """Block for good: a message that was known would have been taken."""
        for prefix, reason in self._closed.items():
            if paths.is_within(wait.path, prefix):
                self._withdrawn(wait.path, reason, prefix)
                raise Withdrawn(reason, prefix)
        self._waits[wait.path] = wait
        await self._block(wait.path, Pause())

    async def withdraw(self, path: str, reason: str) -> None:
        self._closed.setdefault(path, reason)
        known = self._known
        waits = [place for place, wait in self._waits.items() if wait.kind != "sleep" and place not in known.open]
        for place in [*known.open, *waits]:
            if not paths.is_within(place, path) or place in known.messages or self.recall(paths.wait(place)):
                continue
            self._waits.pop(place, None)
            self._withdrawn(place, reason, path)
            if (blocked := self._blocked.pop(place, None)) is not None:
                self.enter()
                blocked[0].set_exception(Withdrawn(reason, path))

    def _withdrawn(self, path: str, reason: str, place: str) -> None:
        why = {"type": "withdrawn", "message": reason, "place": place}
        body = Body(status="cancelled", reason=why, ended=self.clock())
        self.ride(Draft(paths.wait(path), "settled", body))

    # ── who can move ──

    async def _block(self, name: str, leaving: Interruption) -> None:
        """Give the token back until nothing can move, then leave; marks keep names apart from paths of waits."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._blocked[name] = future, leaving
        self.leave()
        try:
            await future
        except asyncio.CancelledError:
            if self._blocked.pop(name, None) is not None:
                self.enter()
            self._waits.pop(name.removeprefix("~"), None)
            raise

    def enter(self) -> None:
        self._tokens += 1

    def leave(self) -> None:
        self._tokens -= 1
        if self._tokens or any(future.done() for future, _ in self._blocked.values()):
            return  # one that was cut off takes a token as soon as it runs
        blocked, self._blocked = self._blocked, {}
        for future, leaving in blocked.values():
            self.enter()
            future.set_exception(leaving)


def _in_doubt(number: int, now: float) -> Attempt:
    attempt = Attempt(number, now)
    attempt.failure = StepFailed(
        "in_doubt",
        "the process ended during this call, which may not be repeated: nobody knows whether it took effect",
        retryable=False,
    )
    return attempt
