"""The people of an engine: who acts, who is known, and what was done.

The law of the file: whatever changes the directory is noted in the same transaction, and so is by whom; an act that is
refused is noted too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, TypeAlias

from stepwell.engine.ancestry import REQUESTER
from stepwell.errors import Forbidden, InputError, NotFound
from stepwell.people.actor import Actor, local_operator, require, resolve
from stepwell.people.keys import digest_of, new_key
from stepwell.people.listing import Listing
from stepwell.people.names import settled
from stepwell.ports import AuditRecord, Directory, Person, PersonKey

Json: TypeAlias = Any
Who: TypeAlias = "str | Actor"
"""A name or e-mail address, "" for the local operator; or who was found out before, with the channel."""


class People:
    """Hangs on an engine as `engine.people`."""

    def __init__(self, directory: Directory, account: str) -> None:
        self.directory = directory
        self._account = account

    # ── who acts ──

    async def actor(self, who: Who = "", *, channel: str = "python", origin: str = "") -> Actor:
        """Who a name is. Raises Forbidden for one that is not known, which is noted, and InputError."""
        if isinstance(who, Actor):
            return who
        try:
            return await resolve(self.directory, self._account, who, channel=channel, origin=origin)
        except Forbidden:
            await self.note(AuditRecord(who, "person.unknown", channel=channel, origin=origin))
            raise

    async def requester(self, who: Who = "") -> Actor:
        """Who starts a run: by itself the local operator, inside a tool of a run whoever asked for that one.

        Raises as `actor`.
        """
        if who:
            return await self.actor(who)
        asked = REQUESTER.get()
        return Actor(Person(asked), "run") if asked else local_operator()

    async def demand(self, actor: Actor, *roles: str, to: str, about: AuditRecord) -> None:
        """Refuse who has none of these roles, and note it; `about` is what would have been noted.

        Raises Forbidden.
        """
        try:
            require(actor, *roles, to=to)
        except Forbidden:
            await self.note(replace(about, action=f"{about.action}.refused"))
            raise

    # ── who is known ──

    async def person(self, who: str) -> Person:
        """One person by name or e-mail address. Raises NotFound."""
        return await self.directory.person(self._account, who)

    async def known(self, *, role: str = "", department: str = "") -> list[Person]:
        """People by name; only those who have the role and the department, where they are given."""
        return await self.directory.people(self._account, role=role, department=department)

    async def empty(self) -> bool:
        """Whether nobody is known, so that rules about people do not count yet."""
        return await self.directory.empty(self._account)

    async def add(
        self, people: Sequence[Person], *, by: Who = "", replaces: bool = False, listing: Listing | None = None
    ) -> list[Person]:
        """Add all of them or nobody; with `replaces`, over who has the very same name. `listing` is what they are from.

        Raises InputError with everything that is wrong, and Forbidden.
        """
        actor = await self._keeper(by, "person.add", people[0].name if people else "")
        known = {one.name: one for one in await self.known()}
        stored = _settled([*known.values()], people, replaces=replaces, listing=listing)
        notes = []
        for one in stored:
            before = known.get(one.name)
            detail = _detail(one) if before is None else {**_detail(one), "before": _detail(before)}
            notes.append(actor.did("person.change" if before else "person.add", one.name, detail))
        return await self.directory.put(self._account, stored, replaces=replaces, notes=notes)

    async def remove(self, who: str, *, by: Who = "") -> Person:
        """Remove somebody. What they did stays in the trail. Raises NotFound, Forbidden."""
        actor = await self._keeper(by, "person.remove", who)
        gone = await self.person(who)
        notes = [actor.did("person.remove", gone.name, _detail(gone))]
        return await self.directory.remove(self._account, gone.name, notes=notes)

    async def _keeper(self, by: Who, action: str, thing: str) -> Actor:
        actor = await self.actor(by)
        if not actor.is_local:
            await self.demand(actor, "admin", to="change who is known", about=actor.did(action, thing))
        return actor

    # ── keys ──

    async def issue_key(self, who: str, *, note: str = "", by: Who = "") -> tuple[str, PersonKey]:
        """A new key that proves to be a person; it is shown this once. Raises NotFound, Forbidden."""
        actor = await self._keeper(by, "key.create", who)
        owner = await self.person(who)
        text, identity = new_key()
        kept = PersonKey(identity, owner.name, note)
        about = actor.did("key.create", identity, {"person": owner.name, "note": note})
        await self.directory.add_key(self._account, kept, digest_of(text), notes=[about])
        return text, kept

    async def keys(self) -> list[PersonKey]:
        """All keys, revoked ones too, oldest first."""
        return await self.directory.keys(self._account)

    async def revoke_key(self, key_id: str, *, by: Who = "") -> PersonKey:
        """Take a key back, for ever. Raises NotFound, Forbidden."""
        actor = await self._keeper(by, "key.revoke", key_id)
        return await self.directory.revoke_key(self._account, key_id, notes=[actor.did("key.revoke", key_id)])

    async def of_key(self, key: str, *, channel: str = "python", origin: str = "") -> Actor:
        """Who proves to be somebody with a key. Raises Forbidden for one that is not known or was revoked, noted."""
        try:
            return Actor(await self.directory.key_owner(self._account, digest_of(key)), channel, origin=origin)
        except NotFound:
            await self.note(AuditRecord("", "key.unknown", channel=channel, origin=origin))
            raise Forbidden(
                "this key is nobody's, or it was revoked; `stepwell keys list` shows those that hold"
            ) from None

    # ── what was done ──

    async def note(self, *records: AuditRecord) -> None:
        """Add to the trail what is in no transaction of its own: `note(actor.did("approval.remind", wait.id))`."""
        await self.directory.note(self._account, *records)

    async def trail(
        self,
        *,
        limit: int = 50,
        before: int = 0,
        object: str = "",  # noqa: A002 -- the name of the record's field
        by: str = "",
    ) -> list[AuditRecord]:
        """What was done, newest first."""
        return await self.directory.audit(self._account, limit=limit, before=before, object=object, by=by)


def _settled(
    known: Sequence[Person], people: Sequence[Person], *, replaces: bool, listing: Listing | None
) -> list[Person]:
    """The people to be stored. Raises InputError also with what was wrong with others of their list."""
    problems = [] if listing is None else listing.problems
    try:
        stored = settled(known, people, replaces=replaces, where=() if listing is None else listing.where)
    except InputError as wrong:
        found = [*problems, *wrong.problems]
        raise InputError(sorted(found, key=lambda problem: (problem.line, problem.column))) from None
    if problems:
        raise InputError(problems)
    return stored


def _detail(person: Person) -> dict[str, Json]:
    kept = asdict(person)
    return {key: list(value) if isinstance(value, tuple) else value for key, value in kept.items() if value}
