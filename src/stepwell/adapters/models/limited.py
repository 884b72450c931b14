"""A model with a limit on how many calls are in flight at once in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.adapters.limits.local import LocalLimiter

if TYPE_CHECKING:
    from stepwell.adapters.models.price import Price
    from stepwell.errors import Problem
    from stepwell.ports import LanguageModel, ModelReply, ModelRequest


class Limited:
    """A `LanguageModel` that lets at most `limit` calls of another one, `inner`, run at once; others wait in order."""

    def __init__(self, model: LanguageModel, limit: int) -> None:
        self._model = self.inner = model
        self._slots = LocalLimiter(limit)

    @property
    def judges(self) -> bool:
        """Whether the model may be asked to classify."""
        return bool(getattr(self._model, "judges", True))

    def available(self) -> list[Problem]:
        """What the model says is missing."""
        return list(getattr(self._model, "available", list)())

    @property
    def model(self) -> str:
        """What the provider calls it."""
        return str(getattr(self._model, "model", ""))

    async def known_price(self) -> Price | None:
        """What its tokens cost, where somebody says so."""
        known = getattr(self._model, "known_price", None)
        return None if known is None else await known()

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Raises StepFailed."""
        async with self._slots.slot(""):
            return await self._model.complete(request)

    async def aclose(self) -> None:
        close = getattr(self._model, "aclose", None)
        if close is not None:
            await close()
