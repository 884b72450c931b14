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


FREE = Price(0.0, 0.0)
"""Of a model that runs on this machine."""
