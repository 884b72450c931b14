"""The names of the language, and the faults of source text that names or shapes something wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import Fault, listing, suggestion
from .functions import FUNCTIONS
from .limits import CHAIN, NODES, TREE_DEPTH
from .nodes import Call, Coalesce, Literal, Node, Unary, weigh

if TYPE_CHECKING:
    from .lexer import Token

ROOTS = ("workflow_input", "step", "steps", "loop_item", "loop", "run", "error", "result", "event", "secret")
MAIN_ROOTS = ROOTS[:6]
MACROS = ("all", "exists", "exists_one", "filter", "map")


def unknown_name(tokens: list[Token], at: int, known: list[str]) -> Fault:
    """The fault of a name that is no root and no variable, most often a field with a hyphen in its name."""
    _, name, pos = tokens[at]
    if at >= 2 and tokens[at - 1][0] == "-" and tokens[at - 2][0] == "word":
        minus, field = tokens[at - 1], tokens[at - 2]
        if field[2] + len(field[1]) == minus[2] == pos - 1:
            word = f"{field[1]}-{name}"
            hint = f'"-" is minus here; a field called \'{word}\' is written ["{word}"] or .`{word}`'
            return Fault("syntax", f"unknown name '{shown(name)}'", pos, hint)
    hint = suggestion(name, [*known, *ROOTS]) or listing("known", known)
    return Fault("syntax", f"unknown name '{shown(name)}'", pos, hint)


def unknown_function(name: str, pos: int) -> Fault:
    hint = suggestion(name, [*sorted(FUNCTIONS), *MACROS])
    return Fault("syntax", f"unknown function '{shown(name)}'", pos, hint)


def called(name: str, args: tuple[Node, ...], pos: int) -> Node:
    if name == "default":
        if len(args) != 2:
            raise Fault("syntax", "default needs a value to fall back to", pos, "write  x | default(value)")
        return Coalesce(args[0], args[1], pos)
    function = FUNCTIONS.get(name)
    if function is None:
        raise unknown_function(name, pos)
    if not function.required <= len(args) <= function.most:
        raise Fault("syntax", f"{name}() takes {function.arity()}, got {len(args)}", pos)
    return Call(name, args, pos)


def signed(op: str, node: Node, pos: int) -> Node:
    if op == "-" and isinstance(node, Literal) and type(node.value) in (int, float):
        return Literal(-node.value, pos)
    return Unary(op, node, pos)


def bare_macro(name: str, pos: int) -> Fault:
    return Fault("syntax", f"{name} needs a variable and an expression", pos, f"write  list.{name}(x, ...)")


def bound_chain(links: int, pos: int) -> None:
    if links > CHAIN:
        raise chain_fault(pos)


def chain_fault(pos: int) -> Fault:
    return Fault("limit", f"a chain of more than {CHAIN} operators", pos)


def shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def require_step_name(following: list[Token], root: str, pos: int) -> None:
    """`step` and `steps` are only written with the step's name in the text, so that order can be checked."""
    end: Token = ("end", "", pos)
    first, second, third = (*following, end, end, end)[:3]
    hint = f'name the step: {root}.my-step  or  {root}["my-step"]'
    if first[0] in (".", "?.") and second[0] in ("word", "tick") and third[0] != "(":
        return
    if first[0] == "[":
        if second[0] == "lit" and isinstance(second[1], str) and third[0] == "]":
            return
        raise Fault("step", "the step must be named in the text, it cannot be computed", first[2], hint)
    raise Fault("step", f"'{root}' alone is not a value", pos, hint)


def bound_tree(node: Node, start: int) -> None:
    """Raises Fault (limit) for a tree with too many nodes or levels."""
    count, depth = weigh(node)
    if count > NODES:
        raise Fault("limit", f"the expression has more than {NODES} parts", start)
    if depth > TREE_DEPTH:
        raise Fault("limit", f"the expression is nested deeper than {TREE_DEPTH}", start)
