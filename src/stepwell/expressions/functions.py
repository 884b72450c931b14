"""
The table of functions: name, what each argument may be, what comes back, and the code.

Every function is pure, takes the frame first (to pay for its work) and may raise Fault. Adding one is adding a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import dates, patterns
from . import text_functions as text
from . import value_functions as value

if TYPE_CHECKING:
    from collections.abc import Callable


class Function:
    """
    `params` gives the kinds each argument may have (None: any); those after `required` may be left out.

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
    ("size", "string|array|object -> number", value.size),
    ("len", "string|array|object -> number", value.size),
    ("contains", "string|array|object, any -> boolean", value.contains_item),
    ("startsWith", "string, string -> boolean", text.starts_with),
    ("endsWith", "string, string -> boolean", text.ends_with),
    ("matches", "string, string -> boolean", patterns.matches),
    ("lower", "string -> string", text.lower),
    ("upper", "string -> string", text.upper),
    ("trim", "string -> string", text.trim),
    ("replace", "string, string, string -> string", text.replace),
    ("split", "string, string, number? -> array", text.split),
    ("join", "array, string? -> string", text.join),
    ("substring", "string, number, number? -> string", text.substring),
    ("truncate", "string, number, string? -> string", text.truncate),
    ("lines", "string -> array", text.lines),
    ("bullets", "array -> string", text.bullets),
    ("string", "any -> string", text.string),
    ("json", "any, number? -> string", text.json),
    ("parse_json", "string -> any", text.parse_json),
    ("base64", "string -> string", text.base64),
    ("base64_decode", "string -> string", text.base64_decode),
    ("int", "number|string|timestamp -> number", value.whole),
    ("float", "number|string -> number", value.floating),
    ("bool", "boolean|string -> boolean", value.boolean),
    ("type", "any -> string", value.type_name),
    ("abs", "number -> number", value.absolute),
    ("round", "number, number? -> number", value.rounded),
    ("floor", "number -> number", value.floor),
    ("ceil", "number -> number", value.ceil),
    ("sum", "array -> number", value.total),
    ("min", "array|number|string|timestamp|duration, number|string|timestamp|duration?... -> any", value.least),
    ("max", "array|number|string|timestamp|duration, number|string|timestamp|duration?... -> any", value.greatest),
    ("keys", "object -> array", value.keys),
    ("values", "object -> array", value.values),
    ("first", "array|string -> any", value.first),
    ("last", "array|string -> any", value.last),
    ("unique", "array -> array", value.unique),
    ("sort", "array, string? -> array", value.sort),
    ("reverse", "array -> array", value.reverse),
    ("flatten", "array -> array", value.flatten),
    ("slice", "array|string, number, number? -> array|string", value.slice_of),
    ("timestamp", "string|number|timestamp, string? -> timestamp", dates.timestamp),
    ("duration", "string|duration -> duration", dates.duration),
    ("format_date", "timestamp|string, string, string? -> string", dates.format_date),
)

FUNCTIONS: dict[str, Function] = {name: _row(signature, call) for name, signature, call in _ROWS}
