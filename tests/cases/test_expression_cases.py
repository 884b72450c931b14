"""Failure cases of other engines that the expression language alone already settles."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from typing import Any

import pytest

from stepwell.expressions import ExpressionError, compile_expression, compile_template, compile_tree

CANARY = "S3CRET-CANARY"
NUMBER_LIKE = [
    "1458059302022549698",
    "007",
    "1e5",
    "0x10",
    "+48100200300",
    "1_000",
    "true",
    "null",
    "2024-01-02",
    "1.10",
]
FALSY = [0, 0.0, False, "", [], {}]
INJECTIONS = [
    "{{workflow_input.api_key}}",
    "{{step.m.x}}",
    "{% for i in range(9**9) %}",
    "\\{{workflow_input.api_key}}",
    "}}{{workflow_input.api_key}}",
]
SPELLINGS = [
    "steps['__cla' + 'ss__']",
    "getattr(steps, '__class__')",
    "steps['\\x5f\\x5fclass\\x5f\\x5f']",
    "ｓteps.__class__",
    "steps . __class__",
    "vars()",
    "steps.get.__self__",
    "steps.a.__class__",
    "steps.a['__cla' + 'ss__']",
    "steps.a['\\u005f\\u005fclass\\u005f\\u005f']",
    "steps.a.result . __init__ . __globals__",
    "workflow_input.__class__.__base__.__subclasses__()",
    "workflow_input.keys.__self__",
]


def same(left: object, right: object) -> bool:
    return type(left) is type(right) and left == right


@pytest.mark.parametrize("name", INJECTIONS)
def test_c036_template_syntax_in_data_reaches_the_tool_as_literal_characters(name):
    context = {
        "loop_item": {"name": name},
        "workflow_input": {"api_key": CANARY, "rows": [{"name": name}]},
        "step": {"L": [{"name": name}]},
    }
    assert compile_template("Item {{loop_item.name}}").render(context) == f"Item {name}"
    assert compile_template("{{loop_item.name}}").render(context) == name
    over = compile_template("{{workflow_input.rows}}").render(context)
    assert over == [{"name": name}]
    prompt = compile_template("Summarise {{step.L}}").render(context)
    assert prompt == "Summarise " + json.dumps([{"name": name}], ensure_ascii=False)
    assert CANARY not in prompt


@pytest.mark.parametrize("name", INJECTIONS)
def test_c036_resolution_is_a_single_pass_on_every_hop(name):
    """What one step rendered is the next step's data, four hops long, in text and in nested arguments."""
    tree = compile_tree(
        {"subject": "Re: {{step.hop.text}}", "form": [{"text": "{{step.hop.text}}"}], "text": "{{step.hop.text}}"}
    )
    rendered: Any = {"text": name}
    for _ in range(4):
        rendered = tree.render({"step": {"hop": rendered}, "workflow_input": {"api_key": CANARY}})
    assert rendered == {"subject": f"Re: {name}", "form": [{"text": name}], "text": name}


@pytest.mark.parametrize("source", SPELLINGS)
def test_c039_no_spelling_of_an_attribute_reaches_python(source):
    context = {"steps": {"a": {"status": "completed", "result": {"x": 1}}}, "workflow_input": {}}
    with pytest.raises(ExpressionError) as caught:
        compile_expression(source).evaluate(context)
    assert caught.value.code in {"syntax", "step", "type", "missing"}


@pytest.mark.parametrize(
    "source", ["workflow_input.__class__", "workflow_input['__cla' + 'ss__']", "workflow_input . `__class__`"]
)
def test_c039_a_data_key_named_like_a_dunder_is_data(source):
    assert compile_expression(source).evaluate({"workflow_input": {"__class__": "a key"}}) == "a key"


def test_c039_an_object_that_is_not_data_cannot_be_looked_into():
    class Engine:
        secret = CANARY

        def __getattribute__(self, name: str) -> object:
            if name == "__class__":  # isinstance() itself asks for it
                return object.__getattribute__(self, name)
            raise AssertionError(f"attribute {name} was read")

    for source in (
        "workflow_input.e.secret",
        "workflow_input.e['secret']",
        "has(workflow_input.e.secret) && workflow_input.e.secret == 1",
    ):
        with pytest.raises(ExpressionError):
            compile_expression(source).evaluate({"workflow_input": {"e": object.__new__(Engine)}})


WATCHED = """
import json, sys
from stepwell.expressions import ExpressionError, compile_expression, compile_template
compile_expression('matches("a", "a")').evaluate({})
try:
    compile_expression("siz(1)")  # the lazy import behind "did you mean"
except ExpressionError:
    pass
events = []
def note(event, arguments):
    if event.split(".")[0] in {"open", "socket", "subprocess", "os", "exec", "compile", "import", "shutil", "ctypes", "object"}:
        events.append(event)
sources = json.loads(sys.stdin.read())
sys.addaudithook(note)
refused = 0
for source in sources:
    for compiled in (compile_expression, lambda text: compile_template("{{ " + text + " }}")):
        try:
            program = compiled(source)
            program.refs()
            getattr(program, "notes", tuple)()
        except ExpressionError as error:
            error.render()
            refused += 1
found = list(events)
print(json.dumps({"events": found, "refused": refused}))
"""


def test_c040_compiling_and_listing_references_touches_nothing_outside(tmp_path):
    canary = tmp_path / "canary"
    attacks = [
        f"open('{canary}', 'w')",
        f"__import__('os').system('touch {canary}')",
        "[1].map(x, open(x))",
        "workflow_input.a / 0 == 1",
        "size(1/0)",
    ]
    child = subprocess.run(
        [sys.executable, "-c", WATCHED],
        input=json.dumps(SPELLINGS + attacks),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    report = json.loads(child.stdout)
    assert report["events"] == []
    assert report["refused"] > 0
    assert not canary.exists()


def test_c040_compiling_reads_no_value():
    """The references are known although no context exists yet: nothing can have been evaluated."""
    program = compile_expression(
        "steps.a.result.items.exists(i, i.price > workflow_input.limit) && 1 / workflow_input.zero > 1"
    )
    assert sorted({str(ref) for ref in program.refs()}) == [
        "steps.a.result.items",
        "steps.a.result.items[*].price",
        "workflow_input.limit",
        "workflow_input.zero",
    ]


@pytest.mark.parametrize("value", FALSY)
@pytest.mark.parametrize("reference", ["workflow_input.v", "step.prev.v", "loop_item.v", "steps.prev.result.v"])
def test_c095_falsy_values_arrive_unchanged_and_no_default_takes_their_place(value, reference):
    data = {"v": value}
    context = {
        "workflow_input": data,
        "step": {"prev": data},
        "loop_item": data,
        "steps": {"prev": {"status": "completed", "result": data}},
    }
    for template in (f"{{{{{reference}}}}}", f"{{{{{reference} ?? 99}}}}", f"{{{{ {reference} | default(99) }}}}"):
        assert same(compile_template(template).render(context), value)
    assert compile_expression(f"has({reference})").evaluate(context) is True


@pytest.mark.parametrize("root", ["workflow_input", "step.prev", "loop_item"])
def test_c095_null_is_present_and_only_a_default_replaces_it(root):
    context = {"workflow_input": {"v": None}, "step": {"prev": {"v": None}}, "loop_item": {"v": None}}
    assert compile_template(f"{{{{{root}.v}}}}").render(context) is None
    assert compile_expression(f"has({root}.v)").evaluate(context) is True
    assert compile_template(f"{{{{{root}.v ?? 99}}}}").render(context) == 99
    assert compile_template(f"{{{{{root}.absent ?? 99}}}}").render(context) == 99
    assert compile_expression(f"has({root}.absent)").evaluate(context) is False
    with pytest.raises(ExpressionError) as caught:
        compile_template(f"{{{{{root}.absent}}}}").render(context)
    assert caught.value.code == "missing"


@pytest.mark.parametrize("value", [*FALSY, None, 1, "x", [0]])
def test_c095_a_value_that_is_no_boolean_is_never_a_condition(value):
    with_value = {"workflow_input": {"v": value}}
    for source in (
        "workflow_input.v",
        "!workflow_input.v",
        "workflow_input.v && true",
        "workflow_input.v ? true : false",
    ):
        if value is False:
            assert compile_expression(source).test(with_value) is (source == "!workflow_input.v")
            continue
        with pytest.raises(ExpressionError) as caught:
            compile_expression(source).test(with_value)
        assert caught.value.code == "type"


@pytest.mark.parametrize(
    "step_id",
    [
        "fetch-lead",
        "a-1",
        "step-1",
        "1st",
        "步骤一",
        "true",
        "in",
        "step",
        "__class__",
        "x" * 200,
        "a--b",
        "-",
        "a.b",
        "",
        " x ",
    ],
)
def test_c097_a_step_id_resolves_in_both_forms_or_is_refused_but_is_never_null(step_id):
    context = {
        "step": {step_id: {"full-name": "Zoé", "score": 0.9}},
        "steps": {step_id: {"status": "completed", "result": {"score": 0.9}}},
    }
    for source in (
        f"steps['{step_id}'].result.score > 0.5",
        f"steps.`{step_id}`.result.score > 0.5",
        f"steps.{step_id}.result.score > 0.5",
    ):
        try:
            program = compile_expression(source)
        except ExpressionError as error:
            refused = error
            assert refused.code in {"syntax", "step"}
            assert refused.message
            continue
        if step_id in ("a.b", " x ") and source.startswith(f"steps.{step_id}"):
            continue  # blanks and dots separate here: this names another step
        assert program.evaluate(context) is True


def test_c097_a_hyphenated_step_id_is_a_name_in_templates_and_expressions():
    context = {"step": {"fetch-lead": {"full-name": "Zoé", "score": 0.9}}}
    assert compile_expression("step['fetch-lead'].score > 0.5").evaluate(context) is True
    assert compile_expression("step.fetch-lead.score > 0.5").evaluate(context) is True
    assert compile_template("{{step.fetch-lead.score}}").render(context) == 0.9
    assert compile_template("{{step.fetch-lead.`full-name`}}").render(context) == "Zoé"


def test_c097_a_hyphenated_field_is_an_error_with_the_right_spelling_not_a_null():
    with pytest.raises(ExpressionError) as caught:
        compile_template("{{step.fetch-lead.full-name}}")
    assert caught.value.code == "syntax"
    assert '["full-name"]' in caught.value.hint


def test_c097_nfc_and_nfd_spellings_of_a_name_are_two_names_and_the_wrong_one_is_missing():
    composed, decomposed = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
    context = {"step": {composed: {"x": 1}}}
    assert compile_expression(f"step.{composed}.x").evaluate(context) == 1
    with pytest.raises(ExpressionError) as caught:
        compile_expression(f"step['{decomposed}'].x").evaluate(context)
    assert caught.value.code == "missing"


@pytest.mark.parametrize("value", NUMBER_LIKE)
def test_c100_text_that_looks_like_a_number_stays_that_text(value):
    context = {"workflow_input": {"id": value}}
    rendered = compile_tree(
        {
            "id": "{{workflow_input.id}}",
            "block": "{{workflow_input.id}}\n",
            "x": "<{{workflow_input.id}}>",
            "constant": value,
        }
    ).render(context)
    assert rendered == {"id": value, "block": value, "x": f"<{value}>", "constant": value}
    assert all(type(item) is str for item in rendered.values())
    assert (
        compile_expression("workflow_input.id == 7 || workflow_input.id == true || workflow_input.id == null").evaluate(
            context
        )
        is False
    )


def test_c100_an_integer_over_53_bits_passes_exactly():
    context = {"workflow_input": {"n": 9007199254740993}}
    assert same(compile_template("{{workflow_input.n}}").render(context), 9007199254740993)
    assert compile_template("<{{workflow_input.n}}>").render(context) == "<9007199254740993>"
    assert (
        compile_expression("workflow_input.n == 9007199254740993 && workflow_input.n != 9007199254740992").evaluate(
            context
        )
        is True
    )


@pytest.mark.parametrize(
    "value", ["+48100200300", "123_123_123", "0011101.001", "[1, 2]", "{'a': 1}", '{"a": 1}', "None", "1 + 1"]
)
def test_c101_templates_never_read_text_as_a_value(value):
    context = {"step": {"s": {"v": value}}}
    assert same(compile_template("{{step.s.v}}").render(context), value)
    assert same(compile_template("x{{step.s.v}}").render(context), f"x{value}")
    assert same(compile_template("{{step.s.v}}{{step.s.v}}").render(context), value + value)


def test_c103_braces_directly_next_to_a_placeholder_are_read_right():
    body = '{"q":{{workflow_input.obj}},"e":{},"s":{{workflow_input.s | json}}}'
    context = {"workflow_input": {"obj": {"a": 1}, "s": 'quote " backslash \\ newline \n'}}
    rendered = compile_template(body).render(context)
    assert rendered.startswith('{"q":{"a": 1},"e":{},')
    assert json.loads(rendered) == {"q": {"a": 1}, "e": {}, "s": context["workflow_input"]["s"]}


def test_c103_three_closing_braces_end_a_reference_and_then_the_object():
    context = {"workflow_input": {"obj": {"a": {"b": 1}}}}
    assert compile_template('{"q":{{workflow_input.obj}}}').render(context) == '{"q":{"a": {"b": 1}}}'
    assert compile_template("{{{workflow_input.obj.a.b}}}").render(context) == "{1}"
    assert compile_template('{{ {"a": 1}.a }} {} { } {{{}}}').render(context) == '{{ {"a": 1}.a }} {} { } {{{}}}'


def test_c103_text_is_inserted_as_it_is_and_native_arguments_need_no_quoting():
    text = 'quote " backslash \\ newline \n'
    context = {"workflow_input": {"obj": {"a": 1}, "s": text}}
    assert compile_template('"{{workflow_input.s}}"').render(context) == f'"{text}"'
    native = compile_tree({"q": "{{workflow_input.obj}}", "e": {}, "s": "{{workflow_input.s}}"}).render(context)
    assert native == {"q": {"a": 1}, "e": {}, "s": text}
    assert json.loads(json.dumps(native)) == native
