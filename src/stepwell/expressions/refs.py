"""
Which paths an expression can read, found by an abstract walk of its tree without evaluating anything.

A path flows through the tree as a value: a macro's variable stands for the elements of its source, and `filter` keeps
the path of its source. Only a path that is used becomes a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from .nodes import Call, Coalesce, Get, Has, Item, Literal, Macro, Node, Var


class Wild(Enum):
    """A segment that is not one key: every element, or an index that is computed."""

    EACH = "*"
    COMPUTED = "?"


Segment: TypeAlias = str | int | Wild


@dataclass(frozen=True, slots=True)
class Ref:
    """
    A path that may be read. `pos` is the offset of its root in the source.

    `guarded` says that the expression itself copes with its absence: has(), `?.` or the left side of `??`.
    """

    root: str
    segs: tuple[Segment, ...]
    pos: int
    guarded: bool

    @property
    def step_id(self) -> str | None:
        """The step a `step.` or `steps.` path names; the language guarantees that it is written in the text."""
        return str(self.segs[0]) if self.root in ("step", "steps") and self.segs else None

    def __str__(self) -> str:
        is_step = self.root in ("step", "steps")
        tail = "".join(_shown(seg, is_step=is_step and index == 0) for index, seg in enumerate(self.segs))
        return f"{self.root}{tail}{'?' if self.guarded else ''}"


def _shown(seg: Segment, *, is_step: bool) -> str:
    if isinstance(seg, Wild):
        return f"[{seg.value}]"
    if isinstance(seg, int):
        return f"[{seg}]"
    plain = seg.replace("-", "_") if is_step else seg
    return f".{seg}" if plain.replace("_", "a").isalnum() else f".`{seg}`"


class _Path(NamedTuple):
    root: str
    segs: tuple[Segment, ...]
    pos: int
    guarded: bool

    def then(self, seg: Segment, *, guarded: bool = False) -> _Path:
        return _Path(self.root, (*self.segs, seg), self.pos, self.guarded or guarded)


class _Elements(NamedTuple):
    """An array that was made here, whose elements stand for `each`."""

    each: _Abstract


_Abstract: TypeAlias = _Path | _Elements | None
_Scope: TypeAlias = Mapping[int, "_Abstract"]


def references(node: Node) -> tuple[Ref, ...]:
    """The references of a tree, each once, in the order in which they are met."""
    walk = _Walk()
    walk.use(walk.follow(node, {}))
    return tuple(walk.found)


class _Walk:
    def __init__(self) -> None:
        self.found: dict[Ref, None] = {}
        self.seen: set[tuple[str, tuple[Segment, ...], bool]] = set()
        self.guards = 0

    def use(self, value: _Abstract) -> None:
        while isinstance(value, _Elements):
            value = value.each
        if value is None:
            return
        guarded = value.guarded or self.guards > 0
        mark = (value.root, value.segs, guarded)
        if mark not in self.seen:
            self.seen.add(mark)
            self.found[Ref(value.root, value.segs, value.pos, guarded)] = None

    def follow(self, node: Node, scope: _Scope) -> _Abstract:
        if isinstance(node, Var):
            return scope.get(node.slot) if node.slot else _Path(node.name, (), node.pos, guarded=False)
        if isinstance(node, (Get, Item)):
            return self._step(node, scope)
        if isinstance(node, Macro):
            return self._macro(node, scope)
        if isinstance(node, (Has, Coalesce)):
            return self._guarded(node, scope)
        if isinstance(node, Call) and node.name in ("first", "last"):
            return self._end(node, scope)
        for child in node.children():
            self.use(self.follow(child, scope))
        return None

    def _step(self, node: Get | Item, scope: _Scope) -> _Abstract:
        base = self.follow(node.base, scope)
        if isinstance(node, Item):
            self.use(self.follow(node.index, scope))
        if isinstance(base, _Elements):
            return base.each
        if base is None:
            return None
        if isinstance(node, Item):
            return base.then(_constant(node.index))
        return base.then(node.key, guarded=node.optional)

    def _macro(self, node: Macro, scope: _Scope) -> _Abstract:
        source = self.follow(node.source, scope)
        if node.kind != "filter":
            self.use(source)
        each = source.each if isinstance(source, _Elements) else source.then(Wild.EACH) if source else None
        body = self.follow(node.body, {**scope, node.slot: each})
        self.use(body)
        if node.kind == "filter":
            return source
        return _Elements(body) if node.kind == "map" else None

    def _guarded(self, node: Has | Coalesce, scope: _Scope) -> _Abstract:
        self.guards += 1
        self.use(self.follow(node.path if isinstance(node, Has) else node.left, scope))
        self.guards -= 1
        if isinstance(node, Coalesce):
            self.use(self.follow(node.right, scope))
        return None

    def _end(self, node: Call, scope: _Scope) -> _Abstract:
        source = self.follow(node.args[0], scope)
        if isinstance(source, _Elements):
            return source.each
        return source.then(0 if node.name == "first" else -1) if source else None


def _constant(node: Node) -> Segment:
    if isinstance(node, Literal) and type(node.value) in (str, int):
        key: str | int = node.value
        return key
    return Wild.COMPUTED
