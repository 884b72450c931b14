"""Kinds of errors, and how often a step is tried again."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from stepwell.definition.fields import Duration, Expression

Json = Any

ERROR_KINDS = frozenset(
    {
        "rate_limit",
        "server_error",
        "timeout",
        "connection_error",
        "overloaded",
        "invalid_request",
        "client_error",
        "auth_error",
        "validation_error",
        "expression_error",
        "not_found",
        "refused",
        "rejected",
        "approval_expired",
        "child_failed",
        "depth_exceeded",
        "output_too_large",
        "output_invalid",
        "truncated_output",
        "result_rejected",
        "max_iterations_reached",
        "max_turns_reached",
        "budget_exceeded",
        "cancelled",
        "tool_error",
        "in_doubt",
    }
)
"""The kinds that Stepwell gives itself; tools may use their own."""


def _jitter(value: Json) -> Json:
    return {"none": 0.0, "full": 1.0}.get(value, value) if isinstance(value, str) else value


class RetryPolicy(BaseModel):
    """`retry`: attempts count calls; delays are seconds (LANGUAGE, Failure)."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    max_attempts: int = Field(3, ge=1, le=1000)
    initial_delay: Duration = 2.0
    multiplier: float = Field(2.0, ge=1.0, le=1e6, allow_inf_nan=False)
    max_delay: Duration = 30.0
    jitter: Annotated[float, BeforeValidator(_jitter, json_schema_input_type=float | Literal["none", "full"])] = Field(
        0.25, ge=0.0, le=1.0
    )
    max_elapsed: Duration | None = None
    on: tuple[str, ...] | None = None
    unless: tuple[str, ...] = ()
    when: Expression | None = None

    @model_validator(mode="before")
    @classmethod
    def _retries_are_attempts(cls, data: Json) -> Json:
        if isinstance(data, dict) and isinstance(retries := data.get("max_retries"), int):
            if "max_attempts" in data:
                raise PydanticCustomError(
                    "conflict",
                    "max_retries and max_attempts are both given",
                    {"hint": f"keep max_attempts: {retries + 1}"},
                )
            data = {key: value for key, value in data.items() if key != "max_retries"} | {"max_attempts": retries + 1}
        return data
