"""Tools whose results follow from their arguments, and which tell the ledger of every call.

Set in the environment: CHAOS_LEDGER (file), CHAOS_PAUSE (mean seconds of a call while the file CHAOS_CALM is not
there), CHAOS_DOUBT (keys of charges that are to be reported as in doubt, for the reference execution).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from hashlib import blake2b
from pathlib import Path

from telling import tell

import stepwell
from stepwell.errors import StepFailed

_CALM = Path(os.environ.get("CHAOS_CALM", "calm"))
_PAUSE = float(os.environ.get("CHAOS_PAUSE", "0"))
_DOUBT = Path(os.environ["CHAOS_DOUBT"]).read_text("utf-8").split() if "CHAOS_DOUBT" in os.environ else []
_TRIES = Path(os.environ["CHAOS_LEDGER"]).with_suffix(".tries")


async def _take_time() -> None:
    if _PAUSE and not _CALM.exists():
        await asyncio.sleep(random.uniform(0, 2 * _PAUSE))


def _mixed(*numbers: int) -> int:
    return int.from_bytes(blake2b(repr(numbers).encode(), digest_size=3).digest(), "big") % 10_000


@stepwell.tool
async def work(n: int, seed: int, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Ordinary work."""
    tell("call", key)
    await _take_time()
    tell("end", key)
    return {"value": _mixed(n, seed)}


@stepwell.tool
def climb(n: int, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Work in a thread."""
    tell("call", key)
    time.sleep(0.001)
    tell("end", key)
    return {"value": n * 2}


@stepwell.tool
async def flaky(n: int, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Fails until it has said so twice."""
    tell("call", key)
    await _take_time()
    _TRIES.mkdir(exist_ok=True)
    tries = _TRIES / blake2b(key.encode(), digest_size=12).hexdigest()
    if not tries.exists() or tries.stat().st_size < 2:
        with tries.open("ab") as file:
            file.write(b"x")
        tell("fail", key)
        raise StepFailed("connection_error", "not yet", retryable=True)
    tell("end", key)
    return {"value": _mixed(n, 10)}


@stepwell.tool(idempotent=False)
async def charge(n: int, lap: int, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """A deed that nobody wants twice."""
    if f"{n}/{lap}" in _DOUBT:
        raise StepFailed("in_doubt", "as it was in the storm", retryable=False)
    tell("call", key)
    await _take_time()
    tell("end", key)
    return {"value": _mixed(n, lap, 11)}
