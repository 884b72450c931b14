"""The section [http] of the settings: where the tool `http` may connect to besides the public internet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepwell.engine.settings_text import Reading

Json: TypeAlias = Any
HTTP_KEYS = ("allow_private", "max_bytes")
LARGEST = 5 * 1024 * 1024
"""What a step may give as its result."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """`allow_private` names hosts, `host:port`, addresses or networks; `max_bytes` is the longest body taken."""

    allow_private: tuple[str, ...] = ()
    max_bytes: int = LARGEST


def http_of(reading: Reading, section: dict[str, Json], environ: Mapping[str, str]) -> HttpSettings:
    """The settings of the section, with the environment over it. Every problem is noted in `reading`."""
    for key in section:
        if key not in HTTP_KEYS:
            reading.refuse_unknown(("http", key), HTTP_KEYS)
    found: dict[str, Json] = {}
    for key, read in (("allow_private", _hosts), ("max_bytes", _bytes)):
        twin = f"STEPWELL_HTTP_{key.upper()}"
        said = twin if environ.get(twin) else ""
        if not said and key not in section:
            continue
        try:
            found[key] = read(environ[twin] if said else section[key])
        except ValueError as error:
            reading.refuse(("http", key), str(error), "", said=said)
    return HttpSettings(**found)


def _hosts(value: Json) -> tuple[str, ...]:
    hosts = value.split(",") if isinstance(value, str) else value
    if not isinstance(hosts, list) or not all(isinstance(host, str) and host.strip() for host in hosts):
        raise ValueError('allow_private is a list of hosts and networks, such as ["localhost", "10.0.0.0/8"]')
    return tuple(host.strip() for host in hosts)


def _bytes(value: Json) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= LARGEST:
        raise ValueError(f"max_bytes is a whole number from 1 to {LARGEST}")
    return number
