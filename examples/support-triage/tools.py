"""The tools of the support-triage example: small stand-ins for a shop's own services.

They answer from their arguments alone, so the example needs no network and gives the same result every time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import stepwell

KNOWLEDGE = Path(__file__).parent / "knowledge"
WORN_IN_THE_EAR = frozenset({"EB-10"})


@dataclass(frozen=True, slots=True)
class Item:
    """A line of an order; `price` is in euros."""

    sku: str
    name: str
    price: float
    quantity: int
    opened: bool


@dataclass(frozen=True, slots=True)
class Checked:
    """What may be paid back for a line, in cents, and why."""

    name: str
    cents: int
    reason: str


@stepwell.tool()
def read_policies() -> dict[str, list[dict[str, str]]]:
    """The shop's policies: the files of `knowledge/`, one document each."""
    files = sorted(KNOWLEDGE.glob("*.md"))
    return {"documents": [{"title": file.stem, "text": file.read_text(encoding="utf-8")} for file in files]}


@stepwell.tool()
async def customer_history(customer: str) -> dict[str, int]:
    """How often this customer ordered and returned something."""
    await asyncio.sleep(0.2)  # as long as a quick service takes
    number = int.from_bytes(hashlib.sha256(customer.encode()).digest()[:2], "big")
    return {"orders": 1 + number % 9, "returns": number % 2}


@stepwell.tool()
async def order_status(order: str) -> dict[str, str]:
    """Where an order is; without a number there is nothing to look up."""
    await asyncio.sleep(0.2)
    if not order:
        return {"status": "no order"}
    return {"status": "in transit" if int(order[-1]) % 2 == 0 else "delivered"}


@stepwell.tool()
def check_item(item: Item) -> Checked:
    """What the refund policy allows for one line of an order."""
    if item.opened and item.sku in WORN_IN_THE_EAR:
        return Checked(item.name, 0, "worn in the ear and opened")
    return Checked(item.name, round(item.price * 100) * item.quantity, "may be returned")


@stepwell.tool()
def add_up(checked: list[Checked]) -> dict[str, int | str]:
    """The sum that may be paid back, in cents and as people read it."""
    cents = sum(item.cents for item in checked)
    return {"cents": cents, "text": f"{cents // 100}.{cents % 100:02d} EUR"}


@stepwell.tool()
def pay_refund(order: str, cents: int, *, key: stepwell.IdempotencyKey) -> dict[str, int | str]:
    """Pay money back; the same key never pays twice, as payment services promise it.

    With the environment variable TRIAGE_LEDGER set to a file, every call is noted there.
    """
    receipt = {"reference": "RF-" + hashlib.sha256(str(key).encode()).hexdigest()[:8].upper(), "cents": cents}
    if ledger := os.environ.get("TRIAGE_LEDGER"):
        with Path(ledger).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"order": order, **receipt}) + "\n")
    return receipt
