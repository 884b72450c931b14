"""What a performer is: it makes one effect real.

The law of the file: a performer raises StepFailed (classified) or returns; it never retries, never waits between
attempts and never records: that is the engine's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stepwell.interpreter.effect import Effect
from stepwell.ports import Limit, Outgoing

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a performer may know of the call. `key` is the same for every attempt of a step; `timeout` is in seconds."""

    account: str
    run_id: str
    path: str
    attempt: int
    key: str
    timeout: float
    requester: str = ""
    workflow: str = ""
    knowledge: dict[str, Json] | None = None
    """What names of `knowledge` and departments meant when the run started (`engine/retrieval.py`)."""
    epoch: int = 0
    """Of the lease under which the call is made."""
    limits: tuple[Limit, ...] = ()
    """The budgets of its run."""
    bounded: bool = True
    """Whether budgets bound it: they do not hold up what undoes a run."""
    on_queue: Callable[[bool], None] | None = None
    """Told when the call begins to wait for a slot of a limit, and when it has one (or has given up)."""
    on_text: Callable[[str], None] | None = None
    """Told each piece of a model's text as it comes, if somebody listens."""


@dataclass(frozen=True, slots=True)
class Performed:
    """The result as plain JSON.

    `meta` holds facts for people (tokens, model, way taken); `outgoing` is stored with the result.
    """

    value: Json
    meta: dict[str, Json] | None = None
    outgoing: tuple[Outgoing, ...] = field(default=())


Performer: TypeAlias = Callable[[Effect, CallContext], Awaitable[Performed]]


SUMMED = ("input_tokens", "output_tokens", "cached_tokens", "cost_usd", "tokens_without_price")
"""What is summed of the attempts of a run."""


def spent(meta: dict[str, Json]) -> dict[str, Json]:
    """What one attempt took, to be summed; tokens whose price nobody knows are told apart, for a sum hides them."""
    found = {name: meta[name] for name in SUMMED if meta.get(name)}
    tokens = (meta.get("input_tokens") or 0) + (meta.get("output_tokens") or 0)
    if tokens and meta.get("cost_usd") is None:
        found["tokens_without_price"] = tokens
    return found
