"""What steps see of one another, and what blocks show outside."""

from __future__ import annotations

import itertools

import pytest

from stepwell.definition.visibility import exports, references

SET = "type: set, values: {v: 1}"


def codes(found: list[str]) -> list[str]:
    return [line.split("[")[1].split("]")[0] for line in found]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # a sequence
        (f"- {{id: a, {SET}}}\n- {{id: b, type: set, values: {{w: '{{{{step.a.v}}}}'}}}}", []),
        # transitively upstream in a graph
        (f"- {{id: a, {SET}, depends_on: []}}\n- {{id: m, {SET}, depends_on: [a]}}\n- {{id: b, type: set, values: {{w: '{{{{step.a.v}}}}'}}, depends_on: [m]}}", []),
        # inside a taken branch and from after the condition, with a warning there
        (f"- {{id: c, type: condition, when: run.id == 'x', then: [{{id: a, {SET}}}, {{id: b, type: set, values: {{w: '{{{{step.a.v}}}}'}}}}]}}", []),
        (f"- {{id: c, type: condition, when: run.id == 'x', then: [{{id: a, {SET}}}]}}\n- {{id: b, type: set, values: {{w: '{{{{step.a.v}}}}'}}}}", ["missing"]),
        (f"- {{id: c, type: condition, when: run.id == 'x', then: [{{id: a, {SET}}}]}}\n- {{id: b, type: set, values: {{w: '{{{{step.a.v ?? null}}}}'}}}}", []),
        (f"- {{id: c, type: condition, when: run.id == 'x', then: [{{id: a, {SET}}}]}}\n- {{id: b, type: set, values: {{w: '{{{{step.a.v}}}}'}}, condition: steps.a.status == 'completed'}}", []),
        # parallel branches run whenever the parallel does
        (f"- {{id: p, type: parallel, branches: {{x: [{{id: a, {SET}}}]}}}}\n- {{id: b, type: set, values: {{w: '{{{{step.a.v}}}}'}}}}", []),
        # a step upstream of an enclosing block
        (f"- {{id: a, {SET}}}\n- {{id: p, type: parallel, branches: {{x: [{{id: l, type: loop, over: [1], steps: [{{id: b, type: set, values: {{w: '{{{{step.a.v}}}}'}}}}]}}]}}}}", []),
        # the same iteration, the loop's own output and until
        (f"- {{id: l, type: loop, over: [1], steps: [{{id: a, {SET}}}, {{id: b, type: set, values: {{w: '{{{{step.a.v}}}}'}}}}], output: '{{{{step.b.w}}}}'}}", []),
        (f"- {{id: l, type: loop, until: step.a.v > 3, max_iterations: 2, steps: [{{id: a, {SET}}}]}}", []),
        # the key sees the item, but no step of the body
        (f"- {{id: l, type: loop, over: [1], key: loop_item, steps: [{{id: a, {SET}}}]}}", []),
        (f"- {{id: l, type: loop, over: [1], key: step.a.v, steps: [{{id: a, {SET}}}]}}", ["order"]),
        (f"- {{id: l, type: loop, over: loop_item, steps: [{{id: a, {SET}}}]}}", ["scope"]),
        # nested loops
        ("- {id: o, type: loop, over: [[1]], as: row, steps: [{id: i, type: loop, over: loop_item, as: cell, steps: [{id: a, type: set, values: {v: '{{row}} {{cell}} {{loop.parent.index}}'}}]}]}", []),
        # the only dependency has completed if this step runs
        (f"- {{id: a, {SET}, condition: workflow_input.x == 1, depends_on: []}}\n- {{id: b, type: set, values: {{w: '{{{{step.a.v}}}}'}}, depends_on: [a]}}", []),
        (f"- {{id: a, {SET}, condition: workflow_input.x == 1, depends_on: []}}\n- {{id: o, {SET}}}\n- {{id: b, type: set, values: {{w: '{{{{step.a.v}}}}'}}, depends_on: [a, o]}}", ["missing"]),
        (f"- {{id: a, {SET}, condition: workflow_input.x == 1, depends_on: []}}\n- {{id: o, {SET}}}\n- {{id: b, type: set, join: all_completed, values: {{w: '{{{{step.a.v}}}}'}}, depends_on: [a, o]}}", []),
        (f"- {{id: a, {SET}, condition: workflow_input.x == 1, depends_on: []}}\n- {{id: b, type: set, join: all_settled, values: {{w: '{{{{step.a.v}}}}'}}, depends_on: [a]}}", ["missing"]),
        # the dead path carries on: m may be skipped because a may be
        (f"- {{id: a, {SET}, condition: workflow_input.x == 1, depends_on: []}}\n- {{id: m, {SET}, depends_on: [a]}}\n- {{id: o, {SET}}}\n- {{id: b, type: set, values: {{w: '{{{{step.m.v}}}}'}}, depends_on: [m, o]}}", ["missing"]),
        # the same condition
        (f"- {{id: a, {SET}, condition: workflow_input.x == 1}}\n- {{id: b, type: set, values: {{w: '{{{{step.a.v}}}}'}}, condition: workflow_input.x == 1}}", []),
        # the record of a skipped step is always there
        (f"- {{id: a, {SET}, condition: workflow_input.x == 1}}\n- {{id: b, type: set, values: {{w: '{{{{steps.a.status}}}}'}}}}", []),
        # a step that merely finished early
        (f"- {{id: a, {SET}, depends_on: []}}\n- {{id: b, type: set, values: {{w: '{{{{step.a.v}}}}'}}, depends_on: []}}", ["order"]),
        # error exists in on_error.when and retry.when only
        ("- {id: a, type: tool_call, tool: t, on_error: [{errors: [x], when: 'error.kind == \"x\"', strategy: continue}]}", ["policy"]),
        ("- {id: a, type: tool_call, tool: t, retry: {when: 'result.text == \"\"'}}", []),
        ("- {id: a, type: tool_call, tool: t, arguments: {x: '{{error.kind}}'}}", ["scope"]),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_the_visibility_rules(loader, steps, expected):
    found = loader.steps(steps)
    assert codes(found) == expected, found


NESTED = """\
workflow: w
steps:
- {id: first, type: set, values: {v: 1}}
- id: p
  type: parallel
  branches:
    x:
    - {id: xa, type: set, values: {v: 1}}
    - {id: xb, type: set, values: {v: "{{step.xa.v}}"}}
    - id: c
      type: condition
      when: step.xb.v == 1
      then:
      - {id: deep, type: set, values: {v: 1}}
      - {id: local, type: set, values: {v: "{{step.deep.v}}"}}
    y:
    - id: l
      type: loop
      over: [1]
      steps:
      - {id: body, type: set, values: {v: "{{loop_item}} {{step.first.v}}"}}
      output: "{{step.body.v}}"
- {id: after, type: set, values: {v: "{{step.deep?.v}} {{step.xb.v}}"}}
output: "{{step.xa.v}}"
"""


def test_exports_are_the_ids_that_texts_outside_a_block_refer_to(loader):
    assert exports(loader.load(NESTED).workflow) == {
        ("p", ("branches", "x")): ("xa", "xb", "deep"),
        ("p", ("branches", "y")): (),
        ("c", ("then",)): ("deep",),
        ("c", ("else",)): (),
        ("l", ("steps",)): (),
    }


def test_references_are_those_of_the_step_itself(loader):
    assert references(loader.load(NESTED).workflow) == {
        "first": frozenset(),
        "p": frozenset(),
        "xa": frozenset(),
        "xb": {"xa"},
        "c": {"xb"},
        "deep": frozenset(),
        "local": {"deep"},
        "l": {"body"},
        "body": {"first"},
        "after": {"deep", "xb"},
    }
