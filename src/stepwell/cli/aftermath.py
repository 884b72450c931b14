"""What is left of a run that went wrong: what was undone and what was not, and calls that nobody knows the end of.

The law of the file: it is said of steps that touch the world; what only computes or reads leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepwell.cli.text import json_text, visible
from stepwell.journal.view import instant

if TYPE_CHECKING:
    from stepwell.journal.view import RunTree, StepRecord

_LEAVES_NOTHING = frozenset(
    {
        "recipe", "llm_call", "kb_search", "set", "condition", "loop", "parallel", "sub_workflow", "approval", "wait",
        "end",
    }
)  # fmt: skip
_MOST = 20


def undone_lines(tree: RunTree) -> Iterator[str]:
    """What a run that was undone has undone, in order, and what stays as it is."""
    if tree.story.undoing is None:
        return
    status = {step.path: step.status for step in tree.steps}
    left = {one["path"]: one for one in tree.story.left}
    undone = [path for path in tree.story.undoing if status.get(path) == "compensated"]
    yield f"undone:     {_some(undone) or 'nothing'}"
    for path in tree.story.undoing:
        if path in left:
            yield f"not undone: {visible(path)}  {visible(left[path]['by'] or 'an operator')} left it as it is"
        elif status.get(path) != "compensated":
            yield f"not undone: {visible(path)}"
    others = [step.path for step in tree.steps if _touched(step) and step.path not in tree.story.undoing]
    if others:
        yield f"not undone: {_some(others)}  (no compensate says how)"


def _touched(step: StepRecord) -> bool:
    return step.status == "completed" and step.type not in _LEAVES_NOTHING and "/~" not in step.path


def _some(found: list[str]) -> str:
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return visible(", ".join(found[:_MOST])) + more


def is_in_doubt(step: StepRecord) -> bool:
    """Whether a call of this step was made, and nobody knows whether it took effect."""
    if step.status == "cancelled":
        return (step.skip_reason or {}).get("type") == "in_doubt"
    return step.status == "failed" and (step.error or {}).get("kind") == "in_doubt"


def doubt_lines(tree: RunTree) -> Iterator[str]:
    """The calls of a run that nobody knows the end of, each with what finds it on the other side."""
    for step in tree.steps:
        if is_in_doubt(step):
            yield f"in doubt:   {visible(step.path)}  the call was made, and nobody knows whether it took effect"
            yield f"            its key: {visible(tree.run.id + step.path)}"
            if step.input is not None:
                yield f"            its arguments: {visible(json_text(step.input))}"


def return_lines(tree: RunTree) -> Iterator[str]:
    """When people made the run go back."""
    for one in tree.story.returns:
        place = f" from {visible(one['from'])}" if one["from"] else ""
        if one["forked_from"]:
            yield f"made of run {visible(one['forked_from'])}{place} by {visible(one['by'])}"
        else:
            word = "redriven" if one["action"] == "redrive" else "rerun"
            yield f"{word}{place} by {visible(one['by'])} at {instant(one['at'])}"
