"""
Composed nodes: plain data that still knows where each key and value was written.

The law of the file: a node is never changed once it is composed, so that aliases may share what is below it; whoever
rewrites a definition makes new nodes that keep the place of the old ones.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from stepwell.definition.scalars import characters

Json: TypeAlias = Any
Location: TypeAlias = tuple[str | int, ...]
Style: TypeAlias = Literal["plain", "single", "double", "literal", "folded", "json"]


class Source:
    """The text of a file, in which a character's index becomes a line and a column (both from 1)."""

    __slots__ = ("__dict__", "text")

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _starts(self) -> list[int]:
        starts, index, text = [0], 0, self.text
        carriage = "\r" in text
        while True:
            found = text.find("\n", index)
            if carriage and (lone := text.find("\r", index, found if found >= 0 else None)) >= 0:
                found = lone + 1 if text[lone + 1 : lone + 2] == "\n" else lone
            if found < 0:
                return starts
            index = found + 1
            starts.append(index)

    def place(self, index: int) -> tuple[int, int]:
        line = bisect_right(self._starts, index)
        return line, index - self._starts[line - 1] + 1


@dataclass(frozen=True, slots=True)
class Span:
    """Where a scalar lies in its file: indexes of its first character and the one after its last, quotes included."""

    source: Source
    start: int
    end: int
    style: Style

    @property
    def written(self) -> str:
        return self.source.text[self.start : self.end]


class Node:
    """
    A value with its place. `parent` and `key` are those of the file as it was written.

    `value` is a scalar, a list of nodes, or a dict of nodes; `key_line` is 0 where no key was written.
    """

    __slots__ = ("column", "key", "key_column", "key_line", "line", "parent", "span", "value")

    def __init__(self, value: Json, line: int, column: int, *, span: Span | None = None) -> None:
        self.value = value
        self.line = line
        self.column = column
        self.span = span
        self.parent: Node | None = None
        self.key: str | int = ""
        self.key_line = 0
        self.key_column = 0

    def under(self, parent: Node, key: str | int, line: int = 0, column: int = 0) -> Node:
        """The node itself, newly composed, as the child of `parent` whose key is written at a line and column."""
        self.parent, self.key, self.key_line, self.key_column = parent, key, line, column
        return self

    def again(self) -> Node:
        """A copy for another use of an alias: same value, same place of the value."""
        return Node(self.value, self.line, self.column, span=self.span)

    def holding(self, value: Json) -> Node:
        """A node with another value at this place, not tied to the written characters unless the value is the same."""
        copy = Node(value, self.line, self.column, span=self.span if value is self.value else None)
        copy.parent, copy.key, copy.key_line, copy.key_column = self.parent, self.key, self.key_line, self.key_column
        return copy

    @property
    def mapping(self) -> dict[str, Node]:
        """The entries, or {} of a node that is no mapping."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """The elements, or [] of a node that is no list."""
        return self.value if isinstance(self.value, list) else []

    @property
    def pointer(self) -> str:
        """The JSON pointer (RFC 6901) to this node in the file."""
        parts: list[str] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            parts.append(str(node.key).replace("~", "~0").replace("/", "~1"))
            node = node.parent
        return "".join(f"/{part}" for part in reversed(parts))

    def place(self, offset: int = 0) -> tuple[int, int]:
        """Line and column of the value, or of the character `offset` of a text."""
        if self.span is None or not isinstance(self.value, str):
            return self.line, self.column
        found = characters(self.span.source.text, self.span.start, self.span.end, self.span.style)
        written = "".join(found.text)
        if not written.startswith(self.value):
            return self.line, self.column
        index = found.indexes[offset] if offset < len(found.indexes) else found.end
        return self.span.source.place(index)

    @property
    def key_place(self) -> tuple[int, int]:
        """Line and column of the key; of the value where there is no key."""
        return (self.key_line, self.key_column) if self.key_line else (self.line, self.column)


def plain(node: Node) -> Json:
    """The node's value as plain JSON data; nothing in it is shared."""
    value = node.value
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


class Positions:
    """The places of a definition's parts, by their location in the canonical data."""

    __slots__ = ("root",)

    def __init__(self, root: Node | None) -> None:
        self.root = root

    def find(self, where: Location) -> tuple[Node | None, Location]:
        """
        The deepest node that exists on the way to `where`, and what of the way is left.

        The first of a list may have been written without the list, as `on_error: fail` is.
        """
        node = self.root
        for depth, part in enumerate(where):
            inner = _child(node.value, part) if node is not None else None
            if inner is None and part == 0 and node is not None and not isinstance(node.value, list):
                continue
            if inner is None:
                return node, where[depth:]
            node = inner
        return node, ()

    def place(self, where: Location, offset: int = 0, *, key: bool = False) -> tuple[int, int]:
        """Line and column from 1; 0, 0 where nothing is known. `key` asks for the key rather than the value."""
        node, rest = self.find(where)
        if node is None:
            return 0, 0
        return node.key_place if key and not rest else node.place(0 if rest else offset)


def _child(value: Json, part: str | int) -> Node | None:
    if isinstance(value, dict):
        found: Node | None = value.get(part)
        return found
    if isinstance(value, list) and isinstance(part, int) and -len(value) <= part < len(value):
        element: Node = value[part]
        return element
    return None


def pointer_of(where: Location) -> str:
    """A location as a JSON pointer (RFC 6901)."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in where)
