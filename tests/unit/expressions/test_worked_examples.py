"""Every row of the specification's worked examples: values, exact error texts with carets, hints, warnings, references."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from stepwell.expressions import (
    CheckEnv,
    ExpressionError,
    StepShape,
    check_expression,
    compile_expression,
    compile_template,
)

_DATA = Path(__file__).parent / "data"
_CONTEXT: dict[str, Any] = json.loads((_DATA / "expressions_context.json").read_text("utf-8"))
_ROW = re.compile(r"[TXC]  ")
_CHECK = re.compile(r"(.*?)   refs: (\[.*\])$")

_EXTRACT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "confidence": {"type": "number"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"name": {"type": "string"}, "price": {"type": "number"}},
            },
        },
        "note": {"type": ["string", "null"]},
    },
}
_CLASSIFY = {"type": "object", "properties": {"intent": {"enum": ["refund", "question", "complaint"]}}}
_INPUT = {"type": "object", "additionalProperties": False, "properties": {"topic": {"type": "string"}}}
_ENV = CheckEnv(
    visible={"extract": StepShape(_EXTRACT), "classify": StepShape(_CLASSIFY)},
    known=("extract", "classify", "later"),
    input=_INPUT,
)


def _rows() -> list[tuple[str, str, list[str]]]:
    rows: list[tuple[str, str, list[str]]] = []
    for line in (_DATA / "worked_examples.txt").read_text("utf-8").splitlines():
        if _ROW.match(line):
            rows.append((line[0], line[3:].rstrip(), []))
        elif line != "--- static":
            rows[-1][2].append(line.strip() if not line.strip().startswith("|") else line.rstrip())
    return rows


_ROWS = _rows()


def _of(kind: str) -> list[Any]:
    return [pytest.param(source, expected, id=source[:60]) for row, source, expected in _ROWS if row == kind]


def _shown(error: ExpressionError) -> list[str]:
    lines = error.render().split("\n")
    return [line.strip() if "| " not in line[:4] else f"     {line}".rstrip() for line in lines]


def test_the_whole_block_of_the_specification_is_read() -> None:
    kinds = [kind for kind, _, _ in _ROWS]
    assert (kinds.count("T"), kinds.count("X"), kinds.count("C")) == (37, 24, 20)
    assert all(expected for _, _, expected in _ROWS)


@pytest.mark.parametrize(("source", "expected"), _of("T"))
def test_a_template_renders_as_specified(source: str, expected: list[str]) -> None:
    text = ast.literal_eval(source)
    try:
        template = compile_template(text)
        value = template.render(_CONTEXT)
        shown = [f"=> {type(value).__name__} {value!r}"]
        notes = [note for note in template.notes() if note.kind in ("foreign", "unknown_root")]
        shown += dict.fromkeys(f"warn {note.message} {note.hint}" for note in notes)
    except ExpressionError as error:
        shown = _shown(error)
    assert shown == expected


@pytest.mark.parametrize(("source", "expected"), _of("X"))
def test_an_expression_evaluates_as_specified(source: str, expected: list[str]) -> None:
    try:
        value = compile_expression(source).evaluate(_CONTEXT)
        shown = [f"=> {type(value).__name__} {value!r}"]
    except ExpressionError as error:
        shown = _shown(error)
    assert shown == expected


@pytest.mark.parametrize(("source", "expected"), _of("C"))
def test_a_condition_is_checked_as_specified(source: str, expected: list[str]) -> None:
    found = _CHECK.match(source)
    assert found is not None
    program = compile_expression(found[1])
    assert [str(ref) for ref in program.refs()] == ast.literal_eval(found[2])
    errors = check_expression(program, _ENV, boolean=True)
    assert [line for error in errors for line in _shown(error)] == ([] if expected == ["ok"] else expected)
