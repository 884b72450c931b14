"""What time it is."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """What time it is, in seconds. Only `now` can be set by somebody; only differences of the others mean anything."""

    def now(self) -> float:
        """UTC since 1970: for what is shown, and for instants that outlive the process (expiries, due times)."""

    def monotonic(self) -> float:
        """For timeouts, back-off and active time; it stands still while the machine sleeps."""

    def uptime(self) -> float:
        """For what goes on while the machine sleeps: leases, and the time between two events."""
