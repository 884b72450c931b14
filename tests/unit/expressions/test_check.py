"""The static check: steps, order, scope, paths against schemas, types, guards; and the references it rests on."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.expressions import (
    CheckEnv,
    ExpressionError,
    Ref,
    StepShape,
    Wild,
    check_expression,
    check_template,
    compile_expression,
    compile_template,
)

ROW = {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": False}
OUTPUT: dict[str, Any] = {
    "type": "object",
    "$defs": {"row": ROW},
    "additionalProperties": False,
    "properties": {
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]},
        "kind": {"enum": ["refund", "question", None]},
        "either": {"anyOf": [ROW, {"type": "string"}]},
        "both": {"allOf": [ROW, {"properties": {"tag": {"type": "string"}}}]},
        "open": {"type": "object", "properties": {"a": {}}},
        "free": {},
        "text": {"type": ["string", "null"]},
        "count": {"type": "integer"},
        "ok": {"type": "boolean"},
        "named": {"type": "object", "patternProperties": {"^x_": {"type": "number"}}, "additionalProperties": False},
    },
}
ENV = CheckEnv(
    visible={"a": StepShape(OUTPUT), "maybe": StepShape(OUTPUT, maybe_skipped=True), "any": StepShape()},
    known={"a", "maybe", "any", "later"},
    loop_item=ROW,
    names={"row": ROW},
    roots={"error": {"type": "object"}},
)


def problems(source: str, env: CheckEnv = ENV, *, boolean: bool = False) -> list[str]:
    program = compile_expression(source, names={"row"})
    return [f"{error.code} {error.column}" for error in check_expression(program, env, boolean=boolean)]


@pytest.mark.parametrize(
    "source",
    [
        "step.a.rows[0].id > 1",
        "step.a.rows.exists(r, r.id == 1)",
        "step.a.rows.filter(r, r.id > 1).map(r, r.id).sum() > 3",
        "first(step.a.rows).id == 1",
        "step.a.pair[1] > 1 && step.a.pair.0 == 'x'",
        "step.a.kind == 'refund' || step.a.kind == null",
        "step.a.kind in ['refund', 'question']",
        "has(step.a.either.id) ? step.a.either.id == 1 : true",
        "step.a.both.id == 1 && step.a.both.tag == 'x'",
        "step.a.open.anything == 1",
        "step.a.free.x.y[3] > 'z'",
        "step.a.text > 'a'",
        "size(step.a.text ?? '') > 0",
        "step.a.named.x_1 > 1",
        "step.any.whatever.it == 1",
        "steps.a.attempts > 1 && steps.a.result.count > 1 && steps.a.output.ok",
        "loop_item.id == loop.index && loop.parent.item.x == 1",
        "row.id == 1",
        "error.message != ''",
        "run.id == 'x'",
        "(step.a.rows ?? []).exists(r, r.id == 1)",
        "step.a.nope ?? 'd'",
        "step.a?.nope == null",
        "has(step.a.nope) && step.a.nope.more == 1",
        "step.a.nope != null && step.a.nope > 1",
        "!has(step.a.nope) || step.a.nope == 1",
        "step.a.nope == null ? true : step.a.nope > 1",
        "workflow_input.anything == 1",
    ],
)
def test_what_can_be_right_is_not_a_problem(source: str) -> None:
    assert problems(source) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("step.b.x", ["step 6"]),
        ("step.later.x", ["order 6"]),
        ("event.x", ["scope 1"]),
        ("step.a.nope", ["path 8"]),
        ("step.a.rows[0].idd", ["path 16"]),
        ("step.a.rows.map(r, r.idd)", ["path 22"]),
        ("step.a.rows.id", ["type 13"]),
        ("step.a.count.x", ["type 14"]),
        ("step.a.count[0]", ["type 13"]),
        ("step.a.named.y", ["path 14"]),
        ("row.idd", ["path 5"]),
        ("run.now", ["path 5"]),
        ("loop.idx", ["path 6"]),
        ("step.a.kind == 'refnd'", ["enum 16"]),
        ("'refnd' == step.a.kind", ["enum 1"]),
        ("step.a.kind in ['refund', 'x']", ["enum 27"]),
        ("step.a.count == 'a'", ["type 14"]),
        ("step.a.count != 'a'", ["type 14"]),
        ("step.a.count && true", ["type 14"]),
        ("!step.a.count", ["type 1"]),
        ("-step.a.text", ["type 1"]),
        ("step.a.count ? 1 : 2", ["type 14"]),
        ("step.a.count in step.a.text", []),
        ("'x' in step.a.count", ["type 5"]),
        ("step.a.text.map(x, x)", ["type 8"]),
        ("step.a.rows.exists(r, r.id)", ["type 25"]),
        ("upper(step.a.rows)", ["type 14"]),
        ("split('a', step.a.count)", ["type 19"]),
        ("step.a.pair.0 + 1", ["type 15"]),
        ("timestamp('x') > 'y'", ["type 16"]),
        ("step.b.x == step.a.nope && step.a.count > 'x'", ["step 6", "path 20", "type 41"]),
    ],
)
def test_every_problem_is_found_at_its_place(source: str, expected: list[str]) -> None:
    assert problems(source) == expected


def test_a_condition_must_be_able_to_give_a_boolean() -> None:
    assert problems("step.a.count", boolean=True) == ["type 8"]
    assert problems("step.a.ok", boolean=True) == []
    assert problems("step.a.free", boolean=True) == []


def test_outside_a_loop_there_is_no_loop() -> None:
    assert problems("loop_item.id == 1 && loop.index == 0", CheckEnv()) == ["scope 1", "scope 22"]
    assert problems("loop_item.anything", CheckEnv(loop_item=True)) == []


def test_strict_refuses_what_no_schema_declares() -> None:
    strict = CheckEnv(visible={"a": StepShape(OUTPUT)}, strict=True)
    assert problems("step.a.open.anything == 1", strict) == ["path 13"]
    assert problems("step.a.free.anything == 1", strict) == []
    assert problems("step.a.open.anything ?? 1", strict) == []


def _warnings(source: str) -> list[ExpressionError]:
    return check_expression(compile_expression(source), ENV)


@pytest.mark.parametrize("source", ["step.maybe.count > 1", "steps.maybe.result.count > 1", "[step.maybe]"])
def test_reading_a_step_that_may_be_skipped_is_a_warning(source: str) -> None:
    (warning,) = _warnings(source)
    assert (warning.severity, warning.code) == ("warning", "missing")
    assert "'maybe'" in warning.message


@pytest.mark.parametrize(
    "source",
    [
        "steps.maybe.status == 'completed' && step.maybe.count > 1",
        "steps.maybe.status != 'skipped' && steps.maybe.result.count > 1",
        "has(step.maybe) && step.maybe.count > 1",
        "has(steps.maybe.result.count) ? step.maybe.ok : false",
        "step.maybe.count ?? 0",
        "steps.maybe?.result?.count",
        "steps.maybe.status == 'skipped'",
    ],
)
def test_a_guarded_read_of_such_a_step_is_not(source: str) -> None:
    assert _warnings(source) == []


def test_the_references_of_a_text_are_checked_in_the_text() -> None:
    template = compile_template("Dear {{step.a.text}},\nyour {{step.a.nope}} and {{step.b.x}}")
    errors = check_template(template, ENV)
    assert [(error.code, error.line, error.column) for error in errors] == [("path", 2, 15), ("step", 2, 33)]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/none"},
        {"$ref": "https://example.org/x"},
        {"properties": []},
        {"type": 5, "items": 3, "enum": {}},
        {"anyOf": [True, {"allOf": [{"$ref": "#"}]}]},
        True,
        {},
    ],
)
def test_a_schema_that_says_nothing_is_never_a_problem(schema: Any) -> None:
    env = CheckEnv(visible={"a": StepShape(schema)}, input=schema, strict=True)
    assert problems("step.a.x.y[0] == 1 && workflow_input.z > 'a'", env) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("step.a.x[0].y", ["step.a.x[0].y"]),
        ("workflow_input['content-type']", ["workflow_input.`content-type`"]),
        ("step.a.x[loop.index].y", ["loop.index", "step.a.x[?].y"]),
        ("has(step.a.x) && step.b-c?.y == 1", ["step.a.x?", "step.b-c.y?"]),
        ("step.a.x ?? step.b.y", ["step.a.x?", "step.b.y"]),
        (
            "step.a.list.map(x, x.b.filter(y, y.c > x.d))",
            ["step.a.list", "step.a.list[*].b[*].c", "step.a.list[*].d", "step.a.list[*].b"],
        ),
        ("step.a.x + step.a.x", ["step.a.x"]),
        ("first(step.a.x).y", ["step.a.x[0].y"]),
        ("{'k': step.a.x}.k", ["step.a.x"]),
        ("secret.key", ["secret.key"]),
        ("step.a.list.exists(x, step.b.y)", ["step.a.list", "step.b.y"]),
    ],
)
def test_references_are_what_an_expression_can_read(source: str, expected: list[str]) -> None:
    assert [str(ref) for ref in compile_expression(source).refs()] == expected


def test_a_reference_says_where_it_stands_and_which_step_it_names() -> None:
    (ref,) = compile_expression("1 + step.my-step.list.filter(x, true)").refs()
    assert ref == Ref("step", ("my-step", "list"), 4, guarded=False)
    assert ref.step_id == "my-step"
    (inner, _) = compile_expression("step.a.filter(x, x.y)").refs()
    assert inner.segs == ("a", Wild.EACH, "y")
