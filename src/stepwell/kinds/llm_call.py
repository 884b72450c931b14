"""Ask a model with the prompt written in the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from stepwell.definition.fields import Json, Template
from stepwell.definition.retrieval import names_for, text_answer
from stepwell.definition.step import Recipes, Schema
from stepwell.interpreter.agent import run_agent
from stepwell.interpreter.effect import Effect, ModelCall
from stepwell.interpreter.kind import Action

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome


class LlmCall(Action):
    """Asks a model; the output is the parsed answer, or `{text}` without an `output_schema`.

    With `knowledge`, `{text, citations}`.
    """

    type: Literal["llm_call"]
    prompt: Template
    system: Template | None = None
    model: str | dict[str, Json] | None = None
    knowledge: tuple[str, ...] | None = None
    """Collections and documents besides those of the workflow; none at all if it is an empty list."""
    temperature: float | None = Field(None, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=1)
    tools: tuple[str, ...] = ()
    """Registered tools that the model may use, turn by turn, until it answers."""
    max_turns: int = Field(10, ge=1, le=100)
    """How often the model may speak, its answer included."""

    def shape(self, recipes: Recipes) -> Schema | None:
        del recipes
        return self.output_schema or text_answer(cited=bool(self.knowledge))

    def effect(self, scope: Scope) -> Effect:
        knowledge, department = names_for(self.knowledge, (), scope.definition.plan.workflow)
        return ModelCall(
            prompt=scope.text(self.prompt),
            system=scope.text(self.system) if self.system else "",
            model=self.model,
            schema=self.output_schema,
            knowledge=knowledge,
            department=department,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            tools=self.tools,
        )

    async def run(self, scope: Scope) -> Outcome:
        return await (run_agent(self, scope, max_turns=self.max_turns) if self.tools else super().run(scope))
