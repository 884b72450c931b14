"""Parses tokens into a tree, by precedence climbing; every bound on the shape of a source is enforced here.

Recursion is bounded by the bracket depth (the lexer's) times the few levels of precedence; chains are loops.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .errors import Fault, listing, suggestion
from .functions import FUNCTIONS
from .lexer import Token, tokenize
from .limits import BRACKET_DEPTH, CHAIN, NODES, PATH_SEGMENTS, TREE_DEPTH
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
    weigh,
)

ROOTS = ("workflow_input", "step", "steps", "loop_item", "loop", "run", "error", "result", "event", "secret")
MAIN_ROOTS = ROOTS[:6]
MACROS = ("all", "exists", "exists_one", "filter", "map")

_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">=", "in", "not"))
_OR, _AND, _NOT, _COMPARE, _ADD, _MULTIPLY = 1, 2, 3, 4, 5, 6
_RANKS = {"||": _OR, "&&": _AND, "+": _ADD, "-": _ADD, "*": _MULTIPLY, "/": _MULTIPLY, "%": _MULTIPLY} | dict.fromkeys(
    _COMPARISONS, _COMPARE
)


def parse(text: str, start: int = 0, *, names: Collection[str] = (), live: bool = False) -> tuple[Node, int, int]:
    """The tree of an expression, the number of its frame slots, and the offset after it.

    `names` are roots beside ROOTS; with `live`, `start` is just after a `{{` and the expression ends at its `}}`.
    Raises Fault (syntax, step, limit).
    """
    tokens, end = tokenize(text, start, live=live)
    parser = _Parser(tokens, names)
    if tokens[0][0] == "end":
        raise Fault("syntax", "the expression is empty", tokens[0][2])
    node = parser.expression()
    kind, value, pos = parser.tokens[parser.index]
    if kind != "end":
        raise Fault("syntax", f"unexpected '{_shown(value)}'", pos)
    if len(tokens) > TREE_DEPTH:
        count, depth = weigh(node)
        if count > NODES:
            raise Fault("limit", f"the expression has more than {NODES} parts", start)
        if depth > TREE_DEPTH:
            raise Fault("limit", f"the expression is nested deeper than {TREE_DEPTH}", start)
    return node, parser.slots, end


class _Parser:
    __slots__ = ("index", "names", "questions", "scope", "slots", "tokens")

    def __init__(self, tokens: list[Token], names: Collection[str]) -> None:
        self.tokens = tokens
        self.index = 0
        self.names = names
        self.scope: dict[str, int] = {}
        self.slots = 0
        self.questions = 0

    def expression(self) -> Node:
        node = self._ternary()
        links = 0
        while self.tokens[self.index][0] == "|":
            links += 1
            _bound_chain(links, self.tokens[self.index][2])
            node = self._filter(node)
        return node

    def _filter(self, subject: Node) -> Node:
        kind, name, pos = self.tokens[self.index + 1]
        self.index += 2
        if kind != "name":
            raise Fault("syntax", "a function name must follow '|'", pos)
        if self.tokens[self.index][0] == "(":
            return self._call(name, pos, subject)
        if name in MACROS:
            raise _bare_macro(name, pos)
        return _called(name, (subject,), pos)

    def _ternary(self) -> Node:
        branches: list[tuple[Node, Node, int]] = []
        while True:
            node = self._coalesce()
            kind, _, pos = self.tokens[self.index]
            if kind != "?":
                break
            _bound_chain(len(branches) + 1, pos)
            self.index += 1
            then = self._then(pos)
            self._expect(":", "'?' needs a ':'")
            branches.append((node, then, pos))
        for condition, then, pos in reversed(branches):
            node = Ternary(condition, then, node, pos)
        return node

    def _then(self, pos: int) -> Node:
        # `a ? b ? c : d : e` nests without a bracket, so it is counted like one.
        self.questions += 1
        if self.questions > BRACKET_DEPTH:
            raise Fault("limit", f"conditionals are nested deeper than {BRACKET_DEPTH}", pos)
        node = self._ternary()
        self.questions -= 1
        return node

    def _coalesce(self) -> Node:
        node = self._climb(_OR)
        if self.tokens[self.index][0] != "??":
            return node
        operands = [node]
        places: list[int] = []
        while self.tokens[self.index][0] == "??":
            places.append(self.tokens[self.index][2])
            _bound_chain(len(places), places[-1])
            self.index += 1
            operands.append(self._climb(_OR))
        node = operands.pop()
        while operands:
            node = Coalesce(operands.pop(), node, places.pop())
        return node

    def _climb(self, level: int) -> Node:
        left = self._unary(level)
        links = 0
        while True:
            kind, _, pos = self.tokens[self.index]
            rank = _RANKS.get(kind, 0)
            if rank < level or rank == 0:
                return left
            links += 1
            if links > CHAIN:
                raise _chain_fault(pos)
            if rank >= _ADD:
                self.index += 1
                left = Binary(kind, left, self._climb(rank + 1), pos)
            elif rank == _COMPARE:
                left = self._comparison(left)
            else:
                left = self._logic(left, kind, rank)

    def _logic(self, first: Node, op: str, rank: int) -> Node:
        operands = [first]
        places: list[int] = []
        while self.tokens[self.index][0] == op:
            places.append(self.tokens[self.index][2])
            _bound_chain(len(places), places[-1])
            self.index += 1
            operands.append(self._climb(rank + 1))
        return Logic(op, tuple(operands), tuple(places))

    def _comparison(self, left: Node) -> Node:
        op, pos = self._comparison_operator()
        right = self._climb(_ADD)
        kind, _, next_pos = self.tokens[self.index]
        if kind in _COMPARISONS:
            raise Fault("syntax", "comparisons cannot be chained", next_pos, "write  a < b && b < c")
        return Binary(op, left, right, pos)

    def _comparison_operator(self) -> tuple[str, int]:
        op, _, pos = self.tokens[self.index]
        self.index += 1
        if op == "not":
            kind, value, after = self.tokens[self.index]
            if kind != "in":
                raise Fault("syntax", f"unexpected '{_shown(value)}'", after, "write  x not in list")
            self.index += 1
            op = "not in"
        return op, pos

    def _unary(self, level: int) -> Node:
        kind, _, pos = self.tokens[self.index]
        if kind == "not":
            return self._negation(level, pos)
        if kind not in ("!", "-"):
            return self._postfix()
        marks: list[tuple[str, int]] = []
        while kind in ("!", "-"):
            marks.append((kind, pos))
            _bound_chain(len(marks), pos)
            self.index += 1
            kind, _, pos = self.tokens[self.index]
        node = self._postfix()
        for op, at in reversed(marks):
            node = _signed(op, node, at)
        return node

    def _negation(self, level: int, pos: int) -> Node:
        if level > _NOT:
            raise Fault("syntax", "'not' cannot stand here", pos, "put it in brackets: (not x)")
        places: list[int] = []
        while self.tokens[self.index][0] == "not":
            places.append(self.tokens[self.index][2])
            _bound_chain(len(places), places[-1])
            self.index += 1
        node = self._climb(_COMPARE)
        for place in reversed(places):
            node = Unary("!", node, place)
        return node

    def _postfix(self) -> Node:
        node = self._primary()
        segments = 0
        while True:
            kind = self.tokens[self.index][0]
            if kind in (".", "?."):
                node = self._segment(node, optional=kind == "?.")
            elif kind == "[":
                node = self._bracket(node)
            else:
                return node
            segments += 1
            if segments > PATH_SEGMENTS:
                message = f"a path of more than {PATH_SEGMENTS} segments"
                raise Fault("limit", message, self.tokens[self.index][2])

    def _segment(self, base: Node, *, optional: bool) -> Node:
        kind, value, pos = self.tokens[self.index + 1]
        self.index += 2
        if kind == "word" and self.tokens[self.index][0] == "(":
            if optional:
                raise Fault("syntax", "a call follows '.', not '?.'", pos)
            return self._call(value, pos, base)
        if kind not in ("word", "idx", "tick"):
            raise Fault("syntax", "a field name must follow '.'", pos, 'other names are written  x.`name`  or  x["name"]')
        return Get(base, value, pos, dotted=True, optional=optional)

    def _bracket(self, base: Node) -> Node:
        pos = self.tokens[self.index][2]
        self.index += 1
        index = self._ternary()
        self._expect("]", "missing ']'")
        if type(index) is Literal and type(index.value) in (str, int):
            return Get(base, index.value, pos, dotted=False)
        return Item(base, index, pos)

    def _primary(self) -> Node:
        kind, value, pos = self.tokens[self.index]
        self.index += 1
        if kind == "name":
            return self._name(value, pos)
        if kind == "lit":
            return Literal(value, pos)
        if kind == "(":
            node = self.expression()
            self._expect(")", "missing ')'")
            return node
        if kind == "[":
            return ListLiteral(tuple(self._arguments("]")), pos)
        if kind == "{":
            return self._map_literal(pos)
        self.index -= 1
        if kind == "end":
            raise Fault("syntax", "expression ends here, a value is missing", pos)
        raise Fault("syntax", f"unexpected '{_shown(value)}'", pos)

    def _name(self, name: str, pos: int) -> Node:
        if self.tokens[self.index][0] == "(":
            return self._call(name, pos, None)
        slot = self.scope.get(name)
        if slot is not None:
            return Var(name, pos, slot)
        if name in ("step", "steps"):
            self._require_step_name(name, pos)
        elif name not in ROOTS and name not in self.names:
            raise self._unknown_name(name, pos)
        return Var(name, pos)

    def _require_step_name(self, root: str, pos: int) -> None:
        first, second, third = (*self.tokens[self.index : self.index + 3], ("end", "", pos), ("end", "", pos))[:3]
        hint = f'name the step: {root}.my-step  or  {root}["my-step"]'
        if first[0] in (".", "?."):
            if second[0] in ("word", "tick") and third[0] != "(":
                return
        elif first[0] == "[":
            if second[0] == "lit" and isinstance(second[1], str) and third[0] == "]":
                return
            raise Fault("step", "the step must be named in the text, it cannot be computed", first[2], hint)
        raise Fault("step", f"'{root}' alone is not a value", pos, hint)

    def _unknown_name(self, name: str, pos: int) -> Fault:
        tokens, at = self.tokens, self.index - 1
        if at >= 2 and tokens[at - 1][0] == "-" and tokens[at - 2][0] in ("word", "name"):
            minus, field = tokens[at - 1], tokens[at - 2]
            if field[2] + len(field[1]) == minus[2] == pos - 1 and field[0] == "word":
                word = f"{field[1]}-{name}"
                hint = f"\"-\" is minus here; a field called '{word}' is written [\"{word}\"] or .`{word}`"
                return Fault("syntax", f"unknown name '{_shown(name)}'", pos, hint)
        known = [*self.scope, *MAIN_ROOTS, *sorted(self.names)]
        hint = suggestion(name, [*known, *ROOTS]) or listing("known", known)
        return Fault("syntax", f"unknown name '{_shown(name)}'", pos, hint)

    def _call(self, name: str, pos: int, subject: Node | None) -> Node:
        self.index += 1
        if name in MACROS:
            return self._macro(name, pos, subject)
        if name == "has" and subject is None:
            return self._has(pos)
        if name not in FUNCTIONS and name != "default":
            hint = suggestion(name, [*sorted(FUNCTIONS), *MACROS])
            raise Fault("syntax", f"unknown function '{_shown(name)}'", pos, hint)
        arguments = self._arguments(")")
        return _called(name, (*((subject,) if subject is not None else ()), *arguments), pos)

    def _macro(self, kind: str, pos: int, subject: Node | None) -> Node:
        name_kind, name, at = self.tokens[self.index]
        if subject is None or name_kind != "name" or self.tokens[self.index + 1][0] != ",":
            raise _bare_macro(kind, pos)
        if name in ROOTS:
            raise Fault("syntax", f"'{name}' is a root; a variable needs another name", at)
        self.index += 2
        outer = self.scope
        slot = max(outer.values(), default=0) + 1
        self.scope = {**outer, name: slot}
        self.slots = max(self.slots, slot)
        body = self._ternary()
        self.scope = outer
        self._expect(")", "missing ')'")
        return Macro(kind, subject, (name, slot), body, pos)

    def _has(self, pos: int) -> Node:
        path = self._ternary()
        self._expect(")", "missing ')'")
        base = path
        while isinstance(base, (Get, Item)):
            base = base.base
        if not isinstance(base, Var):
            raise Fault("syntax", "has() needs a path", pos, "write  has(steps.a.result.field)")
        return Has(path, pos)

    def _arguments(self, closing: str) -> list[Node]:
        found: list[Node] = []
        while self.tokens[self.index][0] != closing:
            found.append(self.expression())
            if self.tokens[self.index][0] != ",":
                break
            self.index += 1
        self._expect(closing, f"missing '{closing}'")
        return found

    def _map_literal(self, pos: int) -> Node:
        entries: dict[str, Node] = {}
        while self.tokens[self.index][0] != "}":
            kind, key, at = self.tokens[self.index]
            if kind != "name" and not (kind == "lit" and isinstance(key, str)):
                raise Fault("syntax", "a key of an object is a string", at)
            if key in entries:
                raise Fault("syntax", f"the key '{_shown(key)}' occurs twice", at)
            self.index += 1
            self._expect(":", "a key needs a ':'")
            entries[key] = self.expression()
            if self.tokens[self.index][0] != ",":
                break
            self.index += 1
        self._expect("}", "missing '}'")
        return MapLiteral(tuple(entries.items()), pos)

    def _expect(self, kind: str, message: str) -> None:
        found, value, pos = self.tokens[self.index]
        if found != kind:
            unexpected = f": unexpected '{_shown(value)}'" if found != "end" else ""
            raise Fault("syntax", message + unexpected, pos)
        self.index += 1


def _called(name: str, args: tuple[Node, ...], pos: int) -> Node:
    if name == "default":
        if len(args) != 2:
            raise Fault("syntax", "default needs a value to fall back to", pos, "write  x | default(value)")
        return Coalesce(args[0], args[1], pos)
    function = FUNCTIONS.get(name)
    if function is None:
        raise Fault("syntax", f"unknown function '{_shown(name)}'", pos, suggestion(name, sorted(FUNCTIONS)))
    if not function.required <= len(args) <= function.most:
        raise Fault("syntax", f"{name}() takes {function.arity()}, got {len(args)}", pos)
    return Call(name, args, pos)


def _signed(op: str, node: Node, pos: int) -> Node:
    if op == "-" and isinstance(node, Literal) and type(node.value) in (int, float):
        return Literal(-node.value, pos)
    return Unary(op, node, pos)


def _bare_macro(name: str, pos: int) -> Fault:
    return Fault("syntax", f"{name} needs a variable and an expression", pos, f"write  list.{name}(x, ...)")


def _bound_chain(links: int, pos: int) -> None:
    if links > CHAIN:
        raise _chain_fault(pos)


def _chain_fault(pos: int) -> Fault:
    return Fault("limit", f"a chain of more than {CHAIN} operators", pos)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return text if len(text) <= 40 else text[:39] + "…"
