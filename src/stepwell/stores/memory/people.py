"""The directory and the audit trail in memory.

The law of the file: no method awaits between looking and writing, so each is one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from stepwell.errors import NotFound
from stepwell.people.names import key_of, keys_of, settled, wrong_with
from stepwell.ports import AuditRecord, Person, PersonKey
from stepwell.stores.memory.records import copied


class MemoryPeople:
    """`Directory` in the memory of one process."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._people: dict[str, dict[str, Person]] = {}
        """By account, and by the key of their name."""
        self._keys: dict[tuple[str, str], tuple[PersonKey, str]] = {}
        """Keys and their digests, by account and id."""
        self._trail: list[tuple[str, AuditRecord]] = []

    async def person(self, account: str, who: str) -> Person:
        return self._person(account, who)

    def _person(self, account: str, who: str) -> Person:
        key = "" if wrong_with(who) else key_of(who)
        for one in self._people.get(account, {}).values():
            if key in keys_of(one):
                return one
        raise NotFound(f"nobody is called {who!r} here")

    async def people(self, account: str, *, role: str = "", department: str = "") -> list[Person]:
        return [
            one
            for _, one in sorted(self._people.get(account, {}).items())
            if (not role or role in one.roles) and (not department or department in one.departments)
        ]

    async def empty(self, account: str) -> bool:
        return not self._people.get(account)

    async def put(
        self, account: str, people: Sequence[Person], *, replaces: bool = False, notes: Sequence[AuditRecord] = ()
    ) -> list[Person]:
        known = self._people.setdefault(account, {})
        stored = settled(known.values(), people, replaces=replaces)
        known.update({key_of(one.name): one for one in stored})
        self.keep(account, notes)
        return stored

    async def remove(self, account: str, who: str, *, notes: Sequence[AuditRecord] = ()) -> Person:
        gone = self._person(account, who)
        del self._people[account][key_of(gone.name)]
        for one in await self.keys(account):
            if one.person == gone.name:
                self._revoke(account, one)
        self.keep(account, notes)
        return gone

    async def add_key(self, account: str, key: PersonKey, digest: str, *, notes: Sequence[AuditRecord] = ()) -> None:
        owner = self._person(account, key.person)
        kept = replace(key, person=owner.name, created=key.created or self._clock())
        self._keys[account, key.id] = kept, digest
        self.keep(account, notes)

    async def keys(self, account: str) -> list[PersonKey]:
        found = [key for (its, _), (key, _) in self._keys.items() if its == account]
        return sorted(found, key=lambda key: (key.created, key.id))

    async def key_owner(self, account: str, digest: str) -> Person:
        for (its, _), (key, kept) in self._keys.items():
            if its == account and kept == digest and not key.revoked:
                return self._person(account, key.person)
        raise NotFound("there is no such key")

    async def revoke_key(self, account: str, key_id: str, *, notes: Sequence[AuditRecord] = ()) -> PersonKey:
        if (account, key_id) not in self._keys:
            raise NotFound(f"there is no key {key_id!r}")
        revoked = self._revoke(account, self._keys[account, key_id][0])
        self.keep(account, notes)
        return revoked

    def _revoke(self, account: str, key: PersonKey) -> PersonKey:
        revoked = key if key.revoked else replace(key, revoked=self._clock())
        self._keys[account, key.id] = revoked, self._keys[account, key.id][1]
        return revoked

    async def note(self, account: str, *records: AuditRecord) -> None:
        self.keep(account, records)

    def keep(self, account: str, records: Sequence[AuditRecord]) -> None:
        """Add to the trail, at once: for the store that keeps what they tell of."""
        for one in records:
            order, at = len(self._trail) + 1, one.at or self._clock()
            self._trail.append((account, replace(one, detail=copied(one.detail), at=at, order=order)))

    async def audit(
        self,
        account: str,
        *,
        limit: int = 50,
        before: int = 0,
        object: str = "",  # noqa: A002 -- the name of the port's field
        by: str = "",
    ) -> list[AuditRecord]:
        found = (
            one
            for its, one in reversed(self._trail)
            if its == account
            and (not before or one.order < before)
            and (not object or one.object == object)
            and (not by or one.by == by)
        )
        return list(islice(found, limit))
