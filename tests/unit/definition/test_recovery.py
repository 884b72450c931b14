"""Steps for when a step fails, is undone or must be verified: how they are read, walked, seen and compiled."""

from __future__ import annotations

import copy
import json
import random

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.definition.canonical import digest_of
from stepwell.definition.compile import compile_workflow
from stepwell.definition.step import walk

WHOLE = """
workflow: booking
defaults:
  on_error:
  - {errors: [rate_limit], strategy: fallback, steps: [{id: cheaper, type: set, values: {v: "{{error.kind}}"}}]}
  - suspend
steps:
- id: hotel
  type: tool_call
  tool: book
  arguments: {city: "{{workflow_input.city}}"}
  idempotent: false
  verify:
    steps: [{id: look, type: tool_call, tool: find, arguments: {key: "{{call.key}}", why: "{{error.kind}}"}}]
    took_effect: step.look.found && call.attempt > 0
    output: {booking: "{{step.look.booking}}"}
  compensate:
    steps: [{id: cancel, type: tool_call, tool: cancel, arguments: {id: "{{step.hotel.id}}", n: "{{run.id}}"}}]
  on_error:
  - {errors: [timeout], strategy: fallback, steps: [{id: other, type: tool_call, tool: book_other}]}
  - {errors: [refused], fallback: kept}
- {id: kept, type: tool_call, tool: third, arguments: {why: "{{error.message}}"}, on_error: {fallback: last}}
- {id: last, type: set, values: {v: "{{error.kind}}"}}
- id: each
  type: loop
  over: workflow_input.guests
  as: guest
  steps:
  - id: letter
    type: tool_call
    tool: send
    compensate: {step: unsend}
  - id: unsend
    type: tool_call
    tool: send
    arguments: {to: "{{guest.mail}}", room: "{{step.hotel.room}}", id: "{{step.letter.id}}", n: "{{loop.index}}"}
"""


def plan(loader, text=WHOLE):
    return compile_workflow(loader.load(text).workflow)


def ids(block):
    return [one.id for one in block.steps]


def test_every_form_of_recovery_loads_without_a_word(loader):
    assert loader.problems(WHOLE) == []


def test_the_plan_has_what_takes_a_steps_place_by_the_index_of_the_rule(loader):
    found = plan(loader)
    hotel = found.find("hotel")
    assert [rule.strategy for rule in hotel.rules] == ["fallback", "fallback", "fallback", "suspend"]
    assert {index: ids(block) for index, block in hotel.fallbacks.items()} == {
        0: ["other"],
        1: ["kept"],
        2: ["cheaper"],
    }
    assert hotel.fallbacks[1].steps[0] is found.find("kept")
    assert ids(found.find("kept").fallbacks[0]) == ["last"]
    assert ids(found.root) == ["hotel", "each"]


def test_the_plan_knows_how_a_step_is_undone_and_what_that_needs(loader):
    found = plan(loader)
    hotel, letter = found.find("hotel"), found.find("letter")
    assert (ids(hotel.undo), hotel.undo_refs, hotel.undo_roots) == (["cancel"], ("hotel",), ("run",))
    assert ids(letter.undo) == ["unsend"]
    assert letter.undo_refs == ("hotel", "letter")
    assert letter.undo_roots == ("guest", "loop")
    assert ids(hotel.verify) == ["look"]


def test_workflow_wide_rules_reach_neither_what_undoes_or_verifies_nor_their_own_fallbacks(loader):
    found = plan(loader)
    strategies = {name: [rule.strategy for rule in one.rules] for name, one in found.steps.items()}
    assert strategies["cancel"] == strategies["unsend"] == strategies["look"] == []
    assert strategies["other"] == ["fallback", "suspend"]
    assert strategies["cheaper"] == ["suspend"]
    assert found.find("cheaper").fallbacks == {}


def test_every_step_is_found_by_its_id_wherever_it_lies(loader):
    found = plan(loader)
    everything = {step.id for step in found.workflow.every_step()}
    assert everything == set(found.steps)
    assert everything == {
        "hotel", "look", "cancel", "other", "kept", "last", "each", "letter", "unsend", "cheaper"
    }  # fmt: skip
    assert [step.id for step in walk(found.workflow.steps)][:4] == ["hotel", "other", "cancel", "look"]
    assert found.find("nobody") is None


def test_steps_inside_recovery_are_steps_for_the_digest_too(loader):
    data = loader.load(WHOLE).data
    named = loader.load(WHOLE.replace("{id: other,", "{id: other, name: The other one,")).data
    assert digest_of(named) == digest_of(data)
    changed = loader.load(WHOLE.replace("tool: book_other", "tool: book_third")).data
    assert digest_of(changed) != digest_of(data)


def test_a_value_of_verify_is_data_even_if_it_is_written_like_a_step(loader):
    text = WHOLE.replace('{booking: "{{step.look.booking}}"}', "{id: x, type: y, name: NAME}")
    assert digest_of(loader.load(text).data) != digest_of(loader.load(text.replace("NAME", "other")).data)


def test_call_is_a_word_only_where_something_is_verified(loader):
    assert loader.problems("workflow: w\nsteps: [{id: a, type: set, values: {v: '{{call.me}}'}}]") != [], (
        "foreign braces"
    )
    outside = WHOLE.replace('city: "{{workflow_input.city}}"', 'city: "{{call.key}}"')
    assert "error[scope] 'call' does not exist here" in loader.problems(outside)[0]


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_no_broken_recovery_raises_anything_but_problems(loader, seed):
    rng = random.Random(seed)
    data = yaml.safe_load(WHOLE)
    strange = [None, True, 3, "x", "goto", [], {}, [1], {"steps": 5}, {"fallback": "hotel"}, [{"id": "x"}], [None]]
    for _ in range(rng.randint(1, 4)):
        places = [*_places(data)]
        holder, key = rng.choice(places)
        if rng.random() < 0.7:
            holder[key] = copy.deepcopy(rng.choice([*strange, *(held[at] for held, at in places[::7])]))
        else:
            del holder[key]
    assert all("Input should" not in problem for problem in loader.problems(json.dumps(data), file="f.json"))


def _places(value):
    for key, inner in [*value.items()] if isinstance(value, dict) else [*enumerate(value)]:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def test_a_rule_with_a_mistake_still_keeps_its_step_out_of_the_flow(loader):
    found = loader.steps(
        "- {id: a, type: tool_call, tool: t, on_error: {fallback: b, tiems: 3}, compensate: {step: c, x: 1}}\n"
        "- {id: b, type: set, values: {v: '{{error.kind}}'}}\n- {id: c, type: set, values: {v: '{{step.a.id}}'}}\n"
    )
    assert [line.split("\n")[0] for line in found] == [
        "f.yaml:3:61: error[unknown_key] unknown key 'tiems' in `on_error`",
        "f.yaml:3:94: error[unknown_key] unknown key 'x' in `compensate`",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on_error: {fallback: f}", []),
        ("on_error: {strategy: fallback, steps: [{id: g, type: set, values: {other: 1}}]}", []),
        ("", ["no field 'other'"]),
        ("on_error: suspend", ["no field 'other'"]),
    ],
)
def test_the_output_may_be_that_of_a_fallback(loader, text, expected):
    closed = "output_schema: {type: object, properties: {v: {}}, additionalProperties: false}"
    found = loader.steps(
        f"- {{id: a, type: tool_call, tool: t, {closed}{', ' if text else ''}{text}}}\n"
        "- {id: f, type: tool_call, tool: t}\n- {id: z, type: set, values: {v: '{{step.a.other}}'}}\n"
    )
    assert [word for word in ("no field 'other'",) if any(word in line for line in found)] == expected


def test_what_is_kept_for_several_sees_what_they_have_in_common(loader):
    steps = """
- {id: a, type: set, values: {x: 1}}
- {id: b, type: tool_call, tool: t, on_error: {fallback: f}}
- {id: c, type: tool_call, tool: t, on_error: {fallback: f}, compensate: {step: u}}
- {id: f, type: set, values: {x: "{{step.a.x}}", y: "{{step.b}}"}, on_error: {fallback: g}}
- {id: g, type: set, values: {x: "{{step.a.x}}"}}
- {id: u, type: set, values: {x: "{{step.b}}", y: "{{step.c}}"}}
"""
    assert [line.split("\n")[0] for line in loader.steps(steps)] == [
        "f.yaml:7:61: error[order] step 'b' does not run before this one"
    ]


def test_a_definition_with_many_ways_back_and_aside_is_checked_in_linear_time(loader):
    rows = ["workflow: w", "steps:", "- {id: a, type: set, values: {x: 1}}"]
    for index in range(1500):
        rows.append(
            f"- {{id: s{index}, type: tool_call, tool: t, on_error: [{{errors: [timeout], goto: a}}, {{fallback: f{index}}}]}}"
        )
        rows.append(f'- {{id: f{index}, type: set, values: {{v: "{{{{step.a.x}}}}"}}}}')
    assert loader.problems("\n".join(rows)) == []


def test_whoever_sent_a_step_back_is_seen_by_the_steps_in_between_wherever_they_nest(loader):
    steps = """
- {id: z, type: set, values: {}, depends_on: []}
- {id: draft, type: tool_call, tool: t, depends_on: [], arguments: {c: "{{step.check?.v ?? 0}}"}, on_error: {fallback: f}}
- {id: f, type: set, values: {c: "{{step.check?.v ?? 0}}"}}
- id: choose
  type: condition
  depends_on: [draft]
  when: (step.check?.v ?? 0) > 1
  then: [{id: inner, type: set, values: {c: "{{steps.check?.error?.message ?? ''}}"}}]
- {id: beside, type: set, values: {c: "{{step.check?.v ?? 0}}"}, depends_on: [z]}
- {id: check, type: approval, depends_on: [choose, beside], on_error: {goto: draft, max_rounds: 2}}
- {id: after, type: set, values: {c: "{{step.check.by}}"}, depends_on: [check]}
"""
    assert [line.split("\n")[0] for line in loader.steps(steps)] == [
        "f.yaml:12:47: error[order] step 'check' does not run before this one"
    ]


def test_rules_for_every_step_see_the_input_and_the_error_alone(loader):
    text = """
workflow: w
defaults:
  retry: {when: result.x == error.kind}
  on_error:
  - {when: error.kind == workflow_input.x, strategy: continue, default: "{{step.a}} {{error.message}}"}
  - {when: result.x, strategy: continue, default: "{{loop_item}}"}
steps: [{id: a, type: set, values: {}}]
"""
    assert [line.split("\n")[0] for line in loader.problems(text)] == [
        "f.yaml:6:81: error[order] step 'a' does not run before this one",
        "f.yaml:7:12: error[scope] 'result' does not exist here",
        "f.yaml:7:54: error[scope] 'loop_item' is used outside a loop step",
    ]


BRANCHES = """
workflow: w
steps:
- {id: book, type: set, values: {x: 1}}
- id: p
  type: parallel
  branches:
    a: [{id: a1, type: tool_call, tool: t, compensate: {step: ua}}]
    b:
    - id: each
      type: loop
      over: [1, 2]
      as: seat
      steps: [{id: b1, type: tool_call, tool: t, compensate: {step: ub}, on_error: {fallback: other}}]
- {id: x, type: tool_call, tool: t, on_error: compensate}
- {id: ua, type: tool_call, tool: t, arguments: {id: "{{step.a1.id}}", book: "{{step.book.x}}"}}
- {id: ub, type: tool_call, tool: t, arguments: {seat: "{{seat}}", n: "{{loop.index}}", id: "{{step.b1.id}}"}}
- {id: other, type: loop, over: loop_item.others, steps: [{id: one, type: set, values: {v: "{{seat}} {{error.kind}}"}}]}
- {id: after, type: set, values: {v: "{{step.x}}"}}
"""


def test_what_is_kept_aside_for_a_step_further_in_sees_what_that_one_sees(loader):
    assert loader.problems(BRANCHES) == []
    found = plan(loader, BRANCHES)
    assert ids(found.root) == ["book", "p", "x", "after"]
    assert (ids(found.find("a1").undo), found.find("a1").undo_refs) == (["ua"], ("a1", "book"))
    assert (ids(found.find("b1").undo), found.find("b1").undo_roots) == (["ub"], ("seat", "loop"))
    assert ids(found.find("b1").fallbacks[0]) == ["other"]


def test_what_is_kept_aside_does_not_see_more_than_the_step_that_names_it(loader):
    text = BRANCHES.replace("{{step.book.x}}", "{{step.x}} {{seat}} {{step.b1}}")
    assert [line.split("\n")[0].partition(" ")[2] for line in loader.problems(text)] == [
        "error[order] step 'x' does not run before this one",
        "error[scope] 'seat' does not exist here",
        "error[order] step 'b1' does not run before this one",
    ]


def test_a_chain_of_fallbacks_may_not_come_back_from_further_in(loader):
    steps = """
- {id: a, type: tool_call, tool: t, on_error: {fallback: b}}
- {id: b, type: loop, over: [1], steps: [{id: c, type: tool_call, tool: t, on_error: {fallback: d}}]}
- {id: d, type: tool_call, tool: t, on_error: {fallback: b}}
- {id: e, type: loop, over: [1], steps: [{id: f, type: tool_call, tool: t, on_error: {fallback: e}}]}
"""
    assert [line.split("\n")[0].partition(" ")[2] for line in loader.steps(steps)] == [
        "error[policy] these steps are each other's fallback: b -> c -> d -> b",
        "error[policy] 'e' is the step that this one lies in, and cannot be kept for it",
    ]


def test_a_chain_of_fallbacks_may_be_long(loader):
    rows = ["- {id: a, type: set, values: {v: 1}}"]
    for at in range(1500):
        rows.append(
            f"- {{id: s{at}, type: tool_call, tool: t, condition: step.a.v > {at}, arguments: {{v: '{{{{step.a.v}}}}'}},"
            f" output_schema: {{type: object}}, on_error: {{fallback: s{at + 1}}}}}"
        )
    rows.append("- {id: s1500, type: set, values: {v: '{{error.kind}} {{step.a.v}}'}}")
    rows.append("- {id: z, type: set, values: {v: \"{{step.s0?.v ?? ''}}\"}}")
    assert loader.steps("\n".join(rows)) == []
    assert ids(plan(loader, f"workflow: w\nsteps:\n{chr(10).join(rows)}").root) == ["a", "s0", "z"]
