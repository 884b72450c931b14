"""Tables of examples: read with their lines, and refused as a whole where a row is wrong."""

from __future__ import annotations

import pytest

from stepwell.definition.load import load_recipe_text
from stepwell.errors import DefinitionError
from stepwell.library.examples import examples_of
from stepwell.library.tables import read_table

TRIAGE = load_recipe_text(
    'recipe: triage\ntask: classify\nprompt: "{{input.ticket}}"\nlabels: {refund: {}, billing: {}}\n'
    "input: {type: object, required: [ticket], properties: {ticket: {type: string}, stars: {type: integer}}}\n"
)
PRICE = load_recipe_text(
    "recipe: price\nprompt: x\noutput_schema:\n  type: object\n"
    "  properties: {price: {type: number}, paid: {type: boolean}, who: {type: object, properties: {name: {type: string}}}}\n"
)


@pytest.fixture
def table(tmp_path):
    def write(name: str, text: str | bytes):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_table(tmp_path / name)

    return write


def problems(call, *args):
    with pytest.raises(DefinitionError) as refused:
        call(*args)
    return [(one.line, one.message) for one in refused.value.problems]


def test_csv_with_quotes_line_breaks_a_bom_and_empty_cells(table):
    text = '\ufeffticket,stars,expected.label,note\r\n"one, ""two""\nthree",5,refund,x\r\n\r\nfour,,,y\r\n'
    found, unused = examples_of(table("t.csv", text), [TRIAGE])
    assert [(one.input, one.expected, one.line) for one in found] == [
        ({"ticket": 'one, "two"\nthree', "stars": 5}, {"label": "refund"}, 2),
        ({"ticket": "four"}, {}, 5),
    ]
    assert unused == ["note"]
    assert found[0].place.endswith("t.csv:2")


@pytest.mark.parametrize(("name", "delimiter"), [("t.csv", ";"), ("t.csv", "\t"), ("t.tsv", "\t")])
def test_other_delimiters_are_seen_in_the_header(table, name, delimiter):
    text = f"ticket{delimiter}class\nwhere, oh where{delimiter}billing\n"
    found, _ = examples_of(table(name, text), [TRIAGE], {"label": "class"})
    assert (found[0].input, found[0].expected) == ({"ticket": "where, oh where"}, {"label": "billing"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.jsonl", '{"ticket": "a", "expected": {"label": "refund"}}\n\n{"ticket": "b", "expected.label": "billing"}\n'),
        ("t.json", '[{"ticket": "a", "expected": {"label": "refund"}},\n\n {"input": {"ticket": "b"}, "expected": {"label": "billing"}}]'),
        ("t.yaml", "- {ticket: a, expected: {label: refund}}\n\n- {ticket: b, expected: {label: billing}}\n"),
    ],
)  # fmt: skip
def test_rows_of_json_and_yaml_know_their_lines(table, name, text):
    found, unused = examples_of(table(name, text), [TRIAGE])
    assert [(one.input, one.expected, one.line) for one in found] == [
        ({"ticket": "a"}, {"label": "refund"}, 1),
        ({"ticket": "b"}, {"label": "billing"}, 3),
    ]
    assert unused == []


def test_cells_become_what_the_schema_says(table):
    text = 'q,expected.price,expected.paid,expected.who.name\nx,12.50,yes,Ana\ny,"{""min"": 3}",FALSE,\n'
    found, _ = examples_of(table("t.csv", text), [PRICE])
    assert [one.expected for one in found] == [
        {"price": 12.5, "paid": True, "who": {"name": "Ana"}},
        {"price": {"min": 3}, "paid": False},
    ]
    assert found[0].input == {"q": "x"}


def test_texts_that_look_like_numbers_stay_texts(table):
    found, _ = examples_of(table("t.csv", "ticket,expected.label\n007,refund\ntrue,refund\n"), [TRIAGE])
    assert [one.input["ticket"] for one in found] == ["007", "true"]


@pytest.mark.parametrize(
    ("name", "text", "line", "message"),
    [
        ("t.csv", "a,b\n1,2,3\n", 2, "3 cells, the header 2"),
        ("t.csv", "a,a\n1,2\n", 1, "'a' is there twice"),
        ("t.csv", "a,\n1,2\n", 1, "column 2 has no name"),
        ("t.csv", 'a,b\n"x" y,2\n', 2, "this is not CSV"),
        ("t.csv", 'a,b\n1,2\n"open,2\n', 3, "this is not CSV"),
        ("t.csv", "a,b\n", 1, "no rows"),
        ("t.csv", "", 1, "no rows"),
        ("t.csv", b"a\n\xff\n", 0, "not UTF-8: byte 2"),
        ("t.xlsx", "x", 0, "ends in '.xlsx'"),
        ("t.jsonl", '{"a": 1}\n{"a": }\n', 2, "this is not JSON"),
        ("t.jsonl", '{"a": NaN}\n', 1, "NaN is no JSON value"),
        ("t.jsonl", '{"a": 1}\n[1]\n', 2, "a row is an object, this is a list"),
        ("t.json", '{"a": 1}', 1, "a table is a list of objects"),
        ("t.yaml", "- a: 1\n- b\n", 2, "a row is an object"),
    ],
)
def test_what_is_no_table_is_told_with_its_line(table, name, text, line, message):
    [(found, said)] = problems(table, name, text)
    assert (found, message in said) == (line, True), said


@pytest.mark.parametrize(
    ("text", "expects", "message"),
    [
        ("ticket,label\nx,refund\n", {}, "does not say what is expected"),
        ("tickt,expected.label\nx,refund\n", {}, "no column of this table is an input"),
        ("ticket,class\nx,refund\n", {"label": "clas"}, "there is no column 'clas'"),
        ("ticket,expected.label\nx,refnd\n", {}, "expected label: this can never come out"),
        ("ticket,expected.lable\nx,refund\n", {}, "the output has no field 'lable'"),
        ("ticket,stars,expected.label\nx,many,refund\n", {}, "does not fit triage@1: /stars: 'many' is not of type"),
        ("stars,expected.label\n3,refund\n", {}, "'ticket' is a required property"),
    ],
)
def test_examples_that_no_recipe_could_take_are_told(table, text, expects, message):
    [(_, said)] = problems(examples_of, table("t.csv", text), [TRIAGE], expects)
    assert message in said


def test_what_one_of_the_compared_recipes_puts_out_may_be_expected(table):
    other = load_recipe_text("recipe: triage\nversion: 2\ntask: classify\nprompt: x\nlabels: {spam: {}}\n")  # fmt: skip
    read = table("t.csv", "ticket,expected.label\nx,spam\n")
    assert problems(examples_of, read, [TRIAGE])
    assert examples_of(read, [TRIAGE, other])[0][0].expected == {"label": "spam"}
