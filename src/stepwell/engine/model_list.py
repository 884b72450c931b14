"""The models of a project for people: what is configured, what is missing, what it costs, and one question put to it.

The law of the file: listing asks no provider anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.engine.model_performer import ModelPerformer
from stepwell.engine.performer import CallContext
from stepwell.errors import NotFound, Problem
from stepwell.interpreter.effect import ModelCall

if TYPE_CHECKING:
    from stepwell.adapters.models.price import Price
    from stepwell.engine.settings import Settings

Json: TypeAlias = Any

TIMEOUT = 120.0
"""Seconds that a question on trial may take."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model of the settings. `price` is None where nobody knows it; `price_of` says who does."""

    name: str
    provider: str
    model: str
    base_url: str
    is_default: bool
    fallback: tuple[str, ...]
    price: Price | None
    price_of: str
    problems: tuple[Problem, ...]

    def as_json(self) -> dict[str, Json]:
        price = self.price
        return {
            "name": self.name,
            "provider": self.provider,
            "model": self.model,
            "base_url": self.base_url or None,
            "default": self.is_default,
            "fallback": list(self.fallback),
            "usd_per_million_input": None if price is None else price.input,
            "usd_per_million_output": None if price is None else price.output,
            "price_of": self.price_of,
            "problems": [{"message": problem.message, "hint": problem.hint} for problem in self.problems],
        }


@dataclass(frozen=True, slots=True)
class Trial:
    """An answer, what is said about it, and the seconds it took."""

    text: str
    meta: dict[str, Json]
    seconds: float


class ModelList:
    """The models of one engine."""

    def __init__(self, settings: Settings, models: object, account: str) -> None:
        """`models` are those of the parts; engines of tests have others, and none can be tried there."""
        self._settings = settings
        self._performer = models if isinstance(models, ModelPerformer) else None
        self._account = account

    async def all(self) -> list[ModelInfo]:
        """Every model of the settings, by name."""
        return [await self._info(name) for name in sorted(self._settings.models)]

    async def try_out(self, name: str, prompt: str, **options: Json) -> Trial:
        """One question to a model; `on_text` in the options is told its text as it comes.

        Raises NotFound for a name that is not configured, and StepFailed.
        """
        on_text: Callable[[str], None] | None = options.pop("on_text", None)
        if self._performer is None or (name and name not in self._settings.models):
            known = ", ".join(sorted(self._settings.models)) or "none"
            raise NotFound(f"there is no model {name!r}; configured: {known}")
        context = CallContext(self._account, "", "/try", 1, "", TIMEOUT, on_text=on_text)
        call = ModelCall(prompt=prompt, model={"name": name, "fallback": ()}, **options)
        begun = time.monotonic()
        performed = await self._performer(call, context)
        return Trial(performed.value["text"], performed.meta or {}, time.monotonic() - begun)

    async def _info(self, name: str) -> ModelInfo:
        said = self._settings.models[name]
        model = self._performer.model(name) if self._performer is not None else None
        problems = tuple(getattr(model, "available", list)())
        price, whose = said.price, "settings"
        if price is None:
            known = getattr(model, "known_price", None)
            price = await known() if known is not None and not problems else None
            whose = "unknown" if price is None else "this machine" if said.provider == "embedded" else "price list"
        return ModelInfo(
            name, said.provider, said.model or getattr(model, "model", ""), said.base_url,
            name == self._settings.default_model, said.fallback, price, whose, problems,
        )  # fmt: skip
