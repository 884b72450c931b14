"""Who acts on the command line.

The law of the file: a name given here is a claim that whoever may write the database could make; so the account of the
machine it was made from is kept beside it.
"""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.engine.engine import Engine
    from stepwell.people.actor import Actor


async def actor(engine: Engine, said: str = "") -> Actor:
    """Who `--as`, the environment or the settings name. Raises Forbidden for a name that is not known, InputError."""
    return await engine.people.actor(said or engine.settings.user, channel="cli", origin=origin())


def origin() -> str:
    """The account and the name of this machine."""
    return f"{_account()}@{platform.node() or 'localhost'}"


def _account() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except ImportError:  # not on Windows
        return os.getlogin()
    except KeyError:  # a container may run under a number that has no name
        return f"uid-{os.getuid()}"
