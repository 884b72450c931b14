"""Places: a path of the journal belongs to a step of the definition, also where steps recover from a failure."""

from __future__ import annotations

import pytest

from stepwell.definition import load_text
from stepwell.journal.places import Places
from stepwell.kinds import discover

TEXT = """
workflow: parent
defaults: {on_error: {strategy: fallback, steps: [{id: common, type: set, values: {}}]}}
steps:
- id: pay
  type: tool_call
  tool: charge
  verify: {steps: [{id: look, type: tool_call, tool: find}], took_effect: step.look.found}
  compensate: {steps: [{id: refund, type: tool_call, tool: refund}]}
  on_error:
  - strategy: fallback
    errors: [timeout]
    steps:
    - {id: each, type: loop, over: [1, 2], steps: [{id: inner, type: set, values: {}}]}
  - {fallback: kept}
- {id: kept, type: tool_call, tool: other}
- {id: child, type: sub_workflow, workflow: child}
"""
CHILD = """
workflow: child
steps:
- {id: pay, type: tool_call, tool: charge, on_error: {fallback: kept}, compensate: {step: back}}
- {id: kept, type: set, values: {}}
- {id: back, type: wait, for: 1s}
"""


@pytest.fixture(scope="module")
def places() -> Places:
    kinds = discover()
    return Places(load_text(TEXT, kinds=kinds).workflow, {"/child": load_text(CHILD, kinds=kinds).workflow})


@pytest.mark.parametrize(
    ("path", "step", "kind", "number"),
    [
        ("/pay", "pay", "tool_call", 1),
        ("/pay/~fallback", "", "", 1),
        ("/pay/~fallback/each", "each", "loop", 1),
        ("/pay/~fallback/each/1", "", "", 1),
        ("/pay/~fallback/each/1/inner", "inner", "set", 1),
        ("/pay#2/~fallback#3/kept", "kept", "tool_call", 1),
        ("/pay#2/~fallback#3", "", "", 3),
        ("/pay/~fallback/common", "common", "set", 1),
        ("/pay/~verify#2/look#4", "look", "tool_call", 4),
        ("/child/pay/~fallback/kept", "kept", "set", 1),
        ("/~undo", "", "", 1),
        ("/~undo/0", "", "", 1),
        ("/~undo/0/refund", "refund", "tool_call", 1),
        ("/~undo/1/back", "back", "wait", 1),
    ],
)
def test_a_path_is_read_along_the_definition(places, path, step, kind, number):
    found = places.at(path)
    assert (found.id, found.type, found.round, found.is_step) == (step, kind, number, bool(step))


def test_iterations_are_those_of_loops_not_of_what_is_undone(places):
    assert places.index("/pay/~fallback/each/1/inner") == 1
    assert places.index("/~undo/1/back") is None


def test_nobody_expects_steps_that_only_a_failure_needs(places):
    assert [place.id for _, place in places.expected(places.at(""))] == ["pay", "child"]
    assert list(places.expected(places.at("/pay"))) == []
    assert list(places.all_inside(places.at("/pay"))) == []


def test_without_a_definition_a_segment_with_a_tilde_is_no_step():
    unknown = Places(None)
    assert not unknown.at("/pay/~fallback").is_step
    assert unknown.at("/pay/~fallback/other").id == "other"
