"""Place: one place of a run's journal, and the ways in which it is begun and settled.

The law of the file: how a place ended is recorded before anybody goes on, and is written here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.errors import StepFailed
from stepwell.interpreter.exports import exported
from stepwell.interpreter.interruption import Ended, Rewind
from stepwell.interpreter.normalise import CONTAINER_LIMIT
from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft, Outcome

if TYPE_CHECKING:
    from stepwell.definition.compile import StepPlan
    from stepwell.interpreter.frame import Records
    from stepwell.interpreter.runtime import Attempt, Runtime

Json: TypeAlias = Any


class Place:
    """The place of one step, iteration or branch. `opened` is when it began, `spent` its last attempt."""

    __slots__ = ("exports", "opened", "path", "plan", "records", "runtime", "spent")
    runtime: Runtime

    def __init__(self, path: str, plan: StepPlan | None, records: Records) -> None:
        self.path = path
        self.plan = plan
        self.records = records
        self.exports: tuple[str, ...] = plan.exports if plan else ()
        self.opened = 0.0
        self.spent: Attempt | None = None

    def keep(self, draft: Draft) -> None:
        """Put into the entry of a step that completed what undoing it will need."""
        raise NotImplementedError

    def begin(self, compute: Callable[[], Json]) -> Json:
        """What the container decides when it begins: computed once, recorded, and read on replay."""
        place = paths.start(self.path)
        found = self.runtime.recall(place)
        if found is None:
            self.opened = self.runtime.clock()
            draft = Draft(place, "started", Body(started=self.opened))
            draft.value(compute())
            found = self.runtime.ride(draft)
        else:
            self.opened = found.started
        return found.value

    def spent_active(self) -> float:
        """Active seconds since this place began, across passes."""
        begun = self.runtime.recall(paths.start(self.path))
        return self.runtime.active() - begun.active if begun is not None else 0.0

    # ── rounds ──

    def rounds_left(self, max_rounds: int) -> int:
        """How often this step may still return to an earlier one."""
        return max(0, max_rounds - self.runtime.rewinds_by(paths.bare(self.path)))

    def earlier_rounds(self) -> list[Json]:
        """What this step gave in earlier rounds, oldest first."""
        bare = paths.bare(self.path)
        earlier = [self.runtime.recall(paths.with_round(bare, number)) for number in self._earlier()]
        return [found.value for found in earlier if found is not None and found.value is not None]

    def _earlier(self) -> range:
        return range(1, paths.round_number(self.path))

    def returning(self, target: str, output: Json, error: StepFailed | None = None) -> Rewind:
        """What is to be raised to return to the earlier step `target`: this round is recorded with its output."""
        reason = {"type": "goto", "target": target}
        if error is None:
            return Rewind(target, self.path, self.draft("completed", output, reason=reason))
        return Rewind(target, self.path, self.failure(error, default=output, reason=reason))

    # ── ending ──

    def complete(self, value: Json, *, meta: dict[str, Json] | None = None) -> Outcome:
        """Settle this place as completed; it can be derived again, so it rides with the next append."""
        return self.runtime.ride(self.draft("completed", value, meta=meta))

    async def settle_together(self, drafts: Sequence[Draft]) -> list[Outcome]:
        """Record what decides a race together with what it decides: in one append, or not at all."""
        for draft in drafts[:-1]:
            self.runtime.ride(draft)
        await self.runtime.record(drafts[-1])
        return [outcome for draft in drafts if (outcome := self.runtime.recall(draft.path)) is not None]

    def give_up(self, reason: str) -> Outcome:
        """Settle this place as cancelled: what it waited for was withdrawn."""
        return self.runtime.ride(self.draft("cancelled", None, reason={"type": "withdrawn", "message": reason}))

    def skip(self, reason: dict[str, Json]) -> Outcome:
        """Settle this step as skipped."""
        return self.runtime.ride(self.draft("skipped", None, reason=reason))

    async def end_run(self, status: str, output: Json, message: str) -> Outcome:
        """Record that the run ends here, then leave."""
        body = Body(
            status="completed", started=self.runtime.clock(), meta={"end": {"status": status, "message": message}}
        )
        body.ended = body.started
        draft = Draft(self.path, "settled", body)
        draft.value(output)
        outcome = await self.runtime.record(draft)
        raise Ended(status, outcome.value, message, outcome.order)

    async def undo_run(self, failure: StepFailed) -> Outcome:
        """Record that this place failed and that the whole run is undone for it, then leave."""
        draft = self.failure(failure)
        end = {"status": "compensated", "message": failure.message}
        draft.body.meta = (draft.body.meta or {}) | {"end": end}
        outcome = await self.runtime.record(draft)
        raise ended(outcome)

    async def fail(
        self, failure: StepFailed, *, default: Json = None, reason: dict[str, Json] | None = None
    ) -> Outcome:
        """Record that this place failed. `default` is the output under `continue`, where `reason` says so."""
        return await self.runtime.record(self.failure(failure, default=default, reason=reason))

    def failure(self, failure: StepFailed, *, default: Json = None, reason: dict[str, Json] | None = None) -> Draft:
        """The entry that says so, still to be recorded."""
        spent = self.spent
        body = Body(
            status="failed",
            error=failure.record() | ({} if failure.path else {"path": self.path}),
            started=spent.started if spent else self.opened or self.runtime.clock(),
            ended=spent.ended if spent else self.runtime.clock(),
            attempts=spent.number if spent else 0,
            reason=reason or ({"type": "failed_inside", "order": failure.order} if failure.order else None),
            exports=exported(self.exports, self.records),
            meta=spent.meta if spent else None,
        )
        draft = Draft(self.path, "failed" if spent else "settled", body)
        if spent and spent.text is not None:
            draft.arguments(spent.text)
        if reason is not None:
            draft.value(default)
        return draft

    def draft(
        self,
        status: str,
        value: Json,
        *,
        error: dict[str, Json] | None = None,
        reason: dict[str, Json] | None = None,
        meta: dict[str, Json] | None = None,
    ) -> Draft:
        """The entry that settles this place, still to be recorded."""
        now = self.runtime.clock()
        body = Body(
            status=status,
            started=self.opened or now,
            ended=now,
            error=error,
            reason=reason,
            exports=exported(self.exports, self.records),
            meta=meta,
        )
        draft = Draft(self.path, "settled", body)
        self.keep(draft)
        if value is not None:
            draft.value(value)
            if draft.text is not None and len(draft.text) > CONTAINER_LIMIT:
                size = len(draft.text) / 1024 / 1024
                limit = CONTAINER_LIMIT // 1024 // 1024
                message = f"what was gathered is {size:.0f} MB of JSON, more than {limit} MB"
                raise StepFailed("output_too_large", message, detail={"bytes": len(draft.text)})
        return draft


def ended(outcome: Outcome) -> Ended:
    """How the run ends by a recorded outcome that ends it."""
    assert outcome.meta is not None
    end = outcome.meta["end"]
    found = Ended(end["status"], outcome.value, end["message"], outcome.order)
    found.error = outcome.error
    return found
