"""
A picture of a workflow as one SVG file: no script, no outside resource, light and dark by the reader's preference.

The law of the file: a container lays out what is inside it and is one box to its neighbours, so no line ever crosses a
wall.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from stepwell.definition.drawing.layers import Layered, TooLarge, layered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.drawing.picture import Drawn, Part, Picture

__all__ = ["TooLarge", "svg"]

_COLUMN = 7.9
"""Width of a column of text at 13 px in the fonts named below."""
_SMALL = 7.0
"""The same at 11.5 px."""
_LINE = 17.0
_PAD = 12.0
_GAP = 16.0
_LONGEST = 46
"""Columns of a line of text."""
_MOST_LINES = 3
"""Lines of a text; what is longer is cut, and whole in the tooltip."""
_WIDEST = 1500.0
"""Width beyond which the branches of a container begin another row."""

_STYLE = """\
svg{--paper:#fff;--box:#fff;--area:#f5f6f8;--edge:#8a93a3;--line:#5d6675;--ink:#1b1f27;--soft:#596273;
--person:#a3148c;--wait:#0a6cb0;--stop:#b3261e;--loop:#2f6b3a}
@media (prefers-color-scheme:dark){svg{--paper:#14171c;--box:#1d222a;--area:#191d24;--edge:#5b6575;--line:#98a2b3;
--ink:#e8ebf0;--soft:#a4adbb;--person:#ef7fdc;--wait:#6cbcf5;--stop:#ff8a80;--loop:#86cf94}}
text{font:13px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono","Noto Sans Mono CJK SC",monospace;fill:var(--ink)}
.s{font-size:11.5px;fill:var(--soft)}.b{font-weight:600}.h{font-size:16px;font-weight:600}
.paper{fill:var(--paper)}.box{fill:var(--box);stroke:var(--edge)}.area{fill:var(--area);stroke:var(--edge);
stroke-dasharray:3 4;stroke-opacity:.7}.aside{stroke-dasharray:6 4}
.approval{stroke:var(--person);stroke-width:2}.wait{stroke:var(--wait);stroke-width:2}
.end{stroke:var(--stop);stroke-width:2}.loop{stroke:var(--loop);stroke-width:2}
.kapproval{fill:var(--person)}.kwait{fill:var(--wait)}.kend{fill:var(--stop)}.kloop{fill:var(--loop)}
.line{fill:none;stroke:var(--line);stroke-width:1.4}.dash{stroke-dasharray:5 4}.tip{fill:var(--line)}"""
_TIP = """\
<defs><marker id="tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" orient="auto">\
<path class="tip" d="M0 .8 8 4 0 7.2z"/></marker></defs>"""
_MARKS = {"loop": "⟳ ", "approval": "● ", "wait": "◷ ", "end": "■ "}


@dataclass(slots=True)
class _Box:
    """A step with its size and the areas inside, each at its place from the box's corner."""

    step: Drawn
    width: float
    height: float
    areas: list[tuple[float, float, _Area]] = field(default_factory=list)


@dataclass(slots=True)
class _Area:
    part: Part
    boxes: list[_Box]
    layout: Layered
    width: float
    height: float


def svg(picture: Picture) -> str:
    """The whole file. Raises TooLarge."""
    areas = [_area(part) for part in (picture.steps, *picture.others)]
    room = max(_WIDEST, *(area.width for area in areas))
    inner, width, height = _rows(areas, room, _PAD * 2, 58.0)
    width = max(width, _columns(picture.title) * 10 + 4 * _PAD)
    drawn = [line for left, top, area in inner for line in _draw_area(area, left, top, framed=len(areas) > 1)]
    title = _escaped(picture.title)
    size = f"{_n(width + _PAD)} {_n(height + _PAD)}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width + _PAD)}" height="{_n(height + _PAD)}"'
    lines = [
        f'{head} viewBox="0 0 {size}" role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
        _TIP,
        '<rect class="paper" width="100%" height="100%"/>',
        f'<text class="h" x="{_n(_PAD * 2)}" y="34">{title}</text>',
        *drawn,
        "</svg>\n",
    ]
    return "\n".join(lines)


# how large everything is


def _area(part: Part) -> _Area:
    boxes = [_box(step) for step in part.steps]
    layout = layered([(box.width, box.height) for box in boxes], part.edges)
    labels = _wrapped(part.label)
    label = max(map(_columns, labels), default=0) * _SMALL
    head = len(labels) * _LINE + 4 if labels else 0.0
    empty = 0.0 if boxes else _LINE
    return _Area(
        part, boxes, layout, max(layout.width, label, 60.0) + 2 * _PAD, layout.height + head + empty + 2 * _PAD
    )


def _box(step: Drawn) -> _Box:
    lines = [*_lines(step)]
    width = max(_columns(text) * (_COLUMN if look == "b" else _SMALL) for text, look in lines) + 2 * _PAD
    height = len(lines) * _LINE + 14
    parts = (*step.parts, *step.recovery)
    if not parts:
        return _Box(step, max(width, 110.0), height)
    areas, inner, bottom = _rows([_area(part) for part in parts], _WIDEST, _PAD, height)
    shift = max(0.0, width - inner) / 2
    return _Box(step, max(width, inner), bottom, [(left + shift, top, area) for left, top, area in areas])


def _rows(
    areas: list[_Area], room: float, left: float, top: float
) -> tuple[list[tuple[float, float, _Area]], float, float]:
    """Areas side by side in as many rows as they need: their places, and the width and height of all with a margin."""
    placed: list[tuple[float, float, _Area]] = []
    x, y, widest, highest = left, top, 0.0, 0.0
    for area in areas:
        if x > left and x + area.width > room:
            x, y, highest = left, y + highest + _GAP, 0.0
        placed.append((x, y, area))
        x += area.width + _GAP
        widest, highest = max(widest, x - _GAP), max(highest, area.height)
    return placed, widest + _PAD, y + highest + _PAD


def _texts(step: Drawn) -> Iterator[tuple[str, bool]]:
    """The lines in a box, and whether they are bold."""
    yield step.name or step.id, True
    yield f"{_MARKS.get(step.type, '')}{step.type}" + (f" {step.detail}" if step.detail else ""), False
    if step.condition:
        yield f"if {step.condition}", False
    if step.back:
        yield f"may go back to {', '.join(step.back)}", False
    if step.aside:
        yield f"kept for {step.aside}", False


def _lines(step: Drawn) -> Iterator[tuple[str, str]]:
    """The lines in a box as they are broken, each with its look."""
    kind = f" k{step.type}" if step.type in _MARKS else ""
    for number, (text, bold) in enumerate(_texts(step)):
        for line in _wrapped(text):
            yield line, "b" if bold else f"s{kind if number == 1 else ''}"


# drawing


def _draw_area(area: _Area, left: float, top: float, *, framed: bool) -> Iterator[str]:
    yield "<g>"
    if framed:
        yield f'<rect class="area" {_place(left, top, area.width, area.height)} rx="8"/>'
    y = top + _PAD
    for label in _wrapped(area.part.label):
        yield _text(label, left + _PAD, y + 10, "s")
        y += _LINE
    y += 4.0 if area.part.label else 0.0
    if not area.boxes:
        yield _text("nothing", left + _PAD, y + 10, "s")
    x = left + (area.width - area.layout.width) / 2
    for line in area.layout.lines:
        dash = "" if line.edge.kind == "follows" else " dash"
        points = [(x + at, y + down) for at, down in line.points]
        yield f'<path class="line{dash}" d="{_path(points)}" marker-end="url(#tip)"/>'
    for box, (at, down) in zip(area.boxes, area.layout.places, strict=True):
        yield from _draw_box(box, x + at, y + down)
    yield "</g>"


def _draw_box(box: _Box, left: float, top: float) -> Iterator[str]:
    step = box.step
    kind = step.type if step.type in _MARKS else ""
    looks = " ".join(word for word in ("box", kind, "aside" if step.aside else "") if word)
    yield f"<g><title>{_escaped(' | '.join(text for text, _ in _texts(step)))}</title>"
    if step.type == "loop":
        yield f'<rect class="{looks}" {_place(left + 4, top + 4, box.width, box.height)} rx="8" opacity=".5"/>'
    radius = 16 if step.type == "approval" else 8
    yield f'<rect class="{looks}" {_place(left, top, box.width, box.height)} rx="{radius}"/>'
    y = top + 20
    for text, look in _lines(step):
        yield _text(text, left + _PAD, y, look)
        y += _LINE
    for at, down, area in box.areas:
        yield from _draw_area(area, left + at, top + down, framed=len(box.areas) > 1 or bool(area.part.label))
    yield "</g>"


def _path(points: list[tuple[float, float]]) -> str:
    """Straight down beside boxes and through lanes, curved in the gaps between layers."""
    parts = [f"M{_n(points[0][0])} {_n(points[0][1])}"]
    for (x, y), (to_x, to_y) in pairwise(points):
        if abs(x - to_x) < 0.5:
            parts.append(f"V{_n(to_y)}")
        else:
            half = _n((y + to_y) / 2)
            parts.append(f"C{_n(x)} {half} {_n(to_x)} {half} {_n(to_x)} {_n(to_y)}")
    return "".join(parts)


def _place(left: float, top: float, width: float, height: float) -> str:
    return f'x="{_n(left)}" y="{_n(top)}" width="{_n(width)}" height="{_n(height)}"'


def _text(text: str, x: float, y: float, look: str) -> str:
    return f'<text class="{look}" x="{_n(x)}" y="{_n(y)}">{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    return escape(text, {'"': "&quot;"})


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _wrapped(text: str) -> list[str]:
    """A text in lines of at most `_LONGEST` columns; what does not fit into three is left out."""
    lines: list[str] = []
    rest = text
    while rest and len(lines) < _MOST_LINES:
        head = _head(rest)
        at = head.rfind(" ")
        if len(head) < len(rest) and at > _LONGEST // 3 and rest[len(head)] != " ":
            head = head[:at]
        lines.append(head.strip())
        rest = rest[len(head) :].lstrip()
    if rest:
        lines[-1] = lines[-1][:-1] + "…"
    return lines


def _head(text: str) -> str:
    used = 0
    for at, character in enumerate(text):
        used += _columns(character)
        if used > _LONGEST:
            return text[:at]
    return text
