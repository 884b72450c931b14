"""Tools whose results follow from their arguments, telling the ledger of every call but those that charge.

Set in the environment: CHAOS_LEDGER (file), CHAOS_PAUSE (mean seconds of a call while the file CHAOS_CALM is not
there), CHAOS_PAYMENTS (port of the payment service).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote

from telling import tell

import stepwell
from stepwell.errors import StepFailed

_CALM = Path(os.environ.get("CHAOS_CALM", "calm"))
_PAUSE = float(os.environ.get("CHAOS_PAUSE", "0"))
_TRIES = Path(os.environ["CHAOS_LEDGER"]).with_suffix(".tries")


async def _take_time() -> None:
    if _PAUSE and not _CALM.exists():
        await asyncio.sleep(random.uniform(0, 2 * _PAUSE))


def _mixed(*numbers: int) -> int:
    return int.from_bytes(blake2b(repr(numbers).encode(), digest_size=3).digest(), "big") % 10_000


async def _told(key: str, value: int, failure: StepFailed | None = None) -> dict[str, int]:
    """A call: it begins, takes its time, and ends with a value or a failure; also a cancellation is told."""
    tell("call", key)
    try:
        await _take_time()
    except asyncio.CancelledError:
        tell("fail", key)
        raise
    tell("fail" if failure else "end", key)
    if failure:
        raise failure
    return {"value": value}


@stepwell.tool
async def work(n: int, seed: int, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Ordinary work."""
    return await _told(key, _mixed(n, seed))


@stepwell.tool
async def undo(what: int, item: int, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Take back a reservation."""
    return await _told(key, _mixed(what, item))


@stepwell.tool
async def unbook(n: int, booked: int, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Take back a booking; in every fourth run not before a person has said so."""
    stuck = n % 4 == 3 and "#2/" not in key
    return await _told(key, booked, StepFailed("not_found", "who booked this?") if stuck else None)


@stepwell.tool
def climb(n: int, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Work in a thread."""
    tell("call", key)
    time.sleep(0.001)
    tell("end", key)
    return {"value": n * 2}


@stepwell.tool
async def draft(n: int, before: str, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Write the next draft, by what was said of the one before."""
    value = await _told(key, _mixed(n, 30))
    return value | {"round": len(before) + 1}


@stepwell.tool
async def check(n: int, round: int, key: stepwell.IdempotencyKey) -> dict[str, int]:  # noqa: A002
    """Refuse drafts up to the one that is good enough, with as many letters as there were drafts."""
    failure = StepFailed("refused", "x" * round) if round <= n % 3 else None
    return await _told(key, round, failure)


@stepwell.tool
async def hang(key: stepwell.IdempotencyKey) -> None:
    """Never comes back."""
    tell("call", key)
    try:
        await asyncio.sleep(600)
    finally:
        tell("fail", key)


@stepwell.tool
async def lost(key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Fails for good."""
    return await _told(key, 0, StepFailed("not_found", "there is no such thing"))


@stepwell.tool
async def refuse(when: bool, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Fails for good, or not at all."""
    return await _told(key, 1, StepFailed("refused", "no") if when else None)


@stepwell.tool
async def moody(key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Fails in the first round of what it is in."""
    return await _told(key, 2, None if "#2/" in key else StepFailed("connection_error", "not yet"))


@stepwell.tool
async def score(n: int, item: int, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Fails for one or two items of six."""
    return await _told(key, _mixed(n, item, 31), StepFailed("refused", "no score") if (n + item) % 4 == 0 else None)


@stepwell.tool
async def row(n: int, item: int, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Fails for one item of three."""
    return await _told(key, item, StepFailed("not_found", "no row") if item == n % 3 else None)


@stepwell.tool
async def shaky(n: int, fixed: bool, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Fails until a person has mended its arguments."""
    return await _told(key, _mixed(n, 32), None if fixed else StepFailed("refused", "not like this"))


@stepwell.tool
async def flaky(n: int, key: stepwell.IdempotencyKey) -> dict[str, int]:
    """Fails until it has said so twice."""
    _TRIES.mkdir(exist_ok=True)
    tries = _TRIES / blake2b(key.encode(), digest_size=12).hexdigest()
    if not tries.exists() or tries.stat().st_size < 2:
        with tries.open("ab") as file:
            file.write(b"x")
        return await _told(key, 0, StepFailed("connection_error", "not yet", retryable=True))
    return await _told(key, _mixed(n, 33))


async def _ask(method: str, path: str, said: dict[str, Any] | None = None) -> dict[str, Any]:
    """One request in a connection of its own: what is sent is sent at once, and whoever is cut off sends nothing later."""
    body = json.dumps(said).encode() if said is not None else b""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["CHAOS_PAYMENTS"]))
    except OSError as error:
        raise StepFailed("connection_error", str(error), detail={"sent": False}) from None
    try:
        writer.write(f"{method} {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.read()
    except OSError as error:
        raise StepFailed("connection_error", str(error)) from None
    finally:
        writer.transport.abort()
    head, _, text = answer.partition(b"\r\n\r\n")
    if not text:
        raise StepFailed("connection_error", "the service hung up")
    if b" 503 " in head:
        raise StepFailed("server_error", "try again", retryable=True, detail={"sent": False})
    found: dict[str, Any] = json.loads(text)
    return found


@stepwell.tool(idempotent=False)
async def pay(n: int, key: stepwell.IdempotencyKey) -> dict[str, Any]:
    """Charge; the service does not notice that it was asked before."""
    return await _ask("POST", "/charges", {"n": n, "key": key})


@stepwell.tool
async def find_payment(charge: str) -> dict[str, Any]:
    """How often a key was charged."""
    return await _ask("GET", f"/charges/{quote(charge, safe='')}")


@stepwell.tool
async def refund(charge: str) -> dict[str, Any]:
    """Pay back what was charged under a key; saying so twice pays back once."""
    return await _ask("POST", "/refunds", {"key": charge})
