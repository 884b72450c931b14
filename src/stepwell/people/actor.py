"""Who acts: a person, by a channel, and whether rules about people count yet.

The law of the file: until the directory has a person, any name is taken as it is said and holds every role; from then
on a name is somebody in the directory, or refused. No name at all is the local operator: whoever may write the
database on this machine. That one may operate, and is nobody's approver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from stepwell.errors import Forbidden, InputError, NotFound, Problem
from stepwell.people.names import key_of, wrong_with
from stepwell.ports import AuditRecord, Directory, Person

Json: TypeAlias = Any

OPERATOR = "local operator"
_LOCAL = Person(OPERATOR, roles=("operator",))
BUILT_IN = ("viewer", "operator", "approver", "editor", "admin")
"""Roles that Stepwell itself asks for; others are words of the account's own."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody who does something. `channel` is cli, python, api, console, mail or schedule; `origin` from where."""

    person: Person
    channel: str = "python"
    rules_off: bool = False
    """The directory is empty: every role is held, and the rule about requesters does not count."""
    origin: str = ""

    @property
    def name(self) -> str:
        """The name that is kept with what they do."""
        return self.person.name

    @property
    def is_local(self) -> bool:
        """Whether this is the local operator, no person of the directory."""
        return self.person.name == OPERATOR

    def did(self, action: str, thing: str = "", detail: Json = None) -> AuditRecord:
        """What the audit trail is told of an act; `thing` is the id of what it was done to."""
        return AuditRecord(self.name, action, thing, self.channel, self.origin, detail)


def local_operator(*, channel: str = "python", rules_off: bool = False, origin: str = "") -> Actor:
    """Whoever may write the database, and said no name."""
    return Actor(_LOCAL, channel, rules_off, origin)


def holds(actor: Actor, role: str) -> bool:
    """Whether somebody has a role. No role includes another."""
    return actor.rules_off or role in actor.person.roles


def require(actor: Actor, *roles: str, to: str) -> None:
    """Refuse who has none of these roles; `to` says for what, as in "to cancel a run". Raises Forbidden."""
    if not any(holds(actor, role) for role in roles):
        raise Forbidden(f"{actor.name} may not {to}: it takes the role {' or '.join(roles)}")


async def resolve(
    directory: Directory, account: str, name: str = "", *, channel: str = "python", origin: str = ""
) -> Actor:
    """Who a name or e-mail address is; "" is the local operator.

    Raises InputError for what can be nobody's name, and Forbidden for a name that the directory does not have.
    """
    off = await directory.empty(account)
    if not name or key_of(name) == OPERATOR:
        return local_operator(channel=channel, rules_off=off, origin=origin)
    if said := wrong_with(name):
        raise InputError([Problem("error", "person", said, "give the name that the directory has")])
    if off:
        return Actor(Person(name), channel, rules_off=True, origin=origin)
    try:
        return Actor(await directory.person(account, name), channel, origin=origin)
    except NotFound:
        raise Forbidden(f"nobody is called {name!r} here") from None
