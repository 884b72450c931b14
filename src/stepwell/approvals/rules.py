"""The rules of one approval: what its step says, and who that meant when it opened.

The law of the file: rules are data beside the wait. They are not part of what is shown, so that handing an approval to
somebody else, or asking one more person, makes no decision stale.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from stepwell.ports import Person, Wait

Json: TypeAlias = Any

ANYONE = ("approver", "admin")
"""Roles that decide where a step names no approvers."""


class Group(msgspec.Struct, frozen=True, omit_defaults=True):
    """A role, a department or one user, and the people whom that meant when the approval opened (None: not known)."""

    kind: Literal["role", "department", "user"]
    name: str
    members: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return self.name if self.kind == "user" else f"{self.kind} {self.name}"

    def means(self, person: Person) -> bool:
        """Whether the person belongs to the group."""
        match self.kind:
            case "role":
                return self.name in person.roles
            case "department":
                return self.name in person.departments
            case _:
                return is_called(person, self.name)


class Require(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many must agree. `count` is for a quorum; `each` for per_group: how many of which group."""

    mode: Literal["any", "all", "quorum", "per_group", "sequence"] = "any"
    count: int = 1
    each: tuple[tuple[str, str, int], ...] = ()


class Escalation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who may decide as well, `after` so many seconds."""

    after: float
    to: tuple[Group, ...]
    done: bool = False


class Rules(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who may decide an approval, how many of them, and when they are reminded."""

    approvers: tuple[Group, ...] = ()
    """In the order in which they are written; empty: anyone with a role of `ANYONE`."""
    require: Require = Require()
    allow_requester: bool = True
    remind_every: float = 0.0
    escalate: tuple[Escalation, ...] = ()
    requester: str = ""
    frozen: bool = False
    """Whether the members are known. They are not where the approval opened before the directory had anybody."""
    escalated: tuple[str, ...] = ()
    """Those who may decide as well by now: each can stand in for anyone who is missing."""
    reminded: int = 0
    """How many times `remind_every` had passed when the last reminder was sent."""

    def members(self) -> list[str]:
        """The people of all groups, each once."""
        return list(dict.fromkeys(name for group in self.approvers for name in group.members or ()))

    def later(self) -> set[str]:
        """Those whom an escalation that is still to come will ask."""
        to_come = (group for escalation in self.escalate if not escalation.done for group in escalation.to)
        return {name for group in to_come for name in group.members or ()}

    def matter(self) -> bool:
        """Whether they ask for more than one decision by anybody."""
        return bool(self.approvers) or self.require.mode != "any" or not self.allow_requester

    def as_json(self) -> Json:
        """As a wait keeps them."""
        return msgspec.to_builtins(self)


def rules_of(wait: Wait) -> Rules:
    """The rules of a wait. One that was opened by an older version kept its approvers in what it shows."""
    if wait.rules is not None:
        return msgspec.convert(wait.rules, Rules)
    request = wait.request if isinstance(wait.request, dict) else {}
    named = request.get("approvers")
    if not isinstance(named, dict):
        return Rules()
    return Rules(tuple(_groups(named)), allow_requester=bool(request.get("allow_requester")))


def _groups(named: dict[str, Json]) -> Iterator[Group]:
    kinds: tuple[tuple[str, Literal["role", "department", "user"]], ...] = (
        ("roles", "role"),
        ("departments", "department"),
        ("users", "user"),
    )
    for word, kind in kinds:
        for name in named.get(word) or ():
            yield Group(kind, str(name))


def is_called(person: Person, name: str) -> bool:
    """Whether a name or an e-mail address, in any case or form, is this person's."""
    key = _key(name)
    return bool(key) and key in (_key(person.name), _key(person.email))


def _key(name: str) -> str:
    """What two spellings of one name share, as in the directory."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())
