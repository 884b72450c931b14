"""One pass: the interpreter run over a journal until the run ends or parks, and the verdict on how that was."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.engine.runtime import LiveRuntime
from stepwell.engine.world import World
from stepwell.errors import StepFailed, Unavailable
from stepwell.interpreter.instants import instant_text
from stepwell.interpreter.interruption import Abort, Interruption, LeaseLost, Pause, RunCancelled, RunTimedOut
from stepwell.interpreter.scope import Scope
from stepwell.interpreter.whole import Conclusion, conclude
from stepwell.journal.entry import Body, Draft
from stepwell.ports import FINAL, Batch, Loaded, Verdict

if TYPE_CHECKING:
    from stepwell.interpreter.definition import Definition
    from stepwell.ports import Lease, Run

Json: TypeAlias = Any


GRACE = 3.0
"""Seconds that calls which may not be repeated get to end when their run is aborted."""


class Parked(Abort):
    """The operator or a shutdown takes the run from this process; anyone may carry it on."""


class Pass:
    """A pass that is under way. `runtime` takes messages; `result` is the end of it."""

    def __init__(
        self,
        lease: Lease,
        loaded: Loaded,
        definition: Definition,
        world: World,
        sure: Callable[[], Awaitable[None] | None] = lambda: None,
    ) -> None:
        self.lease = lease
        self.loaded = loaded
        self.definition = definition
        self.runtime = LiveRuntime(lease, loaded, definition, world, sure)
        self._world = world

    async def run(self) -> bool:
        """Interpret, then release the lease. False if the run is still owned and must be gone on with.

        Raises LeaseLost, and Unavailable when the store does not work.
        """
        runtime = self.runtime
        try:
            for message in self.loaded.messages:
                runtime.deliver(message)
            verdict = await self._verdict()
        finally:
            runtime.close()
        if verdict is None:
            return False
        await runtime.land(None if runtime.aborted is None else GRACE)
        entries = runtime.closing()
        if verdict.status in FINAL:
            entries += self._last_entries(verdict)
            self._world.ended(self.loaded.run.id)
        consume = [message.order for message in self.loaded.messages if message.kind == "cancel"]
        return await self._world.store.release(self.lease, Batch(entries, consume=consume), verdict)

    async def _verdict(self) -> Verdict | None:
        runtime = self.runtime
        try:
            ended = await self._interpret()
        except Pause:
            if runtime.undelivered:
                await self._world.store.append(self.lease, Batch(runtime.closing()))
                return None
            status, wake_at = runtime.parked()
            return self._make(status, wake_at=wake_at)
        except asyncio.CancelledError:
            return self._aborted()
        except (Unavailable, Interruption, LeaseLost):
            raise
        except Exception as bug:  # noqa: BLE001 -- the run is kept as it is, for a repaired engine to go on with
            trace = "".join(traceback.format_exception(bug))[-4000:]
            return self._make("stuck", error={"kind": "engine_error", "message": f"{type(bug).__name__}: {bug}",
                                              "detail": {"trace": trace}, "retryable": False})  # fmt: skip
        return self._make(ended.status, output=ended.output, error=ended.error)

    def _aborted(self) -> Verdict:
        runtime = self.runtime
        if runtime.broken is not None:
            raise runtime.broken
        match runtime.aborted:
            case RunCancelled() as cancelled:
                return self._make("cancelled", error=cancellation(str(cancelled)))
            case RunTimedOut():
                limit = self.definition.plan.workflow.timeout
                error = StepFailed("timeout", f"the run was active for {limit:g} s, its timeout", retryable=False)
                return self._make("timed_out", error=error.record())
            case Parked():
                return self._make("queued")
        raise asyncio.CancelledError

    def _make(
        self, status: str, *, output: Json = None, error: dict[str, Json] | None = None, wake_at: float = 0.0
    ) -> Verdict:
        runtime = self.runtime
        ended = max(self.loaded.run.started, runtime.clock()) if status in FINAL else 0.0
        return Verdict(status, output, error, wake_at, round(runtime.active(), 3), runtime.usage, ended, runtime.seen)

    async def _interpret(self) -> Conclusion:
        run = self.loaded.run
        scope = Scope.root(self.runtime, self.definition, run.input, facts(run))
        await asyncio.sleep(0)  # a message that aborts the pass is obeyed before anything is done
        if self._world.prepare is not None:
            await self._world.prepare(self.definition.plan.workflow)
        return await conclude(scope)

    def _last_entries(self, verdict: Verdict) -> list[Any]:
        """Steps that were cut off, then the entry that closes the journal."""
        runtime = self.runtime
        now = runtime.clock()
        drafts = []
        for path, (started, attempts) in runtime.unfinished().items():
            body = Body(
                status="cancelled", started=started, ended=max(started, now), attempts=attempts, error=verdict.error
            )
            drafts.append(Draft(path, "cancelled", body))
        closing = Body(status=verdict.status, error=verdict.error, started=self.loaded.run.started)
        closing.ended = max(closing.started, now)
        drafts.append(Draft("", "settled", closing))
        generation = self.loaded.run.generation
        return [draft.entry(generation=generation, at=now) for draft in drafts]


def cancellation(reason: str) -> dict[str, Json]:
    """The error of a run that was cancelled, for this reason if one was given."""
    return StepFailed("cancelled", reason or "the run was cancelled", retryable=False).record()


def facts(run: Run) -> dict[str, Json]:
    """The root `run` of expressions: what stays the same on every replay."""
    return {"id": run.id, "started_at": instant_text(run.created), "workflow": run.workflow, "account": run.account}
