"""Schemas in definitions: judged with and without the library alike."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.definition.check.schemas import _fits_plainly, _plain

values = st.sampled_from(
    [None, True, 0, 1, -1, 1.5, "x", "string", "object", [], ["a"], ["a", "a"], {}, {"a": {}}, {"a": 1}]
)
words = st.sampled_from(
    ["type", "required", "properties", "items", "additionalProperties", "minLength", "maxItems", "minimum", "exclusiveMaximum",
     "enum", "title", "format", "default", "const", "examples", "pattern", "$ref", "anyOf", "x-own"]
)  # fmt: skip
schemas = st.recursive(
    st.dictionaries(words, values, max_size=3),
    lambda inner: st.dictionaries(
        words, inner | st.dictionaries(st.text("ab", min_size=1, max_size=1), inner, max_size=2), max_size=3
    ),
    max_leaves=4,
)


@given(schemas)
@settings(max_examples=500, deadline=None)
def test_what_the_quick_judgement_accepts_the_meta_schema_accepts(schema):
    if _plain(schema):
        jsonschema.Draft202012Validator.check_schema(schema)


@given(st.sampled_from(["string", "boolean", "null", "integer", "number", "array", "object"]), values)
def test_a_default_that_plainly_fits_fits(kind, default):
    if _fits_plainly({"type": kind, "default": default}):
        assert jsonschema.Draft202012Validator({"type": kind}).is_valid(default)


@pytest.mark.parametrize(
    "schema",
    [
        "{type: object, properties: {type: {type: string}, required: {type: boolean}, default: {type: integer}}, required: [type, default]}",
        "{type: object, properties: {a: {type: [string, 'null'], default: null}, b: {$ref: '#/$defs/x'}}, $defs: {x: {type: integer, default: 3}}}",
        "{type: object, properties: {a: {type: string, format: email, default: a@example.org}, n: {type: number, minimum: 0, default: 0.5}}}",
        "{type: object, properties: {a: {enum: [1, x, null], default: x}}, additionalProperties: {type: string}}",
    ],
)
def test_ordinary_schemas_have_no_problem(loader, schema):
    assert loader.problems(f"workflow: w\nsteps: [{{id: a, type: set, values: {{}}}}]\ninput: {schema}") == []


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{type: object, properties: {n: {type: number, minimum: 5, default: 1}}}", "3:75: error[schema] the default does not fit its own schema: 1 is less than the minimum of 5"),
        ("{type: object, properties: {n: {$ref: '#/$defs/none'}}}", "3:47: error[schema] there is no #/$defs/none in this schema"),
        ("{type: object, properties: {n: {minLength: -1}}}", "3:51: error[schema] not a JSON Schema: -1 is less than the minimum of 0"),
        ("{type: object, properties: {n: text}}", "3:39: error[schema] `n` in a schema is an object or boolean, this is the text 'text'"),
    ],
)  # fmt: skip
def test_wrong_schemas_are_told_where(loader, schema, problem):
    found = loader.problems(f"workflow: w\nsteps: [{{id: a, type: set, values: {{}}}}]\ninput: {schema}")
    assert [line.split("\n")[0].removeprefix("f.yaml:") for line in found] == [problem]


def test_a_pattern_is_never_matched_while_checking(loader):
    hostile = "{type: object, properties: {s: {type: string, pattern: '(a+)+$', default: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!}}}"
    assert loader.problems(f"workflow: w\nsteps: [{{id: a, type: set, values: {{}}}}]\ninput: {hostile}") == []
