"""YAML 1.2 as definitions use it: what it resolves to, what it refuses, and where characters lie."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.definition import yaml_text
from stepwell.definition.positions import Node, plain
from stepwell.definition.report import Report, TooWrong


def compose(text: str) -> Node:
    report = Report("f.yaml")
    node = yaml_text.compose(text, report)
    assert report.problems == []
    return node


def problems(text: str) -> list[str]:
    report = Report("f")
    with suppress(TooWrong):
        yaml_text.compose(text, report)
    return [str(problem) for problem in report.sorted()]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"), ("NO", "NO"),
        ("true", True), ("True", True), ("TRUE", True), ("false", False), ("tRue", "tRue"),
        ("null", None), ("~", None), ("", None), ("Null", None), ("nULL", "nULL"),
        ("0", 0), ("-0", 0), ("12", 12), ("-7", -7), ("007", "007"), ("-007", "-007"), ("1_000", "1_000"),
        ("0x10", "0x10"), ("0o17", "0o17"), ("0b1", "0b1"), ("12:30:45", "12:30:45"), ("+48100200300", "+48100200300"),
        ("1.5", 1.5), ("-.5", -0.5), ("1e3", 1000.0), ("1.e1", 10.0), ("1e", "1e"), (".", "."), ("-", None), ("00.5", "00.5"),
        ("2024-01-02", "2024-01-02"), ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
        ("1458059302022549698", 1458059302022549698), ("'1'", "1"), ('"true"', "true"), ("'null'", "null"),
    ],
)  # fmt: skip
def test_scalars_resolve_to_json_and_nothing_else(written, value):
    if written == "-":
        assert plain(compose("a:\n  -")) == {"a": [None]}
        return
    found = plain(compose(f"a: {written}"))["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3", "f:3:1: error[duplicate_key] the key 'a' is written twice; first at line 1, column 1\n    hint: keep one of them"),
        ("x: {a: 1, a: 2}", "f:1:11: error[duplicate_key] the key 'a' is written twice; first at line 1, column 5\n    hint: keep one of them"),
        ("1: a\n'1': b", "f:2:1: error[duplicate_key] the key '1' is written twice; first at line 1, column 1\n    hint: keep one of them"),
        ("a: *x", "f:1:4: error[yaml] there is no anchor &x before this"),
        ("a: &x [1, *x]", "f:1:11: error[yaml] *x stands inside what it stands for\n    hint: write it out"),
        ("a: &x {b: {c: *x}}", "f:1:15: error[yaml] *x stands inside what it stands for\n    hint: write it out"),
        ("a: !!str 1", "f:1:4: error[yaml] tags are not used in definitions: 'tag:yaml.org,2002:str'\n    hint: remove the tag"),
        ("a: ! 1", "f:1:4: error[yaml] tags are not used in definitions: '!'\n    hint: remove the tag"),
        ("!x a: 1", "f:1:1: error[yaml] tags are not used in definitions: '!x'\n    hint: remove the tag"),
        ("a: !!python/object/apply:os.system [x]", "f:1:4: error[yaml] tags are not used in definitions: 'tag:yaml.org,2002:python/object/apply:…\n    hint: remove the tag"),
        ("a: &m {b: 1}\nc:\n  <<: *m", "f:3:3: error[yaml] merge keys (<<) are not part of YAML 1.2\n    hint: write the keys out"),
        ("a: 1\n---\nb: 2", "f:2:1: error[yaml] a second document begins here\n    hint: one file holds one definition"),
        ("a:\n\tb: 1", "f:2:1: error[yaml] a tab where only spaces may stand\n    hint: indent with spaces"),
        ("a:\n  b: 1\n\tc: 1", "f:3:1: error[yaml] a tab where only spaces may stand\n    hint: indent with spaces"),
        ("a: b: c", 'f:1:5: error[yaml] mapping values are not allowed in this context\n    hint: a text that contains ": " needs quotes'),
        ("a: @x", "f:1:4: error[yaml] found character that cannot start any token (while scanning for the next token)\n    hint: quote a text that begins with this character"),
        ("? [1, 2]\n: x", "f:1:3: error[yaml] a key is text, not a list or mapping\n    hint: quote it"),
        ("~: x", 'f:1:1: error[yaml] this entry has no key\n    hint: quote it if it is meant: ""'),
        ("a: .inf", "f:1:4: error[number] '.inf' is no number of JSON\n    hint: quote it to keep it as text"),
        ("a: -.Inf", "f:1:4: error[number] '-.Inf' is no number of JSON\n    hint: quote it to keep it as text"),
        ("a: .nan", "f:1:4: error[number] '.nan' is no number of JSON\n    hint: quote it to keep it as text"),
        ("a: 1e999", "f:1:4: error[number] '1e999' is no number of JSON\n    hint: quote it to keep it as text"),
        (f"a: {'9' * 5000}", "f:1:4: error[number] a number of 5000 digits\n    hint: quote it to keep it as text"),
        ("%YAML 1.1\n---\na: 1", "f:1:1: error[yaml] this file declares YAML 1.1\n    hint: definitions are YAML 1.2; remove the line"),
        ("", "f:1:1: error[empty] the file is empty\n    hint: a workflow begins with  workflow: its-id"),
        ("# only a comment\n", "f:1:1: error[empty] the file is empty\n    hint: a workflow begins with  workflow: its-id"),
        ("a: x\x00y", 'f:1:5: error[yaml] the character U+0000 may not stand in YAML\n    hint: write it as an escape in double quotes: "\\u0000"'),
        ("a: 'x\u2028y'", 'f:1:6: error[yaml] the character U+2028 may not stand in YAML\n    hint: write it as an escape in double quotes: "\\u2028"'),
        ("a: \ud800", "f:1:4: error[yaml] the character U+D800 may not stand in YAML\n    hint: it is half of a character; remove it"),
        ("[" * 100_000, "f:1:1001: error[depth] nested more than 200 levels deep"),
        ("- " * 5000 + "x", "f:1:401: error[depth] nested more than 200 levels deep"),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_what_definitions_do_not_use_is_refused_with_its_place(text, problem):
    assert problems(text) == [problem]


def test_all_recoverable_problems_are_found_at_once():
    assert [line.split(": ")[0] for line in problems("a: 1\na: 2\nb: !x 1\nc: .nan\nb: 3\n")] == [
        "f:2:1",
        "f:3:4",
        "f:4:4",
        "f:5:1",
    ]


def test_aliases_stand_for_equal_data_that_is_not_shared():
    data = plain(compose("a: &x {b: [1]}\nc: *x\n"))
    assert data == {"a": {"b": [1]}, "c": {"b": [1]}}
    assert data["a"] is not data["c"]
    assert data["a"]["b"] is not data["c"]["b"]


def test_an_anchor_may_be_given_again():
    assert plain(compose("a: &x 1\nb: *x\nc: &x 2\nd: *x\n")) == {"a": 1, "b": 1, "c": 2, "d": 2}


@pytest.mark.parametrize("width", [2, 9])
def test_an_alias_bomb_is_refused_quickly_and_in_little_memory(width):
    levels = 40 if width == 2 else 9
    lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels))]
    tracemalloc.start()
    began = time.perf_counter()
    found = problems("\n".join(lines))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == 1
    assert "more than 100,000 values once its aliases are expanded" in found[0]
    assert time.perf_counter() - began < 8
    assert peak < 50_000_000


def test_an_alias_cannot_go_deeper_than_the_limit():
    chain = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 250))
    assert "nested more than 200 levels deep" in problems(chain)[0]


def test_byte_order_mark_and_windows_line_ends_are_ordinary_after_loading():
    node = compose("a: |\r\n  one\r\n  {{x}}\r\nb: 2\r\n")
    assert plain(node) == {"a": "one\n{{x}}\n", "b": 2}
    assert node.mapping["a"].place(4) == (3, 3)
    assert node.mapping["b"].key_place == (4, 1)


PLACES = """\
plain: some {{x}} text
folded: some words
  go on {{x}} here

  and there {{y}}
single: 'it''s {{x}} and
  more {{y}}'
double: "tab\\t é\\u00e9 \\
  next {{x}} \\U0001F600 {{y}}"
literal: |
  one {{x}}
    two

  three {{y}}
keep: |+
  a {{x}}

  b {{y}}

stripped: >-
  one
  two {{x}}

  three
    four {{y}}
explicit: |2
    deep {{x}}
   less {{y}}
"""


@pytest.mark.parametrize("key", ["plain", "folded", "single", "double", "literal", "keep", "stripped", "explicit"])
@pytest.mark.parametrize("mark", ["{{x}}", "{{y}}"])
def test_every_character_of_a_text_is_found_in_the_file(key, mark):
    node = compose(PLACES).mapping[key]
    if mark not in node.value:
        assert (key, mark) == ("plain", "{{y}}")
        return
    line, column = node.place(node.value.index(mark))
    assert PLACES.split("\n")[line - 1][column - 1 :].startswith(mark)
    assert line > node.key_line or key == "plain" or (key == "single" and mark == "{{x}}")


words = st.text(alphabet="ab é:#'\"\\{}-|>\t%&*!@`,?[]\U0001f600", min_size=0, max_size=12)


@given(st.lists(words, min_size=1, max_size=5), st.sampled_from(["|", "|-", "|+", ">", ">-", ">+"]), st.booleans())
@settings(max_examples=300, deadline=None)
def test_block_scalars_of_any_content_are_mapped_exactly(lines, header, windows):
    text = f"a: {header}\n" + "".join(f"  {line}\n" for line in lines) + "b: 1\n"
    if windows:
        text = text.replace("\n", "\r\n")
    report = Report("f")
    try:
        node = yaml_text.compose(text, report).mapping["a"]
    except TooWrong:
        return
    from stepwell.definition.scalars import characters

    if not isinstance(node.value, str):
        return
    found = characters(text, node.span.start, node.span.end, node.span.style)
    assert "".join(found.text).startswith(node.value)
    for char, index in zip(found.text, found.indexes, strict=True):
        assert char in {text[index], "\n", " "} or text[index : index + 1] == ""


@given(st.text(alphabet="ab: -\n'\"[]{}&*!|>?,#\t%@x1.", max_size=60))
@settings(max_examples=500, deadline=None)
def test_any_text_is_composed_or_refused(text):
    report = Report("f")
    try:
        node = yaml_text.compose(text, report)
    except TooWrong:
        assert report.has_errors
        return
    plain(node)
