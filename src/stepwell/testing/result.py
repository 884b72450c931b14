"""What came of a run in a test, and the run told as a tree for whoever reads a failed test.

The law of the file: it holds what the journal says, so that a test asserts what a user would see.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stepwell.journal.view import RunTree, StepRecord
from stepwell.ports import Outgoing, Run, Wait
from stepwell.testing.scripted_world import Call

Json: TypeAlias = Any
_SHOWN = 160
_SIGNS = {"completed": "✓", "compensated": "↶", "failed": "✗", "skipped": "-", "cancelled": "×"}


class Steps(Mapping[str, StepRecord]):
    """The steps of a run by path; an id will do for a step that is there once, and names its last round."""

    def __init__(self, steps: tuple[StepRecord, ...]) -> None:
        self._steps = {step.path: step for step in steps}
        """A path without rounds means the last round: rounds are told in journal order."""
        self._named: dict[str, list[StepRecord]] = {}
        for step in steps:
            self._named.setdefault(_bare(step.path), []).append(step)
            self._named.setdefault(step.id, []).append(step)

    def __getitem__(self, name: str) -> StepRecord:
        if name in self._steps and len(self._named.get(name, ())) <= 1:
            return self._steps[name]
        found = self._named.get(name) or self._named.get(f"/{name}") or []
        places = {_bare(step.path) for step in found}
        if len(places) == 1:
            return max(found, key=lambda step: step.round)
        if len(places) > 1:
            raise KeyError(f"{name} ran at {len(places)} places; name one: {', '.join(sorted(places)[:5])}")
        if name in self._steps:
            return self._steps[name]
        raise KeyError(f"there is no step {name}; there are {', '.join(self._steps)}")

    def __iter__(self) -> Any:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)


def _bare(path: str) -> str:
    return "".join(f"/{segment.partition('#')[0]}" for segment in path.split("/")[1:])


@dataclass(frozen=True, slots=True)
class Moment:
    """Something in a run: `at` is seconds since it began."""

    at: float
    path: str
    what: str


@dataclass(frozen=True, slots=True)
class Result:
    """A run that has ended, or that waits for something that no script brings."""

    run: Run
    tree: RunTree
    calls: list[Call]
    approvals: list[Wait]
    """All waits for people, in order of their opening, decided or not."""
    notifications: list[Outgoing]
    refused: list[str]
    """Acts of people that the engine refused, and why."""
    waits: list[Wait] = field(default_factory=list)
    """What the run still waits for."""
    appends: int = 0
    """Writes to the journal: how many crashes there could be."""
    virtual_seconds: float = 0.0
    repeated: list[Call] = field(default_factory=list)
    """Calls made after a crash whose results had been recorded before it: there must be none."""

    @property
    def status(self) -> str:
        return self.run.status

    @property
    def output(self) -> Json:
        return self.run.output

    @property
    def error(self) -> dict[str, Json] | None:
        return self.run.error

    @property
    def steps(self) -> Steps:
        return Steps(self.tree.steps)

    @property
    def timeline(self) -> list[Moment]:
        """When steps began and ended, in order."""
        began = self.run.created
        moments = []
        for step in self.tree.steps:
            if step.started:
                moments.append(Moment(round(step.started - began, 3), step.path, "started"))
            if step.ended:
                moments.append(Moment(round(step.ended - began, 3), step.path, step.status))
        return sorted(moments, key=lambda moment: moment.at)

    def called(self, name: str) -> list[Json]:
        """The arguments of every call of a tool, or of a step by its id or path, in order."""
        return [call.arguments for call in self.calls if name in {call.tool, call.step, call.path}]

    def expect(self, status: str = "completed") -> Result:
        """The result itself. Raises AssertionError with the whole run if its status is another."""
        if self.status != status:
            raise AssertionError(f"the run is {self.status}, not {status}\n\n{self}")
        return self

    def __str__(self) -> str:
        """The run as a tree: every step with how it ended, its output or its error."""
        lines = [f"run of {self.run.workflow}: {self.status}"]
        if self.error:
            lines.append(f"  error: {self.error.get('kind')}: {self.error.get('message')}")
        lines += [_line(step) for step in self.tree.steps]
        lines += [f"  waits: {wait.path} ({wait.kind})" for wait in self.waits]
        lines += [f"  refused: {refusal}" for refusal in self.refused]
        return "\n".join(lines)


def _line(step: StepRecord) -> str:
    """A step as one line of the tree."""
    indent = "  " * step.path.count("/")
    attempts = f" ({step.attempts} attempts)" if step.attempts > 1 else ""
    told = ""
    if step.error and step.status != "completed":
        told = f"  {step.error.get('kind')}: {step.error.get('message')}"
    elif step.skip_reason:
        told = f"  {step.skip_reason.get('type')}"
    elif step.output is not None:
        told = f"  {short(step.output)}"
    return f"{indent}{_SIGNS.get(step.status, '?')} {step.path} {step.status}{attempts}{told}"


def short(value: Json) -> str:
    """A value as JSON on one line, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
