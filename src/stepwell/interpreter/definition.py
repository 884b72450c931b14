"""A definition as a run pinned it: compiled, with everything that it names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.definition.compile import Plan
    from stepwell.definition.recipe import RecipeDefinition


@dataclass(frozen=True, slots=True)
class Definition:
    """A plan, the recipes by the names its steps call them, and the digests of the sub-workflows it names."""

    plan: Plan
    recipes: dict[str, RecipeDefinition]
    workflows: dict[str, str] = field(default_factory=dict)
    file: str = ""
