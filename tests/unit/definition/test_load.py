"""Loading: files, formats, limits, all problems at once, and what a loaded workflow is."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.definition import from_data, load_file, load_recipe_file, load_recipe_text, load_text
from stepwell.errors import DefinitionError
from stepwell.kinds import discover

RICH = """\
workflow: rich
name: Rich
version: 1.10
input:
  type: object
  required: [ticket]
  properties: {ticket: {type: string}, rows: {type: array, items: {type: object}}}
timeout: 5m
defaults: {timeout: 60s, retry: {max_attempts: 3}, on_error: fail}
steps:
  - id: draft
    type: llm_call
    prompt: |
      Answer {{workflow_input.ticket}}
    output_schema: {type: object, properties: {label: {enum: [a, b]}, score: {type: number}}}
  - id: choose
    type: condition
    when: step.draft.label == "a"
    then:
      - {id: ask, type: approval, title: "ok?", expires_in: 2h}
    else:
      - {id: write, type: kb_write, document: notes, content: "{{step.draft.score}}"}
  - id: each
    type: loop
    over: workflow_input.rows
    as: row
    key: row.id
    steps:
      - {id: look, type: tool_call, tool: look, arguments: {row: "{{row}}", deep: [{n: "{{loop.index}}"}]}}
    output: "{{step.look}}"
  - id: both
    type: parallel
    branches:
      left: [{id: l, type: set, values: {x: 1}}]
      right: [{id: r, type: wait, for: 5s}]
  - id: done
    type: end
    output: {all: "{{step.each}}", l: "{{step.l.x}}"}
output: {label: "{{step.draft.label}}"}
"""
MINIMAL = "workflow: w\nsteps: [{id: a, type: set, values: {v: 1}}]\n"


def test_a_workflow_loads_and_its_data_rebuilds_it(loader):
    loaded = loader.load(RICH)
    assert loaded.warnings == ()
    assert loaded.workflow.workflow == "rich"
    assert loaded.workflow.version == "1.10"
    assert from_data(json.loads(json.dumps(loaded.data)), loader.kinds) == loaded.workflow
    assert loaded.positions.place(("steps", 0, "prompt"), 10) == (14, 17)


def test_yaml_and_json_give_the_same_workflow(loader):
    loaded = loader.load(RICH)
    as_json = loader.load(json.dumps(loaded.data))
    assert as_json.workflow == loaded.workflow
    assert as_json.digest == loaded.digest


def test_json_is_chosen_by_the_name_or_by_a_leading_brace(loader):
    assert loader.problems("{workflow: w}", file="a.json")[0].startswith("a.json:1:2: error[json]")
    assert "2:3: error[json]" in loader.problems("\n {workflow: w}", file="")[0]
    assert "error[required]" in loader.problems("{workflow: w}", file="a.yaml")[0]


def test_a_file_is_read_with_its_byte_order_mark_and_line_ends(tmp_path, loader):
    path = tmp_path / "w.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + RICH.replace("\n", "\r\n").encode())
    assert load_file(path, kinds=loader.kinds).digest == loader.load(RICH).digest


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"workflow: w\nname: \xff\n", "error[file] the file is not UTF-8\n    hint: save it as UTF-8"),
        (b"\xff\xfew\x00", "error[file] the file is not UTF-8\n    hint: save it as UTF-8"),
        (b"a: " + b"x" * 2_000_000, "error[size] the file is larger than 2 MB\n    hint: split it"),
        (b"a: " + "ä".encode() * 1_000_000, "error[size] the file is larger than 2 MB\n    hint: split it"),
    ],
)
def test_files_that_cannot_be_read_are_problems_too(tmp_path, loader, content, problem):
    path = tmp_path / "w.yaml"
    path.write_bytes(content)
    with pytest.raises(DefinitionError) as caught:
        load_file(path, kinds=loader.kinds)
    assert [str(found).split(": ", 1)[1] for found in caught.value.problems] == [problem]


def test_a_file_that_is_not_there_is_a_problem(tmp_path, loader):
    with pytest.raises(DefinitionError) as caught:
        load_file(tmp_path / "none.yaml", kinds=loader.kinds)
    assert caught.value.problems[0].code == "file"
    with pytest.raises(DefinitionError):
        load_file(tmp_path, kinds=loader.kinds)


def test_problems_of_every_family_come_at_once(loader):
    text = """\
workflow: w
surprise: 1
input: {type: objekt}
steps:
  - {id: a, type: tool_call, arguments: {x: "{{step.zzz}}"}}
  - {id: a, type: set, values: {v: "{{step.}}"}, condition: "1 +"}
  - {id: b, type: nope, steps: [{id: inner, type: set, values: {}}]}
  - {id: c, type: set, values: {v: "{{step.inner}} {{step.b.x}}"}, depends_on: [b, q]}
a: 1
a: 2
"""
    codes = [line.split("[")[1].split("]")[0] for line in loader.problems(text)]
    assert sorted(codes) == sorted(
        [
            "unknown_key",
            "schema",
            "required",
            "step",
            "duplicate_id",
            "step",
            "syntax",
            "step_type",
            "dependency",
            "unknown_key",
            "duplicate_key",
        ]
    )


def test_a_broken_step_does_not_make_references_to_it_unknown(loader):
    found = loader.steps(
        "- {id: a, type: nope}\n- {id: 1x, type: set, values: {}}\n- {id: b, type: set, values: {v: '{{step.a.x}}'}}"
    )
    assert [line.split("[")[1].split("]")[0] for line in found] == ["step_type", "id"]


def test_positions_inside_block_scalars_point_at_the_character(loader):
    text = """\
workflow: w
steps:
  - id: a
    type: llm_call
    prompt: >-
      Some words
      and {{workflow_input.x}}
      then {{step.nope}}
    system: "tab\\t {{step.nope2}}"
"""
    assert [line.split(": ")[0] for line in loader.problems(text)] == ["f.yaml:8:19", "f.yaml:9:27"]


def test_pointers_are_those_of_the_file_as_it_was_written(loader):
    text = "workflow: w\nsteps:\n- {id: a, type: llm_call, config: {prompt: '{{step.x}}', maxTokens: many}}\n"
    with pytest.raises(DefinitionError) as caught:
        loader.load(text)
    assert [problem.path for problem in caught.value.problems] == [
        "/steps/0/config/prompt",
        "/steps/0/config/maxTokens",
    ]


def test_names_with_slashes_are_escaped_in_pointers(loader):
    with pytest.raises(DefinitionError) as caught:
        loader.load("workflow: w\nsteps: [{id: a, type: set, values: {'x/y~z': '{{step.q}}'}}]")
    assert caught.value.problems[0].path == "/steps/0/values/x~1y~0z"


def test_thousands_of_problems_are_counted_not_listed(loader):
    steps = "\n".join(f"- {{id: s{index}, type: set, values: {{}}, bad: 1}}" for index in range(1500))
    found = loader.steps(steps)
    assert len(found) == 1001
    assert found[-1] == "f.yaml: note[more] and 500 more problems"


def test_a_recipe_loads_with_the_same_care(tmp_path):
    good = "recipe: r\nversion: 1.10\nprompt: Say {{input.x}}\ninput: {type: object, properties: {x: {type: string}}}\n"
    assert load_recipe_text(good).version == "1.10"
    path = tmp_path / "r.yaml"
    path.write_text(good)
    assert load_recipe_file(path).recipe == "r"
    with pytest.raises(DefinitionError) as caught:
        load_recipe_text(
            "recipe: R\nprompt: 'x {{input.}} {{step.a}}'\ntask: clasify\nlabels: {a: {descr: x}}\n", file="r.yaml"
        )
    assert [str(problem).split("\n")[0] for problem in caught.value.problems] == [
        "r.yaml:1:9: error[id] 'R' is not an id",
        "r.yaml:2:20: error[syntax] a field name must follow '.'",
        "r.yaml:3:7: error[value] `task`: 'clasify' is not one of: generate, classify, extract_summary",
        "r.yaml:4:14: error[unknown_key] unknown key 'descr' in `a`",
    ]
    with pytest.raises(DefinitionError) as caught:
        load_recipe_text(
            "recipe: r\nprompt: '{{step.a}} {{input.y}}'\ninput: {type: object, properties: {x: {}}, additionalProperties: false}\n"
        )
    assert [problem.code for problem in caught.value.problems] == ["step", "path"]


def attempted(text):
    """What a text loads as, or None, and its problems."""
    try:
        loaded = load_text(text, kinds=discover())
    except DefinitionError as error:
        return None, error.problems
    return loaded, loaded.warnings


def mutated(data, rng):
    """A copy of `data` with a few random changes."""
    text = json.loads(json.dumps(data))
    strange = [
        None,
        True,
        5,
        -1.5,
        "",
        "x",
        "{{step.a}}",
        "{{",
        [],
        {},
        [[]],
        {"id": "a"},
        {"type": "set"},
        ["a"],
        "a" * 200,
        "\u0000",
    ]
    for _ in range(rng.randint(1, 4)):
        node = text
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = rng.choice(keys)
            inner = node[key]
            if isinstance(inner, dict | list) and inner and rng.random() < 0.75:
                node = inner
                continue
            action = rng.random()
            if action < 0.5:
                node[key] = copy.deepcopy(rng.choice(strange))
            elif action < 0.7:
                del node[key]
            elif isinstance(node, dict):
                node[
                    rng.choice(
                        [
                            "id",
                            "type",
                            "steps",
                            "x",
                            "on_error",
                            "retry",
                            "depends_on",
                            "branches",
                            "then",
                            "compensate",
                            "join",
                        ]
                    )
                ] = copy.deepcopy(rng.choice(strange))
            else:
                node.append(copy.deepcopy(rng.choice([*strange, inner])))
            break
    return text


@given(st.integers(0, 2**32))
@settings(max_examples=400, deadline=None)
def test_no_mutation_of_a_valid_file_raises_anything_but_definition_error(seed):
    rng = random.Random(seed)
    kinds = discover()
    base = mutated(yaml.safe_load(RICH.replace("1.10", '"1"')), rng)
    loaded, found = attempted(json.dumps(base))
    assert (loaded is None) == any(problem.severity == "error" for problem in found)
    assert all(problem.message and "Input should" not in problem.message for problem in found)
    if loaded is None:
        return
    assert from_data(loaded.data, kinds) == loaded.workflow


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_change_of_characters_raises_anything_but_definition_error(data):
    start = data.draw(st.integers(0, len(RICH) - 1))
    end = data.draw(st.integers(start, min(len(RICH), start + 20)))
    text = RICH[:start] + data.draw(st.text(max_size=6)) + RICH[end:]
    loaded, found = attempted(text)
    assert (loaded is None) == any(problem.severity == "error" for problem in found)


def test_importing_the_loader_does_not_import_what_is_heavy():
    code = "import sys, stepwell.definition; print([name for name in ('jsonschema', 'asyncio', 'sqlite3', 'httpx') if name in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_a_large_file_of_problems_is_refused_in_time(loader):
    steps = "\n".join(
        f"- {{id: s{index}, type: tool_call, tool: t, arguments: {{a: '{{{{step.s{index + 1}.x}}}}'}}}}"
        for index in range(2000)
    )
    began = time.process_time()
    assert len(loader.steps(steps)) > 1000
    assert time.process_time() - began < 15
