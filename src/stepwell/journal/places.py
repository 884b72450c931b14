"""Places: which step of the definition a path of the journal belongs to.

The law of the file: paths are read along the definition, never guessed from how a segment looks, since a branch may be
called as a step is. Only where the definition is unknown is a number an iteration and all else a step. Segments that
begin with "~" are no steps: below them lie those that recover from a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from stepwell.definition.graph import named_fallbacks
from stepwell.definition.step import FALLBACK, UNDO, VERIFY, Block, Step
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
    step: Step | None = field(default=None, compare=False, repr=False)
    workflow: Workflow | None = field(default=None, compare=False, repr=False)
    """The workflow whose steps lie here."""

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
        self._ids: dict[int, dict[str, Step]] = {}
        shape = _whole(workflow) if workflow is not None else _NOTHING
        self._at: dict[str, Place] = {"": Place(shape=shape, workflow=workflow)}

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
                place = replace(place, shape=_whole(child), workflow=child)
            self._at[below] = place
        return self._at[path]

    def index(self, path: str) -> int | None:
        """The index of the innermost iteration that `path` lies in; None outside loops."""
        at = parent(path)
        while at:
            last = _bare(at)
            if last.isdigit() and not self.at(at).is_step and parent(at) != f"/{UNDO}":
                return int(last)
            at = parent(at)
        return None

    def passed_over(self, place: Place, taken: str) -> Iterator[tuple[str, Place]]:
        """Steps of the branches that were not taken, with the segment they lie below."""
        return self._inside(place, (block for block in place.shape.blocks if block.name != taken))

    def expected(self, place: Place, taken: str | None = None) -> Iterator[tuple[str, Place]]:
        """Steps that have an entry once the place has settled, had they been reached."""
        shape = place.shape
        if shape.loops or (shape.chooses and taken is None):
            return iter(())
        return self._inside(place, (block for block in shape.blocks if not shape.chooses or block.name == taken))

    def all_inside(self, place: Place) -> Iterator[tuple[str, Place]]:
        """Steps inside a step that never ran; the body of a loop has no place without an iteration."""
        return self._inside(place, () if place.shape.loops else place.shape.blocks)

    def _inside(self, place: Place, blocks: Iterable[Block]) -> Iterator[tuple[str, Place]]:
        aside = place.workflow.aside if place.workflow is not None else {}
        for block in blocks:
            prefix = f"/{block.segment}" if block.segment else ""
            for step in block.steps:
                if step.id not in aside:
                    yield prefix, self._step(step, 1, place.workflow)

    def _below(self, above: Place, path: str) -> Place:
        segment, shape = _bare(path), above.shape
        if segment.startswith("~"):
            return Place(round=round_number(path), shape=self._recovery(above, segment), workflow=above.workflow)
        if segment.isdigit() and (shape.loops or not self._known):
            return Place(shape=Shape(shape.blocks, shape.steps), workflow=above.workflow)
        if branch := shape.branches.get(segment):
            return Place(shape=Shape.of([Block(branch.where, branch.steps)]), workflow=above.workflow)
        if not shape.loops and (step := shape.steps.get(segment)):
            return self._step(step, round_number(path), above.workflow)
        return Place(id=segment, round=round_number(path))

    def _recovery(self, above: Place, segment: str) -> Shape:
        """What lies below a segment that is no step's: what takes a step's place, verifies it, or undoes others."""
        step, workflow = above.step, above.workflow
        if segment == UNDO and workflow is not None and step is None:
            called = (self._by_id(child) for child in self._children.values())
            return Shape(steps={k: v for ids in called for k, v in ids.items()} | self._by_id(workflow), loops=True)
        if step is None or workflow is None or segment not in {FALLBACK, VERIFY}:
            return _NOTHING
        found = [block for block in step.recovery() if block.segment == segment]
        if segment == FALLBACK:
            found += workflow.fallbacks().values()
            ids = self._by_id(workflow)
            found.append(Block((), tuple(ids[name] for name in named_fallbacks(step) if name in ids)))
        return Shape(steps={inner.id: inner for block in found for inner in block.steps})

    def _by_id(self, workflow: Workflow) -> dict[str, Step]:
        """Every step of a workflow, wherever it lies."""
        found = self._ids.get(id(workflow))
        if found is None:
            found = self._ids[id(workflow)] = {step.id: step for step in workflow.every_step()}
        return found

    def _step(self, step: Step, number: int, workflow: Workflow | None) -> Place:
        shape = self._shapes.get(id(step))
        if shape is None:
            shape = self._shapes[id(step)] = Shape.of(step.blocks())
        return Place(step.id, step.type, step.name, number, shape, step, workflow)


def _whole(workflow: Workflow) -> Shape:
    """What lies directly below a run, or below a step that called a workflow."""
    shape = Shape.of([Block((), workflow.steps)])
    if workflow.on_failure is not None:  # not expected of a run that does not fail
        shape.branches[AFTER_FAILURE] = Block((), workflow.on_failure.steps, segment=AFTER_FAILURE)
    return shape


def _bare(path: str) -> str:
    return path.rpartition("/")[2].partition("#")[0]
