"""What differs between two definitions, by step and field: a structural diff of canonical data.

The law of the file: layout, comments and the order of keys are never seen; what only people read is told as cosmetic.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from stepwell.definition.canonical import cosmetic_keys, is_step, opaque_keys

Json: TypeAlias = Any
Location: TypeAlias = tuple[str | int, ...]
Kind: TypeAlias = Literal["added", "removed", "moved", "changed"]


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Json = _Absent()
"""Where a side does not have a field."""


@dataclass(frozen=True, slots=True)
class Side:
    """A definition that is compared. `pins` are digests of what it calls, by words such as "recipe mood"."""

    name: str
    data: dict[str, Json]
    pins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. `step` is empty for the workflow itself; `field` is a dotted name, empty for a whole step.

    `path` leads to the step by the ids of its containers; `here` and `there` locate it in the data of each side, None
    where it has no place.
    """

    kind: Kind
    step: str
    path: str
    field: str = ""
    before: Json = ABSENT
    after: Json = ABSENT
    cosmetic: bool = False
    here: Location | None = None
    there: Location | None = None


@dataclass(frozen=True, slots=True)
class _Site:
    """A step with where it stands: in which block, and after which steps of it."""

    id: str
    path: str
    where: Location
    block: str
    data: dict[str, Json]


def differences(before: Side, after: Side) -> list[Difference]:
    """All differences, those of the workflow itself first, then by step in the order of `after`."""
    old, new = _sites(before.data), _sites(after.data)
    found = [*_of_workflow(before, after), *_of_pins(before.pins, after.pins)]
    found += [_whole("removed", site) for name, site in old.items() if name not in new]
    moved = _moved(old, new)
    for name, site in new.items():
        if name not in old:
            found.append(_whole("added", site))
            continue
        if name in moved:
            found.append(_place_of(old[name], site))
        found += _of_step(old[name], site)
    return found


def is_cosmetic(found: Iterable[Difference]) -> bool:
    """Whether nothing that is done has changed."""
    return all(one.cosmetic for one in found)


def _whole(kind: Kind, site: _Site) -> Difference:
    type_ = site.data.get("type")
    if kind == "added":
        return Difference(kind, site.id, site.path, after=type_, there=site.where)
    return Difference(kind, site.id, site.path, before=type_, here=site.where)


def _place_of(old: _Site, new: _Site) -> Difference:
    before, after = old.block, new.block
    if before == after:
        before, after = f"{before} at {_index(old)}", f"{after} at {_index(new)}"
    return Difference("moved", new.id, new.path, "", before, after, here=old.where, there=new.where)


def _index(site: _Site) -> int:
    return int(site.where[-1]) + 1


# ── where steps stand ──


def _sites(data: dict[str, Json]) -> dict[str, _Site]:
    """Every step by its id, containers before what is inside them."""
    found: dict[str, _Site] = {}
    _gather(data, (), _Block("", ""), found)
    return found


@dataclass(frozen=True, slots=True)
class _Block:
    """Where steps lie: in which container, by the ids of all around it, and behind which of its keys."""

    owner: str
    path: str
    keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        keys = ".".join(self.keys[:-1] if self.keys[-1:] == ("steps",) else self.keys)
        return ".".join(part for part in (self.owner, keys) if part) or "the workflow"


def _gather(value: Json, where: Location, block: _Block, found: dict[str, _Site]) -> None:
    if isinstance(value, list):
        for index, inner in enumerate(value):
            inside = block if is_step(inner) else replace(block, keys=(*block.keys, str(index)))
            _gather(inner, (*where, index), inside, found)
    elif isinstance(value, dict):
        hidden = opaque_keys(value) if where else _NOT_STEPS
        if is_step(value):
            path = f"{block.path}/{value['id']}"
            found.setdefault(value["id"], _Site(value["id"], path, where, block.name, value))
            block = _Block(value["id"], path)
        for key, inner in value.items():
            if key not in hidden:
                _gather(inner, (*where, key), replace(block, keys=(*block.keys, key)), found)


_NOT_STEPS = frozenset({"input", "output", "defaults", "deliver", "budget", "concurrency"})
"""Fields of a workflow in which no step lies."""


def _moved(old: Mapping[str, _Site], new: Mapping[str, _Site]) -> set[str]:
    """Steps in another block, or at another place among those that stayed in theirs: as few as explain the order."""
    common = [name for name in new if name in old]
    moved = {name for name in common if old[name].block != new[name].block}
    blocks: dict[str, list[str]] = {}
    for name in common:
        if name not in moved:
            blocks.setdefault(new[name].block, []).append(name)
    for names in blocks.values():
        order = {name: at for at, name in enumerate(sorted(names, key=lambda name: old[name].where))}
        kept = _longest_rising([order[name] for name in names])
        moved |= {name for name in names if order[name] not in kept}
    return moved


def _longest_rising(numbers: list[int]) -> set[int]:
    """A longest rising part of a list of different numbers."""
    tails: list[int] = []
    before: dict[int, int | None] = {}
    for number in numbers:
        at = bisect_left(tails, number)
        before[number] = tails[at - 1] if at else None
        tails[at : at + 1] = [number]
    found: set[int] = set()
    number_: int | None = tails[-1] if tails else None
    while number_ is not None:
        found.add(number_)
        number_ = before[number_]
    return found


# ── fields ──


def _of_workflow(before: Side, after: Side) -> Iterator[Difference]:
    cosmetic = {"name", "description", "tags", "version"}
    old, new = _without_steps(before.data), _without_steps(after.data)
    for where, was, now in leaves(old, new, ()):
        here = where if was is not ABSENT else None
        there = where if now is not ABSENT else None
        dotted = ".".join(map(str, where))
        yield Difference("changed", "", "", dotted, was, now, where[0] in cosmetic, here, there)


def _of_pins(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            yield Difference("changed", "", "", name, old[name][:12], new[name][:12])


def _of_step(old: _Site, new: _Site) -> Iterator[Difference]:
    cosmetic = {*cosmetic_keys(new.data)} & {*cosmetic_keys(old.data)}
    for where, was, now in leaves(_without_steps(old.data), _without_steps(new.data), ()):
        here = (*old.where, *where) if was is not ABSENT else None
        there = (*new.where, *where) if now is not ABSENT else None
        dotted = ".".join(map(str, where))
        yield Difference("changed", new.id, new.path, dotted, was, now, where[0] in cosmetic, here, there)


def _without_steps(value: dict[str, Json]) -> dict[str, Json]:
    """The fields of a step or workflow, its nested steps left out: they are compared by their ids."""
    hidden = opaque_keys(value) if is_step(value) else _NOT_STEPS
    found: dict[str, Json] = {}
    for key, inner in value.items():
        kept = inner if key in hidden else _shallow(inner)
        if kept is not ABSENT:
            found[key] = kept
    return found


def _shallow(value: Json) -> Json:
    if isinstance(value, list):
        if any(is_step(inner) for inner in value):
            return ABSENT
        return [kept for inner in value if (kept := _shallow(inner)) is not ABSENT]
    if isinstance(value, dict):
        hidden = opaque_keys(value)
        kept_all = {key: inner if key in hidden else _shallow(inner) for key, inner in value.items()}
        return {key: inner for key, inner in kept_all.items() if inner is not ABSENT}
    return value


def leaves(old: Json, new: Json, where: Location) -> Iterator[tuple[Location, Json, Json]]:
    """The innermost fields in which two objects differ; lists are compared as a whole unless they hold objects."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from leaves(old.get(key, ABSENT), new.get(key, ABSENT), (*where, key))
    elif _alike(old, new):
        for index, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from leaves(was, now, (*where, index))
    elif type(old) is not type(new) or old != new:
        yield where, old, new


def _alike(old: Json, new: Json) -> bool:
    """Whether two lists are as long and hold objects only, so that it can be said which of them differ."""
    if not isinstance(old, list) or not isinstance(new, list) or len(old) != len(new):
        return False
    return bool(old) and all(isinstance(one, dict) for one in (*old, *new))
