"""The digest: what changes it and what does not."""

from __future__ import annotations

import json

import pytest

BASE = """\
workflow: w
name: One
tags: [x]
input: {type: object, properties: {a: {type: string}, b: {}}}
steps:
- {id: a, type: set, name: First, values: {x: 1, y: 2}}
- id: p
  type: parallel
  branches:
    values: [{id: l, type: loop, over: [1], as: row, name: Loop, steps: [{id: s, type: set, values: {v: "{{row}}"}}]}]
    b: [{id: q, type: approval, title: t}]
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: One", "name: Another"),
        ("name: One\n", "description: Other\n# a comment\n"),
        ("tags: [x]", "tags: [y, z]"),
        ("name: First", "name: 'Erste, äh'"),
        ("name: Loop, ", ""),
        ("{x: 1, y: 2}", "{y: 2, x: 1}"),
        ("id: a, type: set", "type: set, id: a"),
        ("workflow: w\nname: One", "name: One\nworkflow: w"),
        ("title: t", "title: 't'"),
    ],
)
def test_what_is_cosmetic_does_not_change_the_digest(loader, old, new):
    assert old in BASE
    assert loader.load(BASE.replace(old, new)).digest == loader.load(BASE).digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("workflow: w", "workflow: v"),
        ("{x: 1, y: 2}", "{x: 1, y: 3}"),
        ("{x: 1, y: 2}", "{x: 1, y: '2'}"),
        ("{x: 1, y: 2}", "{x: 1, y: 2, name: n}"),
        ("over: [1]", "over: [1, 2]"),
        ("- {id: a, type: set,", "- {id: z, type: set,"),
        ("title: t", "title: u"),
        ("title: t", "name: t"),
        ("b: {}}", "b: {}, name: {}}"),
        ("b: [", "c: ["),
    ],
)
def test_what_does_something_changes_the_digest(loader, old, new):
    assert old in BASE
    assert loader.load(BASE.replace(old, new)).digest != loader.load(BASE).digest


def test_a_name_that_people_are_shown_is_not_cosmetic(loader):
    untitled = BASE.replace("title: t", "name: Shown")
    assert loader.load(untitled).digest != loader.load(untitled.replace("Shown", "Other")).digest


def test_names_inside_data_are_not_cosmetic(loader):
    data = BASE.replace("{x: 1, y: 2}", "{x: {id: i, type: set, name: n}, y: 2}")
    assert loader.load(data).digest != loader.load(data.replace("name: n", "name: m")).digest


def test_the_data_keeps_the_order_in_which_values_are_written(loader):
    loaded = loader.load(BASE.replace("{x: 1, y: 2}", "{y: 2, x: 1}"))
    assert list(loaded.data["steps"][0]["values"]) == ["y", "x"]
    assert list(loaded.workflow.steps[0].values) == ["y", "x"]


def test_the_digest_is_that_of_the_stored_data(loader):
    from stepwell.definition.canonical import digest_of

    loaded = loader.load(BASE)
    assert digest_of(json.loads(json.dumps(loaded.data))) == loaded.digest
    assert len(loaded.digest) == 64


def test_a_loop_below_a_branch_called_like_a_field_keeps_its_item_name(loader):
    from stepwell.definition import from_data

    loaded = loader.load(BASE)
    assert from_data(loaded.data, loader.kinds) == loaded.workflow
