"""The identity of a definition: a digest over what it does, not over how it is written."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Json: TypeAlias = Any

_COSMETIC = ("name", "description", "tags")
_SHOWN_NAME = {"approval": "title", "handoff": "subject"}
"""Where the step's name is what people are shown unless this key says something else."""
_DATA = frozenset(
    {"arguments", "inputs", "values", "output", "input", "output_schema", "form", "show", "metadata", "over", "default"}
)


def digest_of(data: dict[str, Json]) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON (sorted keys, no white space) without what is cosmetic."""
    text = json.dumps(_semantic_workflow(data), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _semantic_workflow(data: dict[str, Json]) -> Json:
    kept = {key: value for key, value in data.items() if key not in _COSMETIC}
    return {key: value if key in _DATA else _semantic(value) for key, value in kept.items()}


def _semantic(value: Json) -> Json:
    if isinstance(value, list):
        return [_semantic(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    cosmetic, opaque = cosmetic_keys(value), opaque_keys(value)
    return {key: inner if key in opaque else _semantic(inner) for key, inner in value.items() if key not in cosmetic}


def opaque_keys(value: dict[str, Json]) -> frozenset[str]:
    """The keys under which an object holds data of people, in which nothing is a step."""
    return _DATA if is_step(value) or "strategy" in value or "took_effect" in value else frozenset()


def cosmetic_keys(value: dict[str, Json]) -> tuple[str, ...]:
    """The cosmetic keys of an object; only steps have some."""
    if not is_step(value):
        return ()
    instead = _SHOWN_NAME.get(value["type"])
    return _COSMETIC[1:2] if instead is not None and instead not in value else _COSMETIC[:2]


def is_step(value: Json) -> bool:
    """Whether a value of canonical data is written like a step."""
    return isinstance(value, dict) and isinstance(value.get("id"), str) and isinstance(value.get("type"), str)


def names_in(data: Json) -> frozenset[str]:
    """The names that a definition knows beside the language's own: those of loops' items (`as`), `call` of `verify`."""
    return frozenset(_names_in(data))


def _names_in(data: Json) -> Iterator[str]:
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if is_step(value) and isinstance(name := value.get("as"), str) and name.isidentifier():
                yield name
            if is_step(value) and isinstance(value.get("verify"), dict):
                yield "call"
            opaque = opaque_keys(value)
            waiting += [inner for key, inner in value.items() if key not in opaque]
        elif isinstance(value, list):
            waiting += value
