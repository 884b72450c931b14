"""Marks a Python function as a tool that workflows may call.

The law of the file: the mark lies on the function itself and nowhere else, so that two projects in one process never
see each other's tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MARK = "__stepwell_tool__"
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$")


class IdempotencyKey(str):
    """A parameter annotated with this type gets the step's idempotency key, the same for every attempt of the step."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """What the decorator says of a function."""

    name: str
    idempotent: bool
    description: str = ""


@overload
def tool(function: _Function, /) -> _Function: ...
@overload
def tool(*, idempotent: bool = True, name: str = "", description: str = "") -> Callable[[_Function], _Function]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    idempotent: bool = True,
    name: str = "",
    description: str = "",
) -> Any:
    """Mark a function as a tool; it stays callable as it was.

    `idempotent=False` says that a second call is a second deed: it is then never repeated blindly. `name` defaults to
    the function's, `description` to the first paragraph of its docstring. The schema of its arguments comes from its
    type hints and docstring. Raises ValueError for a name that a workflow could not write.
    """

    def mark(marked: Callable[..., Any]) -> Callable[..., Any]:
        declared = name or getattr(marked, "__name__", "")
        if not _NAME.match(declared):
            raise ValueError(f"{declared!r} cannot name a tool; give name= with letters, digits, _ . and -")
        setattr(marked, _MARK, ToolDeclaration(declared, idempotent, description))
        return marked

    return mark if function is None else mark(function)


def declaration(value: object) -> ToolDeclaration | None:
    """What the decorator said of `value`; None if it was not marked."""
    found = getattr(value, "__dict__", {}).get(_MARK)
    return found if isinstance(found, ToolDeclaration) else None
