"""What a model's tokens cost, where the settings say it.

The law of the file: money is in US dollars; a price that nobody gave is unknown, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens. Tokens that the provider had cached cost as much as others unless it is said."""

    input: float
    output: float
    cached_input: float | None = None

    def of(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """What a request costs; `cached_tokens` are among the input tokens."""
        cached = min(cached_tokens, input_tokens)
        at_cached = self.input if self.cached_input is None else self.cached_input
        total = (input_tokens - cached) * self.input + cached * at_cached + output_tokens * self.output
        return total / _MILLION


def price_for(price: Price | None, model: str, wanted: str) -> Price | None:
    """What the settings say of `wanted`, a provider's name, where they name `model` ("" is that one).

    A price is that of the named model alone; a service that costs nothing costs nothing whatever it is asked for.
    """
    same = not wanted or wanted == model
    return price if same or price is None or not (price.input or price.output) else None


FREE = Price(0.0, 0.0)
"""Of a model that runs on this machine."""
