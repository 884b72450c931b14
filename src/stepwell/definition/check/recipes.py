"""Recipes that steps name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.definition.report import Finding
from stepwell.definition.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.check.survey import Survey
    from stepwell.definition.step import Recipes


def check_recipes(survey: Survey, recipes: Recipes) -> Iterator[Finding]:
    """Recipes exist, where somebody knows which there are."""
    known = recipes.names()
    for site in survey.steps:
        name = getattr(site.step, "recipe", None)
        if site.step.type != "recipe" or site.broken or not isinstance(name, str):
            continue
        where = (*site.where, "recipe")
        bare = name.partition("@")[0]
        if not bare:
            yield Finding("recipe", "a recipe is named by its id, or id@version", where)
        elif known is not None and bare not in known:
            yield Finding("recipe", f"there is no recipe '{bare}'", where, did_you_mean(bare, sorted(known), "recipes"))
