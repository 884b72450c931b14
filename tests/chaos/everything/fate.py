"""What is to become of a run, by its number alone, worked out without an engine: beside the reference execution.

The law of the file: it is read from `everything.yaml` by a person, not by a program that could share a fault with it.
"""

from __future__ import annotations

from typing import Any

ACTIONS = ("retry", "provide", "skip", "fallback", "compensate", "fail")
"""What an operator does about `shaky`, by turns."""
_FINALES = {5: "failed", 7: "compensated", 9: "failed"}


def action_for(n: int) -> str:
    """What the operator does about the incident `shaky` of an even run."""
    return ACTIONS[n // 2 % len(ACTIONS)]


def status_of(n: int) -> str:
    """How a run ends."""
    if n % 2:
        return _FINALES.get(n % 22, "completed")
    return {"compensate": "compensated", "fail": "failed"}.get(action_for(n), "completed")


def input_of(n: int, *, long: str) -> dict[str, Any]:
    """The input of a run: every fourth waits for a timer that is a wait of its own."""
    return {"n": n, "nap": long if n % 4 == 0 else "100ms"}
