"""A definition as a run pinned it: compiled, with everything that it names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.schemas import problems_of, with_defaults
from stepwell.errors import StepFailed

if TYPE_CHECKING:
    from stepwell.definition.compile import Plan
    from stepwell.definition.recipe import RecipeDefinition

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Definition:
    """A plan, the recipes by the names its steps call them, and the digests of the sub-workflows it names."""

    plan: Plan
    recipes: dict[str, RecipeDefinition]
    workflows: dict[str, str] = field(default_factory=dict)
    file: str = ""


def input_of(definition: Definition, inputs: dict[str, Json]) -> Json:
    """The input of a sub-workflow with its defaults. Raises StepFailed (validation_error) if it does not fit."""
    schema = definition.plan.workflow.input
    filled = with_defaults(schema, inputs)
    for problem in problems_of(schema, filled) if schema else ():
        raise StepFailed("validation_error", f"input of {definition.plan.workflow.workflow}: {problem}")
    return filled
