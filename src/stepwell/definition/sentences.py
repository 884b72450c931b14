"""What pydantic found, in sentences that a person understands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from pydantic import BaseModel

from stepwell.definition.report import Finding
from stepwell.definition.step import Location, Step
from stepwell.definition.suggest import did_you_mean, noun, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stepwell.definition.parse import Details, Fault
    from stepwell.definition.positions import Positions

    _Group: TypeAlias = list[tuple[Location, Fault]]

_WANTED = {
    "string": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list",
    "tuple": "a list", "dict": "an object", "model": "an object", "mapping": "an object", "finite": "a finite number",
}  # fmt: skip
_BOUNDS = {
    "greater_than_equal": ("ge", "at least {}"), "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"), "less_than": ("lt", "less than {}"),
}  # fmt: skip
_STEP_ID = "ids begin with a letter and go on with letters, digits, _ and -, at most 64 characters"
_WORKFLOW_ID = "ids begin with a lower-case letter and go on with lower-case letters, digits, _ and -"


def findings_of(faults: Sequence[Fault], positions: Positions) -> list[Finding]:
    """One finding for everything that was wrong; alternatives of one field are put into one sentence."""
    groups: dict[tuple[Location, bool], _Group] = {}
    for fault in faults:
        where, prefix = _resolved(fault, positions)
        groups.setdefault((prefix, _is_extra(fault)), []).append((where, fault))
    return [
        finding
        for (prefix, _), group in groups.items()
        if not _is_follow_up(prefix, group, groups)
        for finding in _said(group)
    ]


def _is_follow_up(prefix: Location, group: _Group, groups: Iterable[tuple[Location, bool]]) -> bool:
    """Whether a list is only empty because nothing in it could be read."""
    return all(fault.details["type"] == "too_short" for _, fault in group) and any(
        len(other) > len(prefix) and other[: len(prefix)] == prefix for other, _ in groups
    )


def _is_extra(fault: Fault) -> bool:
    return fault.details["type"] in {"extra_forbidden", "missing"}


def _resolved(fault: Fault, positions: Positions) -> tuple[Location, Location]:
    """Where an error lies, without the names that pydantic gives to alternatives; and up to the first alternative."""
    where, prefix = fault.where, None
    parts = fault.details["loc"]
    missing = fault.details["type"] == "missing"
    for index, part in enumerate(parts):
        _, rest = positions.find((*where, part))
        if not rest or (missing and index == len(parts) - 1):
            where = (*where, part)
        elif prefix is None:
            prefix = where
    at = _context(fault.details).get("at")
    where = (*where, at) if isinstance(at, str) else where
    return where, where if prefix is None else prefix


def _said(group: _Group) -> Iterator[Finding]:
    deepest = max(len(where) for where, _ in group)
    chosen = [(where, fault) for where, fault in group if len(where) == deepest]
    wanted = list(dict.fromkeys(_wanted(fault.details) for _, fault in chosen))
    if len(wanted) > 1 and all(wanted):
        where, fault = chosen[0]
        message = f"{_field(where)}{_either(wanted)} is wanted, this is {noun(fault.details['input'])}"
        yield Finding("type", message, where)
        return
    for where, fault in chosen:
        yield from _finding(where, fault)


def _either(alternatives: list[str]) -> str:
    words = [word for part in alternatives for word in part.replace(" or ", ", ").split(", ")]
    words = ["true or false" if word == "true" else word for word in words if word != "false"]
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _context(details: Details) -> dict[str, Any]:
    return details.get("ctx") or {}


def _wanted(details: Details) -> str:
    """What the field takes, if that is what was wrong with it."""
    kind = details["type"]
    if kind == "literal_error":
        return str(_context(details)["expected"]).replace("'", "")
    head, _, tail = kind.partition("_")
    return _WANTED.get(head, "") if tail in {"type", "parsing", "from_float", "attributes_type", "number"} else ""


def _field(where: Location) -> str:
    name = next((part for part in reversed(where) if isinstance(part, str)), "")
    return f"`{name}`: " if name else ""


def _finding(where: Location, fault: Fault) -> Iterator[Finding]:
    details = fault.details
    kind, context = details["type"], _context(details)
    if "hint" in context or "code" in context:
        yield from _custom(where, details)
    elif kind == "extra_forbidden":
        yield _unknown_key(where, fault)
    elif kind == "missing":
        yield _required(where, fault)
    elif kind == "string_pattern_mismatch":
        yield _pattern(where, details)
    else:
        message, hint = _general(where, details)
        code = "type" if _wanted(details) and kind != "literal_error" else "value"
        yield Finding(code, message, where, hint)


def _custom(where: Location, details: Details) -> Iterator[Finding]:
    """An error of our own fields, which say themselves what, where and how to mend it."""
    context = _context(details)
    for error in context.get("errors") or [{**context, "text": details["msg"]}]:
        hint = error.get("hint") or did_you_mean(str(error.get("word", "")), error.get("known", ()), "known")
        code = str(error.get("code") or ("value" if details["type"] in {"duration", "condition"} else details["type"]))
        yield Finding(
            code, str(error["text"]), (*where, *error.get("where", ())), str(hint), offset=int(error.get("offset", 0))
        )


def _unknown_key(where: Location, fault: Fault) -> Finding:
    model = _model_at(fault.model, fault.details["loc"][:-1])
    known = [field.alias or name for name, field in model.model_fields.items()] if model else []
    word = str(where[-1])
    message = f"unknown key '{word}'{_within(where[:-1], fault)}"
    return Finding("unknown_key", message, where, did_you_mean(word, known, "known keys"), key=True)


def _required(where: Location, fault: Fault) -> Finding:
    word = str(where[-1])
    inside = where[:-1]
    return Finding("required", f"`{word}` is missing{_within(inside, fault)}", inside, f"add {word}: ...")


def _within(where: Location, fault: Fault) -> str:
    """In what a key is unknown or missing."""
    if where != fault.where or (where and not issubclass(fault.model, Step)):
        return f" in `{next((part for part in reversed(where) if isinstance(part, str)), '')}`"
    if issubclass(fault.model, Step):
        word = get_args(fault.model.model_fields["type"].annotation)
        return f" in a step of type {word[0]}" if word else " in this step"
    return f" in the {'recipe' if fault.model.__name__.startswith('Recipe') else 'workflow'}"


def _model_at(model: type[BaseModel], parts: Iterable[str | int]) -> type[BaseModel] | None:
    found: type[BaseModel] | None = model
    for part in parts:
        if isinstance(part, int) or found is None:
            continue
        fields = {field.alias or name: field for name, field in found.model_fields.items()}
        if part in fields:
            found = next(_models_in(fields[part].annotation), None)
    return found


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _pattern(where: Location, details: Details) -> Finding:
    lower = str(_context(details).get("pattern", "")).startswith("^[a-z]")
    value = details["input"]
    key = "[key]" in details["loc"]
    message = f"{shown(value)} is not an id" if value != "" else "an id is not empty"
    if where and where[-1] == "as":
        hint = "letters, digits and _, not beginning with a digit"
        return Finding("id", f"{shown(value)} is not a name", where, hint)
    return Finding("id", message, where, _WORKFLOW_ID if lower else _STEP_ID, key=key)


def _general(where: Location, details: Details) -> tuple[str, str]:
    kind, context, value = details["type"], _context(details), details["input"]
    field = _field(where)
    if kind == "literal_error":
        words = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        return f"{field}{shown(value)} is not one of: {', '.join(words)}", did_you_mean(str(value), words)
    if kind in _BOUNDS:
        name, phrase = _BOUNDS[kind]
        bound = context[name]
        wanted = phrase.format(int(bound) if bound == int(bound) else bound)
        return f"{field}{wanted} is wanted, this is {shown(value)}", ""
    if kind == "too_short":
        return f"{field.removesuffix(': ')} is empty", "add at least one"
    if kind == "string_too_long":
        return f"{field}at most {context['max_length']} characters are wanted", ""
    if wants := _wanted(details):
        hint = "quote it" if wants == "text" and isinstance(value, int | float | bool) else ""
        hint = f"write [{value}]" if wants == "a list" and isinstance(value, str) and len(value) < 40 else hint
        return f"{field}{wants} is wanted, this is {noun(value)}", hint
    text = details["msg"].removeprefix("Value error, ").removeprefix("Input should ")
    return f"{field}{text[:1].lower()}{text[1:]}", ""
