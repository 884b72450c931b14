"""Runs that could go on and that nobody carries on: whether a parked one is due, and how the others are told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stepwell.journal.wording import time_text

DUE = "It is parked and due: what it waited for has come, or its time is over; no process has carried it on."

_WANTED = {"pending_approval": "approval", "suspended": "incident", "waiting": ""}
"""What a parked run waits for by its status: once none of it is pending, the run is due."""


def is_due(run: Any, waits: Iterable[Any], now: float) -> bool:
    """Whether a parked run could go on now (UTC seconds), given its pending waits."""
    wanted = _WANTED.get(run.status)
    if wanted is None:
        return False
    pending = [*waits]
    if wanted and not any(wait.kind == wanted for wait in pending):
        return True
    return any(0 < at <= now for at in (getattr(run, "wake_at", 0.0), *(wait.deadline for wait in pending)))


def queued(run: Any) -> str:
    """Why a run is queued."""
    if run.started:
        return "It was parked before its end; nothing that was recorded is lost."
    lane = " It may wait for other runs with the same concurrency key." if getattr(run, "lane", "") else ""
    return f"It is stored since {time_text(run.created)}, and nobody has begun it.{lane}"


def begun(owner: str, living: str) -> str:
    """Who carries a run on, or had it: its owner, and that owner again if it lives."""
    if living:
        return f"It is carried on by {living}."
    what = f"Its process ({owner}) runs no more" if owner else "It was interrupted"
    return f"{what}; nothing that was recorded is lost."
