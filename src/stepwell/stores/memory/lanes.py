"""Lanes in memory: which run of those that share places may begin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from stepwell.ports import NewRun
from stepwell.stores.memory.records import RunRecord
from stepwell.stores.rules import lane_full


class Lanes:
    """The runs of every lane that have not ended, in the order of their creation."""

    def __init__(self) -> None:
        self._lanes: defaultdict[tuple[str, str], list[RunRecord]] = defaultdict(list)

    def holders(self, account: str, lane: str) -> Iterator[RunRecord]:
        """The runs that were claimed and have not ended: the oldest ones, for each waits for those before it."""
        for record in self._lanes[account, lane]:
            if not record.run.epoch:
                return
            yield record

    def refuse_full(self, new: NewRun) -> bool:
        """Whether the lane of a run that is to be created is full. Raises Conflict if that refuses the run."""
        holders = [record.run.id for record in self.holders(new.account, new.lane)]
        full = len(holders) >= new.lane_limit
        if full and new.on_limit == "reject":
            raise lane_full(new, holders)
        return full

    def enter(self, record: RunRecord) -> list[RunRecord]:
        """Put a run into its lane; returns the oldest ones that are more than there are places, this run counted."""
        lane = self._lanes[record.run.account, record.run.lane]
        lane.append(record)
        return lane[: max(0, len(lane) - record.lane_limit)]

    def hold(self, record: RunRecord) -> None:
        """Let a run that goes back have its place again, also where others have taken all: new ones wait the longer."""
        lane = self._lanes[record.run.account, record.run.lane]
        if record.run.lane and record not in lane:
            lane.insert(0, record)

    def leave(self, record: RunRecord) -> None:
        """Forget a run that has ended."""
        if record.run.lane:
            self._lanes[record.run.account, record.run.lane].remove(record)

    def may_begin(self, record: RunRecord) -> bool:
        """Whether a run may be claimed by its id: it is its turn, or it was cancelled and is claimed to be ended."""
        return self.has_turn(record) or any(message.kind == "cancel" for message in record.unread())

    def has_turn(self, record: RunRecord) -> bool:
        """Whether a run was claimed before, has no lane, or is the next in a lane with a place."""
        run = record.run
        if run.epoch or not run.lane:
            return True
        held = sum(1 for _ in self.holders(run.account, run.lane))
        return held < record.lane_limit and self._lanes[run.account, run.lane][held] is record
