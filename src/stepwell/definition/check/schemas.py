"""JSON Schemas written in a definition: they are schemas, and their defaults fit them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.report import Finding
from stepwell.definition.suggest import did_you_mean, noun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsonschema.exceptions import ValidationError

    from stepwell.definition.check.survey import Survey
    from stepwell.definition.recipe import RecipeDefinition
    from stepwell.definition.step import Location

Json: TypeAlias = Any
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_LISTED = 20


def check_schemas(survey: Survey) -> Iterator[Finding]:
    """`input` of the workflow, `output_schema` and `form` of its steps."""
    yield from _input(survey.workflow.input, ("input",))
    for site in survey.steps:
        for name in ("output_schema", "form"):
            schema = getattr(site.step, name, None)
            if isinstance(schema, dict):
                yield from _schema(schema, (*site.where, name))


def check_recipe_schemas(recipe: RecipeDefinition) -> Iterator[Finding]:
    """`input` and `output_schema` of a recipe."""
    yield from _input(recipe.input, ("input",))
    if recipe.output_schema is not None:
        yield from _schema(recipe.output_schema, ("output_schema",))


def _input(schema: dict[str, Json], where: Location) -> Iterator[Finding]:
    if not schema:
        return
    if schema.get("type", "object") in _TYPES[1:]:
        yield Finding("schema", "the input is always an object", (*where, "type"), "write type: object")
    elif "properties" not in schema and not any(word in schema for word in _SCHEMA_WORDS):
        hint = "write type: object and properties: {name: {type: string}}"
        yield Finding("schema", "this looks like a list of fields; `input` is a JSON Schema", where, hint)
    yield from _schema(schema, where)


_SCHEMA_WORDS = frozenset(
    {
        "type", "required", "additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf", "not", "if",
        "$defs", "title", "description", "minProperties", "maxProperties", "propertyNames", "dependentRequired",
        "const", "enum", "$schema", "$comment", "default", "examples",
    }
)  # fmt: skip


def _schema(schema: dict[str, Json], where: Location) -> Iterator[Finding]:
    found = [*_invalid(schema, where)]
    yield from found
    if found:
        return
    yield from _undeclared(schema, where)
    yield from _defaults(schema, where)


def _invalid(schema: dict[str, Json], where: Location) -> Iterator[Finding]:
    """What the meta-schema of JSON Schema 2020-12 refuses, and references to nowhere."""
    if _plain(schema):
        return
    import jsonschema

    validator = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)
    try:
        errors = sorted(validator.iter_errors(schema), key=lambda error: list(map(str, error.absolute_path)))
    except RecursionError:
        yield Finding("schema", "this schema is nested too deep", where)
        return
    for error in errors[:_LISTED]:
        yield _said(error, (*where, *error.absolute_path))
    if not errors:
        yield from _dangling(schema, where)


_TEXTS = frozenset({"title", "description", "format", "$comment"})
_COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})


def _plain(schema: Json) -> bool:
    """Whether a schema is surely right, told without the library: most are, and importing it takes long."""
    waiting = [schema]
    while waiting:
        found = waiting.pop()
        if isinstance(found, bool):
            continue
        if not isinstance(found, dict):
            return False
        for word, value in found.items():
            if word == "properties" and isinstance(value, dict):
                waiting += value.values()
            elif word in {"items", "additionalProperties"}:
                waiting.append(value)
            elif not _plain_word(word, value):
                return False
    return True


def _plain_word(word: str, value: Json) -> bool:
    if word == "type":
        return isinstance(value, str) and value in _TYPES
    if word == "required":
        return isinstance(value, list) and len({name for name in value if isinstance(name, str)}) == len(value)
    if word in {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}:
        return type(value) in {int, float}
    if word in _COUNTS:
        return type(value) is int and value >= 0
    if word in {"enum", "examples"}:
        return isinstance(value, list)
    return word in {"default", "const"} or (word in _TEXTS and isinstance(value, str))


def _said(error: ValidationError, where: Location) -> Finding:
    word = where[-1] if where else ""
    value = error.instance
    if word == "type" and isinstance(value, str):
        return Finding("schema", f"'{value}' is no type of JSON Schema", where, did_you_mean(value, _TYPES, "types"))
    if error.validator == "type":
        wanted = error.validator_value
        words = " or ".join(wanted) if isinstance(wanted, list) else str(wanted)
        return Finding("schema", f"`{word}` in a schema is {_article(words)}, this is {noun(value)}", where)
    message = error.message if len(error.message) <= 120 else f"{error.message[:119]}…"
    return Finding("schema", f"not a JSON Schema: {message}", where)


def _article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _dangling(schema: dict[str, Json], where: Location) -> Iterator[Finding]:
    for path, inner in _walk(schema):
        yield from _pattern(inner.get("pattern"), (*where, *path, "pattern"))
        target = inner.get("$ref")
        if not isinstance(target, str):
            continue
        place = (*where, *path, "$ref")
        if not target.startswith("#"):
            hint = "put it under $defs and write #/$defs/name"
            yield Finding("schema", "a schema refers only to itself; nothing is fetched", place, hint)
        elif target != "#" and (not target.startswith("#/") or _resolve(schema, target) is None):
            yield Finding("schema", f"there is no {target} in this schema", place)


def _pattern(pattern: Json, where: Location) -> Iterator[Finding]:
    if not isinstance(pattern, str):
        return
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        yield Finding("schema", f"not a regular expression: {error}", where)


def _resolve(schema: Json, target: str) -> Json:
    found = schema
    for part in target[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(key)
        elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


def _walk(schema: Json) -> Iterator[tuple[Location, dict[str, Json]]]:
    """Every object of a schema that is a schema itself, or might be."""
    waiting: list[tuple[Location, Json]] = [((), schema)]
    while waiting:
        path, found = waiting.pop()
        if isinstance(found, dict):
            yield path, found
            waiting += [((*path, key), inner) for key, inner in found.items() if key not in _VALUES]
        elif isinstance(found, list):
            waiting += [((*path, index), inner) for index, inner in enumerate(found)]


_VALUES = frozenset({"default", "const", "enum", "examples"})


def _undeclared(schema: dict[str, Json], where: Location) -> Iterator[Finding]:
    """`required` names that no property declares are most often misspelt."""
    for path, found in _walk(schema):
        required, properties = found.get("required"), found.get("properties")
        if not isinstance(required, list) or not isinstance(properties, dict):
            continue
        for index, name in enumerate(required):
            if name not in properties and not {"patternProperties", "allOf", "anyOf", "oneOf", "$ref"} & found.keys():
                hint = did_you_mean(str(name), properties)
                place = (*where, *path, "required", index)
                yield Finding("schema", f"'{name}' is required but not declared", place, hint, "warning")


def _fits_plainly(schema: dict[str, Json]) -> bool:
    """Whether a scalar default surely fits a schema that asks for no more than its type."""
    if schema.keys() - _TEXTS - {"type", "default"} or "format" in schema:
        return False
    match schema.get("type"), schema["default"]:
        case ("string", str()) | ("boolean", bool()) | ("null", None):
            return True
        case ("integer", int(value)) | ("number", int(value) | float(value)):
            return not isinstance(value, bool)
        case _:
            return False


def _defaults(schema: dict[str, Json], where: Location) -> Iterator[Finding]:
    """Defaults that do not fit; not where a pattern would be matched, which could take any time."""
    from stepwell.definition.schemas import problems_of

    for path, found in _walk(schema):
        if "default" not in found or path[-1:] == ("properties",) or "pattern" in str(found):
            continue
        if _fits_plainly(found):
            continue
        checked = {**found, **({"$defs": schema["$defs"]} if "$defs" in schema else {})}
        problem = next(problems_of(checked, found["default"]), None)
        if problem is not None:
            place = (*where, *path, "default")
            yield Finding("schema", f"the default does not fit its own schema: {problem.removeprefix('/: ')}", place)
