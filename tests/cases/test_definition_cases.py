"""Failure cases of other engines that loading and checking a definition already settle."""

from __future__ import annotations

import json
import time
import tracemalloc
import unicodedata

import pytest

from stepwell.definition import LoadedWorkflow, load_text
from stepwell.definition.graph import order_block
from stepwell.errors import DefinitionError
from stepwell.kinds import discover

KINDS = discover()


def load(text: str) -> LoadedWorkflow:
    return load_text(text, file="f.yaml", kinds=KINDS)


def problems(text: str) -> list[str]:
    try:
        return [str(problem) for problem in load(text).warnings]
    except DefinitionError as error:
        return [str(problem) for problem in error.problems]


def workflow(*steps: dict) -> str:
    return json.dumps({"workflow": "w", "steps": list(steps)})


def values(name: str, **more: object) -> dict:
    return {"id": name, "type": "set", "values": {"x": 1}, **more}


def test_c070_a_step_named_as_fallback_is_no_root_of_the_graph_and_stands_in_for_the_step_that_names_it():
    text = workflow(
        {"id": "h1", "type": "tool_call", "tool": "t", "error_strategy": "fallback", "fallback_step": "f1"},
        {"id": "h2", "type": "tool_call", "tool": "t", "error_strategy": "fallback", "fallback_step": "f2"},
        {"id": "f1", "type": "tool_call", "tool": "t"},
        {"id": "f2", "type": "tool_call", "tool": "t"},
        {
            "id": "join",
            "type": "tool_call",
            "tool": "t",
            "depends_on": ["h1", "h2"],
            "arguments": {"a": "{{step.h1.v}}", "b": "{{step.h2.v}}"},
        },
    )
    assert not problems(text)
    from stepwell.definition.step import Step

    order = order_block(
        [
            Step.model_validate(
                {"id": "h1", "type": "x", "depends_on": [], "on_error": {"strategy": "fallback", "step": "f1"}}
            ),
            Step.model_validate({"id": "f1", "type": "x"}),
            Step.model_validate({"id": "join", "type": "x", "depends_on": ["h1"]}),
        ]
    )
    assert order.in_flow == (True, False, True)
    assert order.deps == ((), (), (0,))


def test_c073_a_parallel_without_branches_is_refused_and_an_empty_branch_is_told():
    assert "`branches` is empty" in problems("workflow: w\nsteps:\n- {id: p, type: parallel, branches: {}}")[0]
    assert (
        "warning[empty] this branch has no steps"
        in problems("workflow: w\nsteps:\n- {id: p, type: parallel, branches: {a: []}}")[0]
    )


@pytest.mark.parametrize(
    "text",
    [
        "workflow: w\nsteps:\n- {id: a, type: set, values: {}, depends_on: [a]}\n- {id: a, type: set, values: {}}",
        "workflow: w\nsteps:\n- {id: p, type: parallel, branches: {x: [{id: a, type: set, values: {}}], y: [{id: a, type: set, values: {}}]}}",
        "workflow: w\nsteps:\n- {id: c, type: condition, when: run.id == '', then: [{id: a, type: set, values: {}}], else: [{id: a, type: set, values: {}}]}",
        "workflow: w\nsteps:\n- {id: a, type: set, values: {}}\n- {id: l, type: loop, over: [1], steps: [{id: a, type: set, values: {}}]}",
        "workflow: w\nsteps:\n- {id: a, type: loop, over: [1], steps: [{id: a, type: set, values: {}}]}",
    ],
    ids=["one block", "branches", "then and else", "loop body", "the loop itself"],
)
def test_c074_duplicate_ids_are_refused_with_both_positions_in_any_blocks(text):
    found = [line for line in problems(text) if "duplicate_id" in line]
    assert len(found) == 1
    lines = text.split("\n")
    place = found[0].split(": ")[0].split(":")[1:]
    first = found[0].split("first at line ")[1].split("\n")[0].split(", column ")
    for line, column in (place, first):
        assert lines[int(line) - 1][int(column) - 1 :].startswith("a,")


def test_c074_a_self_dependency_is_seen_although_a_second_step_has_the_same_id():
    found = problems(
        "workflow: w\nsteps:\n- {id: a, type: set, values: {}, depends_on: [a]}\n- {id: a, type: set, values: {}}"
    )
    assert any("error[cycle] 'a' depends on itself" in line for line in found)


def test_c074_ids_that_differ_by_case_only_are_a_warning():
    found = problems("workflow: w\nsteps:\n- {id: ab, type: set, values: {}}\n- {id: aB, type: set, values: {}}")
    assert [line.split("[")[1].split("]")[0] for line in found] == ["similar_id"]


def layered() -> str:
    return workflow(
        *(
            values(f"s{layer}-{index}", depends_on=[f"s{layer - 1}-{other}" for other in range(10)] if layer else [])
            for layer in range(20)
            for index in range(10)
        )
    )


def in_a_line(*, graph: bool) -> str:
    steps = []
    for index in range(5000):
        step = {"id": f"s{index}", "type": "set", "values": {"x": f"{{{{step.s{index - 1}.x}}}}" if index else 1}}
        steps.append({**step, "depends_on": [f"s{index - 1}"]} if graph and index else step)
    return workflow(*steps)


def wide() -> str:
    names = [f"s{index}" for index in range(2000)]
    join = {
        "id": "join",
        "type": "set",
        "values": {name: f"{{{{step.{name}.x}}}}" for name in names},
        "depends_on": names,
    }
    return workflow(*(values(name, depends_on=[]) for name in names), join)


@pytest.mark.parametrize(
    "text",
    [layered(), in_a_line(graph=False), in_a_line(graph=True), wide()],
    ids=["layers", "sequence", "chain", "join"],
)
def test_c076_large_graphs_are_checked_in_linear_time(text):
    began = time.process_time()
    assert load(text).warnings == ()
    assert time.process_time() - began < 10  # one to two seconds; quadratic time would be minutes


def test_c076_a_cycle_of_five_thousand_steps_is_named_without_a_recursion_error():
    steps = [values(f"s{index}", depends_on=[f"s{(index + 1) % 5000}"]) for index in range(5000)]
    found = problems(workflow(*steps))
    assert len(found) == 1
    assert "these steps wait for each other: s0 -> s1 -> " in found[0]
    assert len(found[0]) < 400


@pytest.mark.parametrize("kind", ["condition", "loop", "parallel"])
@pytest.mark.parametrize("levels", [33, 66, 200, 3000])
def test_c079_deeply_nested_steps_are_refused_with_a_sentence(kind, levels):
    opening = {
        "condition": '{{"id": "s{}", "type": "condition", "when": "run.id == \'\'", "then": [',
        "loop": '{{"id": "s{}", "type": "loop", "over": [1], "steps": [',
        "parallel": '{{"id": "s{}", "type": "parallel", "branches": {{"b": [',
    }[kind]
    closing = "]}}" if kind == "parallel" else "]}"
    text = "".join(opening.format(level) for level in range(levels)) + json.dumps(values("leaf")) + closing * levels
    found = problems('{"workflow": "w", "steps": [' + text + "]}")
    assert len(found) == 1
    assert "error[depth]" in found[0]
    assert "nested more than" in found[0]


def test_c079_thirty_two_levels_are_allowed():
    step = values("leaf")
    for level in range(31):
        step = {"id": f"l{level}", "type": "loop", "over": [1], "steps": [step]}
    assert problems(workflow(step)) == []


def test_c094_a_step_that_may_be_skipped_in_this_iteration_is_told_before_the_run():
    text = "workflow: w\nsteps:\n- id: L\n  type: loop\n  over: [{go: true}, {go: false}]\n  steps:\n  - {id: maybe, type: tool_call, tool: t, condition: loop_item.go}\n  - {id: use, type: tool_call, tool: t, arguments: {v: '{{step.maybe.v}}'}}"
    assert ["step 'maybe' may be skipped" in line for line in problems(text)] == [True]


@pytest.mark.parametrize("value", [0, 0.0, False, "", None, [], {}])
def test_c095_falsy_values_are_kept_by_the_loader_with_their_type(value):
    loaded = load(workflow({"id": "s", "type": "set", "values": {"v": value}}))
    found = loaded.data["steps"][0]["values"]["v"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "name",
    ["a.b", "1st", "步骤一", "é", unicodedata.normalize("NFD", "é"), "__class__", "", " x ", "a" * 200, "a/b", "a#2"],
)
def test_c097_an_id_that_could_be_misread_is_refused_with_the_allowed_characters(name):
    found = problems(workflow(values(name)))
    assert len(found) == 1
    assert "error[id]" in found[0]
    assert "letters, digits, _ and -, at most 64 characters" in found[0]


@pytest.mark.parametrize("name", ["fetch-lead", "true", "step", "null", "a_b-c-1", "A" * 64])
def test_c097_every_id_that_is_accepted_can_be_referred_to(name):
    text = workflow(
        values(name),
        {
            "id": "use",
            "type": "set",
            "condition": f'steps["{name}"].result.x > 0.5',
            "values": {"v": f"{{{{step.{name}.x}}}}"},
        },
    )
    assert problems(text) == []


@pytest.mark.parametrize(
    "written", ["007", "1_000", "0x10", "+48100200300", "2024-01-02", "0011101.001", "123_123_123"]
)
def test_c100_text_that_only_looks_like_a_number_stays_text_in_a_definition(written):
    loaded = load(f"workflow: w\nsteps:\n- {{id: s, type: set, values: {{v: {written}}}}}")
    assert loaded.data["steps"][0]["values"]["v"] == written


def test_c100_large_integers_are_kept_exactly():
    for text in ("9007199254740993", "1458059302022549698"):
        loaded = load(f"workflow: w\nsteps:\n- {{id: s, type: set, values: {{v: {text}}}}}")
        assert json.dumps(loaded.data["steps"][0]["values"]["v"]) == text


STEP = "- {id: t, type: tool_call, tool: t, arguments: {a: 1}}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"workflow: w\nsteps:\n{STEP}\nsteps:\n{STEP}", "f.yaml:4:1: error[duplicate_key] the key 'steps' is written twice; first at line 2, column 1"),
        ("workflow: w\nsteps:\n- {id: t, type: tool_call, tool: t, arguments: {a: 1}, arguments: {b: 1}}", "f.yaml:3:56: error[duplicate_key] the key 'arguments' is written twice; first at line 3, column 37"),
        (f"workflow: w\nbase: &b {{a: 1}}\nsteps:\n{STEP}\ndefaults:\n  <<: *b", "f.yaml:6:3: error[yaml] merge keys (<<) are not part of YAML 1.2"),
        (f"workflow: w\nsteps:\n\t{STEP}", "f.yaml:3:1: error[yaml] a tab where only spaces may stand"),
        (f"workflow: w\nsteps:\n{STEP}\n---\nworkflow: v", "f.yaml:4:1: error[yaml] a second document begins here"),
        (f"workflow: w\nsteps:\n{STEP}\nname: !!python/object/apply:os.system ['touch hacked']", "f.yaml:4:7: error[yaml] tags are not used in definitions"),
    ],
    ids=["steps", "arguments", "merge", "tab", "documents", "tag"],
)  # fmt: skip
def test_c112_ambiguous_and_dangerous_yaml_is_refused_with_line_numbers(text, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert any(line.startswith(said) for line in problems(text)), problems(text)
    assert [*tmp_path.iterdir()] == []


def bomb() -> str:
    lines = [
        "a: &a [x, x]",
        *(
            f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]"
            for before, name in zip("abcdefghi", "bcdefghij", strict=True)
        ),
    ]
    return "\n".join(lines)


def merge_bomb() -> str:
    return "a: &a {k: 1}\n" + "\n".join(
        f"m{index}: &m{index}\n  <<: [{', '.join([f'*m{index - 1}' if index else '*a'] * 9)}]" for index in range(9)
    )


@pytest.mark.parametrize(
    "text", [bomb(), merge_bomb(), "a: " + "x" * 30_000_000], ids=["aliases", "merge keys", "30 MB"]
)
def test_c112_bombs_are_refused_quickly_and_in_little_memory(text):
    tracemalloc.start()
    began = time.process_time()
    found = problems(text)
    seconds, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert any("error[size]" in line for line in found)
    assert seconds < 8
    assert peak < 50_000_000


def test_c112_small_ordinary_anchors_byte_order_marks_and_windows_line_ends_work():
    text = "\ufeffworkflow: w\r\nsteps:\r\n- {id: a, type: tool_call, tool: t, retry: &r {max_attempts: 2}}\r\n- {id: b, type: tool_call, tool: t, retry: *r}\r\n"
    assert load(text).data["steps"][1]["retry"] == {"max_attempts": 2}
