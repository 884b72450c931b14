"""What lets a request in, the same for every store.

The law of the file: whole numbers only; what is asked for counts as spent until it is known what it took.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.ports import Limit, Reservation, Standing


def day_of(at: float) -> str:
    """The day (UTC) of an instant."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def raised(limit: Limit, tokens: int | None, nano_usd: int | None) -> Limit:
    """A limit with what it was raised to; what was never limited stays so."""
    return replace(
        limit,
        tokens=limit.tokens if limit.tokens is None or tokens is None else max(limit.tokens, tokens),
        nano_usd=limit.nano_usd if limit.nano_usd is None or nano_usd is None else max(limit.nano_usd, nano_usd),
    )


def higher(one: int | None, other: int | None) -> int | None:
    """The higher of two raises, either of which may not be there."""
    return max((number for number in (one, other) if number is not None), default=None)


def lets_in(standing: Standing, asked: Reservation) -> bool:
    """Whether a request fits a limit together with all that is spent and open. Without a price no money fits."""
    limit, tokens = standing.limit, asked.input_tokens + asked.output_tokens
    if limit.tokens is not None and standing.tokens + standing.open_tokens + tokens > limit.tokens:
        return False
    if limit.nano_usd is None:
        return True
    if asked.nano_usd is None:
        return False
    return standing.nano_usd + standing.open_nano_usd + asked.nano_usd <= limit.nano_usd
