"""A value that fits a JSON Schema: what a step without a script answers in a dry run.

The law of the file: the same schema gives the same value; what cannot be fitted is said, never guessed.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from stepwell.definition.schemas import problems_of

Json: TypeAlias = Any
_DEEP = 20
_FORMATS = {
    "date": "2026-01-05",
    "date-time": "2026-01-05T09:00:00Z",
    "time": "09:00:00Z",
    "email": "ana@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def fitting(schema: dict[str, Json] | None) -> Json:
    """A value that fits. Raises ValueError with what does not, where none was found."""
    value = _value(schema or {}, 0)
    for problem in problems_of(schema or {}, value):
        raise ValueError(f"no value was found that fits the schema: {problem}")
    return value


def _value(schema: Json, depth: int) -> Json:
    if not isinstance(schema, dict) or depth > _DEEP:
        return None
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    for name in ("enum", "examples"):
        if schema.get(name):
            return schema[name][0]
    for name in ("anyOf", "oneOf"):
        if schema.get(name):
            return _value({**{key: part for key, part in schema.items() if key != name}, **schema[name][0]}, depth + 1)
    if schema.get("allOf"):
        merged: dict[str, Json] = {key: part for key, part in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            merged |= part
        return _value(merged, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind is None:
        kind = "object" if "properties" in schema else "array" if "items" in schema else None
    return _of_kind(kind, schema, depth)


def _of_kind(kind: Json, schema: dict[str, Json], depth: int) -> Json:
    match kind:
        case "object":
            properties = schema.get("properties") or {}
            wanted = dict.fromkeys([*properties, *schema.get("required", ())])
            return {name: _value(properties.get(name, {}), depth + 1) for name in wanted}
        case "array":
            return [_value(schema.get("items", {}), depth + 1) for _ in range(schema.get("minItems", 0))]
        case "string":
            text = _FORMATS.get(schema.get("format", ""), "text")
            return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
        case "boolean":
            return True
        case "integer" | "number":
            return _number(schema, whole=kind == "integer")
        case _:
            return None


def _number(schema: dict[str, Json], *, whole: bool) -> float:
    step = schema.get("multipleOf", 1 if whole else 0.5)
    low = schema.get("minimum")
    if low is None and "exclusiveMinimum" in schema:
        low = schema["exclusiveMinimum"] + step
    high = schema.get("maximum")
    if high is None and "exclusiveMaximum" in schema:
        high = schema["exclusiveMaximum"] - step
    found = low if low is not None else min(1, high) if high is not None else 1
    if "multipleOf" in schema:
        found = -(-found // step) * step
    return int(found) if whole else found
