"""Budgets: what may be spent, and what happens when it is.

The law of the file: an amount of money is exact: what a person wrote is what holds.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

Json: TypeAlias = Any

MOST_TOKENS = 10**15
MOST_DOLLARS = 10**9
_NANO = 1_000_000_000
_INSTEAD = "on_exceed is fail, suspend or {model: NAME}"


def _refusal(text: str, hint: str = "") -> PydanticCustomError:
    return PydanticCustomError("budget", "{text}", {"text": text, "hint": hint})


def _tokens(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TOKENS:
        raise _refusal("`tokens` is a whole number of tokens, 1 or more", "without a limit leave it out")
    return value


def _dollars(value: Json) -> float:
    """An amount that a floating-point number holds as it was written."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_DOLLARS:
        raise _refusal("`usd` is an amount of US dollars above 0, such as 2.50", "without a limit leave it out")
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    if isinstance(exponent, int) and exponent < -6:
        raise _refusal(f"`usd` has at most six decimals, this is {value!r}")
    return float(value)


def _on_exceed(value: Json) -> Json:
    if value in ("fail", "suspend"):
        return value
    if isinstance(value, dict) and value.keys() == {"model"} and isinstance(value["model"], str) and value["model"]:
        return dict(value)
    raise _refusal(_INSTEAD, "name a model of stepwell.toml that costs less")


OnExceed = Annotated[
    Any, BeforeValidator(_on_exceed, json_schema_input_type=Literal["fail", "suspend"] | dict[Literal["model"], str])
]


class Budget(BaseModel):
    """What may be spent. `on_exceed` says what becomes of a call for which there is no room."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: Annotated[int, BeforeValidator(_tokens, json_schema_input_type=int)] | None = None
    usd: Annotated[float, BeforeValidator(_dollars, json_schema_input_type=float)] | None = None
    on_exceed: OnExceed = "fail"

    @model_validator(mode="after")
    def _bounds_something(self) -> Budget:
        if self.tokens is None and self.usd is None:
            raise _refusal("a budget needs `tokens` or `usd`", "budget: {tokens: 200000}")
        return self

    @property
    def nano_usd(self) -> int | None:
        """The money in billionths of a US dollar."""
        return None if self.usd is None else int(Decimal(repr(self.usd)) * _NANO)

    @property
    def instead(self) -> str:
        """The model to be asked when there is no room for the one that was meant; "" for none."""
        return str(self.on_exceed["model"]) if isinstance(self.on_exceed, dict) else ""
