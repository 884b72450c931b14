"""Places: which step of the definition a path of the journal belongs to.

The law of the file: paths are read along the definition, never guessed from how a segment looks, since a branch may be
called as a step is. Only where the definition is unknown is a number an iteration and all else a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from stepwell.definition.step import Block, Step
from stepwell.definition.workflow import Workflow
from stepwell.journal.path import AFTER_FAILURE, parent, round_number


@dataclass(frozen=True, slots=True)
class Shape:
    """What may lie directly below a place: steps, or named branches of steps, or iterations of them."""

    blocks: tuple[Block, ...] = ()
    steps: dict[str, Step] = field(default_factory=dict)
    branches: dict[str, Block] = field(default_factory=dict)
    loops: bool = False
    chooses: bool = False
    """Whether one of the blocks is taken, so that the steps of the others never run."""

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> Shape:
        found = tuple(blocks)
        direct = [block for block in found if not block.segment]
        return cls(
            found,
            {step.id: step for block in direct for step in block.steps},
            {block.segment: block for block in found if block.segment},
            loops=any(block.item is not None for block in found),
            chooses=any(block.name for block in found),
        )


_NOTHING = Shape()


@dataclass(frozen=True, slots=True)
class Place:
    """A place of a run: a step, an iteration or branch of one, or the run itself (`id` is empty for all but steps)."""

    id: str = ""
    type: str = ""
    name: str = ""
    round: int = 1
    shape: Shape = _NOTHING

    @property
    def is_step(self) -> bool:
        return bool(self.id)


class Places:
    """The places of a workflow's runs, each looked up once."""

    def __init__(self, workflow: Workflow | None, children: Mapping[str, Workflow] | None = None) -> None:
        """`children` are the workflows that sub-workflow steps called, by the steps' paths."""
        self._children = children or {}
        self._known = workflow is not None
        self._shapes: dict[int, Shape] = {}
        self._at: dict[str, Place] = {"": Place(shape=_whole(workflow) if workflow is not None else _NOTHING)}

    def at(self, path: str) -> Place:
        """The place at `path`; one that the definition does not have is a step of unknown type."""
        missing: list[str] = []
        above = path
        while above not in self._at:
            missing.append(above)
            above = parent(above)
        for below in reversed(missing):
            place = self._below(self._at[parent(below)], below)
            if (child := self._children.get(below)) is not None:
                place = replace(place, shape=_whole(child))
            self._at[below] = place
        return self._at[path]

    def index(self, path: str) -> int | None:
        """The index of the innermost iteration that `path` lies in; None outside loops."""
        at = parent(path)
        while at:
            last = _bare(at)
            if last.isdigit() and not self.at(at).is_step:
                return int(last)
            at = parent(at)
        return None

    def passed_over(self, place: Place, taken: str) -> Iterator[tuple[str, Place]]:
        """Steps of the branches that were not taken, with the segment they lie below."""
        return self._inside(block for block in place.shape.blocks if block.name != taken)

    def expected(self, place: Place, taken: str | None = None) -> Iterator[tuple[str, Place]]:
        """Steps that have an entry once the place has settled, had they been reached."""
        shape = place.shape
        if shape.loops or (shape.chooses and taken is None):
            return iter(())
        return self._inside(block for block in shape.blocks if not shape.chooses or block.name == taken)

    def all_inside(self, place: Place) -> Iterator[tuple[str, Place]]:
        """Steps inside a step that never ran; the body of a loop has no place without an iteration."""
        return self._inside(() if place.shape.loops else place.shape.blocks)

    def _inside(self, blocks: Iterable[Block]) -> Iterator[tuple[str, Place]]:
        for block in blocks:
            prefix = f"/{block.segment}" if block.segment else ""
            for step in block.steps:
                yield prefix, self._step(step)

    def _below(self, above: Place, path: str) -> Place:
        segment, shape = _bare(path), above.shape
        if segment.isdigit() and (shape.loops or not self._known):
            return Place(shape=Shape(shape.blocks, shape.steps))
        if branch := shape.branches.get(segment):
            return Place(shape=Shape.of([Block(branch.where, branch.steps)]))
        if not shape.loops and (step := shape.steps.get(segment)):
            return self._step(step, round_number(path))
        return Place(id=segment, round=round_number(path))

    def _step(self, step: Step, number: int = 1) -> Place:
        shape = self._shapes.get(id(step))
        if shape is None:
            shape = self._shapes[id(step)] = Shape.of(step.blocks())
        return Place(step.id, step.type, step.name, number, shape)


def _whole(workflow: Workflow) -> Shape:
    """What lies directly below a run, or below a step that called a workflow."""
    shape = Shape.of([Block((), workflow.steps)])
    if workflow.on_failure is not None:  # not expected of a run that does not fail
        shape.branches[AFTER_FAILURE] = Block((), workflow.on_failure.steps, segment=AFTER_FAILURE)
    return shape


def _bare(path: str) -> str:
    return path.rpartition("/")[2].partition("#")[0]
