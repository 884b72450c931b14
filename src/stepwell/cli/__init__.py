"""The command line: everything Stepwell does, from a terminal."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """The entry point `stepwell`."""
    from stepwell.cli.app import stepwell

    stepwell.main(prog_name="stepwell")
    raise SystemExit(0)
