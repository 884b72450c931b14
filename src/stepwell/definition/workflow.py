"""A workflow: its identity, input, steps and what surrounds them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from stepwell.definition.budget import Budget
from stepwell.definition.fields import Duration, Template, Value, WorkflowId
from stepwell.definition.graph import kept_aside
from stepwell.definition.policy import RetryPolicy
from stepwell.definition.step import Block, ErrorRules, Location, Step, Steps, fallback_block, walk

Json = Any

DEFAULT_RUN_TIMEOUT = 300.0
DEFAULT_STEP_TIMEOUT = 60.0


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Defaults(_Part):
    """Defaults for every step, overridden by the step. None: Stepwell's own default."""

    timeout: Duration | None = None
    retry: RetryPolicy | None = None
    on_error: ErrorRules | None = None


class OnFailure(_Part):
    """Steps that run once when the run has failed."""

    steps: Steps = Field(min_length=1)


class Concurrency(_Part):
    """How many runs with an equal key may be active at once."""

    key: Template
    limit: int = Field(1, ge=1)
    on_limit: Literal["queue", "reject", "cancel_oldest"] = "queue"


def _text(value: Json) -> Json:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class Workflow(_Part):
    """A workflow as it was written, in canonical words."""

    workflow: WorkflowId
    name: str = ""
    version: Annotated[str, BeforeValidator(_text, json_schema_input_type=str | float)] = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    input: dict[str, Json] = Field(default_factory=dict)
    department: str = ""
    knowledge: tuple[str, ...] = ()
    timeout: Duration = DEFAULT_RUN_TIMEOUT
    templates: Literal["strict", "lenient"] = "strict"
    defaults: Defaults = Defaults()
    steps: Steps = Field(min_length=1)
    output: Value | None = None
    on_failure: OnFailure | None = None
    concurrency: Concurrency | None = None
    budget: Budget | None = None
    deliver: tuple[dict[str, Json], ...] = ()

    def fallbacks(self) -> dict[int, Block]:
        """The steps that rules of `defaults.on_error` hold, for any step that fails, by the index of their rule."""
        rules = enumerate(self.defaults.on_error or ())
        return {index: fallback_block(rule, ("defaults", "on_error", index)) for index, rule in rules if rule.steps}

    def lists(self) -> list[tuple[Location, tuple[Step, ...]]]:
        """Every step list that lies in no step, with where it is written: the workflow's own comes first."""
        failing = [(("on_failure", "steps"), self.on_failure.steps)] if self.on_failure else []
        aside = [(block.where, block.steps) for block in self.fallbacks().values()]
        return [(("steps",), self.steps), *failing, *aside]

    @cached_property
    def aside(self) -> dict[str, str]:
        """Ids of the steps that are kept out of the flow, each with that of the step that names it first."""
        return kept_aside(self.every_step())

    def every_step(self) -> Iterator[Step]:
        """All steps, wherever they lie."""
        for _, steps in self.lists():
            yield from walk(steps)
