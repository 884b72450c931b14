"""Budgets in words: what is told when one does not let a request in, and how to raise it.

The law of the file: an error says which budget, what is spent, what was asked for, and the command that helps.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.errors import StepFailed
from stepwell.ports import NANO

if TYPE_CHECKING:
    from stepwell.ports import Limit, Reservation, Standing

Json: TypeAlias = Any


def dollars(nano_usd: int) -> str:
    """An amount as people write it, with as many digits as it needs but no fewer than two."""
    whole, rest = divmod(abs(nano_usd), NANO)
    digits = f"{rest:09d}".rstrip("0").ljust(2, "0")
    return f"{'-' if nano_usd < 0 else ''}${whole}.{digits}"


def named(limit: Limit) -> str:
    """Whose budget it is."""
    when = f" for {limit.period}" if limit.period else ""
    match limit.scope:
        case "run":
            return f"the budget of the sub-workflow at {limit.below}" if limit.below else "the run's budget"
        case "workflow":
            return f"the budget of the workflow {limit.subject}{when}"
    return f"the account's budget{when}"


def command(limit: Limit, *, tokens: int | None, nano_usd: int | None) -> str:
    """The command that raises a budget to what is given."""
    match limit.scope:
        case "run":
            place = f" {limit.subject}" + (f" --path {limit.below}" if limit.below else "")
        case "workflow":
            place = f" --workflow {limit.subject}"
        case _:
            place = " --account"
    more = f" --tokens {tokens}" if tokens is not None else ""
    more += f" --usd {dollars(nano_usd)[1:]}" if nano_usd is not None else ""
    return f"stepwell budget raise{place}{more}"


def exceeded(full: Standing, asked: Reservation, *, replaced: bool) -> StepFailed:
    """The failure of a request that a budget has no room for, whatever becomes of those in flight."""
    limit, tokens = full.limit, asked.input_tokens + asked.output_tokens
    said, short_tokens, short_money = [], None, None
    if limit.tokens is not None and full.tokens + tokens > limit.tokens:
        short_tokens = full.tokens + tokens
        said.append(f"{full.tokens} of {limit.tokens} tokens are spent, and it may take up to {tokens}")
    if limit.nano_usd is not None and asked.nano_usd is not None and full.nano_usd + asked.nano_usd > limit.nano_usd:
        short_money = full.nano_usd + asked.nano_usd
        spent, most = dollars(full.nano_usd), dollars(asked.nano_usd)
        said.append(f"{spent} of {dollars(limit.nano_usd)} are spent, and it may cost up to {most}")
    message = f"{named(limit)} has no room for this call of {asked.model}: {'; '.join(said)}"
    if replaced:
        message += " (the cheaper model of the budget was tried)"
    detail = {
        "budget": _facts(full, asked),
        "sent": False,
        "hint": (hint := command(limit, tokens=short_tokens, nano_usd=short_money)),
    }
    suspends = limit.on_exceed == "suspend"
    message += "" if suspends else f"; raise it: {hint}"  # an incident offers the command by itself
    failure = StepFailed("budget_exceeded", message, retryable=False, detail=detail)
    failure.suspends = suspends
    return failure


def unpriced(limit: Limit, model: str) -> StepFailed:
    """The failure of a request whose price nobody knows, under a budget of money."""
    message = f"{named(limit)} is in dollars, and the price of {model} is not known, so that it cannot be kept"
    detail = {"hint": PRICE_HINT, "sent": False}
    return StepFailed("budget_exceeded", message, retryable=False, detail=detail)


PRICE_HINT = "set usd_per_million_input and usd_per_million_output under [models.NAME], or bound tokens instead"


def ends_at(period: str) -> float:
    """The instant at which a day (2026-03-14) or a month (2026-03) is over."""
    year, month, *day = (int(part) for part in period.split("-"))
    if day:
        return datetime(year, month, day[0], tzinfo=UTC).timestamp() + 86_400
    return datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp()


def _facts(full: Standing, asked: Reservation) -> dict[str, Json]:
    limit = full.limit
    facts: dict[str, Json] = {"scope": limit.scope, "subject": limit.subject}
    if limit.below:
        facts["path"] = limit.below
    if limit.period:
        facts |= {"period": limit.period, "ends_at": ends_at(limit.period)}
    if limit.tokens is not None:
        tokens = asked.input_tokens + asked.output_tokens
        facts |= {"limit_tokens": limit.tokens, "spent_tokens": full.tokens, "asked_tokens": tokens}
    if limit.nano_usd is not None:
        asks = None if asked.nano_usd is None else asked.nano_usd / NANO
        facts |= {"limit_usd": limit.nano_usd / NANO, "spent_usd": full.nano_usd / NANO, "asked_usd": asks}
    return facts
