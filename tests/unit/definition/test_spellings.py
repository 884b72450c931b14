"""The words of the two source designs, and the canonical words they become."""

from __future__ import annotations

import pytest

from stepwell.definition import from_data
from stepwell.expressions import compile_tree

SECOND = """\
workflow_id: order
name: Order
global_timeout_ms: 60000
default_error_strategy: fail
steps:
- step_id: fetch
  type: tool_call
  tool: fetch
  timeout_ms: 1500
  retry_policy: {max_retries: 2, initial_delay_ms: 250, max_delay_ms: 4000, backoff_multiplier: 3, retryable_errors: [timeout]}
- step_id: ask
  type: human_approval
  depends_on: [fetch]
  config: {title: Sure, timeout_ms: 3600000}
  error_strategy: continue
"""
FIRST = """\
workflow: w
steps:
- id: a
  type: tool_call
  config:
    tool: t
    arguments: {camelCase: 1, config: {x: 1}, source: {source: static, value: 1}}
- id: c
  type: condition
  config:
    condition: step.a.ok == true
    thenSteps: [{id: t, type: llmCall, config: {prompt: hi, maxTokens: 5}}]
    elseSteps: [{id: e, type: recipe, recipe: r, inputMapping: {x: {source: workflowInput, path: a.b}, y: {source: previousStep, step: a, path: rows.0.full-name}}}]
- id: l
  type: loop
  over: step.a.rows
  steps: [{id: i, type: recipe, recipe: r, inputMapping: {item: {source: loopItem}, part: {source: loopItem, path: "k[0]['x y']"}}}]
"""


def test_the_second_design_loads_as_it_is_written(loader):
    assert loader.load(SECOND).data == {
        "workflow": "order",
        "name": "Order",
        "timeout": 60,
        "version": "1.0",
        "defaults": {
            "on_error": "fail",
            "timeout": 30,
            "retry": {"max_attempts": 4, "initial_delay": 1, "on": ["timeout", "rate_limit", "connection_error"]},
        },
        "steps": [
            {
                "id": "fetch",
                "type": "tool_call",
                "tool": "fetch",
                "timeout": 1.5,
                "retry": {"max_attempts": 3, "initial_delay": 0.25, "max_delay": 4, "multiplier": 3, "on": ["timeout"]},
                "depends_on": [],
            },
            {
                "id": "ask",
                "type": "approval",
                "depends_on": ["fetch"],
                "title": "Sure",
                "expires_in": 3600,
                "on_error": "continue",
            },
        ],
    }


def test_the_second_design_brings_its_own_defaults(loader):
    found = loader.load("workflow_id: w\nsteps: [{step_id: a, type: set, values: {}}]")
    assert not found.warnings
    assert found.data["defaults"]["on_error"] == "suspend"
    assert found.data["steps"][0]["depends_on"] == []
    assert found.data["defaults"]["timeout"] == 30
    assert found.data["defaults"]["retry"]["max_attempts"] == 4


def test_the_first_design_loads_as_it_is_written(loader):
    steps = loader.load(FIRST).data["steps"]
    assert steps[0] == {
        "id": "a",
        "type": "tool_call",
        "tool": "t",
        "arguments": {"camelCase": 1, "config": {"x": 1}, "source": {"source": "static", "value": 1}},
    }
    assert steps[1] == {
        "id": "c",
        "type": "condition",
        "when": "step.a.ok == true",
        "then": [{"id": "t", "type": "llm_call", "prompt": "hi", "max_tokens": 5}],
        "else": [
            {
                "id": "e",
                "type": "recipe",
                "recipe": "r",
                "inputs": {"x": "{{ workflow_input.a.b }}", "y": '{{ step.a.rows.0["full-name"] }}'},
            }
        ],
    }
    assert steps[2]["steps"][0]["inputs"] == {"item": "{{ loop_item }}", "part": '{{ loop_item.k.0["x y"] }}'}


def test_translated_definitions_are_rebuilt_from_their_data(loader):
    for text in (FIRST, SECOND):
        loaded = loader.load(text)
        assert from_data(loaded.data, loader.kinds) == loaded.workflow


def test_a_spelling_does_not_change_the_digest(loader):
    plain = "workflow: w\nsteps:\n- {id: a, type: approval, title: t, expires_in: 30}\n- {id: b, type: tool_call, tool: t, retry: {max_attempts: 3}}\n"
    spelt = "workflow: w\nsteps:\n- {id: a, type: human_approval, config: {title: t, timeoutMs: 30000}}\n- {id: b, type: toolCall, toolName: t, retryPolicy: {maxRetries: 2}}\n"
    assert loader.load(plain).digest == loader.load(spelt).digest


@pytest.mark.parametrize("value", [0, 0.0, False, "", None, [], {}])
@pytest.mark.parametrize("source", ["workflow_input", "loop_item", "previous_step"])
def test_a_default_applies_only_when_the_key_is_absent(loader, source, value):
    mapping = f"{{source: {source}, step: p, path: a, default: 99}}"
    text = f"- {{id: p, type: tool_call, tool: t}}\n- {{id: l, type: loop, over: [1], steps: [{{id: i, type: recipe, recipe: r, inputs: {{x: {mapping}}}}}]}}"
    loaded = loader.load(f"workflow: w\nsteps:\n{text}")
    tree = compile_tree(loaded.data["steps"][1]["steps"][0]["inputs"])
    for data, expected in (({"a": value}, value), ({}, 99)):
        found = tree.render({"workflow_input": data, "loop_item": data, "step": {"p": data}})["x"]
        assert found == expected
        assert type(found) is type(expected)


@pytest.mark.parametrize("default", ["text", 'quo"te }} {{x}}', "ü\n\\", None, [1, {"a": {"b": "}}"}}], {}, 1.5, True])
def test_any_json_value_is_a_default(loader, default):
    import json

    text = json.dumps(
        {
            "workflow": "w",
            "steps": [
                {
                    "id": "r",
                    "type": "recipe",
                    "recipe": "r",
                    "inputs": {"x": {"source": "workflow_input", "path": "a", "default": default}},
                }
            ],
        }
    )
    data = loader.load(text, file="a.json").data["steps"][0]["inputs"]
    assert compile_tree(data).render({"workflow_input": {}})["x"] == default


@pytest.mark.parametrize(
    "value", ["{{step.a}}", "\\{{x}}", "a {{ b }} c {{{d}}}", "{{", {"deep": ["{{workflow_input.x}}"]}, 5, None]
)
def test_a_static_value_is_never_a_template(loader, value):
    import json

    text = json.dumps(
        {
            "workflow": "w",
            "steps": [
                {"id": "r", "type": "recipe", "recipe": "r", "inputs": {"x": {"source": "static", "value": value}}}
            ],
        }
    )
    data = loader.load(text, file="a.json").data["steps"][0]["inputs"]
    assert compile_tree(data).render({})["x"] == value


def test_the_previous_step_is_the_one_written_before(loader):
    text = "workflow: w\nsteps:\n- {id: a, type: tool_call, tool: t}\n- {id: r, type: recipe, recipe: r, inputs: {x: {source: previous_step, path: v}}}"
    assert loader.load(text).data["steps"][1]["inputs"] == {"x": "{{ step.a.v }}"}


def test_what_only_looks_like_an_explicit_form_is_data(loader):
    inputs = {"a": {"source": "web", "path": "x"}, "b": {"source": "workflow_input", "other": 1}, "c": {"source": 5}}
    text = f"workflow: w\nsteps:\n- {{id: r, type: recipe, recipe: r, inputs: {inputs}}}"
    assert loader.load(text).data["steps"][0]["inputs"] == inputs


def test_a_tool_call_takes_inputs_for_arguments(loader):
    text = "workflow: w\nsteps:\n- {id: r, type: tool_call, tool: t, inputs: {x: {source: workflow_input, path: v}}}"
    assert loader.load(text).data["steps"][0] == {
        "id": "r",
        "type": "tool_call",
        "tool": "t",
        "arguments": {"x": "{{ workflow_input.v }}"},
    }


def test_fallback_and_compensation_of_the_second_design_become_rules(loader):
    found = loader.steps(
        "- {id: a, type: tool_call, tool: t, error_strategy: fallback, fallback_step: f, compensation_step: u}\n"
        "- {id: f, type: set, values: {}}\n- {id: u, type: set, values: {}}\n- {id: b, type: set, values: {v: '{{step.f}}'}}"
    )
    assert [line.split("\n")[0] for line in found] == [
        "f.yaml:6:42: error[order] step 'f' does not run before this one",
    ]
    assert "use that step's output" in found[0]
