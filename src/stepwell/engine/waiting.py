"""Waiting: what a pass waits for, the messages that come for it, and when nothing in the run can move.

The law of the file: idle is counted, not guessed. A task that can run holds a token; whoever waits for a message gives
it up; when none is left, all who wait are told to pause, and nothing of the run stays in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.engine.deciding import opened
from stepwell.interpreter.instants import instant_text
from stepwell.interpreter.interruption import Pause, Withdrawn
from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft, Outcome, encode
from stepwell.ports import Batch, Message, Wait

if TYPE_CHECKING:
    from stepwell.engine.ledger import Ledger
    from stepwell.ports import Lease, Loaded, Outgoing, RunStore, WaitKind

Json: TypeAlias = Any

EVENTS_KEPT = 24 * 3600.0
"""Seconds for which an event may come before the wait that it satisfies."""


class Waiting:
    """Open waits of one run in one pass."""

    def __init__(
        self,
        lease: Lease,
        loaded: Loaded,
        store: RunStore,
        ledger: Ledger,
        opened: Callable[[Wait], None],
        now: Callable[[], float],
    ) -> None:
        self._lease = lease
        self._run = loaded.run
        self._store = store
        self._ledger = ledger
        self._told = opened
        self._now = now
        self._open = {wait.path: wait for wait in loaded.waits}
        self._mail: dict[str, list[Message]] = {}
        self._waiters: dict[str, asyncio.Future[None]] = {}
        self._closed: dict[str, str] = {}
        self._used: set[int] = set()
        """Events that waits of this pass have taken: another wait of the run may not have them."""
        self._tokens = 1
        self._dozing = 0
        self._idle = False
        self.on_idle: Callable[[bool], None] = lambda _: None
        """Told when the run begins or ends to wait for nothing but a time that is near."""

    # ── waiting ──

    async def wait(self, path: str, kind: WaitKind, request: Json, deadline: float, on_expire: str) -> Outcome:
        """See `Runtime.wait`."""
        place = paths.wait(path)
        if (found := self._found(place)) is not None:
            return found
        wait = await self._opened(path, kind, request, deadline, on_expire)
        message = (await self._messages(path))[0]
        draft = Draft(place, "succeeded", Body(started=wait.opened, ended=self._now()))
        draft.value(message.body)
        return await self._ledger.record(draft, also=Batch(consume=(message.order,)))

    async def wait_event(self, path: str, name: str, accept: Callable[[Json], bool], deadline: float) -> Outcome:
        """See `Runtime.wait_event`."""
        place = paths.wait(path)
        if (found := self._found(place)) is not None:
            return found
        wait = await self._opened(path, "event", {"event": name}, deadline, "expired")
        read: list[int] = []
        while True:
            arrived = self._mail.pop(path, [])
            read += [message.order for message in arrived]
            value: dict[str, Json] | None = None
            used: tuple[int, ...] = ()
            late = any(message.kind == "decision" for message in arrived)  # its deadline has passed
            for event in await self._store.events(self._lease, name, wait.opened - EVENTS_KEPT):
                if event.order in self._used or (late and event.at > wait.deadline):
                    continue
                said = {"id": event.id, "name": event.name, "data": event.data, "at": instant_text(event.at)}
                if accept(said):
                    value, used = {"woken_by": "event", "event": said}, (event.order,)
                    self._used.add(event.order)
                    break
            if value is None and late:
                value = {"woken_by": "expired", "event": None}
            if value is not None:
                draft = Draft(place, "succeeded", Body(started=wait.opened, ended=self._now()))
                draft.value(value)
                also = Batch(consume=read, satisfied=(path,) if used else (), used=used)
                return await self._ledger.record(draft, also=also)
            self._mail[path] = await self._messages(path)

    def _found(self, place: str) -> Outcome | None:
        found = self._ledger.outcomes.get(place)
        if found is not None and found.status == "cancelled":
            reason = found.reason or {}
            raise Withdrawn(str(reason.get("message", "")), str(reason.get("place", "")))
        return found

    async def _opened(self, path: str, kind: WaitKind, request: Json, deadline: float, on_expire: str) -> Wait:
        """The open wait at a path; durable before anybody is told of it."""
        for prefix, reason in self._closed.items():
            if paths.is_within(path, prefix):
                self._settle(path, reason, prefix)
                raise Withdrawn(reason, prefix)
        if path in self._open:
            return self._open[path]
        now, run = self._now(), self._run
        mark = f"{run.id}{path}\0{run.generation}".encode()
        shown, rules = request, None
        if kind == "approval":
            shown, rules = {key: value for key, value in request.items() if key != "rules"}, request.get("rules")
        wait = Wait(
            id=f"{kind[0]}{blake2b(mark, digest_size=6).hexdigest()}",
            path=path,
            kind=kind,
            request=shown,
            rules=rules,
            digest=blake2b(encode(shown), digest_size=16).hexdigest(),
            opened=now,
            deadline=now + deadline if deadline else 0.0,
            on_expire=on_expire,
            generation=run.generation,
            run_id=run.id,
            account=run.account,
            workflow=run.workflow,
            topic=request["event"] if kind == "event" else "",
        )
        told: Sequence[Outgoing] = ()
        if kind == "approval":
            wait, told = await opened(self._store, wait, run.requester)
        await self._store.append(self._lease, Batch(self._ledger.closing(), open=(wait,), outgoing=told))
        self._open[path] = wait
        self._told(wait)
        return wait

    async def _messages(self, path: str) -> list[Message]:
        """The messages that came for a path, at least one. Raises Pause, Withdrawn."""
        if path not in self._mail:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters[path] = future
            self._ledger.freshen(path)
            self.leave()
            try:
                await future
            except asyncio.CancelledError:
                if future.cancelled():  # else whoever woke it took a token for it
                    self._waiters.pop(path, None)
                    self.enter()
                raise
        return self._mail.pop(path)

    # ── closing ──

    async def withdraw(self, path: str, reason: str) -> None:
        """See `Runtime.withdraw`."""
        self._closed.setdefault(path, reason)
        inside = [place for place in self.pending() if paths.is_within(place, path)]
        if not inside:
            return
        for place in await self._store.withdraw(self._lease, inside, reason):
            self._settle(place, reason, path)
            if (future := self._woken(place)) is not None:
                future.set_exception(Withdrawn(reason, path))

    def _settle(self, path: str, reason: str, place: str) -> None:
        why = {"type": "withdrawn", "message": reason, "place": place}
        self._ledger.ride(
            Draft(paths.wait(path), "settled", Body(status="cancelled", reason=why, ended=self._now())), quietly=True
        )

    # ── messages ──

    def deliver(self, message: Message) -> None:
        """Hand a message to whom it is for; it is kept until somebody asks for it."""
        self._mail.setdefault(message.path, []).append(message)
        if (future := self._woken(message.path)) is not None:
            future.set_result(None)

    def _woken(self, path: str) -> asyncio.Future[None] | None:
        """What waits at a path, with a token taken for it; None if nothing does or it is being cut off."""
        future = self._waiters.get(path)
        if future is None or future.done():
            return None
        del self._waiters[path]
        self.enter()
        return future

    def pending(self) -> dict[str, Wait]:
        """Waits that nothing has answered yet."""
        outcomes = self._ledger.outcomes
        return {path: wait for path, wait in self._open.items() if paths.wait(path) not in outcomes}

    @property
    def undelivered(self) -> bool:
        """Whether a message came for a wait of this pass after the pass had been told to pause."""
        pending = self.pending()
        return any(path in pending for path in self._mail)

    async def doze(self, delay: float) -> None:
        """Wait for a time that is near: the run stays here, but is not active while nothing else in it can move."""
        self._dozing += 1
        self.leave()
        try:
            await asyncio.sleep(delay)
        finally:
            self._dozing -= 1
            self.enter()

    def enter(self) -> None:
        """One more task can run."""
        if self._idle:
            self._idle = False
            self.on_idle(False)
        self._tokens += 1

    def leave(self) -> None:
        """One task less can run."""
        self._tokens -= 1
        if self._tokens == 0 and self._dozing:
            self._idle = True
            self.on_idle(True)
        elif self._tokens == 0 and not any(future.done() for future in self._waiters.values()):
            for path in list(self._waiters):  # one that is being cut off takes its token first, and comes here again
                if (future := self._woken(path)) is not None:
                    future.set_exception(Pause())


def parked(waits: Sequence[Wait]) -> tuple[str, float]:
    """The status of a run that waits for these, and when it wants to be woken (0: never)."""
    kinds = {wait.kind for wait in waits}
    status = "suspended" if "incident" in kinds else "pending_approval" if "approval" in kinds else "waiting"
    return status, min((wait.deadline for wait in waits if wait.deadline), default=0.0)
