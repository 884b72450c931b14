"""Checks of a definition, one file for each family; they execute nothing and open no socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.definition.check.approvals import check_approvals
from stepwell.definition.check.graph import check_graph
from stepwell.definition.check.http import check_http
from stepwell.definition.check.performed import check_performed
from stepwell.definition.check.policies import check_policies
from stepwell.definition.check.recipe_tests import check_recipe_tests
from stepwell.definition.check.recipes import check_recipes
from stepwell.definition.check.recovery import check_recovery
from stepwell.definition.check.references import check_recipe_texts, check_references
from stepwell.definition.check.schemas import check_recipe_schemas, check_schemas
from stepwell.definition.check.structure import check_structure
from stepwell.definition.check.survey import survey

if TYPE_CHECKING:
    from stepwell.definition.parse import Parsed
    from stepwell.definition.recipe import RecipeDefinition
    from stepwell.definition.report import Finding
    from stepwell.definition.step import Recipes
    from stepwell.definition.workflow import Workflow


def check(parsed: Parsed[Workflow], recipes: Recipes) -> list[Finding]:
    """Everything that is wrong with a workflow, or might be."""
    found = survey(parsed)
    return [
        *check_structure(found),
        *check_graph(found),
        *check_schemas(found),
        *check_references(found, recipes),
        *check_policies(found),
        *check_http(found),
        *check_recovery(found),
        *check_approvals(found),
        *check_recipes(found, recipes),
        *check_performed(found),
    ]


def check_recipe(parsed: Parsed[RecipeDefinition]) -> list[Finding]:
    """Everything that is wrong with a recipe, or might be."""
    recipe = parsed.model
    schemas = [*check_recipe_schemas(recipe)]
    sound = not parsed.faults and not any(one.severity == "error" for one in schemas)
    return [*schemas, *check_recipe_texts(recipe), *(check_recipe_tests(recipe) if sound else ())]
