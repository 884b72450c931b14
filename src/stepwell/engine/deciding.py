"""Deciding: what people say to an open approval, and handing it on.

The law of the file: it finds out who speaks and tells the audit trail; whether they may, and what it comes to, is for
the rules of `approvals/`, which the store asks inside its transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.approvals import notices, opening
from stepwell.approvals.may_decide import check_permission, check_state
from stepwell.approvals.rules import rules_of
from stepwell.errors import Conflict, Forbidden, InputError, NotFound, Problem, StepwellError
from stepwell.interpreter.instants import instant_text
from stepwell.interpreter.normalise import normalise
from stepwell.people.actor import OPERATOR, Actor, resolve
from stepwell.ports import Amendment, Ballot, Person, Wait

if TYPE_CHECKING:
    from stepwell.ports import Outgoing, RunStore

Json: TypeAlias = Any

REFUSED = (Forbidden, Conflict, InputError)


async def opened(store: RunStore, wait: Wait, requester: str) -> tuple[Wait, tuple[Outgoing, ...]]:
    """An approval that is about to open, with the people whom it means now, and whom to tell."""
    return opening.opened(wait, await store.people.people(wait.account), requester)


class Deciding:
    """What can be done with the approvals of one account."""

    def __init__(self, store: RunStore, account: str, now: Callable[[], float]) -> None:
        self._store = store
        self._account = account
        self._now = now

    async def decide(self, wait_id: str, said: dict[str, Json], by: str | Actor, digest: str = "") -> Wait:
        """Take a decision `{decision, comment, data}`; the wait is decided then, or pending while more are wanted.

        Raises NotFound, Forbidden, AlreadyDecided, Gone, Conflict (stale) and InputError.
        """
        wait = await self._approval(wait_id)
        actor = await self.actor(by)
        about = {"run": wait.run_id, "path": wait.path, "decision": said["decision"]}
        body = normalise(said | {"by": actor.name, "at": instant_text(self._now()), "channel": actor.channel})
        ballot = Ballot(body, None if actor.rules_off else actor.person, digest)
        try:
            if not actor.rules_off:
                await self._freeze(wait)
            note = actor.did("approval.decide", wait_id, about | {"comment": body["comment"]})
            return await self._store.decide(self._account, wait_id, ballot, notes=[note])
        except REFUSED as refused:
            await self._refused(actor, "approval.decide", wait_id, about, refused)
            raise

    async def reassign(self, wait_id: str, to: str, *, old: str = "", by: str | Actor = OPERATOR) -> Wait:
        """Let `to` decide in place of `old` (by default whoever hands it on).

        Raises NotFound, Forbidden, AlreadyDecided, Gone and InputError.
        """
        await self._approval(wait_id)
        actor, now = await self.actor(by), self._now()
        about: dict[str, Json] = {"from": old or actor.name, "to": to}
        try:
            if actor.rules_off:
                text = "there are no people yet to hand it to"
                raise InputError([Problem("error", "reassign", text, "add them with: stepwell users add NAME")])
            new = await self._known(to)
            replaced = await self._name_of(old) if old else actor.name
            note = actor.did("approval.reassign", wait_id, about | {"from": replaced, "to": new.name})

            def change(wait: Wait) -> Amendment:
                rules = opening.reassigned(wait, actor.person, replaced, new, now)
                told = notices.reassigned(wait, new.name, actor.name, now)
                return Amendment(rules.as_json(), wait.next_at, (told,))

            return await self._store.amend(self._account, wait_id, change, notes=[note])
        except REFUSED as refused:
            await self._refused(actor, "approval.reassign", wait_id, about, refused)
            raise

    async def actor(self, by: str | Actor, channel: str = "python") -> Actor:
        """Who a name is. Raises Forbidden for a name that nobody has, and InputError for what is no name."""
        return by if isinstance(by, Actor) else await resolve(self._store.people, self._account, by, channel=channel)

    def for_actor(self, waits: Iterable[Wait], actor: Actor) -> list[Wait]:
        """Those that somebody may decide now."""
        return [wait for wait in waits if self._may(wait, actor)]

    def _may(self, wait: Wait, actor: Actor) -> bool:
        try:
            check_state(wait, self._now())
            if not actor.rules_off:
                check_permission(wait, rules_of(wait), actor.person)
        except REFUSED:
            return False
        return True

    async def _approval(self, wait_id: str) -> Wait:
        """An approval; what waits for a time, an event or an operator is decided elsewhere. Raises NotFound."""
        wait = await self._store.wait(self._account, wait_id)
        if wait.kind != "approval":
            raise NotFound(f"there is no approval {wait_id}")
        return wait

    async def _name_of(self, name: str) -> str:
        """The name by which somebody is meant, who may have left the directory since."""
        try:
            return (await self._store.people.person(self._account, name)).name
        except NotFound:
            return name

    async def _known(self, name: str) -> Person:
        try:
            return await self._store.people.person(self._account, name)
        except NotFound as unknown:
            raise InputError([Problem("error", "person", str(unknown), "see who is: stepwell users list")]) from None

    async def _freeze(self, wait: Wait) -> None:
        """Fix whom an approval means that opened before there were any people."""
        if wait.status != "pending" or rules_of(wait).frozen:
            return
        people = await self._store.people.people(self._account)

        def change(found: Wait) -> Amendment:
            rules = rules_of(found)
            return Amendment(opening.freeze(rules, people).as_json(), found.next_at)

        await self._store.amend(self._account, wait.id, change)

    async def _refused(
        self, actor: Actor, action: str, wait_id: str, about: dict[str, Json], refused: StepwellError
    ) -> None:
        """What was refused is on the trail too, and nowhere else."""
        because = {"refused": type(refused).__name__, "because": str(refused)}
        await self._store.people.note(self._account, actor.did(f"{action}.refused", wait_id, about | because))
