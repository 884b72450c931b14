"""
What a picture of a workflow shows: boxes, boxes inside boxes, and what follows what.

The law of the file: it walks a definition through `blocks()`, `recovery()` and `texts()` alone, so that a new kind of
step is drawn without a change here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from stepwell.definition.fields import Value
from stepwell.definition.graph import named_aside, named_fallbacks, order_block, returns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepwell.definition.step import Block, ErrorRule, Purpose, Step
    from stepwell.definition.workflow import Workflow

EdgeKind: TypeAlias = Literal["follows", "fallback", "compensates"]

_UNFIT = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that steer, hide or cannot stand in XML."""
_NAMING = ("tool", "recipe", "workflow", "event", "server")
"""Fields that name what a step reaches for."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One step after another; both are indexes into the steps of their part."""

    start: int
    end: int
    kind: EdgeKind = "follows"


@dataclass(frozen=True, slots=True)
class Part:
    """A block of steps. `label` says when it runs (a branch, a case, a fallback), empty for an only block."""

    label: str
    steps: tuple[Drawn, ...]
    edges: tuple[Edge, ...]
    sequence: bool = True
    purpose: Purpose = ""


@dataclass(frozen=True, slots=True)
class Drawn:
    """
    A step as it is drawn; every text is one line without characters that steer or hide.

    `detail` is what it calls or goes over; `condition` when it runs; `aside` which step keeps it for fallback or
    compensation; `after` the ids of the steps it depends on, where its block is a graph; `back` those of earlier steps
    that it may return to; `recovery` what runs when it fails, is undone or must be verified.
    """

    id: str
    type: str
    name: str = ""
    detail: str = ""
    condition: str = ""
    aside: str = ""
    after: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    back: tuple[str, ...] = ()
    recovery: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A workflow: its title, its steps, those that run once it has failed, and those that stand in for any step."""

    title: str
    id: str
    steps: Part
    on_failure: Part | None = None
    fallbacks: tuple[Part, ...] = ()

    @property
    def others(self) -> tuple[Part, ...]:
        """What lies beside the steps."""
        return (*([self.on_failure] if self.on_failure is not None else []), *self.fallbacks)


def picture_of(workflow: Workflow) -> Picture:
    """What is to be drawn of a checked workflow."""
    failing = workflow.on_failure.steps if workflow.on_failure else ()
    rules, aside = workflow.defaults.on_error or (), workflow.aside
    return Picture(
        one_line(workflow.name or workflow.workflow),
        workflow.workflow,
        _part("", workflow.steps, aside),
        _part("once the run has failed", failing, aside) if failing else None,
        tuple(
            _part(_when(rules[at], "any step fails"), block.steps, aside, "fallback")
            for at, block in workflow.fallbacks().items()
        ),
    )


def one_line(text: object) -> str:
    """A text on one line, each run of white space as one space, unfit characters as their code."""
    return _UNFIT.sub(lambda found: f"\\u{ord(found[0]):04x}", " ".join(str(text).split()))


def _part(label: str, steps: Sequence[Step], aside: Mapping[str, str], purpose: Purpose = "") -> Part:
    order = order_block(steps, aside)
    index_of = {step.id: index for index, step in enumerate(steps)}
    edges = [Edge(dep, index) for index, deps in enumerate(order.deps) for dep in deps]
    for index, step in enumerate(steps):
        fallbacks = named_fallbacks(step)
        for name in dict.fromkeys(named_aside(step)):
            if name in index_of:
                kind: EdgeKind = "fallback" if name in fallbacks else "compensates"
                edges.append(Edge(index, index_of[name], kind))
    drawn = []
    for index, step in enumerate(steps):
        after = () if order.sequence else tuple(steps[dep].id for dep in order.deps[index])
        drawn.append(_drawn(step, aside, after))
    return Part(label, tuple(drawn), tuple(edges), order.sequence, purpose)


def _drawn(step: Step, aside: Mapping[str, str], after: tuple[str, ...]) -> Drawn:
    blocks = [*step.blocks()]
    return Drawn(
        id=step.id,
        type=step.type,
        name=one_line(step.name),
        detail=one_line(_detail(step)),
        condition=one_line(step.condition.source) if step.condition is not None else "",
        aside=aside.get(step.id, ""),
        after=after,
        parts=tuple(
            _part(_label(step, block), block.steps, aside) for block in blocks if block.steps or len(blocks) <= 2
        ),
        back=tuple(dict.fromkeys(target for _, target in returns(step))),
        recovery=tuple(_part(_recovers(step, block), block.steps, aside, block.purpose) for block in step.recovery()),
    )


def _recovers(step: Step, block: Block) -> str:
    """When the steps of a block run that is no part of what the step does."""
    if block.purpose == "fallback":
        return _when((step.on_error or ())[int(block.where[1])], "it fails")
    return "to undo it" if block.purpose == "undo" else "to verify it"


def _when(rule: ErrorRule, failed: str) -> str:
    kinds = f" with {' or '.join(rule.errors)}" if rule.errors else ""
    return one_line(f"when {failed}{kinds}" + (f" and {rule.when.source}" if rule.when is not None else ""))


def _label(step: Step, block: Block) -> str:
    """What a block is called in its step, and on what condition it is taken."""
    name = block.name or block.segment
    test = next((text for text in step.texts() if text.where == (*block.where[:-1], "when")), None)
    if test is None or not block.name or block.where == ("else",) or isinstance(test.value, Value):
        return one_line(name)
    return one_line(f"{name}: {test.value.source}")


def _detail(step: Step) -> str:
    for text in step.texts():
        if text.where == ("over",):
            return f"over {_written(text.value.source)}"
        if text.where == ("until",) and step.type == "loop":
            most = getattr(step, "max_iterations", None)
            return f"until {text.value.source}" + (f", at most {most} times" if most else "")
        if text.where in {("for",), ("until",)}:
            return f"{text.where[0]} {text.value.source}"
    for word in _NAMING:
        named = getattr(step, word, None)
        if isinstance(named := getattr(named, "source", named), str):
            return named
    return ""


def _written(value: object) -> str:
    if isinstance(value, str):
        return value
    return f"{len(value)} items" if isinstance(value, list) else "items"
