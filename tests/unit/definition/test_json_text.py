"""JSON as definitions use it."""

from __future__ import annotations

import itertools
import json
import math
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.definition import json_text
from stepwell.definition.positions import plain
from stepwell.definition.report import Report, TooWrong


def problems(text: str) -> list[str]:
    report = Report("f")
    with suppress(TooWrong):
        json_text.compose(text, report)
    return [str(problem) for problem in report.sorted()]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values, st.booleans(), st.sampled_from([None, 1, "\t"]))
@settings(max_examples=300, deadline=None)
def test_what_json_wrote_is_read_back_with_equal_types(value, ascii_only, indent):
    report = Report("f")
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    found = plain(json_text.compose(text, report))
    assert report.problems == []
    assert json.dumps(found) == json.dumps(value)


def _no_number(word):
    raise ValueError(word)


def _finite(text):
    """A number that a float cannot hold is refused, where JSON's own reader says infinity."""
    return float(text) if math.isfinite(float(text)) else _no_number(text)


@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsn\\u \n\t/N', max_size=40))
@settings(max_examples=500, deadline=None)
def test_any_text_is_read_as_json_does_or_refused(text):
    report = Report("f")
    try:
        found = plain(json_text.compose(text, report))
    except TooWrong:
        assert report.has_errors
        with pytest.raises(ValueError):
            json.loads(text, parse_constant=_no_number, parse_float=_finite)
        return
    if not report.problems:
        assert found == json.loads(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1, "a": 2}', "f:1:10: error[duplicate_key] the key 'a' is written twice; first at line 1, column 2\n    hint: keep one of them"),
        ('{"a": NaN}', "f:1:7: error[number] 'NaN' is no number of JSON\n    hint: quote it to keep it as text"),
        ('{"a": -Infinity}', "f:1:7: error[number] '-Infinity' is no number of JSON\n    hint: quote it to keep it as text"),
        ('{"a": 1e999}', "f:1:7: error[number] '1e999' is no number of JSON\n    hint: quote it to keep it as text"),
        ('{"a": "\\ud800"}', "f:1:7: error[json] half of a character (a lone surrogate) in this text\n    hint: remove it, or write the pair"),
        ('{"a": 1,}', "f:1:8: error[json] a comma before }\n    hint: JSON has no trailing comma; remove it"),
        ('{"a" 1}', "f:1:6: error[json] a colon is missing after the key"),
        ("{a: 1}", "f:1:2: error[json] a key in double quotes is missing here\n    hint: keys are in double quotes; a file that begins with { is read as JSON"),
        ('["a" "b"]', "f:1:6: error[json] a comma or ] is missing before this"),
        ("[1", "f:1:3: error[json] ] is missing at the end"),
        ('{"a": 1} {}', "f:1:10: error[json] more text after the end of the JSON value\n    hint: one file holds one definition"),
        ("[1] // x", "f:1:5: error[json] more text after the end of the JSON value\n    hint: one file holds one definition"),
        ("[\n  // x\n  1]", "f:2:3: error[json] JSON has no comments\n    hint: use YAML for a file with comments"),
        ('["a\nb"]', "f:1:4: error[json] a control character or line break inside a text\n    hint: write a line break as \\n, or close the text before it"),
        ('["a', "f:1:2: error[json] this text is not closed\n    hint: add the closing double quote"),
        ('["\\q"]', 'f:1:3: error[json] \\q is no escape of JSON\n    hint: a backslash is written "\\\\"'),
        ("[True]", "f:1:2: error[json] 'True' is not JSON\n    hint: write true, false or null"),
        ("[01]", "f:1:2: error[json] '01' is not a JSON value\n    hint: text is in double quotes"),
        ("", "f:1:1: error[json] the text ends where a value should be"),
        ("[" * 100_000, "f:1:201: error[depth] nested more than 200 levels deep"),
        ("[" + "0," * 100_001 + "0]", "f:1:200000: error[size] the file has more than 100,000 values\n    hint: split the workflow"),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_what_is_not_json_is_refused_with_its_place(text, problem):
    assert problems(text) == [problem]


def test_characters_of_a_text_with_escapes_are_found_in_the_file():
    text = '{"a":\n  "x\\n\\ud83d\\ude00\\u00e9 {{y}}"}'
    node = json_text.compose(text, Report("f")).mapping["a"]
    assert node.value == "x\n\U0001f600é {{y}}"
    line, column = node.place(node.value.index("{{y}}"))
    assert (line, text.split("\n")[1][column - 1 :]) == (2, '{{y}}"}')
