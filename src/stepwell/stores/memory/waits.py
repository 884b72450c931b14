"""Waits in memory: how they are decided, how they expire and remind, and what their runs are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, TypeAlias

from stepwell.approvals import notices
from stepwell.approvals.may_decide import cast
from stepwell.approvals.rules import rules_of
from stepwell.approvals.timers import tick
from stepwell.errors import Gone
from stepwell.ports import Amendment, AuditRecord, Ballot, Message, Outgoing, Wait, WaitStatus
from stepwell.stores.announcements import Announcements
from stepwell.stores.memory.agenda import Agenda
from stepwell.stores.memory.kept import Kept
from stepwell.stores.memory.people import MemoryPeople
from stepwell.stores.memory.records import RunRecord, copied

Json: TypeAlias = Any


class Waits(Kept):
    """The part of `RunStore` that is about waits and messages."""

    def __init__(self, clock: Callable[[], float], uptime: Callable[[], float]) -> None:
        super().__init__(uptime)
        self.people = MemoryPeople(clock)
        self._clock = clock
        self._deadlines: Agenda[tuple[RunRecord, Wait]] = Agenda(_is_open)
        self._reminders: Agenda[tuple[RunRecord, Wait]] = Agenda(_reminds)
        self._ranks: dict[tuple[str, str], int] = {}
        """In which order waits were opened: of those that are due at the same instant, the oldest is first."""
        self._dues: Agenda[RunRecord] = Agenda(_is_due)
        self._message_order = count(1)
        self._beats = Announcements()

    async def decide(self, account: str, wait_id: str, ballot: Ballot, *, notes: Sequence[AuditRecord] = ()) -> Wait:
        record, wait = self._found_wait(account, wait_id)
        now = self._clock()
        try:
            result = cast(wait, replace(ballot, body=copied(ballot.body)), now)
        except Gone:
            self._expired(record, wait, now)
            raise
        self.people.keep(account, notes)
        if result.vote is not None:
            wait = replace(wait, votes=(*wait.votes, copied(result.vote)))
            self._keep(record, wait)
        self._send(record, result.notices, now)
        if result.decision is None:
            return wait
        decided = self._close(record, wait, "decided", copied(result.decision), now)
        self._tell(record, Message(record.run.id, "decision", wait.path, decided.decision, at=now))
        return decided

    async def amend(
        self,
        account: str,
        wait_id: str,
        change: Callable[[Wait], Amendment],
        *,
        notes: Sequence[AuditRecord] = (),
    ) -> Wait:
        record, wait = self._found_wait(account, wait_id)
        amended = self._amend(record, wait, change(wait))
        self.people.keep(account, notes)
        self._beats.announce()
        return amended

    def _amend(self, record: RunRecord, wait: Wait, amendment: Amendment) -> Wait:
        amended = replace(wait, rules=copied(amendment.rules), next_at=amendment.next_at)
        self._keep(record, amended)
        self._send(record, amendment.outgoing, self._clock())
        return amended

    def _sweep(self, now: float) -> None:
        """Let waits expire whose deadline has passed, and others remind."""
        for record, wait in self._deadlines.due(now):
            self._expired(record, wait, now)
        for record, wait in self._reminders.due(now):
            self._reminded(record, wait, now)

    def _sweep_run(self, record: RunRecord, now: float) -> None:
        for wait in sorted(record.pending(), key=lambda wait: wait.deadline):
            self._expired(record, wait, now)
        for wait in sorted(record.pending(), key=lambda wait: wait.next_at):
            if 0 < wait.next_at <= now:
                self._reminded(record, wait, now)

    def _reminded(self, record: RunRecord, wait: Wait, now: float) -> None:
        due = tick(wait, now)
        self._amend(record, wait, Amendment(due.rules.as_json(), due.next_at, due.notices))

    def _keep(self, record: RunRecord, wait: Wait) -> None:
        """Keep an open wait as it is now, with its times."""
        record.put(wait)
        rank = self._ranks.setdefault((record.run.account, wait.id), len(self._ranks))
        if wait.deadline > 0:
            self._deadlines.add(wait.deadline, (record, wait), rank)
        if wait.next_at > 0:
            self._reminders.add(wait.next_at, (record, wait), rank)

    def _send(self, record: RunRecord, outgoing: Iterable[Outgoing], now: float) -> None:
        for one in outgoing:
            kept = replace(one, to=copied(one.to), body=copied(one.body), at=one.at or now, run_id=record.run.id)
            self._outgoing.setdefault((record.run.account, one.key), kept)

    def _close(
        self, record: RunRecord, wait: Wait, status: WaitStatus, decision: Json, at: float | None = None
    ) -> Wait:
        closed = replace(wait, status=status, decision=decision, decided=self._clock() if at is None else at)
        record.put(closed)
        del self._pending[record.run.account, wait.id]
        return closed

    def _expired(self, record: RunRecord, wait: Wait, now: float) -> Wait:
        if wait.status != "pending" or not 0 < wait.deadline <= now:
            return wait
        said = {"decision": "due" if wait.kind == "timer" else "expired"}
        if wait.kind == "approval":
            self._send(record, notices.expired(wait, rules_of(wait), now), now)
        self._tell(record, Message(record.run.id, "decision", wait.path, said, at=now))
        return self._close(record, wait, "expired", said, now)

    def _tell(self, record: RunRecord, message: Message) -> Message:
        message = replace(message, order=next(self._message_order))
        record.messages.append(message)
        if not record.owned and record.due != 0.0:
            record.due = 0.0
            self._dues.add(0.0, record, record.key)
        self._beats.announce()
        return message


def _is_open(deadline: float, waiting: tuple[RunRecord, Wait]) -> bool:
    record, wait = waiting
    return wait.deadline == deadline and record.waits[wait.path, wait.generation] is wait


def _reminds(instant: float, waiting: tuple[RunRecord, Wait]) -> bool:
    record, wait = waiting
    kept = record.waits[wait.path, wait.generation]
    return wait.next_at == instant and kept is wait and kept.status == "pending"


def _is_due(instant: float, record: RunRecord) -> bool:
    return record.due == instant
