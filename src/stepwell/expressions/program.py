"""A compiled expression."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from .compile import BOOLEAN_HINT, build, passes_through
from .errors import Absent, ExpressionError, Fault
from .limits import FUEL, SOURCE_CHARS
from .parser import parse
from .patterns import PatternRoom
from .refs import Ref, references
from .results import passed, settled
from .values import JSON_TYPES, kind_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from .nodes import Node

Json: TypeAlias = Any

_WHOLE = re.compile(r"\s*\{\{")


class Program:
    """One expression, ready to be evaluated any number of times over any context. Made by `compile_expression`."""

    __slots__ = ("_frame", "_run", "_settles", "names", "node", "source")

    def __init__(self, source: str, node: Node, slots: int, names: Collection[str]) -> None:
        self.source = source
        self.node = node
        self.names = frozenset(names)
        self._run = build(node, PatternRoom())
        self._frame = (FUEL, *([None] * slots))
        self._settles = not passes_through(node)

    def __repr__(self) -> str:
        return f"Program({self.source!r})"

    def __reduce__(self) -> tuple[Any, tuple[str, frozenset[str]]]:
        return _compiled, (self.source, self.names)

    def evaluate(self, context: Mapping[str, Json]) -> Json:
        """
        The value over a context, which maps roots to values and is only read, never copied.

        A path alone gives the caller's own object. Raises ExpressionError (missing, type, eval, limit).
        """
        try:
            value = self._run(context, list(self._frame))
            return settled(value) if self._settles else value if type(value) in JSON_TYPES else passed(value)
        except (Fault, Absent) as problem:
            raise problem.at(self.node.pos).within(self.source) from None
        except RecursionError:
            raise too_deep(self.source) from None

    def test(self, context: Mapping[str, Json]) -> bool:
        """The value, which must be a boolean. Raises ExpressionError, also (type) for any other value."""
        value = self.evaluate(context)
        if value is True or value is False:
            return bool(value)
        message = f"must give a boolean, this gives {kind_of(value)}"
        raise ExpressionError("type", message, self.source, self.node.pos, BOOLEAN_HINT)

    def refs(self) -> tuple[Ref, ...]:
        """Every path the expression can read, each once."""
        return references(self.node)


def compile_expression(source: str, *, names: Collection[str] = frozenset()) -> Program:
    """
    Compile a bare expression, or one whole `{{ ... }}` with nothing around it.

    `names` are roots beside the known ones, such as a loop's `as`. Raises ExpressionError (syntax, step, limit).
    """
    if not isinstance(source, str):
        raise ExpressionError("type", f"an expression is a string, got {kind_of(source)}")
    try:
        if len(source) > SOURCE_CHARS:
            raise Fault("limit", f"the expression is longer than {SOURCE_CHARS} characters", SOURCE_CHARS)  # noqa: TRY301
        opening = _WHOLE.match(source)
        if opening is None:
            node, slots, _ = parse(source, names=names)
        else:
            node, slots, end = parse(source, opening.end(), names=names, live=True)
            _require_blank(source, end)
        return Program(source, node, slots, names)
    except Fault as fault:
        raise fault.within(source) from None
    except RecursionError:
        raise too_deep(source) from None


def too_deep(source: str) -> ExpressionError:
    """The error for an interpreter stack that the caller has already used up."""
    return ExpressionError("limit", "nested too deep to be evaluated here", source)


def _compiled(source: str, names: frozenset[str]) -> Program:
    return compile_expression(source, names=names)


def _require_blank(source: str, end: int) -> None:
    rest = source[end:]
    if rest.strip():
        pos = end + len(rest) - len(rest.lstrip())
        raise Fault("syntax", "text after '}}'", pos, "one expression is one whole {{ ... }}, or has no braces")
