"""The expressions and templates inside fields: where they stand, and what they see besides what their step sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel

from stepwell.definition.fields import Expression, Template, Value

Json: TypeAlias = Any
_Location: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """
    An expression or template of a step, with where it stands and what else it may see.

    `inner` means that it sees what the step's block sees (`until`, the loop's `output`); `item` that it sees the loop's
    item but no step of the block (`key`); `within` is where that of the step's blocks lies whose steps it sees besides
    (`verify`); `roots` are further roots (`error`, `result`, `event`, `call`); `boolean` says that it must give a
    boolean; `prose` that foreign braces in it are no more than a warning.
    """

    where: _Location
    value: Expression | Template | Value
    inner: bool = False
    item: bool = False
    within: _Location | None = None
    roots: tuple[str, ...] = ()
    boolean: bool = False
    prose: bool = False


_ROOTS: dict[str, tuple[str, ...]] = {
    "on_error.when": ("error",),
    "on_error.default": ("error",),
    "retry.when": ("error", "result"),
    "verify.took_effect": ("error", "call"),
    "verify.output": ("error", "call"),
}
_ROOTED = frozenset({"on_error", "retry", "verify"})
"""Fields whose parts see roots of their own."""


def further_roots(name: str, word: str) -> tuple[str, ...]:
    """The roots that the part `word` of the field `name` sees because of when it is looked at."""
    return _ROOTS.get(f"{name}.{word}" if name in _ROOTED else name, ())


def texts_in(value: Json, where: _Location, apart: type) -> Iterator[tuple[_Location, Expression | Template | Value]]:
    """The texts of a field, those in objects `apart` left out."""
    if isinstance(value, Expression | Template | Value):
        yield where, value
    elif isinstance(value, apart):
        return
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            yield from texts_in(getattr(value, name), (*where, field.alias or name), apart)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from texts_in(inner, (*where, key), apart)
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from texts_in(inner, (*where, index), apart)
