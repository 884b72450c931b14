"""Run a reusable prompt from the recipe library and parse its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from stepwell.definition.fields import Json, Value
from stepwell.definition.retrieval import names_for, text_answer
from stepwell.definition.step import Recipes, Schema
from stepwell.interpreter.kind import Action

if TYPE_CHECKING:
    from stepwell.interpreter.effect import Effect
    from stepwell.interpreter.scope import Scope


class Recipe(Action):
    """Runs a recipe (`id`, or `id@version`); the output is the parsed answer, or `{text}` without a schema.

    With `knowledge`, `{text, citations}`.
    """

    type: Literal["recipe"]
    recipe: str
    inputs: dict[str, Value] = {}
    model: str | dict[str, Json] | None = None
    knowledge: tuple[str, ...] | None = None
    """Collections and documents besides those of the recipe and the workflow; none at all if it is an empty list."""

    def shape(self, recipes: Recipes) -> Schema | None:
        shape = self.output_schema or recipes.output_schema(self.recipe)
        if self.knowledge == () and shape == text_answer(cited=True):
            return text_answer()
        return text_answer(cited=True) if self.knowledge and shape == text_answer() else shape

    def effect(self, scope: Scope) -> Effect:
        inputs = {name: scope.render(value) for name, value in self.inputs.items()}
        recipe = scope.recipe(self.recipe)
        sources = names_for(self.knowledge, recipe.definition.knowledge, scope.definition.plan.workflow)
        return recipe.call(inputs, model=self.model, sources=sources, schema=self.output_schema)
