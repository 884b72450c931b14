"""Run a reusable prompt from the recipe library and parse its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from stepwell.definition.fields import Json, Value
from stepwell.definition.step import Recipes, Schema
from stepwell.interpreter.kind import Action

if TYPE_CHECKING:
    from stepwell.interpreter.effect import Effect
    from stepwell.interpreter.scope import Scope


class Recipe(Action):
    """Runs a recipe (`id`, or `id@version`); the output is the parsed answer, or `{text}` without a schema."""

    type: Literal["recipe"]
    recipe: str
    inputs: dict[str, Value] = {}
    model: str | dict[str, Json] | None = None
    knowledge: tuple[str, ...] = ()

    def shape(self, recipes: Recipes) -> Schema | None:
        return self.output_schema or recipes.output_schema(self.recipe)

    def effect(self, scope: Scope) -> Effect:
        inputs = {name: scope.render(value) for name, value in self.inputs.items()}
        return scope.recipe(self.recipe).call(
            inputs, model=self.model, knowledge=self.knowledge, schema=self.output_schema
        )
