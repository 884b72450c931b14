"""
Parses tokens into a tree, by precedence climbing; every bound on the shape of a source is enforced here.

Recursion is bounded by the bracket depth (the lexer's) times the few levels of precedence; chains are loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import vocabulary
from .errors import Fault
from .functions import FUNCTIONS
from .lexer import Token, tokenize
from .limits import BRACKET_DEPTH, PATH_SEGMENTS, TREE_DEPTH
from .nodes import (
    Binary,
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
from .vocabulary import MACROS, MAIN_ROOTS, ROOTS

if TYPE_CHECKING:
    from collections.abc import Collection

_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">=", "in", "not"))
_OR, _AND, _NOT, _COMPARE, _ADD, _MULTIPLY = 1, 2, 3, 4, 5, 6
_RANKS = {"||": _OR, "&&": _AND, "+": _ADD, "-": _ADD, "*": _MULTIPLY, "/": _MULTIPLY, "%": _MULTIPLY} | dict.fromkeys(
    _COMPARISONS, _COMPARE
)


def parse(text: str, start: int = 0, *, names: Collection[str] = (), live: bool = False) -> tuple[Node, int, int]:
    """
    The tree of an expression, the number of its frame slots, and the offset after it.

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
        raise Fault("syntax", f"unexpected '{vocabulary.shown(value)}'", pos)
    if len(tokens) > TREE_DEPTH:
        vocabulary.bound_tree(node, start)
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
            vocabulary.bound_chain(links := links + 1, self.tokens[self.index][2])
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
            raise vocabulary.bare_macro(name, pos)
        return vocabulary.called(name, (subject,), pos)

    def _ternary(self) -> Node:
        branches: list[tuple[Node, Node, int]] = []
        while True:
            node = self._coalesce()
            kind, _, pos = self.tokens[self.index]
            if kind != "?":
                break
            vocabulary.bound_chain(len(branches) + 1, pos)
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
            vocabulary.bound_chain(len(places), places[-1])
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
            vocabulary.bound_chain(links := links + 1, pos)
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
            vocabulary.bound_chain(len(places), places[-1])
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
                raise Fault("syntax", f"unexpected '{vocabulary.shown(value)}'", after, "write  x not in list")
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
            vocabulary.bound_chain(len(marks), pos)
            self.index += 1
            kind, _, pos = self.tokens[self.index]
        node = self._postfix()
        for op, at in reversed(marks):
            node = vocabulary.signed(op, node, at)
        return node

    def _negation(self, level: int, pos: int) -> Node:
        if level > _NOT:
            raise Fault("syntax", "'not' cannot stand here", pos, "put it in brackets: (not x)")
        places: list[int] = []
        while self.tokens[self.index][0] == "not":
            places.append(self.tokens[self.index][2])
            vocabulary.bound_chain(len(places), places[-1])
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
                raise Fault("limit", f"a path of more than {PATH_SEGMENTS} segments", self.tokens[self.index][2])

    def _segment(self, base: Node, *, optional: bool) -> Node:
        kind, value, pos = self.tokens[self.index + 1]
        self.index += 2
        if kind == "word" and self.tokens[self.index][0] == "(":
            if optional:
                raise Fault("syntax", "a call follows '.', not '?.'", pos)
            return self._call(value, pos, base)
        if kind not in ("word", "idx", "tick"):
            raise Fault(
                "syntax", "a field name must follow '.'", pos, 'other names are written  x.`name`  or  x["name"]'
            )
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
        raise Fault("syntax", f"unexpected '{vocabulary.shown(value)}'", pos)

    def _name(self, name: str, pos: int) -> Node:
        if self.tokens[self.index][0] == "(":
            return self._call(name, pos, None)
        slot = self.scope.get(name)
        if slot is not None:
            return Var(name, pos, slot)
        if name in ("step", "steps"):
            vocabulary.require_step_name(self.tokens[self.index : self.index + 3], name, pos)
        elif name not in ROOTS and name not in self.names:
            raise vocabulary.unknown_name(self.tokens, self.index - 1, [*self.scope, *MAIN_ROOTS, *sorted(self.names)])
        return Var(name, pos)

    def _call(self, name: str, pos: int, subject: Node | None) -> Node:
        self.index += 1
        if name in MACROS:
            return self._macro(name, pos, subject)
        if name == "has" and subject is None:
            return self._has(pos)
        if name not in FUNCTIONS and name != "default":
            raise vocabulary.unknown_function(name, pos)
        arguments = self._arguments(")")
        return vocabulary.called(name, (*((subject,) if subject is not None else ()), *arguments), pos)

    def _macro(self, kind: str, pos: int, subject: Node | None) -> Node:
        name_kind, name, at = self.tokens[self.index]
        if subject is None or name_kind != "name" or self.tokens[self.index + 1][0] != ",":
            raise vocabulary.bare_macro(kind, pos)
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
        if isinstance(base, Var):
            return Has(path, pos)
        raise Fault("syntax", "has() needs a path", pos, "write  has(steps.a.result.field)")

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
                raise Fault("syntax", f"the key '{vocabulary.shown(key)}' occurs twice", at)
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
            unexpected = f": unexpected '{vocabulary.shown(value)}'" if found != "end" else ""
            raise Fault("syntax", message + unexpected, pos)
        self.index += 1
