"""Answers of models: what is taken for the value that was asked for, and how long it takes to say so."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.adapters.models.answer import KEPT, _candidates, parse_answer, problems_of
from stepwell.errors import StepFailed

ONE = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
ANY_OBJECT = {"type": "object"}


def failure_of(text: str, schema: dict = ONE, finish_reason: str = "stop") -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        parse_answer(text, schema, finish_reason=finish_reason)
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '\ufeff  {"a": 1}\n',
        '```json\n{"a": 1}\n```',
        'Sure!\n```\n{"a": 1}\n```\nAnything else?',
        'The reply is {"a": 1}, as asked.',
        '<think>maybe {"a": 7}? no</think>{"a": 1}',
        'He said "use {braces}" and {"a": 1}',
        'unclosed { and then {"a": 1}',
        '{"oops: {"a": 1}',
        '{"a": 1} and a smiley :-[',
        '{"a": 1} [',
        '{"a": 0}{"a": 1}',
        '[{"b": 2}] {"a": 1}',
        '{"a": "x"} {"a": 1} {"a": null}',
        '{"a": 1,} {"a": 1}',
        '~~~json\n{"a": 1}\n~~~',
        '```\n{"a": 5, "b": 1}\n```\nor rather\n~~~\n{"a": 1}\n~~~\n',
        '"{\\"a\\": 1}"',
        '<think>\nperhaps {"a": 7}\n</think>\n\n{"a": 1}',
        '{"a": 7} or so I thought.</think>{"a": 1}',
        '{"a": 1}\n<think>was that right? {"a": 7}',
        '<thinking>{"a": 7}</thinking>Answer:\n```json\n{"a": 1}\n```',
        '{"a": 1, "a": 1}',
        f'{"word " * 20_000}{{"a": 1}}{" word" * 2_000}',
        "{'a': 2} {\"a\": 1}",
    ],
)
def test_the_last_value_that_fits_is_taken(text):
    assert parse_answer(text, ONE) == {"a": 1}


def test_a_bracket_inside_a_string_is_text():
    schema = {"type": "object", "required": ["note"]}
    assert parse_answer('x {"note": "a } or ] and \\" {"} y', schema) == {"note": 'a } or ] and " {'}


def test_a_raw_line_break_inside_a_string_is_accepted():
    assert parse_answer('{"t": "one\ntwo"}', ANY_OBJECT) == {"t": "one\ntwo"}


def test_integers_keep_all_their_digits():
    assert parse_answer('{"a": 123456789012345678901234567890}', ONE) == {"a": 123456789012345678901234567890}


def test_a_fenced_block_may_hold_a_bare_number():
    assert parse_answer("The count:\n```\n42\n```\n", {"type": "integer"}) == 42


@pytest.mark.parametrize(
    "text",
    [
        '<think>maybe {"a": 7}? let me s',
        '<think>\nmaybe {"a": 7}\n',
        '{"a": 1, "a": 2}',
        '{"a": 1,}',
        '{"a": "one"}',
        f'{{"a": {"9" * 5000}}}',
        "```json\n```",
        "\ufeff",
        "null",
    ],
)
@pytest.mark.parametrize("reason", ["stop", "length"])
def test_what_nobody_can_be_sure_of_is_kept_and_not_taken(text, reason):
    failure = failure_of(text, ONE, reason)
    assert failure.kind == ("truncated_output" if reason == "length" else "output_invalid")
    assert failure.detail["answer"] == text[:KEPT]
    assert failure.detail["problems"]


def test_a_key_that_stands_twice_is_said_to():
    failure = failure_of('Well: {"a": 1, "a": 2}')
    assert failure.detail["problems"] == ["the key 'a' stands twice in one object, with different values"]


def test_a_thought_inside_a_text_of_the_answer_is_text():
    text = '{"note": "</think> and <think>\\n<think>", "a": 1}'
    assert parse_answer(text, ANY_OBJECT)["a"] == 1


def test_a_bare_number_that_the_limit_cut_is_not_taken():
    assert failure_of("12", {"type": "integer"}, "length").kind == "truncated_output"
    assert parse_answer("12", {"type": "integer"}) == 12
    assert parse_answer("true", {"type": "boolean"}, finish_reason="length") is True


def test_a_fence_inside_a_text_of_the_answer_is_text():
    value = {"code": "```python\nprint({1: 2})\n```", "a": 1}
    text = f"Here:\n```json\n{json.dumps(value)}\n```\n"
    assert parse_answer(text, ANY_OBJECT) == value
    assert parse_answer(text.replace("\\n", "\n"), ANY_OBJECT) == value


def test_false_zero_and_the_empty_text_are_answers():
    assert parse_answer("false", {"type": "boolean"}) is False
    assert parse_answer("0", {"type": "integer"}) == 0
    assert parse_answer('""', {"type": "string"}) == ""


@pytest.mark.parametrize(
    "text",
    ['{"a": NaN}', '{"a": Infinity}', '{"a": 1e999}', '{"a": 01}', "{'a': 1}", "{a: 1}", "[" * 3000 + "]" * 3000],
)
def test_what_is_not_json_is_not_taken(text):
    assert failure_of(text).kind == "output_invalid"


def test_a_list_where_an_object_is_wanted_is_refused_with_its_reason():
    failure = failure_of('[{"a": 1}]')
    assert failure.kind == "output_invalid"
    assert failure.detail["answer"] == '[{"a": 1}]'
    assert failure.detail["problems"] == ["[{'a': 1}] is not of type 'object'"]


def test_problems_name_the_place():
    assert problems_of({"a": "x", "b": 1}, ONE) == [
        "/a: 'x' is not of type 'integer'",
        "Additional properties are not allowed ('b' was unexpected)",
    ]


def test_formats_are_checked():
    assert problems_of({"d": "tomorrow"}, {"properties": {"d": {"format": "date"}}}) == [
        "/d: 'tomorrow' is not a 'date'"
    ]


def test_a_reference_to_the_network_is_refused_and_not_fetched():
    with pytest.raises(StepFailed) as caught:
        problems_of({}, {"$ref": "http://127.0.0.1:9/schema.json"})
    assert caught.value.kind == "validation_error"


@pytest.mark.parametrize("schema", [{"$ref": "#/nowhere"}, {"type": "wombat"}, {"$ref": "#"}])
def test_an_unusable_schema_is_said_to_be_one(schema):
    with pytest.raises(StepFailed) as caught:
        problems_of({}, schema)
    assert caught.value.kind == "validation_error"


@pytest.mark.parametrize(
    "text",
    [
        '{"items": [{"a": 1}, {"a": 2}',
        '{"items": [{"a": 1}, {"a":',
        '{"items": [{"a": 1}, {"a": 2}], "more": tr',
        '{"items": [{"a": 1}], "note": "see {\\"a\\": 2} and',
        '{"items": [{"a": 1}], "n": 12',
        '```json\n{"items": [{"a": 1}',
    ],
)
@pytest.mark.parametrize("reason", ["stop", "length"])
def test_the_whole_parts_of_a_cut_value_are_never_taken(text, reason):
    failure = failure_of(text, ANY_OBJECT, reason)
    assert failure.kind == ("truncated_output" if reason == "length" else "output_invalid")
    assert failure.detail["finish_reason"] == reason


def test_a_draft_before_a_cut_answer_is_not_taken():
    assert failure_of('first {"a": 1}, better {"a": 2', ONE, "length").kind == "truncated_output"


def test_a_whole_answer_counts_even_if_more_was_cut_off_behind_it():
    assert parse_answer('{"a": 1} because of the rea', ONE, finish_reason="length") == {"a": 1}


def test_a_long_wrong_answer_is_kept_in_part_with_its_length():
    failure = failure_of("x" * 200_000)
    assert len(failure.detail["answer"]) == KEPT
    assert failure.detail["answer_length"] == 200_000
    assert len(failure.message) < 500


N = 1_000_000
HOSTILE = {
    "braces": "{" * N,
    "brackets": "[" * N,
    "nested objects": '{"a":' * (N // 5),
    "two readings": '["[",' * (N // 5),
    "shifted readings": '[",' * (N // 3),
    "empty objects": "{}" * (N // 2),
    "brace quote": '{"' * (N // 2),
    "quotes": '"' * N,
    "escapes": '["\\"' * (N // 4),
    "backslashes": '{"a":"' + "\\" * N,
    "brackets in a string": '{"a":"' + "[" * N,
    "deep and closed": "[" * (N // 2) + "]" * (N // 2),
    "numbers": "[" + "1" * N,
    "failing arrays": "[1 " * (N // 3),
    "complete inside failing": "[[1]," * (N // 5) + "x",
    "blanks": "[ " * (N // 2),
    "fences": "```\n" * (N // 4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_of_a_megabyte_take_linear_time(name):
    begun = time.process_time()
    failure_of(HOSTILE[name], ONE)
    assert time.process_time() - begun < 8.0  # one to two seconds; quadratic time would be hours


def naive_spans(text: str) -> list[object]:
    """Every outermost JSON container, found by trying at each bracket: quadratic, and plainly right."""
    decoder = json.JSONDecoder(strict=False)
    found, position = [], 0
    while position < len(text):
        if text[position] in "[{":
            try:
                value, position = decoder.raw_decode(text, position)
            except ValueError:
                position += 1
            else:
                found.append(value)
        else:
            position += 1
    return found


tokens = st.sampled_from(
    ["{", "}", "[", "]", '"', ",", ":", "1", "a", " ", '\\"', "\\\\", '"k":', "true", "[1]", '{"a":1}']
)


@settings(max_examples=1500, deadline=None)
@given(st.lists(tokens, max_size=16).map("".join))
def test_the_scanner_finds_what_trying_at_every_bracket_finds(text):
    values, doubtful, cut = _candidates(text)
    values.reverse()
    if not doubtful:  # a key that stands twice is no value for us
        assert values == (naive_spans(text)[: len(values)] if cut else naive_spans(text))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4), st.data())
def test_every_prefix_of_an_object_is_refused(value, data):
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    cut = data.draw(st.integers(1, len(text) - 1))
    assert parse_answer(text, ANY_OBJECT) == value
    assert failure_of(text[:cut], ANY_OBJECT, "length").kind == "truncated_output"
    assert failure_of(text[:cut], ANY_OBJECT, "stop").kind == "output_invalid"


WRAPPED = [
    "{}",
    "```json\n{}\n```",
    "Sure, here it is:\n\n{}\n\nAnything else?",
    "<think>\nlet me see [1, 2] {{x}}\n</think>\n{}",
    "~~~\n{}\n~~~\n",
    "\ufeff {} \n",
]


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(max_size=5), json_values, min_size=1, max_size=4), st.sampled_from(WRAPPED), st.data())
def test_a_wrapped_answer_cut_anywhere_gives_the_whole_value_or_nothing(value, wrapped, data):
    schema = {"type": "object", "required": list(value), "additionalProperties": True}
    text = wrapped.format(json.dumps(value))
    assert parse_answer(text, schema) == value
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    for reason in ("stop", "length"):
        assert taken(cut, schema, reason) in (value, "output_invalid", "truncated_output")


def taken(text: str, schema: dict, reason: str) -> object:
    """The value, or the kind of the failure."""
    try:
        return parse_answer(text, schema, finish_reason=reason)
    except StepFailed as failure:
        return failure.kind
