"""The tools of the leave-request example: a stand-in for the system that keeps leave."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import stepwell

LEFT = {"noor": 14, "emil": 1, "sana": 6}
_busy = {"sana"}
"""Accounts that the system is too busy for at the first call."""


@dataclass(frozen=True, slots=True)
class Account:
    """The leave that somebody has left, in days, and who decides about it."""

    known: bool
    left: int
    manager: str


@stepwell.tool()
def leave_account(employee: str) -> Account:
    """The leave that an employee has left."""
    if employee in _busy:
        _busy.discard(employee)
        raise stepwell.StepFailed("overloaded", "the leave system is busy")
    if employee not in LEFT:
        raise stepwell.StepFailed("employee_unknown", f"nobody is called {employee}")
    return Account(known=True, left=LEFT[employee], manager="head.of.lab")


@stepwell.tool()
def book_leave(employee: str, days: int, *, paid: bool, key: stepwell.IdempotencyKey) -> dict[str, str | int | bool]:
    """Take days off an account; the same key never takes them twice."""
    booking = hashlib.sha256(str(key).encode()).hexdigest()[:6]
    return {"booking": f"L-{booking}", "employee": employee, "days": days, "paid": paid}
