"""The tools of the safe-patching example: a stand-in for a fleet of machines."""

from __future__ import annotations

import time

import stepwell

NEVER_HEALTHY = "db-1"
BOOT = 1.5
"""Seconds until a machine is up."""


@stepwell.tool()
def take_snapshot(host: str) -> dict[str, str]:
    """A snapshot of a machine."""
    if host.startswith("unknown"):
        raise stepwell.StepFailed("not_found", f"no machine {host}")
    return {"id": f"snap-{host}"}


@stepwell.tool(idempotent=False)
def apply_patch(host: str, patch: str) -> dict[str, str]:
    """Apply one patch."""
    if patch.startswith("printer"):
        raise stepwell.StepFailed("refused", f"{patch} is not for {host}")
    return {"patch": patch}


@stepwell.tool()
def reboot(host: str) -> dict[str, float | str]:
    """Order a reboot; `at` is in seconds since 1970."""
    return {"host": host, "at": time.time()}


@stepwell.tool()
def check_health(host: str, booting_since: float) -> dict[str, str]:
    """Whether a machine answers."""
    if host == NEVER_HEALTHY or time.time() - booting_since < BOOT:
        raise stepwell.StepFailed("connection_error", f"{host} does not answer")
    return {"state": "healthy"}


@stepwell.tool()
def restore_snapshot(host: str, snapshot: str) -> dict[str, str]:
    """Put a machine back to a snapshot; doing so again changes nothing."""
    return {"text": f"{host} is back at {snapshot}."}
