"""The tools of the invoice-approval example: a stand-in for the order book and a bank that loses connections.

The bank keeps its payments in a file, so that one can see that none is made twice.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import stepwell

WORLD = Path(os.environ.get("EXAMPLE_WORLD", "outside-world"))

ORDERS = {
    "O-77": {"vendor": "Lumen Ltd", "total": 980, "cost_centre": "4100"},
    "O-78": {"vendor": "Nordwind AG", "total": 48_000, "cost_centre": "4200"},
}
LOSES_THE_LINE = "Nordwind AG"
"""A payment to them is made, but the bank's answer never arrives."""


def _payments() -> list[dict[str, Any]]:
    file = WORLD / "bank.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else []


@stepwell.tool()
def compare(vendor: str, order: str, amount: float, asked: list[str]) -> dict[str, Any]:
    """An invoice beside its order, with what is striking; `asked` is what finance wanted to know."""
    ordered = ORDERS.get(order)
    remarks = []
    if ordered is None:
        remarks.append(f"there is no order {order}")
    elif ordered["vendor"] != vendor:
        remarks.append(f"order {order} is with {ordered['vendor']}")
    elif ordered["total"] != amount:
        remarks.append(f"the order says {ordered['total']:.2f}, the invoice {amount:.2f}")
    remarks += [f"asked for: {question} - {vendor} says: freight was not in the order" for question in asked]
    return {"order": ordered, "remarks": remarks}


@stepwell.tool(idempotent=False)
def pay(vendor: str, amount: float, reference: str, *, key: stepwell.IdempotencyKey) -> dict[str, str]:
    """Order a transfer."""
    WORLD.mkdir(parents=True, exist_ok=True)
    made = [*_payments(), {"key": str(key), "vendor": vendor, "amount": amount, "reference": reference}]
    (WORLD / "bank.json").write_text(json.dumps(made, indent=2) + "\n", "utf-8")
    if vendor == LOSES_THE_LINE:
        raise ConnectionError("the bank closed the connection before it answered")
    return {"receipt": f"B-{len(made):04}"}


@stepwell.tool()
def find_payment(key: str) -> dict[str, Any]:
    """Whether the bank knows a payment with this key."""
    keys = [payment["key"] for payment in _payments()]
    return {"known": key in keys, "receipt": f"B-{keys.index(key) + 1:04}" if key in keys else None}
