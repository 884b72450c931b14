"""The table of functions: name, what each argument may be, what comes back, and the code.

Every function is pure, takes the frame first (to pay for its work) and may raise Fault. Adding one is adding a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import function_bodies as body


class Function:
    """`params` gives the kinds each argument may have (None: any); those after `required` may be left out.

    `result` is the set of kinds of the result (None: unknown). With `repeats` the last parameter may occur again.
    """

    __slots__ = ("call", "params", "repeats", "required", "result")

    def __init__(
        self,
        params: tuple[frozenset[str] | None, ...],
        result: frozenset[str] | None,
        call: Callable[..., Any],
        *,
        optional: int = 0,
        repeats: bool = False,
    ) -> None:
        self.params = params
        self.result = result
        self.call = call
        self.required = len(params) - optional
        self.repeats = repeats

    @property
    def most(self) -> int:
        return 64 if self.repeats else len(self.params)

    def arity(self) -> str:
        """The number of arguments, in words."""
        if self.repeats:
            return f"at least {self.required} argument(s)"
        if self.required == len(self.params):
            return f"{self.required} argument{'' if self.required == 1 else 's'}"
        return f"{self.required} to {len(self.params)} arguments"

    def allowed(self, index: int) -> frozenset[str] | None:
        return self.params[min(index, len(self.params) - 1)]


def _kinds(names: str) -> frozenset[str] | None:
    return None if names == "any" else frozenset(names.split("|"))


_KINDS: dict[str, frozenset[str] | None] = {}


def _row(signature: str, call: Callable[..., Any]) -> Function:
    """Reads `string, number? -> array`: kinds joined by `|`, `?` marks what may be left out, `...` what may repeat."""
    left, _, result = signature.partition(" -> ")
    params: list[frozenset[str] | None] = []
    optional = 0
    repeats = left.endswith("...")
    for part in left.removesuffix("...").split(", "):
        optional += part.endswith("?")
        text = part.removesuffix("?")
        if text not in _KINDS:
            _KINDS[text] = _kinds(text)
        params.append(_KINDS[text])
    return Function(tuple(params), _kinds(result), call, optional=optional, repeats=repeats)


_ROWS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("size", "string|array|object -> number", body.size),
    ("len", "string|array|object -> number", body.size),
    ("contains", "string|array|object, any -> boolean", body.contains_item),
    ("startsWith", "string, string -> boolean", body.starts_with),
    ("endsWith", "string, string -> boolean", body.ends_with),
    ("matches", "string, string -> boolean", body.matches),
    ("lower", "string -> string", body.lower),
    ("upper", "string -> string", body.upper),
    ("trim", "string -> string", body.trim),
    ("replace", "string, string, string -> string", body.replace),
    ("split", "string, string, number? -> array", body.split),
    ("join", "array, string? -> string", body.join),
    ("substring", "string, number, number? -> string", body.substring),
    ("truncate", "string, number, string? -> string", body.truncate),
    ("lines", "string -> array", body.lines),
    ("bullets", "array -> string", body.bullets),
    ("string", "any -> string", body.string),
    ("json", "any, number? -> string", body.json),
    ("parse_json", "string -> any", body.parse_json),
    ("base64", "string -> string", body.base64),
    ("base64_decode", "string -> string", body.base64_decode),
    ("int", "number|string|timestamp -> number", body.whole),
    ("float", "number|string -> number", body.floating),
    ("bool", "boolean|string -> boolean", body.boolean),
    ("type", "any -> string", body.type_name),
    ("abs", "number -> number", body.absolute),
    ("round", "number, number? -> number", body.rounded),
    ("floor", "number -> number", body.floor),
    ("ceil", "number -> number", body.ceil),
    ("sum", "array -> number", body.total),
    ("min", "array|number|string|timestamp|duration, number|string|timestamp|duration?... -> any", body.least),
    ("max", "array|number|string|timestamp|duration, number|string|timestamp|duration?... -> any", body.greatest),
    ("keys", "object -> array", body.keys),
    ("values", "object -> array", body.values),
    ("first", "array|string -> any", body.first),
    ("last", "array|string -> any", body.last),
    ("unique", "array -> array", body.unique),
    ("sort", "array, string? -> array", body.sort),
    ("reverse", "array -> array", body.reverse),
    ("flatten", "array -> array", body.flatten),
    ("slice", "array|string, number, number? -> array|string", body.slice_of),
    ("timestamp", "string|number|timestamp, string? -> timestamp", body.timestamp),
    ("duration", "string|duration -> duration", body.duration),
    ("format_date", "timestamp|string, string, string? -> string", body.format_date),
)

FUNCTIONS: dict[str, Function] = {name: _row(signature, call) for name, signature, call in _ROWS}
