"""The section [secrets] of the settings, and how any setting names a secret.

The law of the file: a secret is named in stepwell.toml and never written there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.engine.secret import NO_SECRET, Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepwell.engine.settings_text import Reading

Json: TypeAlias = Any
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")
TWIN = "STEPWELL_SECRETS_"


def read_secrets(
    reading: Reading, section: dict[str, Json], root: Path, environ: Mapping[str, str]
) -> dict[str, Secret]:
    """The secrets that workflows may name; the environment's twin of one is its source or its value."""
    found: dict[str, Secret] = {}
    for name, value in section.items():
        if not _NAME.match(name):
            hint = "letters, digits and _, so that {{secret.NAME}} can say it"
            reading.refuse(("secrets", name), f"{name!r} cannot name a secret", hint)
        elif not environ.get(f"{TWIN}{name.upper()}"):
            found[name] = named_secret(reading, ("secrets", name), value, root, environ)
    spelt = {name.upper(): name for name in section}
    for variable, value in environ.items():
        upper = variable.removeprefix(TWIN)
        if variable.startswith(TWIN) and value and _NAME.match(upper):
            name = spelt.get(upper, upper)
            found[name] = secret_from(value, root, environ) or Secret.given(value, variable)
    return found


def secret_from(source: str, root: Path, environ: Mapping[str, str]) -> Secret | None:
    """The secret that `env:NAME` or `file:PATH` names; None for any other text."""
    kind, _, rest = source.partition(":")
    if kind == "env" and rest:
        return Secret.of_environment(rest, environ)
    if kind == "file" and rest:
        return Secret.of_file(root / Path(rest).expanduser())
    return None


def named_secret(
    reading: Reading, where: tuple[str, ...], value: Json, root: Path, environ: Mapping[str, str]
) -> Secret:
    """The secret that a setting names; anything else is refused, and what it says is not repeated."""
    found = secret_from(value, root, environ) if isinstance(value, str) else None
    if found is None:
        hint = f'write {where[-1]} = "env:NAME_OF_A_VARIABLE" or "file:PATH"'
        reading.refuse(where, "a key is not written into stepwell.toml", hint)
        return NO_SECRET
    return found
