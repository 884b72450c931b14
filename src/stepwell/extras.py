"""How an extra of this package is installed here.

The law of the file: it says a command that works where this copy of Stepwell came from, and runs none.
"""

from __future__ import annotations

from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2]
"""The copy of the repository that this file is in, if it is in one."""


def installing(extra: str) -> str:
    """The command that installs an extra: of the repository's copy, else of the package."""
    program = _CHECKOUT / "dev.py"
    if program.is_file() and (_CHECKOUT / "pyproject.toml").is_file():
        return f"python3 {program} extras {extra}"
    return f"pip install 'stepwell[{extra}]'"
