"""Steps for when a step fails, is undone or must be verified: how they are read, walked, seen and compiled."""

from __future__ import annotations

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
