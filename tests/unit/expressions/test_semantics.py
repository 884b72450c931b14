"""Each point of the language's semantics, by small expressions."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from stepwell.expressions import FUNCTIONS, ROOTS, ExpressionError, compile_expression

CONTEXT: dict[str, Any] = {
    "workflow_input": {
        "n": 3,
        "f": 1.5,
        "s": "abc",
        "null": None,
        "list": [1, 2, 3],
        "rows": [{"name": "a", "n": 1}, {"name": "b", "n": 2}],
        "map": {"x": 1, "0": "zero"},
        "empty": {},
        "in": "keyword",
        "flag": True,
    },
    "step": {"a-b": {"x": 1}, "1st": {"x": 2}},
    "steps": {"a-b": {"status": "completed"}},
}


def value(source: str, **names: Any) -> Any:
    return compile_expression(source, names=frozenset(names)).evaluate({**CONTEXT, **names})


def failure(source: str, **names: Any) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        value(source, **names)
    return caught.value


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1 == 1.0", True),
        ("3 * 1.5", 4.5),
        ("7 / 2", 3.5),
        ("6 / 2", 3),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("10 - 2 - 3", 5),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("7.5 % 2", 1.5),
        ("-workflow_input.n", -3),
        ("- -3", 3),
        ("12345678901234567890123 + 1", 12345678901234567890124),
        ("1e3", 1000.0),
        ('"a" + "b"', "ab"),
        ("[1] + [2]", [1, 2]),
    ],
)
def test_arithmetic_is_exact_where_it_can_be(source: str, expected: Any) -> None:
    found = value(source)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("true == 1", False),
        ('"1" == 1', False),
        ("null == false", False),
        ("[1, {'a': [2.0]}] == [1.0, {'a': [2]}]", True),
        ("{'a': 1, 'b': 2} == {'b': 2, 'a': 1}", True),
        ("{'a': 1} == {'a': true}", False),
        ("[1] == [1, 2]", False),
        ("[true] != [1]", True),
        ('"a" < "b"', True),
        ('"Z" < "a"', True),
        ('"10" < "9"', True),
        ("1 < 1.5 && 2 >= 2.0", True),
    ],
)
def test_equality_is_deep_and_never_an_error(source: str, expected: bool) -> None:
    assert value(source) is expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("2 in workflow_input.list", True),
        ("true in [1]", False),
        ("{'a': 1} in [{'a': 1.0}]", True),
        ("'x' in workflow_input.map", True),
        ("'bc' in workflow_input.s", True),
        ("4 not in workflow_input.list", True),
        ("workflow_input.list[-1]", 3),
        ("workflow_input.list.0", 1),
        ("workflow_input.map.0", "zero"),
        ("workflow_input.rows[1].name", "b"),
        ("workflow_input['s']", "abc"),
        ("workflow_input.in", "keyword"),
        ("workflow_input.map[workflow_input.rows[0].name ?? 'x'] ?? 'none'", "none"),
        ("workflow_input.list[workflow_input.n - 1]", 3),
        ("workflow_input.list[4 / 2]", 3),
        ("step.a-b.x", 1),
        ('steps["a-b"].status', "completed"),
        ("step.`a-b`.x - 1", 0),
        ("step.1st.x", 2),
    ],
)
def test_paths_indexes_and_membership(source: str, expected: Any) -> None:
    assert value(source) == expected


@pytest.mark.parametrize("spelling", ["and", "&&"])
def test_python_and_c_spellings_are_the_same_operators(spelling: str) -> None:
    assert value(f"True {spelling} not False") is True
    assert value("true or false") is True
    assert value("None == null and len([1]) == 1") is True


def test_not_binds_looser_than_a_comparison_and_bang_tighter() -> None:
    assert value("not workflow_input.n == 4") is True
    assert failure("!workflow_input.n == 4").code == "type"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("has(workflow_input.null)", True),
        ("has(workflow_input.none)", False),
        ("has(workflow_input.null.x)", False),
        ("has(workflow_input.rows[5])", False),
        ("has(loop_item.x)", False),
        ("workflow_input.none ?? 1", 1),
        ("workflow_input.null ?? 1", 1),
        ("workflow_input.none.deep.er ?? null ?? 2", 2),
        ("workflow_input.none | default('d')", "d"),
        ("workflow_input?.none", None),
        ("workflow_input.null?.x", None),
        ("workflow_input?.none?.x?.y", None),
        ("workflow_input.null == null", True),
        ("steps.no-such.status ?? 'never ran'", "never ran"),
        ("first([]) ?? 'empty'", "empty"),
    ],
)
def test_missing_is_not_null_and_can_be_guarded(source: str, expected: Any) -> None:
    assert value(source) == expected


@pytest.mark.parametrize(
    ("source", "code", "column"),
    [
        ("workflow_input.none == null", "missing", 16),
        ("workflow_input.none?.x", "missing", 16),
        ("workflow_input.null.x", "missing", 21),
        ("workflow_input.s.x ?? 1", "type", 18),
        ("has(workflow_input.s.x)", "type", 22),
        ("upper(1) ?? 'x'", "type", 1),
        ("workflow_input.map[0]", "type", 19),
        ("workflow_input.list['a']", "type", 20),
        ("workflow_input.list[1.5]", "type", 20),
        ("workflow_input.list[true]", "type", 20),
        ("loop_item.x", "missing", 1),
        ("1 + null", "type", 3),
        ("'a' + 1", "type", 5),
        ("null > 1", "type", 6),
        ("true < false", "type", 6),
        ("[1] < [2]", "type", 5),
        ("!1", "type", 1),
        ("1 ? 2 : 3", "type", 3),
        ("true && 1", "type", 6),
        ("'x' || true", "type", 5),
        ("1 in 5", "type", 3),
        ("1 in 'abc'", "type", 3),
        ("[1].exists(x, x)", "type", 15),
        ("'abc'.map(x, x)", "type", 7),
        ("1 / 0", "eval", 3),
        ("1.0 % 0", "eval", 5),
        ("1e308 * 10", "eval", 7),
    ],
)
def test_errors_have_a_code_and_a_place(source: str, code: str, column: int) -> None:
    error = failure(source)
    assert (error.code, error.line, error.column) == (code, 1, column)
    assert error.severity == "error"


def test_logic_goes_left_to_right_and_swallows_no_error() -> None:
    assert value("false && workflow_input.none") is False
    assert value("true || workflow_input.none") is True
    assert failure("workflow_input.none && false").code == "missing"
    assert failure("workflow_input.none || true").code == "missing"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("workflow_input.rows.map(r, r.n * 2)", [2, 4]),
        ("workflow_input.rows.filter(r, r.n > 1).map(r, r.name)", ["b"]),
        ("workflow_input.rows.exists(r, r.name == 'b')", True),
        ("workflow_input.rows.all(r, r.n > 1)", False),
        ("workflow_input.rows.exists_one(r, r.n == 1)", True),
        ("[].all(x, false)", True),
        ("[].exists(x, true)", False),
        ("{'b': 1, 'a': 2}.map(k, k)", ["b", "a"]),
        ("[1, 2].map(x, [10, 20].map(y, x + y))", [[11, 21], [12, 22]]),
        ("[1, 2].map(x, [x].map(x, x + 1))", [[2], [3]]),
        ("workflow_input.list | map(x, x + 1) | join('-')", "2-3-4"),
    ],
)
def test_macros_bind_their_variable_lexically(source: str, expected: Any) -> None:
    assert value(source) == expected


def test_a_variable_may_not_be_named_like_a_root() -> None:
    assert failure("[1].map(steps, 1)").code == "syntax"


def test_names_given_by_as_are_roots_of_their_own() -> None:
    assert value("order.id", order={"id": 7}) == 7
    assert failure("order.id").code == "syntax"


@pytest.mark.parametrize(
    "source", ["step", "steps", "steps[workflow_input.s]", "size(steps)", "steps.map(x, x)", "has(step)"]
)
def test_a_step_is_always_named_in_the_text(source: str) -> None:
    assert failure(source).code == "step"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "the expression is empty"),
        ("1 +", "expression ends here, a value is missing"),
        ("(1", "missing ')'"),
        ("[1, 2", "missing ']'"),
        ("1 2", "unexpected '2'"),
        ("true ? 1", "'?' needs a ':'"),
        ("'abc", "the string is not closed"),
        (r"'\x41'", r"unknown escape '\x'"),
        (r"'\ud800'", "U+D800 is not a character"),
        ("{1: 2}", "a key of an object is a string"),
        ("{'a': 1, 'a': 2}", "the key 'a' occurs twice"),
        ("workflow_input.", "a field name must follow '.'"),
        ("1e999", "the number is too large"),
        ("1 + not true", "'not' cannot stand here"),
        ("size()", "size() takes 1 argument, got 0"),
        ("join([], '', 1)", "join() takes 1 to 2 arguments, got 3"),
        ("has(1 + 1)", "has() needs a path"),
        ("{{ workflow_input.n }} > 1", "text after '}}'"),
        ("a & b", "unexpected '&'"),
    ],
)
def test_a_wrong_source_is_refused_with_a_reason(source: str, message: str) -> None:
    error = failure(source)
    assert error.code == "syntax"
    assert error.message.startswith(message)


@pytest.mark.parametrize(
    "source",
    [
        "(" * 33 + "1" + ")" * 33,
        "(" * 10_000,
        "!" * 10_000 + "true",
        "not " * 2_000 + "true",
        "1" + " + 1" * 101,
        "true" + " && true" * 101,
        "true ? " * 40 + "1" + " : 2" * 40,
        "workflow_input" + ".a" * 65,
        "[" + "1," * 1_001 + "1]",
        "1 " + " " * 8_192,
        "null" + " ?? null" * 101,
        "1" + " | string" * 101,
    ],
)
def test_a_source_out_of_bounds_is_a_limit_error(source: str) -> None:
    assert failure(source).code == "limit"


def test_strings_have_escapes_and_raw_strings_have_none() -> None:
    assert value(r'"a\n\t\"\u4e2d\U0001F600\/"') == 'a\n\t"中😀/'
    assert value(r"r'\d+\n'") == r"\d+\n"


def test_whole_braces_are_accepted_around_a_condition() -> None:
    program = compile_expression(" {{ workflow_input.n > 1 }} ")
    assert program.test(CONTEXT) is True
    assert program.source == " {{ workflow_input.n > 1 }} "


@pytest.mark.parametrize(
    "source", ["workflow_input.n", "workflow_input.s", "workflow_input.null", "workflow_input.list"]
)
def test_only_a_boolean_is_a_condition(source: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(source).test(CONTEXT)
    assert caught.value.code == "type"


@pytest.mark.parametrize("found", [0, 0.0, False, "", None, [], {}])
def test_empty_and_zero_values_are_values(found: Any) -> None:
    assert value("has(x.v)", x={"v": found}) is True
    result = value("x.v", x={"v": found})
    assert result is found


def test_two_evaluations_of_a_program_share_nothing() -> None:
    program = compile_expression("workflow_input.list.map(x, x + 1)")
    first = program.evaluate(CONTEXT)
    first.append(99)
    assert program.evaluate(CONTEXT) == [2, 3, 4]


def test_evaluation_leaves_the_context_as_it_was() -> None:
    before = copy.deepcopy(CONTEXT)
    value("workflow_input.rows.map(r, {'n': r.n}) + workflow_input.list | flatten | unique")
    assert before == CONTEXT


class _Layered(dict[str, Any]):
    """A frame that looks in an outer one for what it lacks."""

    def __init__(self, outer: dict[str, Any], **own: Any) -> None:
        super().__init__(own)
        self.outer = outer

    def __missing__(self, key: str) -> Any:
        return self.outer[key]


class _Recording(Mapping[str, Any]):
    """A mapping that loads on touch and remembers what was touched."""

    def __init__(self, **values: Any) -> None:
        self.values_by_name = values
        self.touched: list[str] = []

    def __getitem__(self, key: str) -> Any:
        self.touched.append(key)
        return self.values_by_name[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)


def test_a_frame_may_look_in_an_outer_frame() -> None:
    frame = _Layered({"outer": {"v": 1}, "both": {"v": 2}}, both={"v": 3})
    context = {"step": frame}
    source = "[step.outer.v, step.both.v, has(step.outer), has(step.none), step?.outer.v, step.none ?? 'd']"
    assert compile_expression(source).evaluate(context) == [1, 3, True, False, 1, "d"]


def test_only_what_an_expression_names_is_touched() -> None:
    outputs = _Recording(a={"v": 1}, b={"v": 2})
    assert compile_expression("step.a.v == 1 ? step.a.v : step.b.v").evaluate({"step": outputs}) == 1
    assert outputs.touched == ["a", "a"]


def test_a_python_object_is_no_value() -> None:
    class Secret:
        inside = "x"

    assert failure("o.inside", o=Secret()).code == "type"
    assert failure("o", o=Secret()).code == "type"
    assert failure("o.real", o=5).code == "type"
    assert value("has(o.__class__)", o={}) is False


def test_work_is_bounded_by_fuel_not_by_the_size_of_the_data() -> None:
    rows = list(range(1_000))
    assert value("rows.map(x, x + 1) | size", rows=rows) == 1_000
    assert failure("rows.all(x, rows.all(y, rows.all(z, z >= 0)))", rows=rows).code == "limit"
    assert failure("text + text", text="x" * 600_000).code == "limit"
    assert failure("[1].map(a, [a, a]).map(a, [a, a])" + ".map(a, [a, a])" * 20).code == "limit"
    assert failure("n * n", n=1 << 1_000).code == "limit"


def test_cyclic_and_deep_data_end_in_a_limit_error() -> None:
    ring: list[Any] = []
    ring.append(ring)
    deep: Any = 0
    for _ in range(300_000):
        deep = [deep]
    assert failure("ring == other", ring=ring, other=[[[ring]]]).code == "limit"
    assert failure("json(ring)", ring=ring).code == "limit"
    assert failure("[deep]", deep=deep).code == "limit"
    assert value("deep[0][0] == 1", deep=deep) is False


def test_programs_and_errors_survive_pickling() -> None:
    program = pickle.loads(pickle.dumps(compile_expression("x.a > 1", names={"x"})))
    assert program.evaluate({"x": {"a": 2}}) is True
    error = pickle.loads(pickle.dumps(failure("workflow_input.none")))
    assert (error.code, error.offset) == ("missing", 15)


def test_a_long_line_is_shown_around_the_caret() -> None:
    error = failure("'" + "x" * 200 + "' == workflow_input.none")
    _, shown, caret, *_ = error.render().split("\n")
    assert len(shown) <= 110
    assert shown[caret.index("^") :].startswith("none")


def test_an_error_on_a_later_line_is_counted_from_it() -> None:
    error = failure("workflow_input.n > 1 &&\n  workflow_input.nope == 2")
    assert (error.line, error.column) == (2, 18)
    assert error.render().split("\n")[1] == "  |   workflow_input.nope == 2"


def test_the_names_of_the_language_are_public_and_sorted() -> None:
    assert list(FUNCTIONS) == sorted(FUNCTIONS)
    assert {"size", "len", "matches", "has", "default", "json"} <= set(FUNCTIONS)
    assert ROOTS[:6] == ("workflow_input", "step", "steps", "loop_item", "loop", "run")
