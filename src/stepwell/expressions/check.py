"""
Checks an expression before the run: steps and their order, scopes, paths against schemas, types, enumerations.

It evaluates nothing. Every problem is found, not the first alone; what a schema leaves open is never a problem.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from .errors import ExpressionError, ExpressionWarning, listing, suggestion
from .guards import NOTHING, Facts, falsities, null_tested, path_key, truths
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
)
from .schema import Schema, Undeclared
from .shapes import EMPTY, LOOP, RECORD, RECORD_SHOWN, RUN, UNKNOWN, Shape, declared, either, made
from .typing_rules import Finding, call_shape, operation_shape, unary_shape
from .values import kind_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from .program import Program
    from .template import Template

_LOOP_ROOTS = ("loop_item", "loop")
_PLACES = {
    "error": "it exists in steps that recover from a failure, in on_error and in retry.when",
    "result": "it exists in retry.when",
    "call": "it exists in the steps of verify, in took_effect and in its output",
    "event": "it exists in wait.match",
    "secret": "it belongs into `arguments` of tool_call and browser_action; it goes to no model, condition or document",
}
_BOOLEAN = frozenset(("boolean",))
_ITERABLE = frozenset(("array", "object"))


@dataclass(frozen=True, slots=True)
class StepShape:
    """What is known of a step that has run before: its output's schema, and whether it may have been skipped."""

    output: Schema | None = None
    maybe_skipped: bool = False


@dataclass(frozen=True, slots=True)
class CheckEnv:
    """
    What an expression sees at its place in a definition.

    `visible` are the steps that have run before it, `known` the ids of all steps. `input` is the schema of the
    workflow's input, `loop_item` that of the item (None: outside a loop; True: unknown). `names` are the loops' own
    names (`as`), `roots` those of error, result, event and secret that exist here. With `strict` a field that no
    schema declares is an error even where the schema leaves room for it.
    """

    visible: Mapping[str, StepShape] = field(default_factory=dict)
    known: Collection[str] = ()
    input: Schema | None = None
    loop_item: Schema | None = None
    names: Mapping[str, Schema | None] = field(default_factory=dict)
    roots: Mapping[str, Schema | None] = field(default_factory=dict)
    strict: bool = False


def check_expression(program: Program, env: CheckEnv, *, boolean: bool = False) -> list[ExpressionError]:
    """All problems, by place; those of severity "warning" need not be wrong. `boolean`: it is a condition."""
    checker = _Checker(program.source, env)
    shape = checker.shape(program.node, _Scope())
    if boolean and shape.never(_BOOLEAN):
        checker.report("type", f"must give a boolean, this gives {shape.described()}", program.node.pos)
    return checker.sorted_problems()


def check_template(template: Template, env: CheckEnv) -> list[ExpressionError]:
    """All problems of the references in a text, by place."""
    checker = _Checker(template.source, env)
    for node in template.nodes:
        checker.shape(node, _Scope())
    return checker.sorted_problems()


class _Scope(NamedTuple):
    """`guarded` is true inside has() and on the left of `??`, where a missing field is no problem."""

    variables: Mapping[int, Shape] = MappingProxyType({})
    facts: Facts = NOTHING
    guarded: bool = False

    def knowing(self, facts: Facts) -> _Scope:
        return self._replace(facts=self.facts | facts) if facts else self


class _Checker:
    def __init__(self, source: str, env: CheckEnv) -> None:
        self.source = source
        self.env = env
        self.problems: dict[tuple[int, str], ExpressionError] = {}
        self.shapes: dict[int, Shape] = {}

    def report(self, code: str, message: str, pos: int, hint: str = "") -> None:
        self.problems.setdefault((pos, message), ExpressionError(code, message, self.source, pos, hint))

    def declared(self, schema: Schema | None, shown: tuple[str, ...] = ()) -> Shape:
        """The shape of a schema document, made once, so that one budget of steps holds for all questions about it."""
        if id(schema) not in self.shapes:
            self.shapes[id(schema)] = declared(schema, shown)
        return self.shapes[id(schema)]

    def sorted_problems(self) -> list[ExpressionError]:
        return sorted(self.problems.values(), key=lambda problem: problem.offset)

    def shape(self, node: Node, scope: _Scope) -> Shape:
        """The shape of a node, after reporting what is wrong inside it."""
        match node:
            case Var() | Get() | Item():
                found = self._path(node, scope)
            case Logic():
                found = self._logic(node, scope)
            case Ternary():
                found = self._ternary(node, scope)
            case Coalesce():
                left = self.shape(node.left, scope._replace(guarded=True)).without_null()
                found = either(left, self.shape(node.right, scope))
            case Has():
                self.shape(node.path, scope._replace(guarded=True))
                found = made("boolean")
            case Macro():
                found = self._macro(node, scope)
            case _:
                found = self._operation(node, scope)
        return found

    def _operation(self, node: Node, scope: _Scope) -> Shape:
        if isinstance(node, Binary):
            scope = scope.knowing(null_tested(node))
        shapes = [self.shape(child, scope) for child in node.children()]
        findings: list[Finding] = []
        match node:
            case Literal():
                return Shape(frozenset((kind_of(node.value),)), values=(node.value,))
            case Unary():
                result = unary_shape(node, shapes[0], findings)
            case Binary():
                result = operation_shape(node, (shapes[0], shapes[1]), findings)
            case Call():
                result = call_shape(node, shapes, findings)
            case ListLiteral():
                element = shapes[0] if shapes else EMPTY
                for other in shapes[1:]:
                    element = either(element, other)
                return made("array", element=element)
            case MapLiteral():
                return made("object")
            case _:
                return UNKNOWN
        for finding in findings:
            self.report(*finding)
        return result

    def _path(self, node: Var | Get | Item, scope: _Scope) -> Shape:
        if isinstance(node, Var):
            return scope.variables.get(node.slot, UNKNOWN) if node.slot else self._root(node)
        if isinstance(node, Item):
            base, index = self.shape(node.base, scope), self.shape(node.index, scope)
            is_element = base.kinds == frozenset(("array",)) and not index.never(frozenset(("number",)))
            return base.at(None) if is_element else UNKNOWN
        return self._get(node, scope)

    def _get(self, node: Get, scope: _Scope) -> Shape:
        if isinstance(node.base, Var) and node.base.name in ("step", "steps") and not node.base.slot:
            return self._step(node, node.base.name, scope)
        base = self.shape(node.base, scope)
        if isinstance(node.key, int):
            return self._index(node, base, scope)
        if self._is_record(node.base) and node.key in ("result", "output"):
            return self._output(node, scope)
        return self._field(node, node.key, base, scope)

    def _root(self, node: Var) -> Shape:
        name, env = node.name, self.env
        known: dict[str, Schema | None] = {**env.roots, "workflow_input": env.input, "run": RUN, **env.names}
        if env.loop_item is not None:
            known |= {"loop_item": env.loop_item, "loop": LOOP}
        if name in known:
            return self.declared(known[name])
        if name in _LOOP_ROOTS:
            self.report("scope", f"'{name}' is used outside a loop step", node.pos)
        else:
            self.report("scope", f"'{name}' does not exist here", node.pos, _PLACES.get(name, ""))
        return UNKNOWN

    def _step(self, node: Get, root: str, scope: _Scope) -> Shape:
        step_id = str(node.key)
        step = self.env.visible.get(step_id)
        if step is None:
            if step_id in self.env.known:
                self.report("order", f"step '{step_id}' does not run before this one", node.pos)
            else:
                ids = list(dict.fromkeys((*self.env.visible, *self.env.known)))
                hint = suggestion(step_id, ids) or listing("steps", ids)
                self.report("step", f"no step '{step_id}'", node.pos, hint)
            return UNKNOWN
        return self.declared(RECORD, RECORD_SHOWN) if root == "steps" else self._output(node, scope)

    def _output(self, node: Get, scope: _Scope) -> Shape:
        path = path_key(node)
        step_id = str(path[1]) if path else ""
        step = self.env.visible.get(step_id)
        if step is None:
            return UNKNOWN
        if step.maybe_skipped and not self._is_guarded(node, scope):
            message = f"step '{step_id}' may be skipped, its output is then missing"
            warning = ExpressionWarning(
                "missing", message, self.source, node.pos, "guard with  ?? default,  ?.  or  has(...) && ..."
            )
            self.problems.setdefault((node.pos, message), warning)
        return self.declared(step.output)

    def _is_record(self, node: Node) -> bool:
        return isinstance(node, Get) and isinstance(node.base, Var) and node.base.name == "steps" and not node.base.slot

    def _is_guarded(self, node: Get, scope: _Scope) -> bool:
        return scope.guarded or node.optional or path_key(node) in scope.facts

    def _field(self, node: Get, name: str, base: Shape, scope: _Scope) -> Shape:
        if base.never(frozenset(("object",))):
            hint = "use an index [0] or .map(x, ...)" if base.kinds == frozenset(("array",)) else ""
            self.report("type", f"no field '{name}': the value is {base.described()}", node.pos, hint)
            return UNKNOWN
        found = base.field(name)
        if not isinstance(found, Undeclared):
            return found
        if (found is Undeclared.CLOSED or self.env.strict) and not self._is_guarded(node, scope):
            names = base.names()
            hint = suggestion(name, names) or listing("declared", names)
            self.report("path", f"no field '{name}' in the declared output", node.pos, hint)
        return UNKNOWN

    def _index(self, node: Get, base: Shape, scope: _Scope) -> Shape:
        index = int(node.key)
        if node.dotted and base.kinds == frozenset(("object",)):
            return self._field(node, str(index), base, scope)
        if base.never(_ITERABLE if node.dotted else frozenset(("array",))):
            self.report("type", f"no index {index}: the value is {base.described()}", node.pos)
            return UNKNOWN
        return base.at(index) if base.kinds is not None and "array" in base.kinds else UNKNOWN

    def _logic(self, node: Logic, scope: _Scope) -> Shape:
        facts_of = truths if node.op == "&&" else falsities
        for index, operand in enumerate(node.operands):
            shape = self.shape(operand, scope)
            scope = scope.knowing(facts_of(operand))
            if shape.never(_BOOLEAN):
                side, pos = ("right", node.places[index - 1]) if index else ("left", node.places[0])
                message = f"{node.op} needs booleans, {side} side is {shape.described()}"
                self.report("type", message, pos, 'compare explicitly: == null, size(...) > 0, != ""')
        return made("boolean")

    def _ternary(self, node: Ternary, scope: _Scope) -> Shape:
        condition = self.shape(node.condition, scope)
        if condition.never(_BOOLEAN):
            self.report("type", f"?: needs a boolean, the condition is {condition.described()}", node.pos)
        then = self.shape(node.then, scope.knowing(truths(node.condition)))
        return either(then, self.shape(node.otherwise, scope.knowing(falsities(node.condition))))

    def _macro(self, node: Macro, scope: _Scope) -> Shape:
        source = self.shape(node.source, scope)
        if source.never(_ITERABLE):
            self.report("type", f"{node.kind}() needs array or object, got {source.described()}", node.source.pos)
            source = UNKNOWN
        is_array = source.kinds == frozenset(("array",))
        is_object = source.kinds == frozenset(("object",))
        each = source.at(None) if is_array else made("string") if is_object else UNKNOWN
        inner = scope._replace(variables={**scope.variables, node.slot: each}, guarded=False)
        body = self.shape(node.body, inner)
        if node.kind != "map" and body.never(_BOOLEAN):
            message = f"{node.kind}() needs a boolean for each element, got {body.described()}"
            self.report("type", message, node.body.pos)
        if node.kind == "map":
            return made("array", element=body)
        return made("boolean") if node.kind != "filter" else source if is_array else made("array", element=each)
