"""The durable runtime: one pass of one run, from its journal and back to it.

The law of the file: it only puts together what ledger, flights and waiting do; nothing is told or gone on with before
it is durable; a pass that has lost its lease records nothing more.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.engine.ancestry import CHAIN, REQUESTER
from stepwell.engine.announcing import Announcer
from stepwell.engine.clock import steady
from stepwell.engine.events import Event, told_by
from stepwell.engine.flight import Flights
from stepwell.engine.ledger import Ledger
from stepwell.engine.performer import CallContext, spent
from stepwell.engine.run_budgets import RunBudgets
from stepwell.engine.telling import Telling
from stepwell.engine.waiting import Waiting, parked
from stepwell.errors import StepFailed
from stepwell.interpreter.interruption import Abort, RunCancelled, RunTimedOut
from stepwell.interpreter.rerun import taken_over
from stepwell.interpreter.runtime import Attempt
from stepwell.interpreter.undo import to_undo
from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft, Entry, Outcome
from stepwell.journal.told import owner
from stepwell.ports import Batch, Lease, Loaded, Message, Outgoing, Wait, WaitKind

if TYPE_CHECKING:
    from stepwell.definition.compile import StepPlan
    from stepwell.engine.world import World
    from stepwell.interpreter.definition import Definition
    from stepwell.interpreter.effect import Effect

Json: TypeAlias = Any

NEAR = 30.0
"""Sleeps up to this many seconds stay in process; longer ones park the run."""
PAST_DEADLINE = 1.0
"""Seconds by which a step may outlive the run's deadline: the deadline ends the run, not the step as a failure."""


class LiveRuntime:
    """The interpreter's runtime over a store. One instance is one pass of one run."""

    def __init__(
        self,
        lease: Lease,
        loaded: Loaded,
        definition: Definition,
        world: World,
        sure: Callable[[], Awaitable[None] | None] = lambda: None,
    ) -> None:
        """`sure` gives what is to be awaited before an effect because the lease may have lapsed unseen, or None."""
        self.run_id = loaded.run.id
        self.seen = 0
        self.usage: dict[str, Json] = dict(loaded.run.usage)
        self.aborted: Abort | None = None
        self.broken: BaseException | None = None
        """Why an append that nobody awaited failed: the pass ends with it."""
        self._run = loaded.run
        self._lease = lease
        self._sure = sure
        self._chain = (*loaded.run.project.get("chain", ()), loaded.run.workflow)
        self._timeout = definition.plan.workflow.timeout
        self._budgets = RunBudgets(loaded.run.id, definition)
        self._world = world
        self.clock = steady(world.clock)
        self._ledger = Ledger(lease, loaded, world.store, self._tell, self.clock, world.clock.monotonic)
        self._flights = Flights(world.performers, self._ledger, self.clock, world.vault)
        self._waiting = Waiting(lease, loaded, world.store, self._ledger, self._tell_wait, world.clock.now)
        self._waiting.on_idle = self._set_idle
        self._cut: list[tuple[str, Attempt]] = []
        self._loop = asyncio.get_running_loop()
        self._announcer = Announcer(self._flights, self._ledger, self._append, self.clock, self.fail)
        self._root: asyncio.Task[Any] | None = asyncio.current_task()
        self._undoing = self._ledger.outcomes.get(paths.start(paths.UNDO)) is not None
        self._deadline = self._loop.call_later(max(0.0, self.remaining()), self.abort, RunTimedOut())

    # ── what is recorded ──

    def recall(self, path: str) -> Outcome | None:
        return self._ledger.outcomes.get(path)

    def has_begun(self, path: str) -> bool:
        return self._ledger.has_begun(path)

    def is_live(self, path: str) -> bool:
        return self._ledger.is_live(path)

    def round_of(self, path: str) -> int:
        return self._ledger.fold.round_of(path)

    def rewinds_by(self, cause: str) -> int:
        return self._ledger.fold.rewinds.get(cause, 0)

    def cause_of(self, block: str) -> tuple[str, str] | None:
        return self._ledger.fold.causes.get(block)

    def edits_of(self, path: str) -> dict[str, Json]:
        return self._ledger.fold.edits.get(path, {})

    def next_round(self, path: str) -> int:
        return self._ledger.fold.next_round(path)

    async def take_over(self, rounds: Sequence[tuple[str, str]], *, only_doubts: bool = False) -> None:
        entries = await self._entries()
        for draft in taken_over(entries, rounds, self._blob, only_doubts=only_doubts):
            if self.recall(draft.path) is None:
                self._ledger.ride(draft, quietly=True)

    async def _entries(self) -> list[Entry]:
        """The whole journal up to now."""
        await self._world.store.append(self._lease, Batch(self.closing()))
        return await self._world.store.history(self._run.account, self.run_id)

    def _blob(self, digest: str) -> bytes:
        return self._world.store.blob_now(self._run.account, digest)

    async def undo_plan(self) -> list[dict[str, Json]]:
        for message in await self._world.store.inbox(self._lease, self.seen):
            self.deliver(message)
        await asyncio.sleep(0)  # a cancel that was acknowledged before counts
        self._undoing = True
        return to_undo(await self._entries(), self._blob)

    async def rewind(self, block: str, cause: str, stale: Sequence[str], failed: Draft) -> None:
        for path in stale:
            left = paths.with_round(path, self.round_of(path))
            troubles = [place for place in self._waiting.pending() if paths.is_below(place, left)]
            for place in (left, *troubles):
                await self.withdraw(place, "another round begins")
        await self._ledger.rewind(block, cause, stale, failed)

    def ride(self, draft: Draft) -> Outcome:
        outcome = self._ledger.ride(draft)
        self._announcer.arm()
        return outcome

    async def record(self, draft: Draft, *, outgoing: Sequence[Outgoing] = ()) -> Outcome:
        return await self._ledger.record(draft, outgoing=outgoing)

    def closing(self) -> list[Entry]:
        """What still rides, for the transaction that ends the pass."""
        return self._ledger.closing()

    # ── what is known ──

    async def definition(self, digest: str) -> Definition:
        assert self._world.definitions is not None
        found = await self._world.definitions.get(self._run.account, digest)
        self._budgets.learn(digest, found)
        return found

    async def resolve(self, name: str, file: str) -> str:
        if self._world.definitions is None:
            raise StepFailed("not_found", f"there is no workflow {name!r}")
        return await self._world.definitions.resolve(self._run.account, name, file)

    def tool_is_idempotent(self, tool: str) -> bool:
        known = self._world.tools.get(tool)
        return known is None or known.idempotent

    def offer(self, tool: str) -> dict[str, Json]:
        known = self._world.tools.get(tool)
        if known is None:
            raise StepFailed("not_found", f"no tool {tool!r} is registered")
        return {
            "name": known.name,
            "description": known.description,
            "parameters": known.parameters,
            "idempotent": known.idempotent,
        }

    def active(self) -> float:
        return self._ledger.active()

    def remaining(self) -> float:
        return math.inf if self._undoing else self._timeout - self._ledger.active()

    # ── effects ──

    async def perform(
        self, plan: StepPlan, path: str, number: int, effect: Effect, text: bytes, digest: str
    ) -> Attempt:
        if (pending := self._sure()) is not None:
            await pending
        attempt = Attempt(number, self.clock())
        if "$" not in path:  # the turns of an agent step are told when they are recorded
            self._emit("step_started", path, {"attempt": number})
        left = max(0.0, self.remaining()) + PAST_DEADLINE
        wanted = effect.word == "model" and self._world.listeners.wants_text(self.run_id)
        telling = Telling(self._emit, path, number, self._world.vault.redactor) if wanted else None
        context = CallContext(
            account=self._run.account,
            run_id=self.run_id,
            path=path,
            attempt=number,
            key=f"{self.run_id}{path}",
            timeout=min(plan.timeout or left, left),
            requester=self._run.requester,
            workflow=self._run.workflow,
            on_queue=attempt.queue,
            on_text=telling,
            knowledge=self._run.project.get("knowledge"),
            epoch=self._lease.epoch,
            limits=self._budgets.at(path, self.recall),
            bounded=not self._undoing,
        )
        self._announcer.arm()
        chained, asked = CHAIN.set(self._chain), REQUESTER.set(self._run.requester)
        try:
            await self._flights.perform(effect, context, attempt, text, digest)
        except asyncio.CancelledError:
            if self.aborted is None and self.broken is None and not self._flights.outlives(path):
                body = Body(status="cancelled", started=attempt.started, ended=self.clock(), attempts=number)
                self.ride(Draft(path, "cancelled", body))
            raise
        finally:
            CHAIN.reset(chained)
            REQUESTER.reset(asked)
            if telling is not None:
                telling.close()
        self._count(attempt.meta)
        return attempt

    async def land(self, grace: float | None) -> None:
        """See `Flights.land`."""
        await self._flights.land(grace)

    def _count(self, meta: dict[str, Json] | None) -> None:
        for name, value in spent(meta or {}).items():
            self.usage[name] = self.usage.get(name, 0) + value

    # ── waiting ──

    async def wait(
        self, path: str, kind: WaitKind, request: Json, *, deadline: float = 0.0, on_expire: str = ""
    ) -> Outcome:
        return await self._waiting.wait(path, kind, request, deadline, on_expire)

    async def wait_event(
        self, path: str, name: str, accept: Callable[[Json], bool], *, deadline: float = 0.0
    ) -> Outcome:
        return await self._waiting.wait_event(path, name, accept, deadline)

    async def sleep_until(self, path: str, at: float, *, longest: float = math.inf, idle: bool = False) -> None:
        if self.recall(paths.wait(path)) is not None:
            await self.wait(path, "timer", None)
            return
        now = self._world.clock.now() if longest == math.inf else self.clock()
        delay = min(at - now, longest)
        if delay <= 0:
            return
        if delay <= NEAR:
            self._ledger.freshen(path)
            if idle:
                await self._waiting.doze(delay)
            else:
                await asyncio.sleep(delay)
        else:
            await self.wait(path, "timer", None, deadline=delay, on_expire="due")

    async def withdraw(self, path: str, reason: str) -> None:
        await self._waiting.withdraw(path, reason)

    def enter(self) -> None:
        self._waiting.enter()

    def leave(self) -> None:
        self._waiting.leave()

    def deliver(self, message: Message) -> None:
        """Take a message from the inbox."""
        self.seen = max(self.seen, message.order)
        if message.kind == "cancel":
            self.abort(RunCancelled(str((message.body or {}).get("reason", ""))))
        else:
            self._waiting.deliver(message)

    @property
    def undelivered(self) -> bool:
        """Whether a message came for a wait of this pass after the pass had been told to pause."""
        return self._waiting.undelivered

    def parked(self) -> tuple[str, float]:
        """The status of the run when this pass leaves it, and when it wants to be woken (0: never)."""
        return parked(list(self._waiting.pending().values()))

    # ── ending ──

    def abort(self, why: Abort) -> None:
        """Stop the pass now, for the first reason given; a run that is being undone is, to the end."""
        if self._undoing and isinstance(why, RunCancelled | RunTimedOut):
            return
        if self.aborted is None:
            self.aborted = why
            self._cut = list(self._flights.aloft.items())
            if self._root is not None:
                self._root.cancel()

    def _set_idle(self, idle: bool) -> None:  # noqa: FBT001 -- the one thing that a change of it says
        """Stop the active clock while the run only waits for a time, and let it go on."""
        self._deadline.cancel()
        self._ledger.set_idle(idle)
        if not idle:
            self._deadline = self._loop.call_later(max(0.0, self.remaining()), self.abort, RunTimedOut())

    def fail(self, problem: BaseException) -> None:
        """Leave the pass with a problem that concerns the engine: the lease is lost, or the store does not work."""
        if self.broken is None:
            self.broken = problem
            if self._root is not None:
                self._root.cancel()

    def unfinished(self) -> dict[str, tuple[float, int]]:
        """Steps that were being performed when the pass was aborted, or that wait: when they began, which attempt."""
        outcomes = self._ledger.outcomes
        found = {path: (attempt.started, attempt.number) for path, attempt in self._cut}
        for place, wait in self._waiting.pending().items():
            found.setdefault(owner(place), (wait.opened, 0))
        for place, outcome in outcomes.items():
            path = place.removesuffix("/~start")
            if path != place and owner(path) == path:
                found.setdefault(path, (outcome.started, 0))
        handed = self._ledger.handed
        return {path: facts for path, facts in found.items() if path not in outcomes and path not in handed}

    def close(self) -> None:
        """Give back what the pass holds; it is not aborted any more, since what it ends with is being written."""
        self._root = None
        self._deadline.cancel()
        self._announcer.close()

    # ── telling others ──

    def _append(self) -> Awaitable[int]:
        """Write what rides."""
        return self._world.store.append(self._lease, Batch(self.closing()))

    def _tell(self, draft: Draft) -> None:
        if self._world.listeners.wanted(self.run_id) and (told := told_by(draft)) is not None:
            self._emit(*told)

    def _tell_wait(self, wait: Wait) -> None:
        title = (wait.request or {}).get("title", "")
        self._emit("waiting", owner(wait.path), {"wait": wait.id, "kind": wait.kind, "title": title})
        self._world.opened(wait)

    def _emit(self, name: str, path: str, data: dict[str, Json]) -> None:
        listeners = self._world.listeners
        if listeners.wanted(self.run_id):
            listeners.emit(Event(name, self.run_id, path, self.clock(), data))
