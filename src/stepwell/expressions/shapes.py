"""Static types: what the check knows about a value before anything has run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .schema import Schema, SchemaReader, Undeclared

STATUSES = (
    "running",
    "completed",
    "failed",
    "skipped",
    "pending_approval",
    "suspended",
    "waiting",
    "cancelled",
    "compensated",
)
RECORD: Schema = {
    "type": "object",
    "properties": {
        "status": {"enum": list(STATUSES)},
        "error": {},
        "attempts": {"type": "integer"},
        "duration_ms": {"type": ["number", "null"]},
        "result": {},
        "output": {},
        "errors": {},
        "count": {"type": "integer"},
        "skip_reason": {"type": "string"},
        "attempt_log": {"type": "array"},
        "retry_count": {"type": "integer"},
        "completed_at": {"type": ["string", "null"]},
        "completed_by": {"enum": ["fallback", "verify", "operator"]},
    },
    "additionalProperties": False,
}
RECORD_SHOWN = ("status", "error", "attempts", "duration_ms", "result", "output")
RUN: Schema = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("id", "started_at", "workflow", "account")},
    "additionalProperties": False,
}
_LOOP_FIELDS: dict[str, Any] = {
    "index": {"type": "integer"},
    "first": {"type": "boolean"},
    "last": {"type": "boolean"},
    "length": {"type": "integer"},
    "item": {},
    "previous": {},
}
LOOP: Schema = {
    "type": "object",
    "properties": {**_LOOP_FIELDS, "parent": {"properties": {**_LOOP_FIELDS, "parent": {}}}},
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """`kinds` None is unknown. `element` is for arrays made by the expression, which have no schema."""

    kinds: frozenset[str] | None = None
    schema: Schema = True
    reader: SchemaReader | None = None
    values: tuple[Any, ...] | None = None
    element: Shape | None = None
    shown: tuple[str, ...] = ()

    def field(self, name: str) -> Shape | Undeclared:
        if self.reader is None:
            return UNKNOWN
        found = self.reader.field(self.schema, name)
        return found if isinstance(found, Undeclared) else self._part(found)

    def at(self, index: int | None) -> Shape:
        """The shape of an element, at an index or of any."""
        if self.element is not None:
            return self.element
        return UNKNOWN if self.reader is None else self._part(self.reader.element(self.schema, index))

    def names(self) -> list[str]:
        """The declared fields, those worth showing first."""
        if self.shown:
            return list(self.shown)
        return [] if self.reader is None else self.reader.names(self.schema)

    def never(self, kinds: frozenset[str]) -> bool:
        """Whether the value surely has none of these kinds."""
        return self.kinds is not None and not self.kinds & kinds

    def described(self) -> str:
        return " or ".join(sorted(self.kinds)) if self.kinds else "unknown"

    def without_null(self) -> Shape:
        if self.kinds is None or "null" not in self.kinds or len(self.kinds) == 1:
            return self
        return Shape(self.kinds - {"null"}, self.schema, self.reader, self.values, self.element, self.shown)

    def _part(self, schema: Schema) -> Shape:
        reader = self.reader
        return UNKNOWN if reader is None else Shape(reader.kinds(schema), schema, reader, reader.values(schema))


UNKNOWN = Shape()


def declared(schema: Schema | None, shown: tuple[str, ...] = ()) -> Shape:
    """The shape a schema document declares; None and True declare nothing."""
    if not schema or schema is True:
        return UNKNOWN
    reader = SchemaReader(schema)
    return Shape(reader.kinds(schema), schema, reader, reader.values(schema), shown=shown)


def made(*kinds: str, element: Shape | None = None) -> Shape:
    return Shape(frozenset(kinds), element=element)


def either(one: Shape, other: Shape) -> Shape:
    """What may be one or the other."""
    if one is other:
        return one
    if one.kinds is None or other.kinds is None:
        return UNKNOWN
    if other.kinds == frozenset(("array",)) and other.element is EMPTY:
        return one
    kinds = one.kinds | other.kinds
    if one.reader is not None and one.reader is other.reader:
        return Shape(kinds, {"anyOf": [one.schema, other.schema]}, one.reader)
    return Shape(kinds)


EMPTY = Shape(frozenset(), shown=("nothing",))
"""The element of an empty array literal."""
