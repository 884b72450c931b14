"""The section [limits] of the settings: how many model calls an account has in flight, and who counts them.

The law of the file: the address of Redis is a secret as soon as it carries a password.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from stepwell.engine.secret import NO_SECRET, Secret
from stepwell.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepwell.engine.settings_text import Reading
    from stepwell.ports import LimitStanding

Json: TypeAlias = Any
OnLimiterError: TypeAlias = Literal["local", "open", "closed"]

LIMIT_KEYS = ("model_calls", "redis", "lease", "on_limiter_error")
SCHEMES = ("redis", "rediss", "unix")
SHORTEST, LONGEST = 1.0, 3600.0
"""Bounds of `lease`, in seconds."""


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """`model_calls` of an account in flight at once, 0 for no limit; over all processes if `redis` is given."""

    model_calls: int = 10
    redis: Secret = NO_SECRET
    """redis://HOST:PORT/DB, rediss:// or unix://PATH."""
    lease: float = 30.0
    """Seconds after which the slot of a killed process is free again."""
    on_limiter_error: OnLimiterError = "local"


def limits_of(reading: Reading, section: dict[str, Json], environ: Mapping[str, str], root: Path) -> LimitSettings:
    """The settings of the section, with the environment over it. Every problem is noted in `reading`."""
    for key in section:
        if key not in LIMIT_KEYS:
            reading.refuse_unknown(("limits", key), LIMIT_KEYS)
    found: dict[str, Json] = {}
    for key in LIMIT_KEYS:
        twin = f"STEPWELL_LIMITS_{key.upper()}"
        said = twin if environ.get(twin) else ""
        if not said and key not in section:
            continue
        value = environ[twin] if said else section[key]
        try:
            found[key] = _redis(value, said, environ, root) if key == "redis" else _READ[key](value)
        except ValueError as error:
            reading.refuse(("limits", key), str(error), _HINTS[key], said=said)
    return LimitSettings(**found)


def limit_variables() -> list[str]:
    """The environment twins of every key."""
    return [f"STEPWELL_LIMITS_{key.upper()}" for key in LIMIT_KEYS]


def _calls(value: Json) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueError("model_calls is a whole number of calls, 0 for no limit")
    return number


def _lease(value: Json) -> float:
    try:
        seconds = float(value) if isinstance(value, str) else value
    except ValueError:
        seconds = None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not SHORTEST <= seconds <= LONGEST:
        raise ValueError(f"lease is a number of seconds from {SHORTEST:g} to {LONGEST:g}")
    return float(seconds)


def _on_error(value: Json) -> Json:
    if value not in {"local", "open", "closed"}:
        raise ValueError(f"on_limiter_error is local, open or closed, this is {value!r}")
    return value


_READ = {"model_calls": _calls, "lease": _lease, "on_limiter_error": _on_error}
_HINTS = {
    "model_calls": "write model_calls = 10",
    "redis": 'write redis = "redis://HOST:6379/0", or redis = "env:NAME_OF_A_VARIABLE" for one with a password',
    "lease": "write lease = 30",
    "on_limiter_error": 'write on_limiter_error = "local"',
}


def _redis(value: Json, said: str, environ: Mapping[str, str], root: Path) -> Secret:
    """The address; neither it nor a part of it is repeated in a message."""
    if not isinstance(value, str) or not value:
        raise ValueError("redis is an address")
    source, _, rest = value.partition(":")
    if source == "env" and rest:
        secret = Secret.of_environment(rest, environ)
    elif source == "file" and rest:
        secret = Secret.of_file(root / Path(rest).expanduser())
    elif said:
        secret = Secret.given(value, said)
    else:
        secret = Secret(value, "stepwell.toml")
        if _split(value).password or "password=" in value:
            raise ValueError("a password is not written into stepwell.toml")
    if secret.missing:
        raise ValueError(f"redis has no address: {secret.missing}")
    split = _split(secret.reveal())
    if split.scheme not in SCHEMES or not (split.path if split.scheme == "unix" else split.hostname):
        raise ValueError("redis is an address redis://HOST:PORT/DB, rediss://HOST:PORT/DB or unix://PATH")
    return secret


def _split(url: str) -> Any:
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        raise ValueError("redis is no address that can be read") from None
    return split


def limit_in_force(standing: LimitStanding) -> Problem:
    """What doctor says of the limit."""
    if not standing.limit:
        return Problem("note", "limits", "no limit on model calls", "set [limits] model_calls")
    limit = f"at most {standing.limit} model calls of an account in flight"
    if standing.degraded:
        said = f"{limit} in each process: Redis, where all are to be counted, cannot be asked: {standing.degraded}"
        return Problem("warning", "limits", said, "see that Redis runs and that [limits] redis is its address")
    where = "over all processes" if standing.scope == "shared" else "in this process"
    counts = f"{standing.holding} are now, {standing.waiting} wait"
    return Problem("note", "limits", f"{limit} {where}; {counts}" if standing.scope == "shared" else f"{limit} {where}")
