"""The tests of a recipe: what is wrong with them is told with its place, and what they expect is held against answers."""

from __future__ import annotations

import pytest

from stepwell.definition.expectation import unlike
from stepwell.definition.load import load_recipe_text, read_recipe
from stepwell.errors import DefinitionError

TRIAGE = """\
recipe: triage
task: classify
input: {type: object, required: [ticket], properties: {ticket: {type: string, minLength: 3}}}
prompt: "{{input.ticket}}"
labels: {refund: {}, billing: {}}
tests:
"""
REPLY = """\
recipe: reply
prompt: hello
output_schema:
  type: object
  additionalProperties: false
  properties:
    text: {type: string}
    amount: {type: [number, "null"]}
    tags: {type: array, items: {$ref: "#/$defs/tag"}}
    inner: {$ref: "#/$defs/inner"}
  $defs:
    tag: {enum: [a, b]}
    inner: {type: object, additionalProperties: false, properties: {tag: {$ref: "#/$defs/tag"}}}
tests:
"""


def wrong(text: str, test: str) -> list[tuple[int, str]]:
    with pytest.raises(DefinitionError) as refused:
        load_recipe_text(text + test, file="r.yaml")
    return [(problem.line, problem.message) for problem in refused.value.problems]


@pytest.mark.parametrize(
    ("test", "line", "message"),
    [
        ("- {input: {}, expect: {label: refund}}", 7, "'ticket' is a required property"),
        ("- input:\n    ticket: x\n", 8, "is too short"),
        ("- {input: {ticket: hello, tickt: x}}", 7, "declares no input 'tickt'"),
        ("- {input: {ticket: hello}, expect:\n   {label: refnd}}", 8, "can never come out: 'refnd' is not one of"),
        ("- {input: {ticket: hello}, expect: {lable: refund}}", 7, "the output has no field 'lable'"),
        ("- {input: {ticket: hello}, expect: {label: {one_of: [refund, x]}}}", 7, "'x' is not one of"),
        ("- {input: {ticket: hello}, expect: {label: {min: 3}}}", 7, "`min` compares number or integer"),
        ("- {input: {ticket: hello}, expect: {confidence: {min: high}}}", 7, "`min` is a number"),
        ("- {input: {ticket: hello}, expect: {confidence: {min: 0.9, max: 0.1}}}", 7, "at least 0.9 and at most 0.1"),
        ("- {input: {ticket: hello}, expects: {}}", 7, "unknown key 'expects'"),
        ("- {name: a, input: {ticket: hello}}\n- {name: a, input: {ticket: hello}}", 8, "two tests are called 'a'"),
    ],
)
def test_a_test_that_can_never_pass_is_told_with_its_line(test, line, message):
    assert [(found, message in said) for found, said in wrong(TRIAGE, test)] == [(line, True)]


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ("{text: 3}", "3 is not of type 'string'"),
        ("{tags: [a, c]}", "'c' is not one of"),
        ("{inner: {tag: c}}", "'c' is not one of"),
        ("{inner: {tga: a}}", "has no field 'tga'"),
        ("{text: {matches: '('}}", "bad regular expression"),
        ("{text: {contains: []}}", "`contains` is a text"),
        ("{amount: {contains: x}}", "`contains` compares string or array"),
    ],
)
def test_expectations_are_held_against_the_output_schema_with_its_references(expect, message):
    [(line, said)] = wrong(REPLY, f"- expect: {expect}")
    assert line == 15
    assert message in said


def test_what_may_come_out_is_right():
    text = (
        REPLY
        + "- {expect: {text: {contains: [x, Y]}, amount: null, tags: {contains: a}, inner: {tag: b}}}\n- {expect: {tags: [a]}}"
    )
    assert read_recipe(text).definition.tests[0].expect["amount"] is None
    open_ended = "recipe: r\nprompt: x\noutput_schema: {type: object}\ntests: [{expect: {anything: 1}}]\n"
    assert load_recipe_text(open_ended).tests[0].expect == {"anything": 1}


def test_tests_are_not_part_of_what_a_recipe_is():
    plain = load_recipe_text(REPLY.replace("tests:\n", ""))
    tested = load_recipe_text(REPLY + "- {name: x, expect: {text: y}}")
    assert plain.digest == tested.digest
    assert plain.data() != tested.data()


@pytest.mark.parametrize(
    ("expected", "found", "fields"),
    [
        ({"a": 1}, {"a": 1.0, "b": 2}, []),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": {"b": 1}}, {"a": {"c": 1}}, ["a.b"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["a.1"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a"]),
        ({"a": None}, {}, ["a"]),
        ({"a": {"min": 1, "max": 2}}, {"a": 2}, []),
        ({"a": {"min": 1, "max": 2}}, {"a": 2.1}, ["a"]),
        ({"a": {"min": 1}}, {"a": True}, ["a"]),
        ({"a": {"min": 1}}, {}, ["a"]),
        ({"a": {"contains": ["Sorry", "REFUND"]}}, {"a": "sorry, your Refund"}, []),
        ({"a": {"contains": "x"}}, {"a": ["x", "y"]}, []),
        ({"a": {"contains": ["x", "z"]}}, {"a": ["x", "y"]}, ["a"]),
        ({"a": {"contains": "x"}}, {"a": None}, ["a"]),
        ({"a": {"matches": "^R-[0-9]+$"}}, {"a": "R-17"}, []),
        ({"a": {"matches": "^R-[0-9]+$"}}, {"a": "R-x"}, ["a"]),
        ({"a": {"matches": "退款"}}, {"a": "可以退款吗\ud800"}, []),
        ({"a": {"one_of": ["x", "y"]}}, {"a": "y"}, []),
        ({"a": {"equals": {"min": 3}}}, {"a": {"min": 3}}, []),
        ({"a": {"min": 1, "other": 2}}, {"a": {"min": 1, "other": 2, "more": 3}}, []),
        ({"a": {"b": 1}}, "no object", ["the output"]),
    ],
)
def test_outputs_are_held_against_what_is_expected_of_them(expected, found, fields):
    assert [part.field for part in unlike(expected, found)] == fields


def test_labels_may_be_names_or_have_a_text_as_their_description():
    head = "recipe: r\ntask: classify\nprompt: x\nlabels: "
    listed = load_recipe_text(head + "[a, b]")
    assert list(listed.labels) == ["a", "b"]
    assert listed.digest == load_recipe_text(head + "{a: {}, b: {}}").digest
    described = load_recipe_text(head + "{a: good, b: {description: bad}}")
    assert [label.description for label in described.labels.values()] == ["good", "bad"]
    for wrong_ones in ("[a, a]", "[1]", "{a: 3}", "[]"):
        with pytest.raises(DefinitionError):
            load_recipe_text(head + wrong_ones)
