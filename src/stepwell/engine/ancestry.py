"""Ancestry: which workflows led to a call, and on whose behalf, also across a tool that starts another run.

The law of the file: a run started from inside a tool of another run counts as one deeper, whichever engine starts it,
and was asked for by whoever asked for that one.
"""

from __future__ import annotations

from contextvars import ContextVar

from stepwell.errors import StepFailed
from stepwell.interpreter.scope import DEEPEST

CHAIN: ContextVar[tuple[str, ...]] = ContextVar("stepwell_chain", default=())
"""The workflows of the runs that led to the tool that is being called; empty outside tools."""
REQUESTER: ContextVar[str] = ContextVar("stepwell_requester", default="")
"""Who asked for the run whose tool is being called; "" outside tools."""


def deeper(workflow: str) -> list[str]:
    """The workflows that lead to a run that is to be started here. Raises StepFailed (depth_exceeded)."""
    chain = CHAIN.get()
    if len(chain) >= DEEPEST:
        shown = " > ".join((*chain, workflow))
        raise StepFailed("depth_exceeded", f"workflows start each other more than {DEEPEST} deep: {shown}")
    return list(chain)
