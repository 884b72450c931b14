"""What model steps retrieve by themselves: which names count for a step, and what its output then looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepwell.definition.step import Schema, Step
    from stepwell.definition.workflow import Workflow

Json: TypeAlias = Any

CITATIONS: dict[str, Json] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "document": {"type": "string"},
            "version": {"type": "integer"},
            "heading": {"type": "string"},
            "page": {"type": "integer"},
            "quote": {"type": "string"},
        },
        "required": ["n", "document", "version", "heading", "page", "quote"],
        "additionalProperties": False,
    },
}
"""The sources that an answer cites: a list, in the order in which the answer names them first."""


def text_answer(*, cited: bool | None = False) -> dict[str, Json]:
    """The schema of an answer without a schema of its own; `cited` is None where it may have citations or not."""
    properties: dict[str, Json] = {"text": {"type": "string"}}
    if cited is not False:
        properties["citations"] = CITATIONS
    required = ["text", "citations"] if cited else ["text"]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def names_for(own: Sequence[str] | None, recipe: Sequence[str], workflow: Workflow) -> tuple[tuple[str, ...], str]:
    """Names and department that count for a step: its own first, then its recipe's and its workflow's, each once.

    A step that says `knowledge: []` retrieves nothing.
    """
    if own is not None and not own:
        return (), ""
    return tuple(dict.fromkeys([*(own or ()), *recipe, *workflow.knowledge])), workflow.department


def shape_within(step: Step, shape: Schema | None, workflow: Workflow) -> Schema | None:
    """The schema of a step's output, where its workflow may give it sources that the step does not name itself."""
    if shape != text_answer() or not hasattr(step, "knowledge") or step.knowledge == ():
        return shape
    if workflow.knowledge:
        return text_answer(cited=True)
    return text_answer(cited=None) if workflow.department else shape
