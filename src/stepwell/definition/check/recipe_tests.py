"""The tests of a recipe: what goes in fits its input, and what is expected can come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.expectation import ABSENT, is_comparison, mistakes
from stepwell.definition.recipe import output_schema_of
from stepwell.definition.report import Finding
from stepwell.definition.schemas import problems_of, with_defaults
from stepwell.definition.suggest import did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.recipe import RecipeDefinition, RecipeTest
    from stepwell.definition.step import Location, Schema

Json: TypeAlias = Any


def check_recipe_tests(recipe: RecipeDefinition) -> Iterator[Finding]:
    """Every test has a name of its own, an input that fits and expectations that can come true."""
    seen: dict[str, int] = {}
    schema = output_schema_of(recipe)
    for index, test in enumerate(recipe.tests):
        where: Location = ("tests", index)
        first = seen.setdefault(test.name, index) if test.name else index
        if first != index:
            message = f"two tests are called {shown(test.name)}; the first at {{place}}"
            yield Finding("test", message, (*where, "name"), "give each a name of its own",
                          other=("tests", first, "name"))  # fmt: skip
        yield from _input(recipe, test, (*where, "input"))
        wrong = [*mistakes(test.expect, (*where, "expect"))]
        yield from (Finding("test", message, place, hint) for place, message, hint in wrong)
        if not wrong:
            yield from expected_to_fit(test.expect, schema, schema, (*where, "expect"))


def _input(recipe: RecipeDefinition, test: RecipeTest, where: Location) -> Iterator[Finding]:
    schema = recipe.input
    if not schema:
        return
    for problem in problems_of(schema, with_defaults(schema, test.input)):
        pointer, _, message = problem.partition(": ")
        parts = tuple(int(part) if part.isdigit() else part for part in pointer.split("/")[1:] if part)
        yield Finding("test", f"the input of this test does not fit: {message}", (*where, *parts))
    declared = schema.get("properties")
    if isinstance(declared, dict) and not {"additionalProperties", "patternProperties"} & schema.keys():
        for name in test.input:
            if name not in declared:
                hint = did_you_mean(name, sorted(declared), "inputs")
                yield Finding("test", f"the recipe declares no input '{name}'", (*where, name), hint, key=True)


def expected_to_fit(expected: Json, schema: Json, root: Schema, where: Location) -> Iterator[Finding]:
    """What can never come out under a schema; where the schema leaves open what there is, nothing is said."""
    schema = _resolved(schema, root)
    if not isinstance(schema, dict):
        return
    if is_comparison(expected):
        values = [*expected.get("one_of", []), *([expected["equals"]] if "equals" in expected else [])]
        for value in values:
            yield from _value(value, schema, root, where)
        yield from _type_of_comparison(expected, schema, where)
    elif isinstance(expected, dict) and isinstance(properties := schema.get("properties"), dict):
        open_ended = schema.get("additionalProperties", True) is not False or "patternProperties" in schema
        for name, inner in expected.items():
            if name in properties:
                yield from expected_to_fit(inner, properties[name], root, (*where, name))
            elif not open_ended or did_you_mean(name, sorted(properties)):
                hint = did_you_mean(name, sorted(properties), "fields")
                yield Finding("test", f"the output has no field '{name}'", (*where, name), hint, key=True)
    elif isinstance(expected, list) and isinstance(schema.get("items"), dict):
        for index, inner in enumerate(expected):
            yield from expected_to_fit(inner, schema["items"], root, (*where, index))
    elif not isinstance(expected, dict):
        yield from _value(expected, schema, root, where)


def _value(value: Json, schema: Schema, root: Schema, where: Location) -> Iterator[Finding]:
    inside = schema if schema is root or "$defs" not in root else {**schema, "$defs": root["$defs"]}
    for problem in problems_of(inside, value):
        yield Finding("test", f"this can never come out: {problem.partition(': ')[2]}", where)
        return


_COMPARED = {
    "min": ("number", "integer"), "max": ("number", "integer"), "matches": ("string",), "contains": ("string", "array"),
}  # fmt: skip


def _type_of_comparison(expected: dict[str, Json], schema: Schema, where: Location) -> Iterator[Finding]:
    types = schema.get("type", ABSENT)
    declared = {types} if isinstance(types, str) else set(types) if isinstance(types, list) else set()
    for word in expected:
        wanted = _COMPARED.get(word)
        if declared and wanted is not None and not declared & {*wanted}:
            named = " or ".join(wanted)
            message = f"`{word}` compares {named}, this field is {' or '.join(sorted(declared))}"
            yield Finding("test", message, (*where, word), key=True)


def _resolved(schema: Json, root: Schema) -> Json:
    """A schema behind references within its definition; {} where they lead nowhere or in circles."""
    for _ in range(20):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str):
            return schema
        if not reference.startswith("#"):
            return {}
        found: Json = root
        for part in reference[1:].split("/")[1:]:
            found = found.get(part) if isinstance(found, dict) else None
        schema = found
    return {}
