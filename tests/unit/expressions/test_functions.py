"""The functions, each by its results and by what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.expressions import ExpressionError, compile_expression, compile_template

NAMES = frozenset({"x"})


def value(source: str, x: Any = None) -> Any:
    return compile_expression(source, names=NAMES).evaluate({"x": x})


def code(source: str, x: Any = None) -> str:
    with pytest.raises(ExpressionError) as caught:
        value(source, x)
    return caught.value.code


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("size('中文')", 2),
        ("size({'a': 1})", 1),
        ("contains('abc', 'b')", True),
        ("[1, 2].contains(2.0)", True),
        ("'abc'.startsWith('ab') && 'abc'.endsWith('bc')", True),
        ("matches('order 12', '[0-9]+')", True),
        ("'order'.matches('^[0-9]+$')", False),
        ("' a '.trim() | upper", "A"),
        ("replace('a.b.c', '.', '-')", "a-b-c"),
        ("split('a,b,c', ',')", ["a", "b", "c"]),
        ("split('a,b,c', ',', 2)", ["a", "b,c"]),
        ("split('ab', '')", ["a", "b"]),
        ("split('abc', '', 2)", ["a", "bc"]),
        ("split('a', ',', 0)", []),
        ("join(['a', 1, true], '/')", "a/1/true"),
        ("join([])", ""),
        ("substring('hello', 1, 3)", "el"),
        ("substring('hello', 3, 99)", "lo"),
        ("truncate('hello', 10)", "hello"),
        ("truncate('hello world', 8, '...')", "hello..."),
        ("lines('a\\nb')", ["a", "b"]),
        ("bullets(['a', 'b'])", "- a\n- b"),
        ("string(1.0)", "1.0"),
        ("string(null)", "null"),
        ("string([1, 'é'])", '[1, "é"]'),
        ("json('a\"b')", '"a\\"b"'),
        ("json({'a': [1]}, 1)", '{\n "a": [\n  1\n ]\n}'),
        ("parse_json('{\"a\": [1, null]}').a[0]", 1),
        ("base64('中') | base64_decode", "中"),
        ("int('-12')", -12),
        ("int(3.9)", 3),
        ("int(-3.9)", -3),
        ("float('1.5e2')", 150.0),
        ("bool('true')", True),
        (
            "[type(null), type(1), type('') , type([]), type({}), type(true)]",
            ["null", "number", "string", "array", "object", "boolean"],
        ),
        ("abs(-2)", 2),
        ("round(2.5)", 3),
        ("round(-2.5)", -3),
        ("round(0.49999999999999994)", 0),
        ("round(1.005, 2)", 1.01),
        ("round(1234, -2)", 1200),
        ("[floor(-1.5), ceil(-1.5)]", [-2, -1]),
        ("sum([1, 2.5])", 3.5),
        ("sum([])", 0),
        ("[min([3, 1, 2]), max(3, 1, 2), max('a', 'b')]", [1, 3, "b"]),
        ("keys({'b': 1, 'a': 2})", ["b", "a"]),
        ("values({'b': 1, 'a': 2})", [1, 2]),
        ("[first([1, 2]), last([1, 2])]", [1, 2]),
        ("unique([1, 1.0, true, 'a', [1], [1.0], 'a'])", [1, True, "a", [1]]),
        ("sort([3, 1, 2])", [1, 2, 3]),
        ("sort([{'n': 2}, {'n': 1}], 'n') | reverse", [{"n": 2}, {"n": 1}]),
        ("flatten([1, [2, [3]]])", [1, 2, [3]]),
        ("[slice([1, 2, 3], 1), slice([1, 2, 3], -1), slice([1, 2, 3], 0, 2)]", [[2, 3], [3], [1, 2]]),
        ("slice('hello', -3)", "llo"),
    ],
)
def test_a_function_gives_its_value(source: str, expected: Any) -> None:
    found = value(source)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("size(1)", "type"),
        ("upper(null)", "type"),
        ("join([[1]])", "type"),
        ("sum(['1'])", "type"),
        ("sort([1, 'a'])", "type"),
        ("min([1, 'a'])", "type"),
        ("int('1.5')", "eval"),
        ("int('0x10')", "eval"),
        ("int(true)", "type"),
        ("float('nan')", "eval"),
        ("bool('yes')", "eval"),
        ("replace('a', '', 'b')", "eval"),
        ("substring('a', -1)", "eval"),
        ("split('a', ',', 1.5)", "type"),
        ("min([])", "missing"),
        ("first([])", "missing"),
        ("parse_json('{')", "eval"),
        ("parse_json('NaN')", "eval"),
        ("base64_decode('?')", "eval"),
        ("matches('a', '(?=a)')", "syntax"),
        ("matches('a', 'x' + '(')", "eval"),
        ("timestamp('2024-01-02T03:04:05')", "eval"),
        ("timestamp('yesterday')", "eval"),
        ("timestamp('2024-02-30T00:00:00Z')", "eval"),
        ("timestamp('2024-01-02', 'Mars/Base')", "eval"),
        ("duration('1 hour')", "eval"),
        ("format_date('2024-01-02T03:04:05Z', '%Q')", "eval"),
        ("timestamp('2024-01-02T03:04:05Z') > '2024'", "type"),
    ],
)
def test_a_function_refuses_what_it_cannot_take(source: str, expected: str) -> None:
    assert code(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("timestamp('2024-01-02T03:04:05Z')", "2024-01-02T03:04:05+00:00"),
        ("timestamp('2024-01-02T03:04:05.25+02:00')", "2024-01-02T03:04:05.250000+02:00"),
        ("timestamp('2024-07-01 09:00', 'Europe/Rome')", "2024-07-01T09:00:00+02:00"),
        ("timestamp('2024-01-02', 'UTC')", "2024-01-02T00:00:00+00:00"),
        ("timestamp(0)", "1970-01-01T00:00:00+00:00"),
        ("timestamp('2024-01-31T00:00:00Z') + duration('1d')", "2024-02-01T00:00:00+00:00"),
        ("timestamp('2024-01-02T00:00:00Z') - timestamp('2024-01-01T00:00:00Z')", "86400s"),
        ("duration('1h30m')", "5400s"),
        ("duration('90s') * 2 + duration('500ms')", "180.5s"),
        ("-duration('1.5s')", "-1.5s"),
        ("duration('2h') / duration('30m')", 4.0),
        ("timestamp('2024-01-01T12:00:00+02:00') == timestamp('2024-01-01T10:00:00Z')", True),
        ("int(timestamp('1970-01-01T00:01:00Z'))", 60),
        ("[timestamp(0)]", ["1970-01-01T00:00:00+00:00"]),
        ("{'at': [duration('1s')]}", {"at": ["1s"]}),
        ("format_date('2024-03-05T14:07:00Z', '%d %b %Y, %I:%M %p')", "05 Mar 2024, 02:07 PM"),
        ("format_date(timestamp(0), '%A %j %z %%', 'Asia/Shanghai')", "Thursday 001 +08:00 %"),
        ("type(timestamp(0)) + type(duration('1s'))", "timestampduration"),
    ],
)
def test_times_are_values_inside_and_text_outside(source: str, expected: Any) -> None:
    assert value(source) == expected


def test_a_missing_hour_moves_forward_and_of_a_doubled_hour_the_first_is_taken() -> None:
    assert value("timestamp('2024-03-31T02:30', 'Europe/Rome')") == "2024-03-31T03:30:00+02:00"
    assert value("timestamp('2024-10-27T02:30', 'Europe/Rome')") == "2024-10-27T02:30:00+02:00"


def test_a_time_stands_in_a_text_in_iso_form() -> None:
    template = compile_template("due {{ timestamp('2024-01-02T03:04:05Z') + duration('1h') }}.")
    assert template.render({}) == "due 2024-01-02T04:04:05+00:00."


def test_nan_equals_nothing_and_has_no_json_form() -> None:
    nan = float("nan")
    assert value("x == x", nan) is False
    assert value("x in [x]", nan) is False
    assert code("json(x)", [nan]) == "eval"
    assert code("[x]", nan) == "eval"


def test_an_unknown_function_gets_a_suggestion() -> None:
    with pytest.raises(ExpressionError) as caught:
        value("uper('a')")
    assert caught.value.hint == "did you mean 'upper'?"
