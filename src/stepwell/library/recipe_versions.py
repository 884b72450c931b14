"""Versions of recipes that were published on their own: which one is new, which is refused, and who uses one.

The law of the file: a label belongs to one content for ever; it knows nothing of how versions are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from stepwell.definition.canonical import digest_of
from stepwell.errors import Conflict, NotFound
from stepwell.library.versions import pinning
from stepwell.ports import RecipeVersion

Json: TypeAlias = Any
_SHOWN = 10


def taken(new: RecipeVersion, labels: Iterable[str]) -> Conflict:
    """That a label has another content already; `labels` are all that the recipe ever had."""
    used, free = {*labels}, following(new.version)
    while free in used:
        free = following(free)
    message = (
        f"{new.recipe}@{new.version} is published with other content, and a version never changes; "
        f'write another version into {new.file or "the recipe"}, such as  version: "{free}"'
    )
    return Conflict(message, {"recipe": new.recipe, "version": new.version})


def following(version: str) -> str:
    """A label that may come after this one."""
    head, dot, last = version.rpartition(".")
    return f"{head}{dot}{int(last) + 1}" if last.isascii() and last.isdigit() else f"{version}-2"


def no_version(recipe: str, version: str, there: Iterable[str]) -> NotFound:
    """That there is no such version, with those that there are, last first."""
    known = [*there]
    if not known:
        return NotFound(f"there is no recipe {recipe!r} in the library")
    more = ", …" if len(known) > _SHOWN else ""
    shown = ", ".join(known[:_SHOWN])
    return NotFound(f"the library has no version {version!r} of the recipe {recipe!r}; it has {shown}{more}")


def pins(bodies: Mapping[str, Json], version: RecipeVersion) -> set[str]:
    """The definitions among these (by digest) that pinned a recipe, themselves or by calling one that did."""
    holding = {digest for digest, body in bodies.items() if any(_is(data, version) for data in _recipes(body))}
    return pinning(holding, {digest: called(body) for digest, body in bodies.items()})


def called(body: Json) -> set[str]:
    """The definitions that a stored definition calls."""
    return set(body.get("workflows", {}).values())


def _recipes(body: dict[str, dict[str, Json]]) -> Iterable[dict[str, Json]]:
    return body.get("recipes", {}).values()


def _is(data: dict[str, Json], version: RecipeVersion) -> bool:
    if (data.get("recipe"), str(data.get("version", "1"))) != (version.recipe, version.version):
        return False
    return digest_of({name: value for name, value in data.items() if name != "tests"}) == version.digest
