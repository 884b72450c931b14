"""How far a run has got: a tree of steps, iterations and branches, built from a view and moved on by events.

The law of the file: it holds what is to be shown and prints nothing. Iterations that ended well are counted and
forgotten while a run is followed, so that a loop of any length takes little room.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stepwell.definition.workflow import Workflow
from stepwell.engine.events import TEXT
from stepwell.journal.mending import sent_back
from stepwell.journal.path import UNDO, parent, round_number
from stepwell.journal.places import Places
from stepwell.journal.told import owner
from stepwell.journal.view import RunTree, StepRecord

Json: TypeAlias = Any

_BY_EVENT = {
    "step_started": "running",
    "step_completed": "completed",
    "step_failed": "failed",
    "step_skipped": "skipped",
    "step_cancelled": "cancelled",
    "step_retrying": "retrying",
    "step_recovering": "running",
    "step_compensated": "compensated",
}
_WAITING = {"approval": "pending_approval", "incident": "suspended"}
HEARD = 120
"""Characters of a model's text that are kept while it comes."""
_LONG = 10
"""Iterations up to which a loop is shown whole."""
OPEN = frozenset({"pending", "running", "retrying", "pending_approval", "waiting", "suspended"})


@dataclass(slots=True)
class Node:
    """A step, iteration or branch. Times are UTC seconds, 0 where there is none yet."""

    path: str
    label: str
    type: str = ""
    status: str = "pending"
    is_step: bool = True
    started: float = 0.0
    ended: float = 0.0
    attempts: int = 0
    retry_at: float = 0.0
    error: dict[str, Json] | None = None
    note: str = ""
    said: str = ""
    """The end of what a model is saying."""
    answer: Sequence[Json] = ()
    """Which of its answers that is."""
    meta: dict[str, Json] = field(default_factory=dict)
    parts: int | None = None
    done: int = 0
    """Iterations that ended well and were forgotten."""
    inside: dict[str, Node] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return self.status in OPEN


class Progress:
    """The tree of a run, beginning with the steps of its definition that are still to come."""

    def __init__(self, workflow: Workflow | None) -> None:
        self._places = Places(workflow)
        self.undoing: Sequence[str] = ()
        """What the run undoes, in order: the parts of its undoing are called after it."""
        self._nodes: dict[str, Node] = {}
        self.root = Node("", "", is_step=False)
        for _, step in self._places.expected(self._places.at("")):
            self._at(f"/{step.id}")

    @classmethod
    def of(cls, tree: RunTree, *, whole: bool = True) -> Progress:
        """The progress that a view tells; without `whole`, well-ended iterations of long loops are only counted."""
        progress = cls(tree.workflow)
        progress.undoing = tree.story.undoing or ()
        for record in tree.steps:
            progress.take(record)
        for wait in tree.waits:
            node = progress._at(owner(wait.path))
            title = wait.request.get("title", "") if isinstance(wait.request, Mapping) else ""
            node.note = str(title or "")
            node.status = _WAITING.get(wait.kind, "waiting")
            node.retry_at = wait.deadline if wait.kind == "timer" else 0.0
        for _, node in reversed(list(progress.walk())):
            progress._conclude(node, whole=whole)
        return progress

    def _conclude(self, node: Node, *, whole: bool) -> None:
        """How an iteration or branch stands follows from its steps; a view has no record of it."""
        inside = list(node.inside.values())
        if not node.is_step:
            states = {node.status} & (OPEN - {"pending"}) or {inner.status for inner in inside}
            order = ("failed", "cancelled", *sorted(OPEN - {"pending"}))
            node.status = next((status for status in order if status in states), "completed")
            node.started = min((inner.started for inner in inside if inner.started), default=0.0)
            node.ended = 0.0 if states & OPEN else max((inner.ended for inner in inside), default=0.0)
        elif node.type == "loop" and len(inside) > _LONG and not whole:
            for inner in inside:
                self._forget(inner)

    def take(self, record: StepRecord) -> None:
        """A step as the view tells it."""
        node = self._at(record.path)
        node.status, node.attempts, node.error = record.status, record.attempts, record.error
        node.started, node.ended, node.parts = record.started, record.ended, record.parts
        node.meta = record.meta or {}
        if record.skip_reason:
            node.note = reason_text(record.skip_reason)
        elif record.status == "failed" and record.error is None:
            node.note = sent_back(record.output)

    def event(self, name: str, path: str, at: float, data: Mapping[str, Json]) -> None:
        """Something that happened to a step, iteration or branch."""
        if name == TEXT:
            self._hear(self._at(path), data)
            return
        if name == "run_undoing":
            self.undoing = data.get("steps", ())
        if name in {"turn_taken", "tool_called"}:
            self._at(path).note = turn_text(name, data)
            return
        status = _BY_EVENT.get(name)
        if name == "waiting":
            status = _WAITING.get(str(data.get("kind")), "waiting")
        if status is None or not path:
            return
        node = self._at(path)
        node.status = status
        node.attempts = int(data.get("attempts") or data.get("attempt") or node.attempts)
        node.error = data.get("error")
        node.said = ""
        node.retry_at = float(data.get("retry_at") or 0.0)
        node.meta = data.get("meta") or node.meta
        node.parts = data.get("items", node.parts)
        node.note = str(data.get("title") or "") or reason_text(data.get("reason")) or doing_text(data.get("strategy"))
        if node.is_open:
            node.started = node.started or at
        else:
            node.ended = at
            node.started = node.started or at - float(data.get("duration_ms") or 0) / 1000
        self._open_around(path, at)
        self._forget(node)

    def _hear(self, node: Node, data: Mapping[str, Json]) -> None:
        answer = tuple(data.get(word) for word in ("attempt", "turn", "answer"))
        before = node.said if answer == node.answer else ""
        node.said, node.answer = (before + str(data.get("text", "")))[-HEARD:], answer

    def kind_of(self, path: str) -> str:
        """What lies at a path: step, iteration or branch."""
        if self._places.at(path).is_step:
            return "step"
        return "iteration" if path.rpartition("/")[2].isdigit() else "branch"

    def walk(self) -> Iterator[tuple[int, Node]]:
        """All nodes with their depth, containers before what is inside them."""
        stack = [(0, node) for node in reversed(self.root.inside.values())]
        while stack:
            depth, node = stack.pop()
            yield depth, node
            stack += [(depth + 1, inner) for inner in reversed(node.inside.values())]

    def _open_around(self, path: str, at: float) -> None:
        above = parent(path)
        while above:
            node = self._at(above)
            if node.status != "pending":
                break
            node.status, node.started = "running", at
            above = parent(above)

    def _forget(self, node: Node) -> None:
        """Drop an iteration that needs nobody's attention any more, and skipped parts inside containers."""
        above = self._nodes.get(parent(node.path))
        if above is not None and node.status == "completed" and self.kind_of(node.path) == "iteration":
            above.done += 1
            self._drop(node)

    def _drop(self, node: Node) -> None:
        self._at(parent(node.path)).inside.pop(node.path, None)
        below = [node]
        while below:
            dropped = below.pop()
            self._nodes.pop(dropped.path, None)
            below += dropped.inside.values()

    def _at(self, path: str) -> Node:
        if not path:
            return self.root
        node = self._nodes.get(path)
        if node is None:
            place = self._places.at(path)
            label = place.id if place.is_step else self._label(path)
            if (number := round_number(path)) > 1:
                label = f"{label} (round {number})"
                first = self._nodes.get(path.rpartition("#")[0])
                if first is not None and first.status == "pending":
                    self._drop(first)  # it was not reached before the run went back
            node = self._nodes[path] = Node(path, label, place.type, is_step=place.is_step)
            self._at(parent(path)).inside[path] = node
        return node

    def _label(self, path: str) -> str:
        """What an iteration, a branch or a part of a recovery is called."""
        above, last = parent(path), path.rpartition("/")[2].partition("#")[0]
        if above == UNDO and last.isdigit() and int(last) < len(self.undoing):
            return f"undo {self.undoing[int(last)].lstrip('/')}"
        return _PARTS.get(last) or (f"[{last}]" if last.isdigit() else last)


def turn_text(name: str, data: Mapping[str, Json]) -> str:
    """How far an agent step has come."""
    number = data.get("turn")
    if name == "turn_taken":
        calls = data.get("calls") or ()
        return f"turn {number}: {', '.join(calls)}" if calls else f"turn {number}: it answers"
    error = data.get("error")
    said = f"{error.get('kind')}: {error.get('message')}" if isinstance(error, Mapping) else "done"
    return f"turn {number}: call {int(data.get('call') or 0) + 1} {said}"


_PARTS = {"~fallback": "fallback", "~verify": "verify", "~undo": "undoing"}
_DOING = {
    "fallback": "its fallback runs",
    "verify": "finding out whether the call took effect",
    "suspend": "an operator is asked",
}


def doing_text(strategy: Json) -> str:
    """What is done about a failure."""
    return _DOING.get(str(strategy or ""), "")


def by_text(meta: Mapping[str, Json] | None) -> str:
    """By what or whom a step was completed, where it was not the step itself."""
    meta = meta or {}
    match meta.get("completed_by"):
        case "fallback":
            return f"by its fallback {meta.get('fallback', '')}".rstrip()
        case "operator":
            return f"by {(meta.get('settled') or {}).get('by') or 'an operator'}"
        case "verify":
            return "verified: the call had taken effect"
    return ""


_REASONS = {
    "dependencies_skipped": "what it depends on was skipped",
    "branch_not_taken": "another branch was taken",
    "upstream_failed": "a step before it failed",
    "run_ended": "the run had ended",
    "continued": "failed, and the run goes on",
    "failed_inside": "",
    "goto": "the run goes back",
    "race_lost": "another branch won",
    "in_doubt": "nobody knows whether the call took effect",
}


def reason_text(reason: Mapping[str, Json] | None) -> str:
    """Why a step was skipped or withdrawn, in words."""
    if not reason:
        return ""
    word = str(reason.get("type"))
    if word == "condition_false":
        expression = reason.get("expression")
        seen = [(name, value) for name, value in (reason.get("values") or {}).items() if name != expression]
        values = ", ".join(f"{name} is {json.dumps(value, ensure_ascii=False)}" for name, value in seen)
        return f"{expression} is false" + (f": {values}" if values else "")
    if word == "operator":
        comment = f": {reason['message']}" if reason.get("message") else ""
        return f"by {reason.get('by') or 'an operator'}{comment}"
    if word == "withdrawn":
        return f"withdrawn: {reason.get('message')}"
    if word == "branch_not_taken" and reason.get("taken"):
        return f"the branch {reason['taken']} was taken"
    return _REASONS.get(word, word)
