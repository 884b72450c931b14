"""When the next attempt is due (LANGUAGE, Failure): pure arithmetic over the policy and what has happened.

The law of the file: chance is the hash of run, path and attempt, so that a replay computes the same delay.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.definition.policy import RetryPolicy
    from stepwell.errors import StepFailed

LONGEST_HINT = 15 * 60.0
"""A Retry-After over this many seconds fails the step at once."""
HINT_SPREAD = 0.1


def chance(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone (BLAKE2b, 64 bits)."""
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") / 2.0**64


def computed(policy: RetryPolicy, number: int) -> float:
    """The delay after attempt `number` (from 1) without jitter, in seconds; no number overflows."""
    number = min(number, 1_000_000)  # the cap is reached long before
    exponent = math.log(policy.multiplier) * (number - 1)
    initial = policy.initial_delay
    if initial > 0 and exponent + math.log(initial) > math.log(max(policy.max_delay, 1e-9)):
        return policy.max_delay
    return float(min(policy.max_delay, initial * policy.multiplier ** (number - 1) if initial else 0.0))


def delay(policy: RetryPolicy, number: int, failure: StepFailed, key: str) -> float:
    """Seconds to wait after attempt `number` failed; a valid Retry-After replaces the computed delay."""
    spread = chance(key, number)
    hint = failure.retry_after
    if hint is not None and hint > 0 and math.isfinite(hint):
        return hint * (1 + HINT_SPREAD * spread)
    base = computed(policy, number)
    return base + policy.jitter * base * spread


def may_pass(policy: RetryPolicy, failure: StepFailed) -> bool:
    """Whether a failure is of a kind that this policy retries."""
    if failure.final or named(policy.unless, failure):
        return False
    if policy.on is not None:
        return named(policy.on, failure)
    return failure.retryable


def named(kinds: Collection[str], failure: StepFailed) -> bool:
    """Whether a list of kinds names a failure; `client_error` is another word for `invalid_request`."""
    return failure.kind in kinds or (failure.kind == "invalid_request" and "client_error" in kinds)
