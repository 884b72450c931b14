"""How a run stands that nobody moves: whether the process that had it is gone, and whether it is due."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from stepwell.cli.program import program
from stepwell.journal.due import is_due

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepwell.journal.rows import WaitRow
    from stepwell.ports import Run

DUE = "due: what it waited for has come, or its time is over"


def is_gone(owner: str) -> bool:
    """Whether no process of this machine has the number that an owner's name begins with."""
    from stepwell.stores.liveness import ProcessIdentity

    number = owner.partition("-")[0]
    return number.isdecimal() and replace(ProcessIdentity.current(), pid=int(number), started="").known_dead()


def left_alone(run: Run, waits: Iterable[WaitRow]) -> str:
    """Why a run that has not ended needs somebody to resume it, in words; "" if it does not. `waits` are pending."""
    if run.status == "running":
        return f"its process ({run.owner}) runs no more" if is_gone(run.owner) else "" if run.owner else "interrupted"
    if run.status == "queued":
        return "parked before its end" if run.started and not run.owner else ""
    return DUE if is_due(run, waits, time.time()) else ""


def resuming(run_id: str, tail: str = "") -> str:
    """The command that carries a run on."""
    return f"{program()} runs resume {run_id}{tail}"
