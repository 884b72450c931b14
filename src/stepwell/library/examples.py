"""Examples of a recipe: what goes in and what is expected to come out, read from the rows of a table.

    expected.label, input.text     columns by their names; `expected` and `input` may be objects in JSON and YAML
    label=class                    of `--expect`: what the field `label` should be stands in the column `class`
    text                           any other column that has the name of an input of the recipe

The law of the file: an example that no recipe could take, or whose expectation could never come true, is refused with
its line; an empty cell of a CSV file expects nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stepwell.definition.check.recipe_tests import expected_to_fit
from stepwell.definition.expectation import is_comparison, mistakes
from stepwell.definition.recipe import RecipeDefinition, output_schema_of
from stepwell.definition.schemas import problems_of, with_defaults
from stepwell.definition.suggest import did_you_mean
from stepwell.errors import DefinitionError, Problem
from stepwell.library.tables import Table, TableRow

Json: TypeAlias = Any
Schema: TypeAlias = "dict[str, Json]"

_INPUT, _EXPECTED = "input", "expected"
_ABSENT = object()
_MOST_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class Example:
    """An input with the fields that are expected of the output. `place` is where it is written: file:line."""

    input: dict[str, Json]
    expected: dict[str, Json]
    place: str = ""
    line: int = 0


@dataclass(slots=True)
class _Columns:
    """What the columns of a table are for: names of the table by where they go."""

    inputs: dict[str, str] = field(default_factory=dict)
    expected: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)


def examples_of(
    table: Table, recipes: Sequence[RecipeDefinition], expects: Mapping[str, str] | None = None
) -> tuple[list[Example], list[str]]:
    """The examples of a table for recipes that are compared, and the columns that are not used.

    `expects` says which field of the output stands in which column. Raises DefinitionError with all that is wrong.
    """
    columns = _columns(table, recipes, expects or {})
    reading = _Reading(table, recipes, columns)
    examples = [reading.example(row) for row in table.rows]
    if reading.problems:
        raise DefinitionError(reading.problems)
    return examples, columns.unused


def taken_by(recipe: RecipeDefinition, value: dict[str, Json]) -> dict[str, Json]:
    """Those inputs that a recipe takes: of recipes that are compared, one may take less than another."""
    declared = recipe.input.get("properties")
    if not isinstance(declared, dict) or "patternProperties" in recipe.input:
        return value
    return {name: inner for name, inner in value.items() if name in declared}


def _columns(table: Table, recipes: Sequence[RecipeDefinition], expects: Mapping[str, str]) -> _Columns:
    found = _Columns()
    for wanted, column in expects.items():
        if column not in table.columns:
            hint = did_you_mean(column, table.columns, "columns")
            raise DefinitionError([table.problem(None, f"there is no column {column!r}", hint)])
        found.expected[wanted] = column
    declared = [recipe.input.get("properties") for recipe in recipes]
    known = {name for properties in declared if isinstance(properties, dict) for name in properties}
    for column in table.columns:
        head, dot, rest = column.partition(".")
        if dot and rest and head in {_INPUT, _EXPECTED}:
            (found.inputs if head == _INPUT else found.expected)[rest] = column
        elif column in known or (not all(declared) and column not in expects.values()):
            if not (column in {_INPUT, _EXPECTED} and table.typed):
                found.inputs[column] = column
        elif column not in expects.values() and not (column in {_INPUT, _EXPECTED} and table.typed):
            found.unused.append(column)
    _demand(table, found)
    return found


def _demand(table: Table, found: _Columns) -> None:
    """Refuse a table in which nothing is expected or nothing goes in."""
    listed = f"its columns: {', '.join(table.columns)}"
    if not found.expected and not (table.typed and _EXPECTED in table.columns):
        hint = f"name a column expected.FIELD, or say --expect FIELD=COLUMN; {listed}"
        raise DefinitionError([table.problem(None, "this table does not say what is expected", hint)])
    if not found.inputs and not (table.typed and _INPUT in table.columns):
        hint = f"name columns as the recipe names its inputs, or input.NAME; {listed}"
        raise DefinitionError([table.problem(None, "no column of this table is an input of the recipe", hint)])


class _Reading:
    """Rows being read, and what is wrong with them."""

    def __init__(self, table: Table, recipes: Sequence[RecipeDefinition], columns: _Columns) -> None:
        self.problems: list[Problem] = []
        self._table = table
        self._recipes = recipes
        self._columns = columns
        self._outputs = [output_schema_of(recipe) for recipe in recipes]

    def example(self, row: TableRow) -> Example:
        given = self._objects(row, _INPUT)
        for name, column in self._columns.inputs.items():
            value = self._value(row, column, [recipe.input for recipe in self._recipes], name, required=True)
            if value is not _ABSENT:
                given[name] = value
        expected = self._objects(row, _EXPECTED)
        for name, column in self._columns.expected.items():
            value = self._value(row, column, self._outputs, name, required=False)
            if value is not _ABSENT:
                _put(expected, name.split("."), value)
        if len(self.problems) < _MOST_PROBLEMS:
            self._check(row, given, expected)
        return Example(given, expected, f"{self._table.file}:{row.line}", row.line)

    def _objects(self, row: TableRow, name: str) -> dict[str, Json]:
        value = row.values.get(name) if self._table.typed else None
        if value is None or name in self._columns.inputs.values() or name in self._columns.expected.values():
            return {}
        if not isinstance(value, dict):
            self.problems.append(self._table.problem(row, f"`{name}` is an object of fields", "{label: refund}"))
            return {}
        return dict(value)

    def _value(self, row: TableRow, column: str, schemas: Sequence[Schema], name: str, *, required: bool) -> Json:
        value = row.values.get(column, _ABSENT)
        if self._table.typed or not isinstance(value, str):
            return value
        types = {word for schema in schemas for word in _types(schema, name.split("."))}
        if not value.strip() and not (required and types <= {"string"} and self._required(name)):
            return _ABSENT
        return _typed(value, types)

    def _required(self, name: str) -> bool:
        return any(name in (recipe.input.get("required") or ()) for recipe in self._recipes)

    def _check(self, row: TableRow, given: dict[str, Json], expected: dict[str, Json]) -> None:
        for recipe in self._recipes:
            filled = with_defaults(recipe.input, taken_by(recipe, given))
            for problem in problems_of(recipe.input, filled) if recipe.input else ():
                message = f"the input does not fit {recipe.recipe}@{recipe.version}: {problem}"
                self.problems.append(self._table.problem(row, message))
        wrong = [(message, hint) for _, message, hint in mistakes(expected)]
        if not wrong:
            told = [[*_never(expected, schema)] for schema in self._outputs]
            wrong = told[0] if all(told) else []  # what one of the recipes can put out may be expected
        self.problems += [self._table.problem(row, message, hint) for message, hint in wrong]


def _never(expected: dict[str, Json], schema: Schema) -> Iterator[tuple[str, str]]:
    for finding in expected_to_fit(expected, schema, schema, ()):
        named = ".".join(str(part) for part in finding.where)
        yield f"expected {named or 'output'}: {finding.message}", finding.hint


def _types(schema: Json, way: Sequence[str]) -> Iterator[str]:
    """The types that a field may have, "" where nothing is said."""
    for name in way:
        properties = schema.get("properties") if isinstance(schema, dict) else None
        schema = properties.get(name) if isinstance(properties, dict) else None
    said = schema.get("type", "") if isinstance(schema, dict) else ""
    if not said and isinstance(schema, dict) and (values := schema.get("enum")):
        said = "string" if all(isinstance(value, str) for value in values) else ""
    yield from said if isinstance(said, list) else [said]


_PARSED = {"number", "integer", "boolean", "array", "object", "null"}


def _typed(text: str, types: set[str]) -> Json:
    """The text of a cell as the schema wants it; text that cannot be read so stays text, and is told by the schema."""
    if "string" in types and not text.lstrip().startswith("{"):
        return text
    if not types & _PARSED and not text.lstrip().startswith("{"):
        return text
    written = text.strip()
    lowered = written.lower()
    if "boolean" in types and lowered in {"true", "false", "yes", "no"}:
        return lowered in {"true", "yes"}
    try:
        value = json.loads(written)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, dict) and not ("object" in types or is_comparison(value)):
        return text
    return value


def _put(into: dict[str, Json], way: Sequence[str], value: Json) -> None:
    for name in way[:-1]:
        inner = into.setdefault(name, {})
        into = inner if isinstance(inner, dict) else {}
    into[way[-1]] = value
