"""Which steps and branches of a workflow its tests have run, and which none has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stepwell.definition.load import LoadedWorkflow
from stepwell.definition.step import Step
from stepwell.testing.result import Result
from stepwell.testing.suite import blocks


@dataclass(slots=True)
class Coverage:
    """Of one workflow, over several runs. Places are paths without rounds and iterations."""

    loaded: LoadedWorkflow
    steps: dict[str, str] = field(default_factory=dict)
    """All steps by place, with the branch of a condition that they lie in ("" for none)."""
    branches: list[str] = field(default_factory=list)
    ran: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for place, branch, names in _places(blocks(self.loaded), "", ""):
            self.steps[place] = branch
            self.branches += [f"{place}/{name}" for name in names]

    def add(self, result: Result) -> None:
        """Count what a run has run."""
        for step in result.tree.steps:
            if step.status == "skipped":
                continue
            place = _place(step.path)
            self.ran.add(place)
            if "/~" in place:  # a step kept out of the flow runs below the one that it stands in for
                self.ran.update(known for known in self.steps if known.endswith(f"/{step.id}"))
            if step.type == "condition" and isinstance(step.output, dict):
                self.ran.add(f"{place}/{step.output.get('branch')}")

    @property
    def missed(self) -> list[str]:
        """Branches and steps that never ran; what lies in a branch that is told is not told again."""
        branches = [branch for branch in self.branches if branch not in self.ran]
        hidden = tuple(f"{branch}/" for branch in branches)
        steps = [
            place
            for place, branch in self.steps.items()
            if place not in self.ran and branch not in branches and not f"{branch}/".startswith(hidden or ("\0",))
        ]
        return [*branches, *steps]

    @property
    def counted(self) -> tuple[int, int]:
        """How many steps and branches have run, of how many."""
        places = [*self.steps, *self.branches]
        return sum(place in self.ran for place in places), len(places)


def _places(steps: Iterable[Step], above: str, branch: str) -> Iterator[tuple[str, str, list[str]]]:
    """Every step: its place, the innermost branch that it lies in, and the names of its own branches."""
    for step in steps:
        place = f"{above}/{step.id}"
        own = [*step.all_blocks()]
        yield place, branch, [block.name for block in own if block.name and not block.segment]
        for block in own:
            below = f"{place}/{block.segment}" if block.segment else place
            inner = f"{place}/{block.name}" if block.name and not block.segment else branch
            yield from _places(block.steps, below, inner)


def _place(path: str) -> str:
    segments = (segment.partition("#")[0] for segment in path.split("/")[1:])
    return "".join(f"/{segment}" for segment in segments if not segment.isdigit())
