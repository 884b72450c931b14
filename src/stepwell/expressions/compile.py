"""
Turns a tree into nested closures over (context, frame), which is what evaluation runs.

The context is the caller's own mapping and is never copied or converted: a path is `context[root][key]...`, tried
directly on plain dicts and lists and walked with care only when that fails. Only work that can grow takes fuel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import Absent, Fault
from .functions import FUNCTIONS
from .macros import MACRO_LOOPS, Loop
from .nodes import (
    Binary,
    Call,
    Coalesce,
    Get,
    Has,
    Item,
    ListLiteral,
    Literal,
    Logic,
    Macro,
    MapLiteral,
    Node,
    Ternary,
    Unary,
    Var,
    cost_of,
)
from .operators import ARITHMETIC, NUMBER_TYPES, ORDERINGS, negate, order
from .paths import Closure, local_path, optional_field, root_path
from .patterns import PatternRoom, matched
from .values import HUGE, KINDS, LONG_TEXT, Frame, contains, equal, index_into, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BOOLEAN_HINT = 'compare explicitly: == null, size(...) > 0, != ""'


def build(node: Node, room: PatternRoom) -> Closure:
    """The closure that evaluates a tree. Raises Fault (syntax, limit) for a pattern that RE2 refuses."""
    return _BUILDERS[type(node)](node, room)


def passes_through(node: Node) -> bool:
    """Whether the value can only be the caller's own data or a literal, so that it needs no bounding."""
    pending: list[Node] = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, Ternary):
            pending += (item.then, item.otherwise)
        elif isinstance(item, Coalesce):
            pending += (item.left, item.right)
        elif isinstance(item, (Get, Item)):
            pending.append(item.base)
        elif (isinstance(item, ListLiteral) and item.items) or not isinstance(item, (Literal, Var, ListLiteral)):
            return False
    return True


def _literal(node: Literal, _room: PatternRoom) -> Closure:
    value = node.value
    return lambda _context, _frame: value


def _var(node: Var, _room: PatternRoom) -> Closure:
    if node.slot:
        slot = node.slot
        return lambda _context, frame: frame[slot]
    return root_path(node, ())


def _get(node: Get, room: PatternRoom) -> Closure:
    if node.optional:
        return optional_field(build(node.base, room), node, absent=_is_output(node.base))
    chain: list[Get] = []
    base: Node = node
    while isinstance(base, Get) and not base.optional:
        chain.append(base)
        base = base.base
    steps = tuple(reversed(chain))
    if isinstance(base, Var) and not base.slot:
        return root_path(base, steps)
    return local_path(build(base, room), steps)


def _is_output(node: Node) -> bool:
    """Whether a node is a step's whole output, which a skipped step does not have."""
    if not isinstance(node, Get):
        return False
    if isinstance(node.base, Var):
        return node.base.name == "step" and not node.base.slot
    record = node.base
    return (
        node.key in {"result", "output"}
        and isinstance(record, Get)
        and isinstance(record.base, Var)
        and record.base.name == "steps"
        and not record.base.slot
    )


def _item(node: Item, room: PatternRoom) -> Closure:
    base, index, pos = build(node.base, room), build(node.index, room), node.pos
    return lambda context, frame: index_into(base(context, frame), index(context, frame), pos)


def _unary(node: Unary, room: PatternRoom) -> Closure:
    operand, pos = build(node.operand, room), node.pos
    if node.op == "!":

        def run_not(context: Mapping[str, Any], frame: Frame) -> bool:
            value = operand(context, frame)
            if value is True or value is False:
                return not value
            raise Fault("type", f"! needs a boolean, got {kind_of(value)}", pos, BOOLEAN_HINT)

        return run_not

    def run_minus(context: Mapping[str, Any], frame: Frame) -> Any:
        value = operand(context, frame)
        try:
            return negate(value)
        except Fault as fault:
            raise fault.at(pos) from None

    return run_minus


def _binary(node: Binary, room: PatternRoom) -> Closure:
    left, right, pos = build(node.left, room), build(node.right, room), node.pos
    if node.op in ARITHMETIC:
        return _located(ARITHMETIC[node.op], left, right, pos)
    if node.op in ("==", "!="):
        return _equality(node, left, right)
    if node.op == "in":
        return _located(lambda item, holder, frame: contains(holder, item, frame), left, right, pos)
    if node.op == "not in":
        return _located(lambda item, holder, frame: not contains(holder, item, frame), left, right, pos)
    return _ordering(node.op, left, right, pos)


def _located(operation: Callable[[Any, Any, Frame], Any], left: Closure, right: Closure, pos: int) -> Closure:
    def run(context: Mapping[str, Any], frame: Frame) -> Any:
        one, other = left(context, frame), right(context, frame)
        try:
            return operation(one, other, frame)
        except Fault as fault:
            raise fault.at(pos) from None

    return run


def _equality(node: Binary, left: Closure, right: Closure) -> Closure:
    negated = node.op == "!="
    if isinstance(node.right, Literal) and type(node.right.value) is str:
        text = node.right.value

        def run_text(context: Mapping[str, Any], frame: Frame) -> bool:
            value = left(context, frame)
            return (
                equal(value, text, frame) is not negated if type(value) is not str else (value == text) is not negated
            )

        return run_text
    return _located(lambda one, other, frame: equal(one, other, frame) is not negated, left, right, node.pos)


def _ordering(op: str, left: Closure, right: Closure, pos: int) -> Closure:
    test = ORDERINGS[op]

    def run(context: Mapping[str, Any], frame: Frame) -> bool:
        one, other = left(context, frame), right(context, frame)
        kind, other_kind = type(one), type(other)
        if kind in NUMBER_TYPES and other_kind in NUMBER_TYPES and -HUGE < one < HUGE:
            return test(one, other)
        if kind is str and other_kind is str and (len(one) < LONG_TEXT or len(other) < LONG_TEXT):
            return test(one, other)
        try:
            return order(op, one, other, frame)
        except Fault as fault:
            raise fault.at(pos) from None

    return run


def _logic(node: Logic, room: PatternRoom) -> Closure:
    op, places = node.op, node.places
    stop = op == "||"
    operands = tuple(build(operand, room) for operand in node.operands)

    def run(context: Mapping[str, Any], frame: Frame) -> Any:
        for operand in operands:
            value = operand(context, frame)
            if value is stop:
                return stop
            if value is not True and value is not False:
                raise _not_boolean(op, operands.index(operand), places, value)
        return not stop

    return run


def _not_boolean(op: str, index: int, places: tuple[int, ...], value: Any) -> Fault:
    side = "left" if index == 0 else "right"
    pos = places[max(index - 1, 0)]
    return Fault("type", f"{op} needs booleans, {side} side is {kind_of(value)}", pos, BOOLEAN_HINT)


def _ternary(node: Ternary, room: PatternRoom) -> Closure:
    condition, then, otherwise, pos = (
        build(node.condition, room),
        build(node.then, room),
        build(node.otherwise, room),
        node.pos,
    )

    def run(context: Mapping[str, Any], frame: Frame) -> Any:
        value = condition(context, frame)
        if value is True:
            return then(context, frame)
        if value is False:
            return otherwise(context, frame)
        raise Fault("type", f"?: needs a boolean, the condition is {kind_of(value)}", pos, BOOLEAN_HINT)

    return run


def _coalesce(node: Coalesce, room: PatternRoom) -> Closure:
    left, right = build(node.left, room), build(node.right, room)

    def run(context: Mapping[str, Any], frame: Frame) -> Any:
        try:
            value = left(context, frame)
        except Absent:
            value = None
        return right(context, frame) if value is None else value

    return run


def _has(node: Has, room: PatternRoom) -> Closure:
    path = build(node.path, room)

    def run(context: Mapping[str, Any], frame: Frame) -> bool:
        try:
            path(context, frame)
        except Absent:
            return False
        return True

    return run


def _call(node: Call, room: PatternRoom) -> Closure:
    if node.name == "matches" and isinstance(node.args[1], Literal) and isinstance(node.args[1].value, str):
        return _fixed_pattern(node, node.args[1], room)
    name, pos, function = node.name, node.pos, FUNCTIONS[node.name]
    call = function.call
    args = tuple((build(arg, room), function.allowed(index)) for index, arg in enumerate(node.args))

    def run(context: Mapping[str, Any], frame: Frame) -> Any:
        values: list[Any] = []
        for arg, allowed in args:
            value = arg(context, frame)
            if allowed is not None and (KINDS.get(type(value)) or kind_of(value)) not in allowed:
                raise misfit(name, len(values), allowed, kind_of(value), pos)
            values.append(value)
        try:
            return call(frame, *values)
        except (Fault, Absent) as problem:
            raise problem.at(pos) from None

    return run


def misfit(name: str, index: int, allowed: frozenset[str], kind: str, pos: int) -> Fault:
    """The fault of an argument of the wrong kind."""
    wanted = " or ".join(sorted(allowed))
    where = f" as argument {index + 1}" if index else ""
    hint = "guard with  ?? default" if kind == "null" else ""
    return Fault("type", f"{name}() needs {wanted}{where}, got {kind}", pos, hint)


def _fixed_pattern(node: Call, pattern: Literal, room: PatternRoom) -> Closure:
    subject, pos = build(node.args[0], room), node.pos
    try:
        program = room.compile(pattern.value)
    except Fault as fault:
        raise fault.at(pattern.pos) from None

    def run(context: Mapping[str, Any], frame: Frame) -> bool:
        value = subject(context, frame)
        if not isinstance(value, str):
            raise misfit("matches", 0, frozenset(("string",)), kind_of(value), pos)
        try:
            return matched(frame, value, program)
        except Fault as fault:
            raise fault.at(pos) from None

    return run


def _macro(node: Macro, room: PatternRoom) -> Closure:
    loop = Loop(build(node.body, room), node.slot, cost_of(node.body), node.kind, node.body.pos)
    return MACRO_LOOPS[node.kind](build(node.source, room), loop, node.pos)


def _list(node: ListLiteral, room: PatternRoom) -> Closure:
    items = tuple(build(item, room) for item in node.items)

    def run(context: Mapping[str, Any], frame: Frame) -> list[Any]:
        values = []
        for item in items:
            values.append(item(context, frame))  # noqa: PERF401  # a comprehension is a frame of its own in 3.11
        return values

    return run


def _map(node: MapLiteral, room: PatternRoom) -> Closure:
    entries = tuple((key, build(value, room)) for key, value in node.entries)

    def run(context: Mapping[str, Any], frame: Frame) -> dict[str, Any]:
        fields = {}
        for key, value in entries:
            fields[key] = value(context, frame)
        return fields

    return run


_BUILDERS: dict[type, Callable[[Any, PatternRoom], Closure]] = {
    Literal: _literal,
    Var: _var,
    Get: _get,
    Item: _item,
    Unary: _unary,
    Binary: _binary,
    Logic: _logic,
    Ternary: _ternary,
    Coalesce: _coalesce,
    Has: _has,
    Call: _call,
    Macro: _macro,
    ListLiteral: _list,
    MapLiteral: _map,
}
