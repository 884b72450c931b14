"""Pictures of workflows: the tree, the flowchart, the SVG."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.cli.graph import tree
from stepwell.cli.text import width
from stepwell.definition import load_text
from stepwell.definition.drawing import Drawn, Edge, Part, Picture, TooLarge, mermaid, picture_of, svg
from stepwell.definition.drawing.layers import layered
from stepwell.definition.drawing.mermaid import escaped
from stepwell.definition.drawing.picture import one_line
from stepwell.kinds import discover

TEXT = """\
workflow: orders
name: "订单 <b>&\\"x\\""
steps:
- {id: start, type: set, values: {a: 1}}
- {id: check, type: set, values: {}, depends_on: [start], name: 检查客户的订单}
- {id: ask, type: approval, title: x, depends_on: [start]}
- id: each
  type: loop
  over: "[1, 2]"
  depends_on: [check]
  steps:
  - {id: first, type: set, values: {}}
  - id: choose
    type: condition
    when: loop_item > 1
    then:
    - id: end
      type: parallel
      branches: {a: [{id: nap, type: wait, for: 2h}], b: [{id: think, type: llm_call, prompt: hi}]}
    else: []
- {id: last, type: set, values: {}, depends_on: [each, start, ask], condition: "step.start.a == 1"}
on_failure: {steps: [{id: tell, type: handoff, to: x, message: y}]}
"""


TREE = """\
订单 <b>&"x"  (orders)
├─ start                 set
├─ 检查客户的订单        set  (check)  ← start
├─ ask                   ● approval  ← start
├─ each                  ⟳ loop over [1, 2]  ← check
│  ├─ first              set
│  └─ choose             condition
│     ├─ then: loop_item > 1:
│     │  └─ end          parallel
│     │     ├─ a:
│     │     │  └─ nap    ◷ wait for 2h
│     │     └─ b:
│     │        └─ think  llm_call
│     └─ else (nothing)
└─ last                  set  ← each, start, ask  if step.start.a == 1

once the run has failed:
└─ tell                  handoff
"""


def picture(text: str = TEXT) -> Picture:
    return picture_of(load_text(text, file="w.yaml", kinds=discover()).workflow)


def test_the_tree_shows_containers_branches_conditions_and_what_depends_on_what() -> None:
    assert tree(picture()) == TREE


def test_the_columns_of_the_tree_are_right_whatever_the_script() -> None:
    lines = tree(picture()).splitlines()
    starts = {
        width(line[: line.index(word)])
        for line in lines
        for word in ("set", "● approval", "⟳ loop", "◷ wait", "llm_call")
        if re.search(rf"  {re.escape(word)}\b", line)
    }
    assert len(starts) == 1
    assert all(width(line) <= 40 for line in tree(picture(), 40).splitlines())


def test_steps_kept_for_fallback_are_drawn_beside_the_flow() -> None:
    steps = (Drawn("a", "set"), Drawn("b", "set"), Drawn("f", "set", aside="a"))
    drawn = Picture("t", "t", Part("", steps, (Edge(0, 1), Edge(0, 2, "fallback"))))
    assert "kept for a" in tree(drawn)
    assert "-. fallback .->" in mermaid(drawn)
    assert "line dash" in svg(drawn)


RECOVERING = """\
workflow: trip
defaults:
  on_error: {errors: [rate_limit], strategy: fallback, steps: [{id: cheaper, type: set, values: {}}]}
steps:
- id: hotel
  type: tool_call
  tool: book
  verify: {steps: [{id: look, type: tool_call, tool: find}], took_effect: step.look.found}
  compensate: {steps: [{id: cancel, type: tool_call, tool: cancel}]}
  on_error: {errors: [timeout, refused], strategy: fallback, steps: [{id: other, type: tool_call, tool: book}]}
- id: each
  type: loop
  over: workflow_input.guests
  compensate: {step: undo}
  on_error: {strategy: fallback, when: error.count > 1, steps: [{id: tell, type: handoff, to: x, message: y}]}
  steps: [{id: letter, type: set, values: {}}]
- {id: undo, type: set, values: {}}
- {id: check, type: tool_call, tool: check, on_error: {goto: hotel}}
"""
RECOVERING_TREE = """\
trip
├─ hotel         tool_call book
│  ├─ when it fails with timeout or refused:
│  │  └─ other   tool_call book
│  ├─ to undo it:
│  │  └─ cancel  tool_call cancel
│  └─ to verify it:
│     └─ look    tool_call find
├─ each          ⟳ loop over workflow_input.guests
│  ├─ letter     set
│  └─ when it fails and error.count > 1:
│     └─ tell    handoff
├─ undo          set  kept for each
└─ check         tool_call check  may go back to hotel

when any step fails with rate_limit:
└─ cheaper       set
"""


def test_what_recovers_from_a_failure_is_drawn_inside_its_step_and_says_when_it_runs() -> None:
    found = picture(RECOVERING)
    assert tree(found) == RECOVERING_TREE
    text = mermaid(found)
    lines = [line.strip() for line in text.splitlines()]
    names = {match[2]: match[1] for match in re.finditer(r'(n\d+)[(\[{]*"([^"<]*)', text)}
    for start, kind, end in (
        ("hotel", "fallback", "when it fails with timeout or refused"),
        ("hotel", "undo", "to undo it"),
        ("hotel", "verify", "to verify it"),
        ("each", "undo", "undo"),
        ("check", "back", "hotel"),
    ):
        assert f"{names[start]} -. {kind} .-> {names[end]}" in lines
    shown = ET.fromstring(svg(found))
    texts = {element.text for element in shown.iter() if element.tag.endswith("}text")}
    assert {"to undo it", "to verify it", "other", "cancel", "look", "cheaper", "may go back to hotel"} <= texts


def test_the_flowchart_nests_containers_and_joins_what_depends_on_what() -> None:
    text = mermaid(picture())
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "flowchart TD"
    assert sum(line.startswith("subgraph ") for line in lines) == lines.count("end")
    names = {found[2]: found[1] for found in re.finditer(r'(n\d+)[(\[{]*"([^"<]*)', text)}
    for start, end in (("start", "检查客户的订单"), ("start", "ask"), ("each", "last"), ("start", "last")):
        assert f"{names[start]} --&gt; {names[end]}".replace("&gt;", ">") in lines
    assert f'{names["ask"]}(["ask<br>● approval"]):::person' in lines
    assert '["nothing"]:::empty' in text


@given(st.text(st.characters(codec="utf-8")))
def test_no_label_of_the_flowchart_can_leave_its_quotes(text: str) -> None:
    label = escaped(one_line(text))
    assert not set(label) & set('"<>`[]{}|\\\n\r')
    assert re.sub(r"#\d+;", "", label).count(";") == 0
    assert re.sub(r"#(\d+);", lambda found: chr(int(found[1])), label) == one_line(text)


@given(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8")))
def test_the_svg_is_xml_whatever_people_write(name: str, label: str) -> None:
    title, text = one_line(name), one_line(label)
    inner = Drawn("x", "approval", name=title, detail=text, condition=text)
    drawn = Picture(title, "w", Part("", (Drawn("c", "condition", parts=(Part(text, (inner,), ()),)),), ()))
    root = ET.fromstring(svg(drawn))
    assert root.attrib["aria-label"] == title
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        "svg", "title", "style", "defs", "marker", "path", "rect", "text", "g",
    }  # fmt: skip


def test_the_svg_needs_nothing_from_outside_and_follows_the_readers_preference() -> None:
    text = svg(picture())
    assert "prefers-color-scheme:dark" in text
    assert "<script" not in text
    assert "href" not in text
    assert [found for found in re.findall(r"https?://[^\"' ]+", text) if "w3.org/2000/svg" not in found] == []


Rect = tuple[float, float, float, float]


def _rects(text: str) -> list[Rect]:
    found = re.findall(
        r'<rect class="(?:box|area)[^"]*" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" rx="\d+"/>', text
    )
    return [(float(x), float(y), float(x) + float(w), float(y) + float(h)) for x, y, w, h in found]


def test_boxes_lie_inside_one_another_or_apart() -> None:
    rects = _rects(svg(picture()))
    assert len(rects) > 12
    for at, one in enumerate(rects):
        for two in rects[at + 1 :]:
            apart = one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]
            inside = one[0] <= two[0] and one[1] <= two[1] and two[2] <= one[2] and two[3] <= one[3]
            assert apart or inside, (one, two)


@st.composite
def _graphs(draw: st.DrawFn) -> tuple[list[tuple[float, float]], list[Edge]]:
    count = draw(st.integers(1, 12))
    sizes = [
        (draw(st.sampled_from([60.0, 140.0, 400.0])), draw(st.sampled_from([40.0, 90.0, 300.0]))) for _ in range(count)
    ]
    pairs = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=20))
    return sizes, [Edge(one, two) for one, two in sorted(pairs) if one < two]


@given(_graphs())
@settings(max_examples=200, deadline=None)
def test_no_line_crosses_a_box_and_no_boxes_overlap(graph: tuple[list[tuple[float, float]], list[Edge]]) -> None:
    sizes, edges = graph
    layout = layered(sizes, edges)
    boxes = [(x, y, x + w, y + h) for (x, y), (w, h) in zip(layout.places, sizes, strict=True)]
    assert all(x >= -0.01 and y >= -0.01 and right <= layout.width + 0.01 for x, y, right, _ in boxes)
    for at, one in enumerate(boxes):
        for two in boxes[at + 1 :]:
            assert one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]
    assert len(layout.lines) == len(edges)
    for line in layout.lines:
        own = {line.edge.start, line.edge.end}
        for (x, y), (to_x, to_y) in zip(line.points, line.points[1:], strict=False):
            assert to_y >= y - 0.01
            for index, (left, top, right, bottom) in enumerate(boxes):
                if x == to_x:
                    beside = x <= left or x >= right or to_y <= top + 0.01 or y >= bottom - 0.01
                    assert beside or index in own
                else:  # curved only in the gap between two layers
                    assert to_y <= top + 0.01 or y >= bottom - 0.01


def test_a_picture_that_nobody_could_follow_is_refused() -> None:
    count = 400
    edges = [Edge(at, at + 1) for at in range(count - 1)] + [Edge(at, count - 1) for at in range(count - 2)]
    with pytest.raises(TooLarge):
        layered([(60.0, 40.0)] * count, edges)


def test_a_long_sequence_is_laid_out_in_linear_time() -> None:
    steps = tuple(Drawn(f"s{at}", "set") for at in range(3000))
    text = svg(Picture("t", "t", Part("", steps, tuple(Edge(at, at + 1) for at in range(2999)))))
    assert text.count('<rect class="box') == 3000
