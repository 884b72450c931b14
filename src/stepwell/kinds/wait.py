"""Wait for a time or an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from stepwell.definition.fields import Duration, Expression, Template, seconds
from stepwell.definition.step import Recipes, Schema
from stepwell.errors import StepFailed
from stepwell.interpreter.kind import Control

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome


class WaitStep(Control):
    """Waits `for` a duration, `until` an instant, or for an `event`; the output is `{woken_by, data}`.

    `until` is ISO 8601 with an offset. `match` is a condition over `event.name`, `event.data`, `event.at` and
    `event.id`; without it, any event of the name will do. `woken_by` is timer, event, or expired when `expires_in` has
    passed.
    """

    extra_roots: ClassVar[Mapping[str, tuple[str, ...]]] = {"match": ("event",)}

    type: Literal["wait"]
    duration: Template | None = Field(None, alias="for")
    until: Template | None = None
    event: Template | None = None
    match: Expression | None = None
    expires_in: Duration | None = Field(None, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_seconds(cls, data: object) -> object:
        if isinstance(data, dict) and isinstance(data.get("for"), int | float) and not isinstance(data["for"], bool):
            return data | {"for": str(data["for"])}
        return data

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if sum(part is not None for part in (self.duration, self.until, self.event)) != 1:
            raise PydanticCustomError(
                "wait", "a wait has exactly one of `for`, `until` and `event`", {"hint": "write for: 2h"}
            )
        if self.duration is not None and self.duration.compiled.is_constant:
            try:
                seconds(self.duration.source)
            except ValueError as error:
                raise PydanticCustomError("duration", "{text}", {"text": str(error), "hint": "", "at": "for"}) from None
        return self

    def shape(self, recipes: Recipes) -> Schema | None:
        del recipes
        return {
            "type": "object",
            "properties": {"woken_by": {"enum": ["timer", "event", "expired"]}, "data": {}},
            "required": ["woken_by", "data"],
            "additionalProperties": False,
        }

    async def run(self, scope: Scope) -> Outcome:
        if self.duration is not None:
            text = scope.text(self.duration)
            try:
                delay = seconds(text)
            except ValueError as error:
                raise StepFailed("validation_error", str(error)) from None
            await scope.sleep(delay)
        elif self.until is not None:
            await scope.sleep_until(scope.text(self.until))
        elif self.event is not None:
            found = await scope.wait_event(scope.text(self.event), self.match, expires_in=self.expires_in)
            event = found.get("event")
            return scope.complete({"woken_by": found["woken_by"], "data": event["data"] if event else None})
        return scope.complete({"woken_by": "timer", "data": None})
