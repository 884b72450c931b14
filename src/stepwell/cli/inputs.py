"""A run's input from the command line: a file, and `-i name=value` over it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from stepwell.cli.exits import Refusal

if TYPE_CHECKING:
    from stepwell.errors import Problem

Json: TypeAlias = Any

_DEEPEST = 20
"""References followed inside a schema before its type counts as unknown."""


def read_input(file: Path | None, pairs: Iterable[str], schema: Mapping[str, Json]) -> Json:
    """The input; pairs win over the file. Raises Refusal where either cannot be read."""
    found = _read(file) if file is not None else {}
    given = read_pairs(pairs, schema, option="-i")
    if not given:
        return found
    if not isinstance(found, dict):
        raise Refusal("-i sets a name, but the input file holds no object", hint="leave out -i, or make it an object")
    return found | given


def read_pairs(pairs: Iterable[str], schema: Mapping[str, Json], *, option: str) -> dict[str, Json]:
    """`name=value` is text unless the schema says otherwise; `name:=value` is JSON."""
    given: dict[str, Json] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name.strip(":"):
            raise Refusal(f"{option} {pair}: this is not name=value", hint=f"write {option} name=value, or name:=JSON")
        if name.endswith(":"):
            given[name[:-1]] = read_json(text, f"{option} {name[:-1]}")
        else:
            given[name] = _typed(text, _property(schema, name))
    return given


_TYPES = ((bool, "boolean"), (int, "integer"), (float, "number"), (list, "array"), (dict, "object"), (str, "string"))


def read_pairs_like(pairs: Iterable[str], old: Json) -> dict[str, Json]:
    """The same for arguments of a step that get another value: each is of the old one's type, if it can be read so."""
    known = {}
    for name, value in old.items() if isinstance(old, dict) else ():
        if (word := next((word for kind, word in _TYPES if isinstance(value, kind)), None)) is not None:
            known[name] = {"type": word}
    return read_pairs(pairs, {"properties": known}, option="-i")


def read_json(text: str, where: str) -> Json:
    """JSON text as a value, strictly: no NaN, no name twice. Raises Refusal that says where it is wrong."""
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        where = f"{where}:{error.lineno}:{error.colno}" if "\n" in text else f"{where}, character {error.pos + 1}"
        raise Refusal(f"{where}: this is not JSON: {error.msg}", hint='texts are quoted: "like this"') from None
    except (ValueError, RecursionError) as error:
        raise Refusal(f"{where}: this is not JSON: {error or 'nested too deep'}") from None


def read_json_or_file(text: str, where: str) -> Json:
    """JSON text, or what `@FILE` holds (`@-`: the standard input). Raises Refusal."""
    return _read(Path(text[1:])) if text.startswith("@") else read_json(text, where)


def _read(file: Path) -> Json:
    if str(file) == "-":
        return read_json(sys.stdin.read(), "standard input")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refusal(f"{file}: this is not UTF-8 text: byte {error.start} is wrong") from None
    except OSError as error:
        raise Refusal(f"{file}: {error.strerror}", hint="--input names a JSON file") from None
    if file.suffix.lower() in {".yaml", ".yml"}:
        raise Refusal(f"{file}: this is YAML, the input is JSON", hint="write the input as JSON, or give it with -i")
    return read_json(text, str(file))


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON value")


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f'the name "{name}" is there twice')
        found[name] = value
    return found


def _property(schema: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    properties = schema.get("properties")
    found = properties.get(name) if isinstance(properties, Mapping) else None
    for _ in range(_DEEPEST):
        reference = found.get("$ref") if isinstance(found, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        at: Json = schema
        for part in reference[2:].split("/"):
            at = at.get(part) if isinstance(at, Mapping) else None
        found = at
    return found if isinstance(found, Mapping) else {}


_WRITTEN = {
    "array": "use {name}:=[...]",
    "object": "use {name}:={{...}}",
    "number": "write a number: {name}=3",
    "integer": "write a whole number: {name}=3",
    "boolean": "write {name}=true or {name}=false",
}


def pair_hints(pairs: Iterable[str], schema: Mapping[str, Json]) -> dict[str, str]:
    """How to write the pairs whose text is not of the type that the schema wants, by name."""
    hints = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        wanted = _property(schema, name)
        declared = wanted.get("type")
        if isinstance(declared, str) and declared in _WRITTEN and _typed(text, wanted) == text:
            hints[name] = _WRITTEN[declared].format(name=name)
    return hints


def hinted(problems: Iterable[Problem], hints: Mapping[str, str]) -> list[Problem]:
    """Problems of an input, with these hints beside those that have none of their own."""
    return [
        replace(problem, hint=problem.hint or hints.get(problem.path.lstrip("/"), ""))
        if problem.file == "input"
        else problem
        for problem in problems
    ]


def unknown_fields(value: Json, schema: Mapping[str, Json], where: str) -> list[Problem]:
    """Names of an object that its schema does not declare, as warnings."""
    from stepwell.definition.suggest import did_you_mean
    from stepwell.errors import Problem

    declared = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(declared, Mapping) or "patternProperties" in schema:
        return []
    return [
        Problem("warning", where, f"the {where} has no field {name!r}", did_you_mean(name, declared, "its fields"))
        for name in value
        if name not in declared
    ]


def _typed(text: str, schema: Mapping[str, Json]) -> Json:
    """The text as the schema's type wants it; as text where that does not work, for the check to say why."""
    declared = schema.get("type")
    types = {declared} if isinstance(declared, str) else set(declared or ())
    choices = schema.get("enum")
    if (not types and not isinstance(choices, list)) or "string" in types or (choices and text in choices):
        return text
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return text
    return value if not isinstance(value, str) else text
