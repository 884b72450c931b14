"""The structural diff of two definitions."""

from __future__ import annotations

from tests.engine_world import workflow

from stepwell.library.differences import Side, differences, is_cosmetic

A = {"id": "a", "type": "set", "values": {"n": 1}}
B = {"id": "b", "type": "set", "values": {"n": 2}}
C = {"id": "c", "type": "approval", "title": "go?"}


def diff(old, new, before=None, after=None):
    sides = [
        Side(name, workflow(steps, **(parts or {})).data)
        for name, steps, parts in (("old", old, before), ("new", new, after))
    ]
    return differences(*sides)


def told(found):
    return [(one.kind, one.path, one.field) for one in found]


def test_equal_definitions_do_not_differ_whatever_the_order_of_keys():
    assert diff([A, B], [dict(reversed(A.items())), B]) == []


def test_added_and_removed_steps_are_told_with_their_type():
    found = diff([A, B], [A, C])
    assert told(found) == [("removed", "/b", ""), ("added", "/c", "")]
    assert (found[0].before, found[1].after) == ("set", "approval")
    assert not is_cosmetic(found)


def test_a_changed_field_is_told_with_both_values_and_where_it_is():
    [one] = diff([A, B], [A, {**B, "values": {"n": 3}}])
    assert (one.kind, one.step, one.field, one.before, one.after) == ("changed", "b", "values.n", 2, 3)
    assert one.here == one.there == ("steps", 1, "values", "n")
    assert not one.cosmetic


def test_true_is_not_one():
    [one] = diff([{**A, "values": {"n": True}}], [A])
    assert (one.before, one.after) == (True, 1)


def test_one_step_that_moved_is_told_as_one():
    found = diff([A, B, C], [C, A, B])
    assert told(found) == [("moved", "/c", "")]
    assert (found[0].before, found[0].after) == ("the workflow at 3", "the workflow at 1")


def test_a_step_that_moves_into_a_container_is_not_added():
    inside = {"id": "p", "type": "parallel", "branches": {"left": [A], "right": [B]}}
    found = diff([A, B], [inside])
    assert told(found) == [("added", "/p", ""), ("moved", "/p/a", ""), ("moved", "/p/b", "")]
    assert (found[1].before, found[1].after) == ("the workflow", "p.branches.left")


def test_a_change_deep_inside_is_told_by_its_step_alone():
    def nested(n):
        inner = {"id": "l", "type": "loop", "over": [1], "steps": [{**A, "values": {"n": n}}]}
        return [{"id": "k", "type": "condition", "when": "true", "then": [inner], "else": [B]}]

    [one] = diff(nested(1), nested(2))
    assert (one.path, one.field) == ("/k/l/a", "values.n")


def test_a_condition_of_a_case_is_a_field_of_the_container():
    def cases(when):
        return [{"id": "k", "type": "condition", "cases": [{"when": when, "steps": [A]}]}]

    [one] = diff(cases("1 < 2"), cases("2 < 1"))
    assert (one.path, one.field) == ("/k", "cases.0.when")


def test_names_descriptions_tags_and_the_label_are_cosmetic():
    found = diff(
        [A, C], [{**A, "name": "First"}, {**C, "description": "Look"}], {"tags": ["x"]}, {"version": "2", "name": "W"}
    )
    assert sorted(one.field for one in found) == ["description", "name", "name", "tags", "version"]
    assert is_cosmetic(found)


def test_a_name_that_is_shown_to_approvers_is_not_cosmetic():
    bare = {"id": "g", "type": "approval"}
    [one] = diff([{**bare, "name": "Pay?"}], [{**bare, "name": "Pay it?"}])
    assert (one.field, one.cosmetic) == ("name", False)


def test_data_that_looks_like_steps_is_data():
    [one] = diff(
        [{**A, "values": {"n": [{"id": "x", "type": "y"}]}}], [{**A, "values": {"n": [{"id": "z", "type": "y"}]}}]
    )
    assert (one.step, one.field) == ("a", "values.n.0.id")


def test_schemas_and_policies_are_told_by_their_fields():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    found = diff(
        [A], [{**A, "on_error": "continue"}], {"input": schema},
        {"input": {**schema, "required": ["n"]}, "timeout": "1h", "on_failure": {"steps": [B]}},
    )  # fmt: skip
    assert {one.field for one in found} >= {"input.required", "timeout"}
    assert ("added", "/b", "") in told(found)


def test_what_is_pinned_differs_by_name():
    data = workflow([A]).data
    [one] = differences(Side("old", data, {"recipe mood": "1" * 64}), Side("new", data, {"recipe mood": "2" * 64}))
    assert (one.field, one.before, one.after) == ("recipe mood", "1" * 12, "2" * 12)
