"""A picture of a workflow as a flowchart of mermaid (syntax: mermaid.js.org/syntax/flowchart.html)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepwell.definition.drawing.picture import Drawn, Part, Picture

if TYPE_CHECKING:
    from collections.abc import Iterator

_SPECIAL = re.compile(
    r"""["#&;<>`*~\\{}\[\]|@$]|(?<![^\W_])_|_(?![^\W_])|^[-+]|(?<=^\d)[.)]|(?<=^\d\d)[.)]|:(?=//|fa)"""
)
_ARROWS = {"follows": "-->", "fallback": "-. fallback .->", "compensates": "-. undo .->"}
_RECOVERY = {"fallback": "-. fallback .->", "undo": "-. undo .->", "verify": "-. verify .->"}
_SHAPES = {
    "approval": ('(["', '"])', "person"),
    "wait": ('{{"', '"}}', "waits"),
    "end": ('(("', '"))', "stop"),
}
_CLASSES = """\
  classDef person stroke:#b5179e,stroke-width:2px
  classDef waits stroke:#0077b6,stroke-width:2px
  classDef stop stroke:#c1121f,stroke-width:2px
  classDef aside stroke-dasharray:4 3
  classDef empty stroke-dasharray:2 2"""


def mermaid(picture: Picture) -> str:
    """The text of a flowchart: containers as subgraphs, their branches as subgraphs inside."""
    return "\n".join([*_Writer().lines(picture), _CLASSES]) + "\n"


def escaped(text: str) -> str:
    """A label inside double quotes: what mermaid, Markdown or HTML could take for theirs becomes a code."""
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)


class _Writer:
    def __init__(self) -> None:
        self._count = 0

    def _name(self) -> str:
        self._count += 1
        return f"n{self._count}"

    def lines(self, picture: Picture) -> Iterator[str]:
        yield "flowchart TD"
        if not picture.others:
            yield from self._part(picture.steps, "  ")
            return
        for title, part in (("steps", picture.steps), *((part.label, part) for part in picture.others)):
            yield from self._subgraph(title, part, "  ")

    def _subgraph(self, title: str, part: Part, indent: str, name: str = "") -> Iterator[str]:
        yield f'{indent}subgraph {name or self._name()}["{escaped(title)}"]'
        yield from self._part(part, indent + "  ")
        yield f"{indent}end"

    def _part(self, part: Part, indent: str) -> Iterator[str]:
        if not part.steps:
            yield f'{indent}{self._name()}["nothing"]:::empty'
        names = []
        for step in part.steps:
            names.append(self._name())
            yield from self._step(step, names[-1], indent)
        for edge in part.edges:
            yield f"{indent}{names[edge.start]} {_ARROWS[edge.kind]} {names[edge.end]}"
        ids = {step.id: name for step, name in zip(part.steps, names, strict=True)}
        for step, name in zip(part.steps, names, strict=True):
            for target in step.back:
                if target in ids:
                    yield f"{indent}{name} -. back .-> {ids[target]}"
            for inner in step.recovery:
                beside = self._name()
                yield from self._subgraph(inner.label, inner, indent, beside)
                yield f"{indent}{name} {_RECOVERY[inner.purpose]} {beside}"

    def _step(self, step: Drawn, name: str, indent: str) -> Iterator[str]:
        label = "<br>".join(escaped(line) for line in _texts(step))
        if not step.parts:
            opening, closing, look = _SHAPES.get(step.type, ('["', '"]', ""))
            look = "aside" if step.aside else look
            yield f"{indent}{name}{opening}{label}{closing}" + (f":::{look}" if look else "")
            return
        yield f'{indent}subgraph {name}["{label}"]'
        for part in step.parts:
            if part.label:
                yield from self._subgraph(part.label, part, indent + "  ")
            else:
                yield from self._part(part, indent + "  ")
        yield f"{indent}end"


def _texts(step: Drawn) -> Iterator[str]:
    yield step.name or step.id
    mark = {"loop": "⟳ ", "approval": "● "}.get(step.type, "")
    yield f"{mark}{step.type}" + (f" {step.detail}" if step.detail else "")
    if step.condition:
        yield f"if {step.condition}"
