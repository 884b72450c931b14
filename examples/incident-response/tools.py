"""The tools of the incident-response example: a stand-in for two data centres, a model service and two pagers.

What they do to the world is appended to a file, one line each, in the order in which it happened: a record that
Stepwell neither writes nor reads. The services have faults of their own, which is what the example is about.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import stepwell

WORLD = Path(os.environ.get("EXAMPLE_WORLD", "outside-world"))
LOG = "incident-response.log"

BUSY = {"checkout", "payments"}
"""Services about whose alerts the large model is asked too often."""
RAMBLING = {"search"}
"""Services about whose alerts it answers in a form that nobody can read."""
NO_CHAT = {"checkout"}
"""Teams whose chat hangs."""
LAGGING = {"search"}
"""Services whose standby turns out to be behind."""
LOCKED = {"payments"}
"""Services whose zone is locked for maintenance."""


def _done(line: str) -> None:
    WORLD.mkdir(parents=True, exist_ok=True)
    with (WORLD / LOG).open("a", encoding="utf-8") as log:
        log.write(line + "\n")


@stepwell.tool()
def assess(service: str, alert: str) -> dict[str, str]:
    """What the large model says of an alert."""
    if service in BUSY:
        raise stepwell.StepFailed(
            "rate_limit", "the model service has had enough calls for this hour", retry_after=3600
        )
    if service in RAMBLING:
        return {"said": "Well. That sounds serious, so I would say: action=failover, with severity=high."}
    return {"action": "failover" if "site" in alert else "restart", "severity": "high"}


@stepwell.tool()
def read_out(said: str) -> dict[str, str]:
    """The fields that are named in a text, wherever they stand."""
    words = (word.strip(".,;:").partition("=") for word in said.split())
    return {name: value for name, equals, value in words if equals}


@stepwell.tool()
def chat(team: str, text: str) -> dict[str, str]:
    """Write to a team's chat."""
    if team in NO_CHAT:
        time.sleep(2)
    else:
        _done(f"chat to {team}: {text}")
    return {"by": "chat"}


@stepwell.tool()
def text_message(team: str, text: str) -> dict[str, str]:
    """Send a text message to whoever of a team is on call."""
    _done(f"text message to {team}: {text}")
    return {"by": "text message"}


@stepwell.tool()
def restart(host: str) -> dict[str, str]:
    """Restart a host."""
    _done(f"restart {host}")
    return {"host": host}


@stepwell.tool()
def start_standby(host: str) -> dict[str, str]:
    """Start the twin of a host at the other site."""
    _done(f"start {host}-south")
    return {"name": f"{host}-south"}


@stepwell.tool()
def stop_standby(name: str) -> None:
    """Stop it again."""
    _done(f"stop {name}")


@stepwell.tool()
def move_traffic(source: str, target: str) -> dict[str, str]:
    """Send the traffic of one host to another one."""
    _done(f"traffic of {source} to {target}")
    return {"source": source, "target": target}


@stepwell.tool()
def freeze(service: str) -> dict[str, str]:
    """Let a service's database take no writes."""
    _done(f"freeze {service}")
    return {"service": service}


@stepwell.tool()
def thaw(service: str) -> None:
    """Let it take writes again."""
    _done(f"thaw {service}")


@stepwell.tool()
def promote(service: str, site: str) -> dict[str, str]:
    """Make the database of a site the one that leads."""
    _done(f"{service} is led by {site}")
    return {"site": site}


@stepwell.tool()
def point_name(service: str, site: str, *, override: bool = False) -> dict[str, str]:
    """Let the name of a service point to a site."""
    if service in LOCKED and not override:
        raise stepwell.StepFailed("zone_locked", f"the zone of {service} is locked for maintenance")
    _done(f"{service}.example.org points to {site}")
    return {"record": f"{service}.example.org -> {site}"}


@stepwell.tool()
def check_health(service: str) -> dict[str, str]:
    """Whether a service answers, and answers rightly."""
    if service in LAGGING:
        raise stepwell.StepFailed("unhealthy", f"{service} in south is 40 minutes behind")
    return {"state": "healthy"}
