"""JSON Schema 2020-12 against values: what does not fit, in sentences."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

Json: TypeAlias = Any


@lru_cache(maxsize=512)
def _validator(text: bytes) -> Draft202012Validator:
    import jsonschema
    from referencing.jsonschema import EMPTY_REGISTRY

    return jsonschema.Draft202012Validator(
        msgspec.json.decode(text),
        registry=EMPTY_REGISTRY,  # a reference to elsewhere is never fetched
        format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
    )


def problems_of(schema: dict[str, Json], value: Json) -> Iterator[str]:
    """One sentence for each way in which `value` does not fit `schema`, with its JSON pointer; at most 20."""
    validator = _validator(msgspec.json.encode(schema))
    for number, error in enumerate(validator.iter_errors(value)):
        if number == 20:
            return
        where = "".join(f"/{part}" for part in error.absolute_path)
        message = error.message if len(error.message) <= 300 else f"{error.message[:300]}…"
        yield f"{where or '/'}: {message}"


def problems_with_foreign(schema: dict[str, Json], value: Json) -> list[str]:
    """The same for a schema that some other program made: what cannot be used of it says nothing.

    Patterns are not looked at: a single one can take hours.
    """
    try:
        return list(problems_of(_without_patterns(schema), value))
    except Exception:  # noqa: BLE001 -- of unknown types, references to nowhere or to themselves, whatever else there is
        return []


def _without_patterns(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_without_patterns(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: one for key, one in schema.items() if key != "patternProperties"}
    if isinstance(plain.get("pattern"), str):
        del plain["pattern"]
    return {key: _without_patterns(one) for key, one in plain.items()}


def with_defaults(schema: dict[str, Json], value: Json) -> Json:
    """A copy of `value` in which absent properties that have a default carry it, at any depth; null is a value."""
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    filled = dict(value)
    for name, inner in properties.items():
        if not isinstance(inner, dict):
            continue
        if name in filled:
            filled[name] = with_defaults(inner, filled[name])
        elif "default" in inner:
            filled[name] = copy.deepcopy(inner["default"])
    return filled
