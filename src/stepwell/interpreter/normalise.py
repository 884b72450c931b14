"""Turns what a step gave into plain JSON data, or says exactly why it cannot.

The law of the file: the result shares nothing with the value it was made of and is equal to what its own JSON text
reads back as, so that a first pass and a replay see the same.

What becomes what: datetime, date and time their ISO 8601 text (a datetime without offset stays without: none is
guessed); UUID and Decimal their text (a Decimal keeps all digits and its scale, and is text whatever its value); an
Enum its value; a dataclass, pydantic model or other mapping an object; a tuple an array. Lone surrogates in texts and
keys become U+FFFD, U+0000 stays, integers keep all digits. Everything else is refused with a JSON pointer to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias

import msgspec
from pydantic import BaseModel

from stepwell.errors import StepFailed

Json: TypeAlias = Any

LEAF_LIMIT = 5 * 1024 * 1024
"""The longest JSON text, in bytes, that one step may give."""
CONTAINER_LIMIT = 50 * 1024 * 1024
"""The longest JSON text, in bytes, that a loop or parallel may gather."""
DEPTH_LIMIT = 200
"""How deep arrays and objects may be nested."""

_PLAIN = frozenset({str, int, float, bool, type(None), dict, list})
_SMALL = 1 << 63
_INTEGER_BITS = 14_000
_encode = msgspec.json.Encoder().encode

_HINTS: dict[str, str] = {
    "bytes": "decode it, or return it as base64 text",
    "bytearray": "decode it, or return it as base64 text",
    "memoryview": "decode it, or return it as base64 text",
    "set": "a set has no order; return sorted(...)",
    "frozenset": "a set has no order; return sorted(...)",
    "generator": "return list(...)",
    "async_generator": "collect it and return the list",
    "coroutine": "await it",
    "timedelta": "return its total_seconds()",
    "ndarray": "return its tolist()",
}


class _Refused(Exception):
    """What is wrong; `parts` and `seen` are filled from the inside out while the walk unwinds."""

    def __init__(self, kind: str, problem: str, detail: dict[str, Json] | None = None) -> None:
        super().__init__(problem)
        self.kind = kind
        self.problem = problem
        self.detail = detail or {}
        self.parts: list[Json] = []
        self.seen: list[int] = []


def normalise(value: object, *, limit: int = LEAF_LIMIT) -> Json:
    """`value` as plain JSON data that shares nothing with it.

    Raises StepFailed: `output_invalid` with the JSON pointer of the bad value in `detail["path"]`, or
    `output_too_large` beyond `limit` bytes of JSON text or 200 levels.
    """
    return normalised_json(value, limit=limit)[0]


def normalised_json(value: object, *, limit: int = LEAF_LIMIT) -> tuple[Json, bytes]:
    """`value` as plain JSON data, and its JSON text. Raises StepFailed as `normalise` does."""
    walk = _Walk(limit)
    try:
        plain = walk.plain(value, 1)
    except _Refused as refused:
        raise _failure(refused) from None
    except Exception as error:  # an object of the tool's own making ran its code while it was read
        raise StepFailed("output_invalid", f"the result cannot be read: {type(error).__name__}: {error}") from error
    if walk.left < -LEAF_LIMIT:
        raise _failure(_too_large(None, limit))
    text = _encode(plain)
    if len(text) > limit:
        raise _failure(_too_large(len(text), limit))
    return plain, text


class _Walk:
    """One walk over a value; `left` bounds the text that may still come, so that parts shared many times end it."""

    __slots__ = ("left", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.left = limit

    def plain(self, value: Any, depth: int) -> Json:
        kind = type(value)
        if kind is str:
            self.left -= len(value)
            return value if value.isascii() else clean_text(value)
        if kind is bool or value is None:
            return value
        if kind is int or kind is float:
            return _number(value)
        source = value
        if kind not in _PLAIN:
            value = _converted(value)
            kind = type(value)
        if kind is dict:
            return self._object(source, value, depth)
        if kind is list:
            return self._array(source, value, depth)
        return self.plain(value, depth)

    def _object(self, source: object, value: dict[Any, Any], depth: int) -> dict[str, Json]:
        self._enter(source, len(value), depth)
        found: dict[str, Json] = {}
        key: Any = None
        try:
            for key, inner in value.items():
                name = key if type(key) is str and key.isascii() else _key(key, found)
                self.left -= len(name) + 3
                found[name] = self.plain(inner, depth + 1)
        except _Refused as refused:
            refused.parts.append(key)
            refused.seen.append(id(source))
            raise
        return found

    def _array(self, source: object, value: list[Any], depth: int) -> list[Json]:
        self._enter(source, len(value), depth)
        found: list[Json] = []
        try:
            for inner in value:
                found.append(self.plain(inner, depth + 1))  # noqa: PERF401 -- the length says where it failed
        except _Refused as refused:
            refused.parts.append(len(found))
            refused.seen.append(id(source))
            raise
        return found

    def _enter(self, source: object, length: int, depth: int) -> None:
        self.left -= 1 + length
        if self.left < 0:
            raise _too_large(None, self.limit)
        if depth > DEPTH_LIMIT:
            refused = _Refused("output_too_large", f"the result is nested deeper than {DEPTH_LIMIT} levels")
            refused.seen.append(id(source))
            raise refused


def clean_text(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD; pairs of surrogates become the character they mean."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _number(value: float) -> float:
    if isinstance(value, int):
        if not -_SMALL <= value < _SMALL and value.bit_length() > _INTEGER_BITS:
            raise _Refused("output_invalid", f"is an integer of {value.bit_length()} bits; at most {_INTEGER_BITS}")
        return value
    if value - value != 0.0:  # true for infinities and NaN alone
        raise _Refused("output_invalid", f"is {value}, which JSON has no word for", {"type": "float"})
    return value


def _key(key: object, found: dict[str, Json]) -> str:
    if not isinstance(key, str):
        raise _Refused(
            "output_invalid",
            f"is under a key that is not text but {type(key).__name__}",
            {"type": type(key).__name__},
        )
    name = clean_text(str.__str__(key.value if isinstance(key, Enum) else key))
    if name in found:
        raise _Refused("output_invalid", "is under a key that is there already once it is written as JSON")
    return name


def _converted(value: Any) -> Any:
    """One of the plain kinds, its own parts not yet converted."""
    while type(value) not in _PLAIN:
        value = _step_of(value)
    return value


def _step_of(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    for base in (str, int, float):
        if isinstance(value, base):
            return getattr(base, f"__{base.__name__}__")(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise _Refused("output_invalid", f"is {value}, which JSON has no word for", {"type": "Decimal"})
        return str(value)
    return _structure(value)


def _structure(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="python")
    if isinstance(value, Mapping):
        return dict(value.items())
    if isinstance(value, list):
        return list(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    # By name, since the module `uuid` reaches for clock and chance and is not imported here.
    if any(base.__name__ == "UUID" and base.__module__ == "uuid" for base in type(value).__mro__):
        return str(value)
    raise _unknown(value)


def _unknown(value: object) -> _Refused:
    name = type(value).__name__
    detail = {"type": name, "hint": _HINTS.get(name, "return text, numbers, lists and objects")}
    return _Refused("output_invalid", f"is {_article(name)}, which is not JSON", detail)


def _article(name: str) -> str:
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"


def _too_large(size: int | None, limit: int) -> _Refused:
    said = f"more than {limit:,}" if size is None else f"{size:,}"
    detail: dict[str, Json] = {"limit": limit} if size is None else {"size": size, "limit": limit}
    return _Refused("output_too_large", f"the result is {said} bytes of JSON; the limit is {limit:,}", detail)


def _failure(refused: _Refused) -> StepFailed:
    if refused.kind == "output_too_large":
        place = _return_of(refused)
        if place is None:
            return StepFailed(refused.kind, refused.problem, detail=refused.detail or None)
        refused.parts = place
        refused.problem = "contains itself"
    parts = list(reversed(refused.parts))
    pointer = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)
    pointer = clean_text(pointer)
    hint = refused.detail.get("hint")
    place_said = f"the value at {pointer}" if pointer else "the result"
    message = f"{place_said} {refused.problem}" + (f"; {hint}" if hint else "")
    return StepFailed("output_invalid", message, detail={"path": pointer, **refused.detail})


def _return_of(refused: _Refused) -> list[Json] | None:
    """The way (innermost first) to the first place where a container comes back into itself; None if none does."""
    outside_in = list(reversed(refused.seen))
    parts = list(reversed(refused.parts))
    seen: set[int] = set()
    for depth, identity in enumerate(outside_in):
        if identity in seen:
            return list(reversed(parts[:depth]))
        seen.add(identity)
    return None
