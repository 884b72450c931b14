"""The static types of operators and functions, and the findings where operands cannot fit."""

from __future__ import annotations

from typing import Any, TypeAlias

from .errors import listing, suggestion
from .functions import FUNCTIONS
from .nodes import Binary, Call, ListLiteral, Literal, Node, Unary
from .operators import ORDERED_KINDS, mismatch
from .shapes import UNKNOWN, Shape, made

Finding: TypeAlias = tuple[str, str, int, str]
"""Code, message, offset, hint."""

_NUMBER, _STRING, _ARRAY = "number", "string", "array"
_RESULTS: dict[str, dict[tuple[str, str], str]] = {
    "+": {
        (_NUMBER, _NUMBER): _NUMBER,
        (_STRING, _STRING): _STRING,
        (_ARRAY, _ARRAY): _ARRAY,
        ("timestamp", "duration"): "timestamp",
        ("duration", "timestamp"): "timestamp",
        ("duration", "duration"): "duration",
    },
    "-": {
        (_NUMBER, _NUMBER): _NUMBER,
        ("timestamp", "timestamp"): "duration",
        ("timestamp", "duration"): "timestamp",
        ("duration", "duration"): "duration",
    },
    "*": {(_NUMBER, _NUMBER): _NUMBER, ("duration", _NUMBER): "duration", (_NUMBER, "duration"): "duration"},
    "/": {(_NUMBER, _NUMBER): _NUMBER, ("duration", _NUMBER): "duration", ("duration", "duration"): _NUMBER},
    "%": {(_NUMBER, _NUMBER): _NUMBER},
}
_HOLDERS = frozenset(("array", "object", "string"))
_SAME_ARRAY = ("sort", "unique", "reverse", "slice")


def unary_shape(node: Unary, operand: Shape, findings: list[Finding]) -> Shape:
    if node.op == "!":
        if operand.never(frozenset(("boolean",))):
            hint = 'compare explicitly: == null, size(...) > 0, != ""'
            findings.append(("type", f"! needs a boolean, got {operand.described()}", node.pos, hint))
        return made("boolean")
    if operand.never(frozenset((_NUMBER, "duration"))):
        findings.append(("type", f"- needs a number, got {operand.described()}", node.pos, ""))
        return UNKNOWN
    return Shape(operand.kinds & {_NUMBER, "duration"}) if operand.kinds else UNKNOWN


def operation_shape(node: Binary, sides: tuple[Shape, Shape], findings: list[Finding]) -> Shape:
    if node.op in _RESULTS:
        return _arithmetic(node, sides, findings)
    if node.op in ("==", "!="):
        _equality(node, sides, findings)
    elif node.op in ("in", "not in"):
        _membership(node, sides, findings)
    else:
        _ordering(node, sides, findings)
    return made("boolean")


def _arithmetic(node: Binary, sides: tuple[Shape, Shape], findings: list[Finding]) -> Shape:
    left, right = sides
    if left.kinds is None or right.kinds is None:
        return UNKNOWN
    table = _RESULTS[node.op]
    results = {table[pair] for pair in ((one, other) for one in left.kinds for other in right.kinds) if pair in table}
    if not results:
        fault = mismatch(node.op, left.described(), right.described())
        findings.append(("type", fault.message, node.pos, fault.hint))
        return UNKNOWN
    return Shape(frozenset(results))


def _ordering(node: Binary, sides: tuple[Shape, Shape], findings: list[Finding]) -> None:
    left, right = sides
    if left.kinds is None or right.kinds is None or left.kinds & right.kinds & ORDERED_KINDS:
        return
    kinds = left.kinds | right.kinds
    hint = ""
    if kinds == {_STRING, _NUMBER}:
        hint = "convert with float(...) or string(...)"
    elif "null" in kinds:
        hint = "guard with  ?? default  or  x != null && ..."
    elif _STRING in kinds and kinds & {"timestamp", "duration"}:
        hint = "convert with timestamp(...) or duration(...)"
    message = f"cannot compare ({node.op}) {left.described()} and {right.described()}"
    findings.append(("type", message, node.pos, hint))


def _equality(node: Binary, sides: tuple[Shape, Shape], findings: list[Finding]) -> None:
    left, right = sides
    null = frozenset(("null",))
    if left.kinds is None or right.kinds is None or null in (left.kinds, right.kinds):
        return
    if not left.kinds & right.kinds:
        outcome = "false" if node.op == "==" else "true"
        message = f"always {outcome}: {left.described()} compared with {right.described()}"
        findings.append(("type", message, node.pos, ""))
        return
    if not isinstance(node.left, Literal) and not isinstance(node.right, Literal):
        return
    if isinstance(node.left, Literal) and isinstance(node.right, Literal):
        return  # constant conditions are told elsewhere, as a warning
    _enumeration(node.right, left, findings)
    _enumeration(node.left, right, findings)


def _enumeration(node: Node, other: Shape, findings: list[Finding]) -> None:
    """A literal that is compared with a value of an enumeration must be one of its values."""
    if not isinstance(node, Literal) or other.values is None or node.value is None:
        return
    if any(_same(value, node.value) for value in other.values):
        return
    names = [str(value) for value in other.values if value is not None]
    hint = suggestion(str(node.value), names) or listing("declared", names)
    findings.append(("enum", f"'{str(node.value)[:40]}' is not one of the declared values", node.pos, hint))


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _membership(node: Binary, sides: tuple[Shape, Shape], findings: list[Finding]) -> None:
    item, holder = sides
    if holder.never(_HOLDERS):
        message = f"'in' needs an array, object or string, got {holder.described()}"
        findings.append(("type", message, node.pos, ""))
    elif holder.kinds == frozenset((_STRING,)) and item.never(frozenset((_STRING,))):
        message = f"only a string is in a string, got {item.described()}"
        findings.append(("type", message, node.pos, ""))
    elif isinstance(node.right, ListLiteral):
        for member in node.right.items:
            _enumeration(member, item, findings)
    elif holder.kinds == frozenset((_ARRAY,)):
        _enumeration(node.left, holder.at(None), findings)


def call_shape(node: Call, shapes: list[Shape], findings: list[Finding]) -> Shape:
    function = FUNCTIONS[node.name]
    for index, (argument, shape) in enumerate(zip(node.args, shapes, strict=True)):
        allowed = function.allowed(index)
        if allowed is not None and shape.never(allowed):
            wanted = " or ".join(sorted(allowed))
            where = f" as argument {index + 1}" if index else ""
            message = f"{node.name}() needs {wanted}{where}, got {shape.described()}"
            findings.append(("type", message, argument.pos, ""))
    return _call_result(node.name, shapes[0], function.result)


def _call_result(name: str, subject: Shape, result: frozenset[str] | None) -> Shape:
    is_array = subject.kinds == frozenset((_ARRAY,))
    if name in _SAME_ARRAY and is_array:
        return subject
    if name in ("first", "last") and is_array:
        return subject.at(0 if name == "first" else None)
    if name in ("keys", "split", "lines"):
        return made(_ARRAY, element=made(_STRING))
    return Shape(result) if result is not None else UNKNOWN
