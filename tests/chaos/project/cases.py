"""Tools of the cases that need processes: slow, blocking, failing, not to be repeated."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from telling import tell

import stepwell
from stepwell.errors import StepFailed


@stepwell.tool
async def slow(seconds: float, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Takes its time, and says which process it was."""
    tell("call", key)
    await asyncio.sleep(seconds)
    tell("end", key)
    return {"pid": os.getpid()}


@stepwell.tool(idempotent=False)
async def slow_charge(seconds: float, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """The same as a deed that nobody wants twice."""
    return await slow(seconds, key)


@stepwell.tool
def blocking(seconds: float, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Blocks its thread."""
    tell("call", key)
    time.sleep(seconds)
    tell("end", key)
    return {"pid": os.getpid()}


@stepwell.tool
async def note(said: Any, key: stepwell.IdempotencyKey) -> dict[str, Any]:
    """Tells the ledger what it was given, and gives it back."""
    tell("call", key, said)
    tell("end", key)
    return {"said": said}


@stepwell.tool
async def broken(key: stepwell.IdempotencyKey) -> None:
    """A service that is never there."""
    tell("call", key)
    tell("fail", key)
    raise StepFailed("server_error", "503", retryable=True, detail={"status": 503})


@stepwell.tool
async def mends(key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Fails at the first call of all, whichever process makes it."""
    tell("call", key)
    mark = Path(os.environ["CHAOS_LEDGER"]).with_name("mended")
    if not mark.exists():
        mark.touch()
        tell("fail", key)
        raise StepFailed("server_error", "503", retryable=True)
    tell("end", key)
    return {"pid": os.getpid()}
