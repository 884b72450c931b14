"""Versions of published workflows: how one is named, and what is said where there is none.

The law of the file: it knows nothing of how versions are kept, so that every store names and refuses alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from stepwell.errors import Conflict, NotFound
from stepwell.ports import AuditRecord, NewVersion, Published

Json: TypeAlias = Any
_SHOWN = 10


def numbered(new: NewVersion, number: int, at: float) -> Published:
    """The version that a publication becomes."""
    return Published(
        workflow=new.workflow,
        number=number,
        definition=new.definition,
        content=new.content,
        text=new.text,
        file=new.file,
        label=new.label,
        note=new.note,
        by=new.by,
        at=new.at or at,
        origin=new.origin,
    )


def about(version: Published, notes: Iterable[AuditRecord]) -> list[AuditRecord]:
    """The notes of a publication, now that the version has its number."""
    return [replace(note, object=f"{version.workflow}@{version.number}") for note in notes]


def says_the_same(there: Published | None, new: NewVersion) -> bool:
    """Whether publishing changes nothing: the newest version is this very one."""
    return there is not None and (there.definition, there.content) == (new.definition, new.content)


def number_in(version: str) -> int:
    """The number that a version may mean; 0 for one that can only be a label."""
    return int(version) if version.isascii() and version.isdigit() and len(version) < 10 else 0


def missing(workflow: str, version: str, there: Iterable[tuple[int, str]]) -> NotFound:
    """That there is no such version, with those (number, label) that there are, newest first."""
    known = [f"{number}" + (f" ({label})" if label and label != str(number) else "") for number, label in there]
    if not known:
        return NotFound(f"there is no workflow {workflow!r} in the library")
    more = ", …" if len(known) > _SHOWN else ""
    return NotFound(f"the library has no version {version!r} of {workflow!r}; it has {', '.join(known[:_SHOWN])}{more}")


def no_recipe(recipe: str, version: str) -> NotFound:
    """That no published workflow pinned such a recipe."""
    return NotFound(f"the library has no recipe {recipe!r}" + (f" of version {version!r}" if version else ""))


def in_use(name: str, runs: Sequence[str]) -> Conflict:
    """That a version (`id@version`) cannot be deleted because runs that have not ended pinned it."""
    shown = ", ".join(runs[:3]) + (", …" if len(runs) > 3 else "")
    return Conflict(f"{name} cannot be deleted: {len(runs)} open run(s) use it: {shown}", {"runs": list(runs[:_SHOWN])})


def pinning(definitions: Iterable[str], calls: Mapping[str, Iterable[str]]) -> set[str]:
    """The definitions that pinned one of these, themselves included; `calls` are what each one pinned."""
    found = set(definitions)
    grew = True
    while grew:
        more = {caller for caller, called in calls.items() if caller not in found and found & set(called)}
        grew = bool(more)
        found |= more
    return found
