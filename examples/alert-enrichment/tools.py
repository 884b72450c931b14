"""The tools of the alert-enrichment example: a stand-in for an inventory, a login log, a network switch and tickets."""

from __future__ import annotations

import os
from pathlib import Path

import stepwell

WORLD = Path(os.environ.get("EXAMPLE_WORLD", "outside-world"))
HOSTS = {
    "mail-2": {"owner": "platform", "role": "mail relay", "faces_internet": True},
    "files-1": {"owner": "finance", "role": "file server", "faces_internet": False},
    "dns-1": {"owner": "platform", "role": "name server", "faces_internet": True},
}
LOGINS = {"mail-2": [{"account": "svc-backup", "from": "203.0.113.7", "times": 214, "succeeded": 1}]}


def _done(line: str) -> None:
    WORLD.mkdir(parents=True, exist_ok=True)
    with (WORLD / "alert-enrichment.log").open("a", encoding="utf-8") as log:
        log.write(line + "\n")


@stepwell.tool()
def look_up_host(host: str) -> dict[str, object]:
    """What the inventory knows of a host: owner, role, whether it faces the internet."""
    if host not in HOSTS:
        raise stepwell.StepFailed("not_found", f"the inventory has no host {host}; it has {', '.join(HOSTS)}")
    return HOSTS[host]


@stepwell.tool()
def recent_logins(host: str) -> list[dict[str, object]]:
    """Unusual logins to a host within the last hour."""
    return LOGINS.get(host, [])


@stepwell.tool(idempotent=False)
def isolate_host(host: str, reason: str, *, key: stepwell.IdempotencyKey) -> dict[str, object]:
    """Cut a host off from the network. Only for hosts on which data is being destroyed."""
    _done(f"isolated {host}: {reason} ({key.rpartition('/each/')[2]})")
    return {"isolated": host}


@stepwell.tool()
def update_ticket(alert: str, technique: str, note: str, *, key: stepwell.IdempotencyKey) -> dict[str, str]:
    """Write into the ticket of an alert; the same key again changes nothing."""
    del key
    _done(f"ticket {alert}: {technique}, {note}")
    return {"alert": alert, "technique": technique}
