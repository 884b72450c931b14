"""Step kinds as the interpreter runs them: actions with one effect, and controls that decide what runs.

The law of the file: a kind has one `run(scope)`; an action has exactly one effect and touches nothing else; a control
never touches the world.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from stepwell.definition.fields import Duration
from stepwell.definition.policy import RetryPolicy
from stepwell.definition.step import Recipes, Schema, Step

if TYPE_CHECKING:
    from stepwell.interpreter.effect import Effect
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome

Json: TypeAlias = Any


class RunnableStep(Step):
    """A step that the interpreter can run."""

    async def run(self, scope: Scope) -> Outcome:
        """Run the step at `scope.path`; returns how it ended, recorded. A failure is an outcome, not an exception."""
        raise NotImplementedError(f"{type(self).__name__} has no run()")


class Action(RunnableStep):
    """A step with exactly one effect."""

    acts: ClassVar[bool] = True

    timeout: Duration | None = None
    retry: RetryPolicy | None = None
    output_schema: dict[str, Json] | None = None

    def effect(self, scope: Scope) -> Effect:
        """The effect with its arguments rendered; pure. Raises ExpressionError."""
        raise NotImplementedError(f"{type(self).__name__} has no effect()")

    def shape(self, recipes: Recipes) -> Schema | None:
        del recipes
        return self.output_schema

    async def run(self, scope: Scope) -> Outcome:
        from stepwell.interpreter.attempts import effect_of, run_attempts

        return await run_attempts(effect_of(self, scope), scope, self.output_schema)


class Control(RunnableStep):
    """A container, or a step that only computes."""
