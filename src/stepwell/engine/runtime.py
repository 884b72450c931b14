"""The durable runtime: one pass of one run, from its journal and back to it.

The law of the file: nothing is told or gone on with before it is durable; what can be derived again rides with the next
append; a pass that has lost its lease records nothing more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from stepwell.engine.events import Event
from stepwell.engine.flight import fly
from stepwell.engine.performer import CallContext, Performer
from stepwell.errors import StepFailed
from stepwell.interpreter.interruption import Abort, Pause, RunCancelled, RunTimedOut, Withdrawn
from stepwell.interpreter.runtime import Attempt
from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft, Entry, Outcome, outcome_of
from stepwell.ports import Batch, Lease, Loaded, Message, Outgoing, Tools, Wait

if TYPE_CHECKING:
    from stepwell.definition.compile import StepPlan
    from stepwell.engine.events import Listeners
    from stepwell.interpreter.definition import Definition
    from stepwell.interpreter.effect import Effect
    from stepwell.ports import RunStore

Json: TypeAlias = Any

NEAR = 30.0
"""Sleeps up to this many seconds stay in process; longer ones park the run."""
ANNOUNCE = 0.1
"""Seconds after which a step that still runs, and what rides along, is written for others to see."""
PAST_DEADLINE = 1.0
"""Seconds by which a step may outlive the run's deadline: the deadline ends the run, not the step as a failure."""
_EVENTS = {
    "started": "step_started",
    "succeeded": "step_completed",
    "failed": "step_failed",
    "cancelled": "step_cancelled",
    "completed": "step_completed",
    "skipped": "step_skipped",
}


class Definitions(Protocol):
    """Stored definitions, compiled."""

    async def get(self, account: str, digest: str) -> Definition:
        """Raises NotFound."""

    async def resolve(self, account: str, name: str, file: str) -> str:
        """The digest of a workflow named at run time, stored now. Raises StepFailed."""


@dataclass(frozen=True, slots=True)
class World:
    """What a pass may touch: the store, performers by effect type, tools and listeners."""

    store: RunStore
    performers: Mapping[type[Effect], Performer]
    tools: Tools
    listeners: Listeners
    definitions: Definitions | None = None


class LiveRuntime:
    """The interpreter's runtime over a store. One instance is one pass of one run."""

    def __init__(self, lease: Lease, loaded: Loaded, definition: Definition, world: World) -> None:
        run = loaded.run
        self.run_id = run.id
        self.seen = 0
        self.usage: dict[str, Json] = dict(run.usage)
        self.aborted: Abort | None = None
        self.broken: BaseException | None = None
        """Why an append that nobody awaited failed: the pass ends with it."""
        self._cut: list[tuple[str, Attempt]] = []
        self._handed: set[str] = set()
        """Paths handed to the store and not acknowledged: after an abort nobody knows here whether they are written."""
        self._run = run
        self._lease = lease
        self._plan = definition.plan
        self._world = world
        self._store = world.store
        self._loop = asyncio.get_running_loop()
        self._outcomes: dict[str, Outcome] = {}
        self._begun: set[str] = set()
        self._rounds: dict[str, int] = {}
        self._rewinds: dict[str, int] = {}
        self._causes: dict[str, tuple[str, str]] = {}
        self._riders: list[Draft] = []
        self._tokens = 1
        self._waiters: dict[str, asyncio.Future[Message]] = {}
        self._open = {wait.path: wait for wait in loaded.waits}
        self._mail: dict[str, Message] = {}
        self._closed: dict[str, str] = {}
        self._flights: dict[str, Attempt] = {}
        self._stragglers: dict[str, tuple[asyncio.Task[None], Attempt, str]] = {}
        self._ticker: asyncio.TimerHandle | None = None
        self._root: asyncio.Task[Any] | None = asyncio.current_task()
        self._active_before = run.active
        for entry in sorted(loaded.entries, key=lambda entry: entry.order):
            self._take(entry)
        self._since = time.monotonic()
        self._deadline = self._loop.call_later(max(0.0, self.remaining()), self.abort, RunTimedOut())

    # ── what is recorded ──

    def _take(self, entry: Entry) -> None:
        outcome = outcome_of(entry, self._fetch)
        self._remember(entry.path, outcome)
        if entry.kind == "rewound":
            self._rewound(outcome.value)

    def _fetch(self, digest: str) -> bytes:
        return self._store.blob_now(self._run.account, digest)

    def _remember(self, path: str, outcome: Outcome) -> None:
        self._outcomes[path] = outcome
        begun = self._begun
        while path and path not in begun:
            begun.add(path)
            path = path.rpartition("/")[0]

    def recall(self, path: str) -> Outcome | None:
        return self._outcomes.get(path)

    def has_begun(self, path: str) -> bool:
        return path in self._begun

    def round_of(self, path: str) -> int:
        return self._rounds.get(path, 1)

    def rewinds_by(self, cause: str) -> int:
        return self._rewinds.get(cause, 0)

    def cause_of(self, block: str) -> tuple[str, str] | None:
        return self._causes.get(block)

    async def rewind(self, block: str, cause: str, stale: Sequence[str], failed: Draft) -> None:
        body = Body(started=self.clock())
        draft = Draft(f"{cause}/~rewound", "rewound", body)
        draft.value({"block": block, "cause": cause, "stale": list(stale)})
        for path in stale:
            await self.withdraw(paths.with_round(path, self.round_of(path)), "another round begins")
        self.ride(failed)
        await self.record(draft)
        self._rewound(draft.outcome().value)

    def _rewound(self, said: dict[str, Json]) -> None:
        """Take account of a rewound entry: rounds are read from the journal, never counted by doing."""
        cause = said["cause"]
        bare = paths.bare(cause)
        self._rewinds[bare] = self._rewinds.get(bare, 0) + 1
        self._causes[said["block"]] = (bare.rpartition("/")[2], cause)
        for path in said["stale"]:
            self._rounds[path] = self._rounds.get(path, 1) + 1

    async def definition(self, digest: str) -> Definition:
        assert self._world.definitions is not None
        return await self._world.definitions.get(self._run.account, digest)

    async def resolve(self, name: str, file: str) -> str:
        if self._world.definitions is None:
            raise StepFailed("not_found", f"there is no workflow {name!r}")
        return await self._world.definitions.resolve(self._run.account, name, file)

    def tool_is_idempotent(self, tool: str) -> bool:
        known = self._world.tools.get(tool)
        return known is None or known.idempotent

    def ride(self, draft: Draft) -> Outcome:
        draft.body.active = round(self.active(), 3)
        outcome = draft.outcome()
        self._riders.append(draft)
        self._remember(draft.path, outcome)
        self._tell(draft)
        self._arm()
        return outcome

    async def record(self, draft: Draft, *, outgoing: Sequence[Outgoing] = (), consume: Sequence[int] = ()) -> Outcome:
        riders, self._riders = self._riders, []
        entries = [self._entry(rider) for rider in riders]
        entries.append(self._entry(draft))
        self._handed.add(draft.path)
        order = await self._store.append(self._lease, Batch(entries, consume=consume, outgoing=outgoing))
        self._handed.discard(draft.path)
        outcome = draft.outcome()
        outcome.order = order + len(riders)
        for number, rider in enumerate(riders):
            self._outcomes[rider.path].order = order + number
        self._remember(draft.path, outcome)
        self._tell(draft)
        return outcome

    def _entry(self, draft: Draft) -> Entry:
        draft.body.active = round(self.active(), 3)
        return draft.entry(generation=self._run.generation, at=self.clock())

    def closing(self) -> list[Entry]:
        """What still rides, for the transaction that ends the pass."""
        riders, self._riders = self._riders, []
        return [self._entry(rider) for rider in riders]

    # ── time ──

    def clock(self) -> float:
        return time.time()

    def active(self) -> float:
        """Active seconds of the run so far."""
        return self._active_before + time.monotonic() - self._since

    def remaining(self) -> float:
        return self._plan.workflow.timeout - (self._active_before + time.monotonic() - self._since)

    async def sleep_until(self, path: str, at: float) -> None:
        if self.recall(paths.wait(path)) is not None:
            return
        delay = at - self.clock()
        if delay <= 0:
            return
        if delay <= NEAR:
            await asyncio.sleep(delay)
        else:
            await self.wait(path, "timer", None, deadline=delay, on_expire="due")

    # ── effects ──

    async def perform(
        self, plan: StepPlan, path: str, number: int, effect: Effect, text: bytes, digest: str
    ) -> Attempt:
        attempt = Attempt(number, self.clock())
        if not effect.again() and not await self._intend(path, attempt, text, digest):
            return attempt
        self._emit("step_started", path, {"attempt": number})
        left = max(0.0, self.remaining()) + PAST_DEADLINE
        limit = min(plan.timeout or left, left)
        context = CallContext(
            account=self._run.account,
            run_id=self.run_id,
            path=path,
            attempt=number,
            key=f"{self.run_id}{path}",
            timeout=limit,
            requester=self._run.requester,
        )
        self._flights[path] = attempt
        self._arm()
        performer = self._world.performers[type(effect)]
        try:
            if effect.again():
                await fly(performer, effect, context, attempt, self.clock)
            else:
                await self._once(path, fly(performer, effect, context, attempt, self.clock), attempt, digest)
        except asyncio.CancelledError:
            if self.aborted is None and self.broken is None and path not in self._stragglers:
                body = Body(status="cancelled", started=attempt.started, ended=self.clock(), attempts=number)
                self.ride(Draft(path, "cancelled", body))
            raise
        finally:
            del self._flights[path]
        self._count(attempt.meta)
        return attempt

    async def _once(self, path: str, flight: Coroutine[Any, Any, None], attempt: Attempt, digest: str) -> None:
        """A call that may not be repeated: once it is made, it is awaited even if whoever asked for it is cancelled."""
        task = self._loop.create_task(flight)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            self._stragglers[path] = (task, attempt, digest)
            raise

    async def land(self, grace: float | None) -> None:
        """Wait for calls that outlived whoever asked for them (`grace` seconds, None: their own timeouts); record all.

        Those still in flight then are recorded as in doubt.
        """
        if self._stragglers:
            await asyncio.wait([task for task, _, _ in self._stragglers.values()], timeout=grace)
        for path, (task, attempt, digest) in self._stragglers.items():
            body = Body(started=attempt.started, ended=attempt.ended, attempts=attempt.number, meta=attempt.meta)
            draft = Draft(path, "succeeded", body, digest=digest)
            if not task.done():
                task.cancel()
                body.status, body.ended, body.reason = "cancelled", self.clock(), {"type": "in_doubt"}
                draft.kind = "cancelled"
            elif attempt.failure is not None:
                body.error, draft.kind = attempt.failure.record(), "failed"
            else:
                draft.value(attempt.value, attempt.text)
            self.ride(draft)
        self._stragglers.clear()

    async def _intend(self, path: str, attempt: Attempt, text: bytes, digest: str) -> bool:
        """Record that a call which may not be repeated is about to be made; false if that was said before."""
        place = paths.start(paths.attempt(path, attempt.number))
        if self.recall(place) is not None:
            attempt.failure = StepFailed(
                "in_doubt",
                "the process ended during this call, which may not be repeated: nobody knows whether it took effect",
                retryable=False,
            )
            return False
        draft = Draft(place, "started", Body(started=attempt.started), digest=digest)
        draft.arguments(text)
        await self.record(draft)
        return True

    def _count(self, meta: dict[str, Json] | None) -> None:
        for name in ("input_tokens", "output_tokens", "cost_usd"):
            if meta and meta.get(name):
                self.usage[name] = self.usage.get(name, 0) + meta[name]

    # ── waiting ──

    async def wait(self, path: str, kind: Any, request: Json, *, deadline: float = 0.0, on_expire: str = "") -> Outcome:
        place = paths.wait(path)
        found = self.recall(place)
        if found is None:
            message = self._mail.pop(path, None) or await self._message(path, kind, request, deadline, on_expire)
            now = self.clock()
            opened = self._open[path].opened if path in self._open else now
            draft = Draft(place, "succeeded", Body(started=opened, ended=now))
            draft.value(message.body)
            found = await self.record(draft, consume=(message.order,))
        elif found.status == "cancelled":
            reason = found.reason or {}
            raise Withdrawn(str(reason.get("message", "")), str(reason.get("place", "")))
        return found

    async def _message(self, path: str, kind: Any, request: Json, deadline: float, on_expire: str) -> Message:
        for prefix, reason in self._closed.items():
            if _within(path, prefix):
                self._withdrawn(path, reason, prefix)
                raise Withdrawn(reason, prefix)
        if path not in self._open:
            await self._open_wait(path, kind, request, deadline, on_expire)
            if (message := self._mail.pop(path, None)) is not None:
                return message
        future: asyncio.Future[Message] = self._loop.create_future()
        self._waiters[path] = future
        self.leave()
        try:
            return await future
        except asyncio.CancelledError:
            if self._waiters.pop(path, None) is not None:
                self.enter()
            raise

    async def _open_wait(self, path: str, kind: Any, request: Json, deadline: float, on_expire: str) -> None:
        now = self.clock()
        mark = f"{self.run_id}{path}\0{self._run.generation}".encode()
        text = Draft("", "started", Body())
        text.value(request)
        wait = Wait(
            id=f"{kind[0]}{blake2b(mark, digest_size=6).hexdigest()}",
            path=path,
            kind=kind,
            request=request,
            digest=blake2b(text.text or b"", digest_size=16).hexdigest(),
            opened=now,
            deadline=now + deadline if deadline else 0.0,
            on_expire=on_expire,
            generation=self._run.generation,
            run_id=self.run_id,
            account=self._run.account,
            workflow=self._run.workflow,
        )
        entries = self.closing()
        await self._store.append(self._lease, Batch(entries, open=(wait,)))
        self._open[path] = wait
        self._emit("waiting", path, {"wait": wait.id, "kind": kind, "title": (request or {}).get("title", "")})

    async def withdraw(self, path: str, reason: str) -> None:
        self._closed.setdefault(path, reason)
        inside = [place for place in self._open if _within(place, path) and self.recall(paths.wait(place)) is None]
        if not inside:
            return
        for place in await self._store.withdraw(self._lease, inside, reason):
            future = self._waiters.pop(place, None)
            self._withdrawn(place, reason, path)
            if future is not None and not future.done():
                self.enter()
                future.set_exception(Withdrawn(reason, path))

    def _withdrawn(self, path: str, reason: str, place: str) -> None:
        why = {"type": "withdrawn", "message": reason, "place": place}
        body = Body(status="cancelled", reason=why, ended=self.clock())
        self.ride(Draft(paths.wait(path), "settled", body))

    def deliver(self, message: Message) -> None:
        """Hand a message from the inbox to whom it is for; it is kept until somebody asks for it."""
        self.seen = max(self.seen, message.order)
        if message.kind == "cancel":
            self.abort(RunCancelled(str((message.body or {}).get("reason", ""))))
            return
        future = self._waiters.pop(message.path, None)
        if future is None or future.done():
            self._mail[message.path] = message
        else:
            self.enter()
            future.set_result(message)

    def enter(self) -> None:
        self._tokens += 1

    def leave(self) -> None:
        self._tokens -= 1
        if self._tokens == 0:
            self._pause()

    def _pause(self) -> None:
        """Nothing can move: whoever waits leaves the pass."""
        waiters, self._waiters = self._waiters, {}
        for future in waiters.values():
            if not future.done():
                self.enter()
                future.set_exception(Pause())

    # ── ending ──

    def abort(self, why: Abort) -> None:
        """Stop the pass now, for the first reason given."""
        if self.aborted is None:
            self.aborted = why
            self._cut = list(self._flights.items())
            if self._root is not None:
                self._root.cancel()

    def fail(self, problem: BaseException) -> None:
        """Leave the pass with a problem that concerns the engine: the lease is lost, or the store does not work."""
        if self.broken is None:
            self.broken = problem
            if self._root is not None:
                self._root.cancel()

    def unfinished(self) -> dict[str, tuple[float, int]]:
        """Steps that were being performed when the pass was aborted, or that wait: when they began, which attempt."""
        found = {path: (attempt.started, attempt.number) for path, attempt in self._cut if self.recall(path) is None}
        for place, wait in self._open.items():
            path = place.partition("/~")[0]
            if self.recall(path) is None and self.recall(paths.wait(place)) is None:
                found.setdefault(path, (wait.opened, 0))
        for place, outcome in self._outcomes.items():
            path = place.removesuffix("/~start")
            if path != place and "/@" not in path and path not in self._outcomes:
                found.setdefault(path, (outcome.started, 0))
        for path in self._handed:
            found.pop(path, None)
        return found

    def parked(self) -> tuple[str, float]:
        """The status of a run that waits for what this pass left open, and when it wants to be woken (0: never)."""
        open_ = [wait for path, wait in self._open.items() if self.recall(paths.wait(path)) is None]
        kinds = {wait.kind for wait in open_}
        status = "suspended" if "incident" in kinds else "pending_approval" if "approval" in kinds else "waiting"
        return status, min((wait.deadline for wait in open_ if wait.deadline), default=0.0)

    @property
    def undelivered(self) -> bool:
        """Whether a message came for a wait of this pass after the pass had been told to pause."""
        return any(path in self._open and self.recall(paths.wait(path)) is None for path in self._mail)

    def close(self) -> None:
        """Give back what the pass holds."""
        self._deadline.cancel()
        if self._ticker is not None:
            self._ticker.cancel()

    # ── telling others ──

    def _arm(self) -> None:
        if self._ticker is None:
            self._ticker = self._loop.call_later(ANNOUNCE, self._announce)

    def _announce(self) -> None:
        """Write what rides, and which steps are running, although nobody needs it to go on."""
        self._ticker = None
        now = self.clock()
        for path, attempt in self._flights.items():
            place = paths.start(path)
            if place not in self._outcomes and now - attempt.started >= ANNOUNCE / 2:
                draft = Draft(place, "started", Body(started=attempt.started, attempts=attempt.number))
                self._riders.append(draft)
                self._remember(place, draft.outcome())
        if self._riders:
            appended = asyncio.ensure_future(self._store.append(self._lease, Batch(self.closing())))
            appended.add_done_callback(self._announced)
        if any(paths.start(path) not in self._outcomes for path in self._flights):
            self._arm()

    def _announced(self, appended: asyncio.Future[int]) -> None:
        if not appended.cancelled() and (problem := appended.exception()) is not None:
            self.fail(problem)

    def _tell(self, draft: Draft) -> None:
        if not self._world.listeners.wanted(self.run_id):
            return
        body, path = draft.body, draft.path
        if path.endswith("/?"):
            return
        if draft.kind == "started":
            if path.endswith("/~start") and "/@" not in path:
                said = draft.outcome().value
                items = len(said["over"]) if isinstance(said, dict) and "over" in said else None
                self._emit("step_started", path.removesuffix("/~start"), {} if items is None else {"items": items})
            return
        status = body.status or draft.kind
        name = "step_retrying" if "/@" in path else _EVENTS.get(status, status)
        data: dict[str, Json] = {"attempts": body.attempts} if body.attempts else {}
        if body.error is not None:
            data["error"] = body.error
        if body.reason is not None:
            data["reason"] = body.reason
        if body.retry_at:
            data["retry_at"] = body.retry_at
        if body.ended:
            data["duration_ms"] = max(0, round((body.ended - body.started) * 1000)) if body.started else 0
        if body.meta:
            data["meta"] = body.meta
        self._emit(name, path.partition("/@")[0], data)

    def _emit(self, name: str, path: str, data: dict[str, Json]) -> None:
        listeners = self._world.listeners
        if listeners.wanted(self.run_id):
            listeners.emit(Event(name, self.run_id, path, self.clock(), data))


def _within(path: str, ancestor: str) -> bool:
    return path == ancestor or paths.is_below(path, ancestor)
