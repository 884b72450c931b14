"""Texts with braces: what is a reference, what stays text, and how values are inserted."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from stepwell.expressions import ExpressionError, compile_template, compile_tree

CONTEXT: dict[str, Any] = {
    "workflow_input": {
        "s": 'say "{{workflow_input.n}}" }} \\{{',
        "n": 7,
        "obj": {"a": 1},
        "list": [1, "é", None],
        "none": None,
        "yes": True,
        "digits": "007",
    },
    "loop_item": {"name": "{{secret.key}}"},
    "secret": {"key": "CANARY"},
}


def rendered(text: str, **names: Any) -> Any:
    return compile_template(text, names=frozenset(names)).render({**CONTEXT, **names})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "{{ user.name }} {{#each x}} {{/each}} {{! c }} {{> p}} {{{raw}}} {% if %}",
        "style={{color: red}} {a} {{}} {{ }} }} {{",
        '{"a": {"b": {}}}',
        '{{ .Values.image }} {{- include "x" . -}} {{ $x }} ${{ github.sha }}',
        "C:\\dir\\file \\d+ \\\\",
        "{{stepwise}} {{steps_done}} {{ size of it }} {{ 1 + workflow_input.n }}",
    ],
)
def test_what_does_not_start_with_a_known_name_stays_as_it_is(text: str) -> None:
    template = compile_template(text)
    assert template.is_constant
    assert template.render({}) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\{{workflow_input.n}}", "{{workflow_input.n}}"),
        (r"\{{name}}", "{{name}}"),
        (r"\\{{workflow_input.n}}", "\\7"),
        (r"\\\{{workflow_input.n}}", r"\{{workflow_input.n}}"),
        (r"\{{{workflow_input.n}}}", "{{{workflow_input.n}}}"),
        (r"\{{{{workflow_input.n}}", "{{7"),
        ("{{{workflow_input.n}}}", "{7}"),
        ("{{{{workflow_input.n}}}}", "{{7}}"),
        ('{"q":{{workflow_input.obj}},"e":{},"z":{"y":{{workflow_input.n}}}}', '{"q":{"a": 1},"e":{},"z":{"y":7}}'),
        ("{{workflow_input.n}}{{workflow_input.n}}", "77"),
        ("{{ (workflow_input.n + 1) * 2 }}!", "16!"),
        ("{{ !workflow_input.yes }}!", "false!"),
        ("{{ -workflow_input.n }}!", "-7!"),
        ("{{ [1, 2] | size }}", "{{ [1, 2] | size }}"),
        ("{{ {'a': 1}.a }}", "{{ {'a': 1}.a }}"),
        ("{{ has(workflow_input.zzz) ? 'y' : 'n' }}!", "n!"),
        ("x{{workflow_input.none}}x{{workflow_input.yes}}x{{workflow_input.list}}", 'xnullxtruex[1, "é", null]'),
        ("{{ workflow_input.list.map(x, '}}') | join }}", "}}}}}}"),
        ("{{workflow_input.digits}}", "007"),
        ("é{{workflow_input.n}}中", "é7中"),
    ],
)
def test_a_text_renders(text: str, expected: str) -> None:
    assert rendered(text) == expected


def test_inserted_values_are_never_read_again() -> None:
    assert rendered("Item {{loop_item.name}}: {{workflow_input.s}}") == (
        'Item {{secret.key}}: say "{{workflow_input.n}}" }} \\{{'
    )


@pytest.mark.parametrize("path", ["obj", "list", "none", "yes", "n", "digits", "s"])
@pytest.mark.parametrize("around", ["{}", " {}\n", "\n\t{}  "])
def test_a_whole_value_is_the_very_same_object(path: str, around: str) -> None:
    template = compile_template(around.format("{{workflow_input." + path + "}}"))
    assert template.is_whole
    assert template.render(CONTEXT) is CONTEXT["workflow_input"][path]


@pytest.mark.parametrize(
    "text", ["{{workflow_input.obj}}.", "{{workflow_input.n}}{{workflow_input.n}}", "\\{{x}}", "{"]
)
def test_other_texts_are_not_whole(text: str) -> None:
    assert not compile_template(text).is_whole


def test_text_can_be_forced() -> None:
    assert rendered("{{workflow_input.n | string}}") == "7"
    assert rendered("{{workflow_input.obj | json}}") == '{"a": 1}'


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        ("a {{workflow_input.n b}}", "syntax", 22),
        ("a {{workflow_input.n\nmore text", "syntax", 21),
        ("{{steps}}", "step", 3),
        ("{{step.x.y", "syntax", 11),
        ("{{ size( }}", "syntax", 10),
        ("{{ foo }} {{workflow_input..n}}", "syntax", 28),
    ],
)
def test_a_wrong_reference_is_an_error_at_load_time(text: str, code: str, column: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_template(text)
    error = caught.value
    assert (error.code, error.column, error.source) == (code, column, text)


def test_a_missing_value_names_step_path_and_place() -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_template("Dear\n{{step.fetch.user}}").render({"step": {}})
    assert (caught.value.code, caught.value.line, caught.value.column) == ("missing", 2, 8)
    assert "'fetch'" in caught.value.message


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("{{ }}", ["empty"]),
        ("{{}} and {{", ["empty", "unclosed"]),
        ("{{stp.a.b}}", ["unknown_root"]),
        ("{{ name }} {{ user.name | upper }}", ["unknown_root", "unknown_root"]),
        ("{{ 1 + workflow_input.n }}", ["foreign"]),
        ("{{#each x}} {{! comment }} {{> partial}}", []),
        (r"\{{name}} {{workflow_input.n}}", []),
        ("{{workflow_input.n}} {{item.x}}", ["unknown_root"]),
    ],
)
def test_braces_that_stayed_text_are_noted(text: str, kinds: list[str]) -> None:
    notes = compile_template(text).notes()
    assert [note.kind for note in notes] == kinds
    assert all(text.startswith("{{", note.offset) for note in notes)


def test_a_name_given_by_as_opens_a_reference() -> None:
    assert rendered("{{item.x}}!", item={"x": 1}) == "1!"
    assert compile_template("{{item.x}}!").render(CONTEXT) == "{{item.x}}!"


@pytest.mark.parametrize("text", ["x" * (4 * 1024 * 1024 + 1), "{{run.id}}" * 1_001])
def test_a_text_out_of_bounds_is_a_limit_error(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_template(text)
    assert caught.value.code == "limit"


def test_a_text_cannot_grow_without_bound() -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_template("{{run.id}} " * 10).render({"run": {"id": "x" * 1_000_000}})
    assert caught.value.code == "limit"


def test_every_text_in_nested_arguments_is_a_template_and_keys_are_not() -> None:
    constant = {"deep": ["a", {"b": 1}]}
    value = {"{{run.id}}": "{{run.id}}", "list": ["x {{run.id}}", constant, None, 2], "c": constant}
    tree = compile_tree(value)
    result = tree.render({"run": {"id": 5}})
    assert result == {"{{run.id}}": 5, "list": ["x 5", constant, None, 2], "c": constant}
    assert result["c"] is constant
    assert result["list"][1] is constant
    assert [(path, str(ref)) for path, ref in tree.refs()] == [(("{{run.id}}",), "run.id"), (("list", 0), "run.id")]
    assert [path for path, _ in tree.templates()] == [("{{run.id}}",), ("list", 0)]


def test_a_constant_tree_renders_to_the_same_object() -> None:
    value = {"a": [1, {"b": "no references"}], "c": "{{ foreign }}"}
    tree = compile_tree(value)
    assert tree.is_constant
    assert tree.render({}) is value


def test_an_escape_is_resolved_once_in_a_constant_tree() -> None:
    tree = compile_tree({"a": r"\{{run.id}}"})
    assert tree.is_constant
    assert tree.render({}) == {"a": "{{run.id}}"}
    assert tree.render({}) is tree.render({})


def test_arguments_nest_at_most_32_deep() -> None:
    value: Any = "{{run.id}}"
    for _ in range(32):
        value = [value]
    assert compile_tree(value).is_constant is False
    with pytest.raises(ExpressionError) as caught:
        compile_tree([value])
    assert caught.value.code == "limit"


def test_a_template_survives_pickling() -> None:
    template = pickle.loads(pickle.dumps(compile_template("{{item.x}}!", names={"item"})))
    assert template.render({"item": {"x": 1}}) == "1!"
