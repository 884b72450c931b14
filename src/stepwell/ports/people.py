"""People, and the trail of what they did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody of an account. `name` is what they are called by and recorded as; `email` finds them too.

    Names and addresses are unique, whatever their case or form (see `people/names.py`).
    """

    name: str
    email: str = ""
    roles: tuple[str, ...] = ()
    """viewer, operator, approver, editor, admin, and words of the account's own such as care-manager."""
    departments: tuple[str, ...] = ()
    display: str = ""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """An act of a person. `object` is the id of what it was done to; `order` is given by the store and grows."""

    by: str
    action: str
    object: str = ""
    channel: str = ""
    origin: str = ""
    detail: Json = None
    at: float = 0.0
    order: int = 0


@dataclass(frozen=True, slots=True)
class PersonKey:
    """A key of a person, without the key. `revoked` is when it was taken back, 0 while it holds."""

    id: str
    person: str
    note: str = ""
    created: float = 0.0
    revoked: float = 0.0


class Directory(Protocol):
    """The people of an account, and the trail of what they did. The trail grows; nothing else can be done to it."""

    async def person(self, account: str, who: str) -> Person:
        """One person by name or e-mail address. Raises NotFound."""

    async def people(self, account: str, *, role: str = "", department: str = "") -> list[Person]:
        """People by name; only those who have the role and the department, where they are given."""

    async def empty(self, account: str) -> bool:
        """Whether there is nobody, so that rules about people do not count yet."""

    async def put(
        self, account: str, people: Sequence[Person], *, replaces: bool = False, notes: Sequence[AuditRecord] = ()
    ) -> list[Person]:
        """Store all of them and the notes, or nothing; returns them as stored. With `replaces`, also over themselves.

        Raises InputError with everything that is wrong with any of them.
        """

    async def remove(self, account: str, who: str, *, notes: Sequence[AuditRecord] = ()) -> Person:
        """Remove one person, by name or e-mail address, and keep the notes; their keys are revoked. Raises NotFound."""

    async def add_key(self, account: str, key: PersonKey, digest: str, *, notes: Sequence[AuditRecord] = ()) -> None:
        """Keep a person's key by its digest. Raises NotFound for nobody's."""

    async def keys(self, account: str) -> list[PersonKey]:
        """All keys, revoked ones too, oldest first."""

    async def key_owner(self, account: str, digest: str) -> Person:
        """Whose key this is. Raises NotFound, also for one that was revoked."""

    async def revoke_key(self, account: str, key_id: str, *, notes: Sequence[AuditRecord] = ()) -> PersonKey:
        """Take a key back, for ever; again changes nothing. Raises NotFound."""

    async def note(self, account: str, *records: AuditRecord) -> None:
        """Add to the trail."""

    async def audit(
        self,
        account: str,
        *,
        limit: int = 50,
        before: int = 0,
        object: str = "",  # noqa: A002 -- the name of the record's field
        by: str = "",
    ) -> list[AuditRecord]:
        """The trail, newest first; `before` is the order of the last one already seen."""
