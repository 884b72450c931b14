"""The language as JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from stepwell.definition import load_text, yaml_text
from stepwell.definition.positions import plain
from stepwell.definition.report import Report
from stepwell.definition.schema import recipe_schema, workflow_schema
from stepwell.errors import DefinitionError
from stepwell.kinds import discover

ROOT = Path(__file__).parents[2]
KINDS = discover()
WORKFLOW = workflow_schema(KINDS)
RECIPE = recipe_schema()
FILES = sorted(
    path
    for folder in ("examples", "src/stepwell/cli/project")
    for path in (ROOT / folder).rglob("*.y*ml")
    if not {"tickets", "tests"} & set(path.relative_to(ROOT).parts)
    if not path.name.endswith((".test.yaml", "people.yaml"))
)
HEAD = "workflow: w\nsteps:\n"


def data(text: str):
    report = Report("f.yaml")
    found = plain(yaml_text.compose(text, report))
    assert not report.has_errors
    return found


def problems(value, schema=WORKFLOW) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(value)]


@pytest.mark.parametrize("schema", [WORKFLOW, RECIPE], ids=["workflow", "recipe"])
def test_the_schema_is_one_of_the_draft_that_it_names_and_refers_to_nothing_outside(schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    references = set(json.dumps(schema).split('"$ref": "')[1:])
    assert all(reference.startswith("#/$defs/") for reference in references)
    for reference in references:
        assert reference.partition('"')[0].removeprefix("#/$defs/") in schema["$defs"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_example_is_right(file):
    found = data(file.read_text("utf-8"))
    assert problems(found, RECIPE if "recipe" in found else WORKFLOW) == []


def test_every_kind_is_a_choice_with_its_own_fields_and_says_what_it_does():
    mapping = WORKFLOW["$defs"]["Step"]["discriminator"]["mapping"]
    assert sorted(mapping) == sorted(KINDS.names())
    for word, reference in mapping.items():
        own = WORKFLOW["$defs"][reference.rpartition("/")[2]]
        assert own["description"]
        assert own["additionalProperties"] is False
        model = KINDS.get(word)
        assert set(own["properties"]) == {field.alias or name for name, field in model.model_fields.items()}


RIGHT = [
    "- {id: a, type: set, values: {x: [1, {y: '{{run.id}}'}]}, condition: true, depends_on: []}",
    "- {id: a, type: wait, for: 30}",
    "- {id: a, type: wait, until: '2030-01-01T00:00:00Z'}",
    "- {id: a, type: loop, over: [1, 2], steps: [{id: b, type: set, values: {}}], tolerate: 5%}",
    "- {id: a, type: loop, until: 'true', max_iterations: 3, steps: [{id: b, type: set, values: {}}]}",
    "- {id: a, type: parallel, mode: {quorum: 1}, branches: {x: [{id: b, type: set, values: {}}], y: []}}",
    "- {id: a, type: condition, when: 1 == 1, then: [{id: b, type: set, values: {}}], else: []}",
    "- {id: a, type: condition, cases: [{when: 1 == 1, steps: []}], else: [{id: b, type: set, values: {}}]}",
    "- {id: a, type: tool_call, tool: t, retry: {max_attempts: 2, jitter: full, initial_delay: PT1S}, timeout: 5}",
    "- {id: a, type: tool_call, tool: t, on_error: continue}",
    "- {id: a, type: tool_call, tool: t, on_error: {strategy: continue, default: {x: 1}, errors: [timeout]}}",
    "- {id: a, type: tool_call, tool: t, on_error: [fail, {strategy: fail, when: error.kind == 'x'}]}",
    "- {id: a, type: tool_call, tool: t, on_error: [{goto: b, max_rounds: 2}, {fallback: c}]}",
    "- {id: a, type: tool_call, tool: t, on_error: {strategy: fallback, steps: [{id: b, type: set, values: {}}]}}",
    "- {id: a, type: tool_call, tool: t, compensate: {steps: [{id: b, type: set, values: {}}]}}",
    "- {id: a, type: tool_call, tool: t, compensate: {step: c}}",
    "- {id: a, type: tool_call, tool: t, verify: {steps: [{id: b, type: tool_call, tool: u}], took_effect: true}}",
    "- {id: a, type: tool_call, tool: t, verify: {steps: [{id: b, type: wait, for: 1}], took_effect: call.key == ''}}",
    "- {id: a, type: approval, title: x, require: any, approvers: {users: ['{{workflow_input.x}}']}, expires_in: 7d}",
]


@pytest.mark.parametrize("text", RIGHT)
def test_what_the_loader_takes_in_canonical_words_the_schema_takes(text):
    tail = "\n- {id: c, type: set, values: {}}\n" if "c}" in text else "\n"
    text = f"{HEAD}{'- {id: b, type: set, values: {}}' if 'goto' in text else ''}\n{text}{tail}"
    load_text(text, file="f.yaml", kinds=KINDS)
    assert problems(data(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "- {id: a, type: nope}",
        "- {id: a, type: set}",
        "- {type: set, values: {}}",
        "- {id: a b, type: set, values: {}}",
        "- {id: a, type: set, values: {}, valeus: {}}",
        "- {id: a, type: wait, expires_in: [1]}",
        "- {id: a, type: loop, over: [1], steps: []}",
        "- {id: a, type: loop, over: [1], steps: [{id: b, type: set}]}",
        "- {id: a, type: parallel, branches: {}}",
        "- {id: a, type: tool_call, tool: t, retry: {max_attempts: 0}}",
        "- {id: a, type: tool_call, tool: t, on_error: ignore}",
        "- {id: a, type: tool_call, tool: t, on_error: {default: 1}}",
        "- {id: a, type: tool_call, tool: t, on_error: fallback}",
        "- {id: a, type: tool_call, tool: t, on_error: {fallback: 5}}",
        "- {id: a, type: tool_call, tool: t, on_error: {strategy: fallback, steps: [{id: b, type: set}]}}",
        "- {id: a, type: tool_call, tool: t, compensate: undo}",
        "- {id: a, type: tool_call, tool: t, compensate: {step: b, steps: [{id: c, type: set, values: {}}]}}",
        "- {id: a, type: tool_call, tool: t, compensate: {steps: []}}",
        "- {id: a, type: tool_call, tool: t, verify: {steps: [{id: b, type: set, values: {}}]}}",
        "- {id: a, type: tool_call, tool: t, verify: {steps: [], took_effect: 1 == 1}}",
        "- {id: a, type: approval, on_expire: maybe}",
    ],
)
def test_what_the_schema_refuses_the_loader_refuses_too(text):
    assert problems(data(HEAD + text))
    with pytest.raises(DefinitionError):
        load_text(HEAD + text, file="f.yaml", kinds=KINDS)


def test_a_recipe_has_a_prompt_and_a_classifier_has_labels():
    assert problems({"recipe": "r", "prompt": "x", "model": "small", "version": 2}, RECIPE) == []
    assert problems({"recipe": "r"}, RECIPE)
    assert problems({"recipe": "r", "prompt": "x", "task": "classify"}, RECIPE)
    assert problems({"recipe": "r", "prompt": "x", "task": "classify", "labels": {"a": {}}}, RECIPE) == []
