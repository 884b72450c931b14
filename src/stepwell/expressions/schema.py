"""
Reads JSON schemas (2020-12) as static types: kinds, fields, elements, enumerated values.

Only what can be concluded is: whatever a schema leaves open, or this module does not know, is unknown and never an
error. References are local (`#/...`) and followed at most 16 deep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, TypeAlias

from .errors import Fault
from .patterns import compiled
from .values import kind_of

Schema: TypeAlias = Mapping[str, Any] | bool
_DEPTH = 16
_STEPS = 10_000
_WIDTH = 256
_KINDS = {"integer": "number"} | {
    name: name for name in ("null", "boolean", "number", "string", "array", "object", "timestamp", "duration")
}


class Undeclared(Enum):
    """A field the schema does not name: the schema still allows it, or forbids it."""

    OPEN = "open"
    CLOSED = "closed"


class SchemaReader:
    """One schema document; every method takes a part of it."""

    def __init__(self, document: Schema) -> None:
        self.document = document
        self._steps = _STEPS

    def kinds(self, schema: Schema, depth: int = 0) -> frozenset[str] | None:
        """The kinds a value may have, or None when that is unknown."""
        known: frozenset[str] | None = None
        for part in self._parts(schema, depth):
            for kinds in (_typed(part), _enumerated(part), self._alternatives(part, depth)):
                if kinds is not None:
                    known = kinds if known is None else known & kinds
        return known or None

    def _alternatives(self, part: Mapping[str, Any], depth: int) -> frozenset[str] | None:
        choices = _choices(part)
        if not choices or depth > _DEPTH:
            return None
        found: frozenset[str] = frozenset()
        for choice in choices:
            kinds = self.kinds(choice, depth + 1)
            if kinds is None:
                return None
            found |= kinds
        return found

    def values(self, schema: Schema, depth: int = 0) -> tuple[Any, ...] | None:
        """The values an enumeration allows, or None when it is not one."""
        for part in self._parts(schema, depth):
            if "const" in part:
                return (part["const"],)
            if isinstance(part.get("enum"), list):
                return tuple(part["enum"])
            choices = _choices(part)
            if choices and depth <= _DEPTH:
                lists = [self._values_or_null(choice, depth + 1) for choice in choices]
                if all(values is not None for values in lists):
                    return tuple(value for values in lists for value in values or ())
        return None

    def _values_or_null(self, schema: Schema, depth: int) -> tuple[Any, ...] | None:
        return (None,) if self.kinds(schema, depth) == frozenset(("null",)) else self.values(schema, depth)

    def field(self, schema: Schema, name: str, depth: int = 0) -> Schema | Undeclared:
        """The schema of a field; True when nothing is known about it."""
        status: list[Schema | Undeclared] = []
        for part in self._parts(schema, depth):
            status.append(_own_field(part, name))
            if depth <= _DEPTH and (choices := _choices(part)):
                status.append(self._field_of_choices(choices, name, depth + 1))
        found = [item for item in status if isinstance(item, Mapping)]
        if found:
            return found[0] if len(found) == 1 else {"allOf": found}
        if Undeclared.CLOSED in status:
            return Undeclared.CLOSED
        return Undeclared.OPEN if Undeclared.OPEN in status else True

    def _field_of_choices(self, choices: list[Schema], name: str, depth: int) -> Schema | Undeclared:
        objects = [item for item in choices if "object" in (self.kinds(item, depth) or ("object",))]
        status = [self.field(item, name, depth) for item in objects]
        found = [item for item in status if not isinstance(item, Undeclared)]
        if found:
            return True if any(isinstance(item, bool) for item in found) else {"anyOf": found}
        return Undeclared.OPEN if Undeclared.OPEN in status else Undeclared.CLOSED if status else True

    def element(self, schema: Schema, index: int | None, depth: int = 0) -> Schema:
        """The schema of an array's element, at an index or of any."""
        found: list[Schema] = []
        for part in self._parts(schema, depth):
            prefix = part.get("prefixItems")
            if isinstance(prefix, list) and prefix:
                if index is not None and 0 <= index < len(prefix):
                    found.append(prefix[index])
                continue
            if isinstance(part.get("items"), Mapping):
                found.append(part["items"])
            elif depth <= _DEPTH and (choices := _choices(part)):
                arrays = [item for item in choices if "array" in (self.kinds(item, depth + 1) or ("array",))]
                found.append({"anyOf": [self.element(item, index, depth + 1) for item in arrays]} if arrays else True)
        parts = [item for item in found if isinstance(item, Mapping)]
        return True if not parts else parts[0] if len(parts) == 1 else {"allOf": parts}

    def names(self, schema: Schema, depth: int = 0) -> list[str]:
        """The declared field names, for hints."""
        found: dict[str, None] = {}
        for part in self._parts(schema, depth):
            found.update(dict.fromkeys(_properties(part)))
            if depth <= _DEPTH:
                for choice in _choices(part):
                    found.update(dict.fromkeys(self.names(choice, depth + 1)))
        return list(found)

    def _parts(self, schema: Schema, depth: int) -> Iterator[Mapping[str, Any]]:
        """A schema, what it refers to, and all members of its `allOf`, flattened."""
        pending: list[tuple[Any, int]] = [(schema, depth)]
        while pending:
            part, level = pending.pop(0)
            self._steps -= 1
            if not isinstance(part, Mapping) or level > _DEPTH or self._steps < 0:
                continue
            yield part
            if isinstance(part.get("$ref"), str):
                pending.append((self._target(part["$ref"]), level + 1))
            members = part.get("allOf")
            if isinstance(members, list):
                pending.extend((member, level + 1) for member in members[:_WIDTH])

    def _target(self, reference: str) -> Schema:
        if not reference.startswith("#"):
            return True
        place: Any = self.document
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, Mapping) and key in place:
                place = place[key]
            elif isinstance(place, list) and key.isdecimal() and int(key) < len(place):
                place = place[int(key)]
            else:
                return True
        return place if isinstance(place, (Mapping, bool)) else True


def _properties(part: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = part.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _choices(part: Mapping[str, Any]) -> list[Schema]:
    for word in ("anyOf", "oneOf"):
        choices = part.get(word)
        if isinstance(choices, list) and 0 < len(choices) <= _WIDTH:
            return [choice for choice in choices if isinstance(choice, (Mapping, bool))]
    return []


def _typed(part: Mapping[str, Any]) -> frozenset[str] | None:
    declared = part.get("type")
    names = [declared] if isinstance(declared, str) else declared
    if not isinstance(names, list) or not all(isinstance(name, str) and name in _KINDS for name in names):
        return None
    return frozenset(_KINDS[name] for name in names)


def _enumerated(part: Mapping[str, Any]) -> frozenset[str] | None:
    if "const" in part:
        return frozenset((kind_of(part["const"]),))
    values = part.get("enum")
    return frozenset(map(kind_of, values)) if isinstance(values, list) and values else None


def _own_field(part: Mapping[str, Any], name: str) -> Schema | Undeclared:
    properties = _properties(part)
    if name in properties:
        declared = properties[name]
        return declared if isinstance(declared, Mapping) else {}
    patterns = part.get("patternProperties")
    if isinstance(patterns, Mapping) and patterns:
        for pattern, schema in patterns.items():
            if _matches(str(pattern), name):
                return schema if isinstance(schema, Mapping) else {}
    rest = part.get("additionalProperties", part.get("unevaluatedProperties"))
    if rest is False:
        return Undeclared.CLOSED
    if isinstance(rest, Mapping):
        return rest
    return Undeclared.OPEN if properties and rest is None else True


def _matches(pattern: str, name: str) -> bool:
    """Whether a field name may match; a pattern that RE2 does not know may match anything."""
    try:
        return compiled(pattern).search(name) is not None
    except (Fault, UnicodeEncodeError):
        return True
