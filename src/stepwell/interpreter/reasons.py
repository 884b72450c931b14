"""Reasons: why something did not run, with what was seen when that was decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.expressions import ExpressionError

if TYPE_CHECKING:
    from stepwell.definition.fields import Expression

Json: TypeAlias = Any


def explain(expression: Expression, context: dict[str, Json]) -> dict[str, Json]:
    """The expression and the values that it saw, for the reason of a skip; long values are cut."""
    from stepwell.expressions import compile_expression

    values: dict[str, Json] = {}
    for ref in expression.program.refs():
        name = str(ref).rstrip("?")
        if "*" in name or "?" in name:
            continue
        try:
            value = compile_expression(name, names=frozenset(context)).evaluate(context)
        except ExpressionError:
            continue
        if isinstance(value, str):
            values[name] = value if len(value) <= 200 else f"{value[:200]}…"
        elif value is None or isinstance(value, bool | int | float):
            values[name] = value
        else:
            values[name] = f"{'array' if isinstance(value, list) else 'object'} of {len(value)}"
    return {"expression": expression.source, "values": values}
