"""A recipe as a run pinned it, turned into a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.errors import StepFailed
from stepwell.interpreter.effect import ModelCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepwell.definition.fields import Template
    from stepwell.definition.recipe import RecipeDefinition

Json: TypeAlias = Any


class PinnedRecipe:
    """A recipe under the name by which steps call it."""

    __slots__ = ("definition", "name")

    def __init__(self, name: str, definition: RecipeDefinition) -> None:
        self.name = name
        self.definition = definition

    def call(
        self,
        inputs: dict[str, Json],
        *,
        model: Json = None,
        sources: tuple[tuple[str, ...], str] | None = None,
        schema: dict[str, Json] | None = None,
    ) -> ModelCall:
        """The question with its inputs put in; `sources` are names of `knowledge` and the department, else its own.

        Raises StepFailed when they do not fit the recipe's input schema.
        """
        recipe = self.definition
        knowledge, department = sources or (recipe.knowledge, "")
        if recipe.task != "generate":
            knowledge, department = (), ""
        filled = self._filled(inputs)
        context = {"input": filled, "workflow_input": filled}
        choice = recipe.model
        return ModelCall(
            prompt=_text(recipe.prompt, context),
            system=_text(recipe.system, context),
            task=recipe.task,
            model=model or choice.model_dump(exclude_defaults=True) or None,
            schema=schema or recipe.output_schema,
            labels={name: label.model_dump() for name, label in recipe.labels.items()} if recipe.labels else None,
            inputs=filled,
            knowledge=knowledge,
            department=department,
            temperature=choice.temperature,
            max_tokens=choice.max_tokens,
            recipe=f"{recipe.recipe}@{recipe.version}",
        )

    def _filled(self, inputs: dict[str, Json]) -> dict[str, Json]:
        """The inputs with defaults for absent ones; null is a value."""
        properties: Mapping[str, Json] = self.definition.input.get("properties", {})
        filled = {name: schema["default"] for name, schema in properties.items() if "default" in schema} | inputs
        missing = [name for name in self.definition.input.get("required", ()) if name not in filled]
        if missing:
            raise StepFailed("validation_error", f"recipe {self.name} needs the input {', '.join(missing)}")
        if self.definition.input:
            self._check(filled)
        return filled

    def _check(self, filled: dict[str, Json]) -> None:
        from stepwell.definition.schemas import problems_of

        for problem in problems_of(self.definition.input, filled):
            raise StepFailed("validation_error", f"input of recipe {self.name}: {problem}")


def _text(template: Template | None, context: dict[str, Json]) -> str:
    if template is None:
        return ""
    from stepwell.interpreter.scope import as_text

    found = template.compiled.render(context)
    return found if isinstance(found, str) else as_text(found)
