"""
The syntax tree of an expression.

Plain slotted classes, made once by the parser and never changed after: compiling is on the path of every load, and a
frozen dataclass costs three times as much to make. `pos` is the offset an error about the node points at: the last
segment of a path, the operator of an operation, the name of a call.
"""

from __future__ import annotations

from typing import Any, TypeAlias


class Literal:
    __slots__ = ("pos", "value")

    def __init__(self, value: Any, pos: int) -> None:
        self.value = value
        self.pos = pos

    def children(self) -> tuple[Node, ...]:
        return ()


class Var:
    """A root, a name given by `as`, or a macro's variable (`slot` > 0 is its place in the frame)."""

    __slots__ = ("name", "pos", "slot")

    def __init__(self, name: str, pos: int, slot: int = 0) -> None:
        self.name = name
        self.pos = pos
        self.slot = slot

    def children(self) -> tuple[Node, ...]:
        return ()


class Get:
    """`base.key`, `base?.key`, `base["key"]`, `base[0]`; `dotted` is false for the bracket forms."""

    __slots__ = ("base", "dotted", "key", "optional", "pos")

    def __init__(self, base: Node, key: str | int, pos: int, *, dotted: bool, optional: bool = False) -> None:
        self.base = base
        self.key = key
        self.pos = pos
        self.dotted = dotted
        self.optional = optional

    def children(self) -> tuple[Node, ...]:
        return (self.base,)


class Item:
    """`base[index]` with an index that is computed."""

    __slots__ = ("base", "index", "pos")

    def __init__(self, base: Node, index: Node, pos: int) -> None:
        self.base = base
        self.index = index
        self.pos = pos

    def children(self) -> tuple[Node, ...]:
        return (self.base, self.index)


class Unary:
    """`op` is `!` or `-`."""

    __slots__ = ("op", "operand", "pos")

    def __init__(self, op: str, operand: Node, pos: int) -> None:
        self.op = op
        self.operand = operand
        self.pos = pos

    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


class Binary:
    """`op` is an arithmetic or comparison operator, `in` or `not in`."""

    __slots__ = ("left", "op", "pos", "right")

    def __init__(self, op: str, left: Node, right: Node, pos: int) -> None:
        self.op = op
        self.left = left
        self.right = right
        self.pos = pos

    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


class Logic:
    """A chain of one operator, `&&` or `||`; `places[i]` is the offset of the operator after operand i."""

    __slots__ = ("op", "operands", "places", "pos")

    def __init__(self, op: str, operands: tuple[Node, ...], places: tuple[int, ...]) -> None:
        self.op = op
        self.operands = operands
        self.places = places
        self.pos = places[0]

    def children(self) -> tuple[Node, ...]:
        return self.operands


class Ternary:
    __slots__ = ("condition", "otherwise", "pos", "then")

    def __init__(self, condition: Node, then: Node, otherwise: Node, pos: int) -> None:
        self.condition = condition
        self.then = then
        self.otherwise = otherwise
        self.pos = pos

    def children(self) -> tuple[Node, ...]:
        return (self.condition, self.then, self.otherwise)


class Coalesce:
    __slots__ = ("left", "pos", "right")

    def __init__(self, left: Node, right: Node, pos: int) -> None:
        self.left = left
        self.right = right
        self.pos = pos

    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


class Has:
    __slots__ = ("path", "pos")

    def __init__(self, path: Node, pos: int) -> None:
        self.path = path
        self.pos = pos

    def children(self) -> tuple[Node, ...]:
        return (self.path,)


class Call:
    __slots__ = ("args", "name", "pos")

    def __init__(self, name: str, args: tuple[Node, ...], pos: int) -> None:
        self.name = name
        self.args = args
        self.pos = pos

    def children(self) -> tuple[Node, ...]:
        return self.args


class Macro:
    """`source.kind(var, body)`; `slot` is the variable's place in the frame."""

    __slots__ = ("body", "kind", "pos", "slot", "source", "var")

    def __init__(self, kind: str, source: Node, bound: tuple[str, int], body: Node, pos: int) -> None:
        self.kind = kind
        self.source = source
        self.var, self.slot = bound
        self.body = body
        self.pos = pos

    def children(self) -> tuple[Node, ...]:
        return (self.source, self.body)


class ListLiteral:
    __slots__ = ("items", "pos")

    def __init__(self, items: tuple[Node, ...], pos: int) -> None:
        self.items = items
        self.pos = pos

    def children(self) -> tuple[Node, ...]:
        return self.items


class MapLiteral:
    __slots__ = ("entries", "pos")

    def __init__(self, entries: tuple[tuple[str, Node], ...], pos: int) -> None:
        self.entries = entries
        self.pos = pos

    def children(self) -> tuple[Node, ...]:
        return tuple(value for _, value in self.entries)


Node: TypeAlias = (
    Literal
    | Var
    | Get
    | Item
    | Unary
    | Binary
    | Logic
    | Ternary
    | Coalesce
    | Has
    | Call
    | Macro
    | ListLiteral
    | MapLiteral
)


def cost_of(node: Node) -> int:
    """The fuel of one round of a macro with this body: a unit for each node, more where a step is dear."""
    total = 1
    pending: list[Node] = [node]
    while pending:
        item = pending.pop()
        is_guard = isinstance(item, (Has, Coalesce)) or (isinstance(item, Get) and item.optional)
        total += 9 if is_guard else 3 if isinstance(item, Call) else 1
        pending += item.children()
    return total


def weigh(node: Node) -> tuple[int, int]:
    """How many nodes a tree has, and how deep it is; walks without recursion."""
    count = depth = 0
    level: list[Node] = [node]
    while level:
        count += len(level)
        depth += 1
        level = [child for parent in level for child in parent.children()]
    return count, depth
