"""What all run stores count and say alike about events, lanes, due times and new definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from stepwell.errors import Conflict
from stepwell.journal.path import UNDO, start
from stepwell.ports import PARKED, RUNNABLE, Batch, NewRun, Reopening, Repin, Run, SentEvent

Json: TypeAlias = Any

EVENTS_KEPT = 24 * 3600.0
"""Seconds for which an event is kept; one that a run was told of is kept for that run until it has read so."""
EVENTS_SWEPT = EVENTS_KEPT + 3600.0
"""Seconds after which it is deleted: later, so that one that was read just in time can still be used."""
SWEEP_EVERY = 100
"""With every so many events, those that are kept no more are deleted."""
JUST_DUE = 1.0
"""Seconds for which something that is overdue still counts as the next that is due."""
SATISFIED: Json = {"decision": "satisfied"}
"""The decision of a wait that an event has satisfied."""


def told_of(event: SentEvent, order: int) -> Json:
    """The body of the message that tells a run of an event."""
    return {"event": order, "id": event.id, "name": event.name}


def sets_time(batch: Batch) -> bool:
    """Whether a batch opens a wait with a time of its own: whoever sleeps until the next one must look again."""
    return any(wait.deadline > 0 or wait.next_at > 0 for wait in batch.open)


def unusable(order: int, run_id: str, *, known: bool) -> Conflict:
    """The refusal of an event that satisfies nothing any more; `known` says whether it is there at all."""
    if known:
        return Conflict(f"event {order} has already satisfied a wait of run {run_id}", {"event": order})
    return Conflict(f"there is no event {order}", {"event": order})


def check_lane(new: NewRun) -> None:
    """Raises ValueError for a lane without places, in which nothing could ever run."""
    if new.lane and new.lane_limit < 1:
        raise ValueError(f"run {new.id}: a lane has at least one place, not {new.lane_limit}")


def lane_full(new: NewRun, holders: Sequence[str]) -> Conflict:
    """The refusal of a run whose lane is full."""
    return Conflict(
        f"as many runs of this workflow with the same concurrency key are active as may be: {', '.join(holders)}",
        {"lane": new.lane, "limit": new.lane_limit, "runs": list(holders)},
    )


def replaced_by(new: NewRun) -> Json:
    """The body of the cancel that makes a place free for a newer run."""
    return {"reason": f"replaced by run {new.id} of the same lane", "by": new.requester}


def refuse_moved(run: Run, pin: Repin) -> None:
    """Raises Conflict if a run is not parked as it was when its new definition was checked."""
    if run.status not in PARKED:
        raise Conflict(f"run {run.id} is not parked: it is {run.status}", {"status": run.status})
    if (run.epoch, run.definition) != (pin.epoch, pin.before):
        raise Conflict(f"run {run.id} has gone on since this was checked: check again", {"status": run.status})


def refuse_carried(run: Run, back: Reopening, *, unread: bool) -> None:
    """Raises Conflict unless a run stands as it was when somebody decided that it goes back."""
    if run.status in RUNNABLE:
        raise Conflict(
            f"run {run.id} is {run.status}; it can go back once it has ended or waits", {"status": run.status}
        )
    if run.epoch != back.epoch or unread:
        raise Conflict(f"run {run.id} has gone on meanwhile: plan again", {"status": run.status})


BEING_UNDONE = start(UNDO)
"""The path of the entry with which a run begins to be undone: from then on it cannot be cancelled."""


def being_undone(run_id: str) -> Conflict:
    """The refusal of a cancel that came too late."""
    return Conflict(f"run {run_id} is being undone, to the end: it cannot be cancelled", {"status": "running"})
