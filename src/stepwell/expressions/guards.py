"""Which paths a condition proves to be there, so that the branch it guards may read them."""

from __future__ import annotations

from typing import TypeAlias

from .nodes import Binary, Get, Has, Literal, Logic, Node, Unary, Var

PathKey: TypeAlias = tuple[str | int, ...]
Facts: TypeAlias = frozenset[PathKey]

NOTHING: Facts = frozenset()
_RECORD_OUTPUTS = ("result", "output")


def path_key(node: Node) -> PathKey | None:
    """A path of constant keys, or None. `steps.a.result` and `step.a` are one path."""
    keys: list[str | int] = []
    while isinstance(node, Get):
        keys.append(node.key)
        node = node.base
    if not isinstance(node, Var):
        return None
    root: str | int = node.slot or node.name
    path = (root, *reversed(keys))
    if len(path) >= 3 and root == "steps" and path[2] in _RECORD_OUTPUTS:
        return ("step", path[1], *path[3:])
    return path


def truths(node: Node) -> Facts:
    """The paths that are present once `node` has given true."""
    if isinstance(node, Has):
        return _prefixes(path_key(node.path))
    if isinstance(node, Unary) and node.op == "!":
        return falsities(node.operand)
    if isinstance(node, Logic) and node.op == "&&":
        return NOTHING.union(*map(truths, node.operands))
    if isinstance(node, Binary):
        return _compared(node)
    return NOTHING


def falsities(node: Node) -> Facts:
    """The paths that are present once `node` has given false."""
    if isinstance(node, Unary) and node.op == "!":
        return truths(node.operand)
    if isinstance(node, Logic) and node.op == "||":
        return NOTHING.union(*map(falsities, node.operands))
    if isinstance(node, Binary) and node.op in ("==", "!="):
        return _compared(Binary("==" if node.op == "!=" else "!=", node.left, node.right, node.pos))
    return NOTHING


def _compared(node: Binary) -> Facts:
    """`p != null` proves p; `steps.a.status == "completed"` and `!= "skipped"` prove the step's output."""
    for side, other in ((node.left, node.right), (node.right, node.left)):
        if not isinstance(other, Literal):
            continue
        path = path_key(side)
        if path is None:
            continue
        if node.op == "!=" and other.value is None:
            return _prefixes(path)
        is_status = len(path) == 3 and path[0] == "steps" and path[2] == "status"
        if is_status and (node.op, other.value) in (("==", "completed"), ("!=", "skipped")):
            return frozenset((("step", path[1]),))
    return NOTHING


def null_tested(node: Binary) -> Facts:
    """The fields that `p == null` or `p != null` asks about: the comparison itself is their guard."""
    if node.op not in ("==", "!="):
        return NOTHING
    for side, other in ((node.left, node.right), (node.right, node.left)):
        if isinstance(other, Literal) and other.value is None:
            return frozenset(path for path in _prefixes(path_key(side)) if len(path) > 2 or path[0] != "step")
    return NOTHING


def _prefixes(path: PathKey | None) -> Facts:
    return frozenset(path[:length] for length in range(2, len(path) + 1)) if path else NOTHING
