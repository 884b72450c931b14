"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound="Callable[..., Any] | click.Command")

FILE: Any = click.Path(exists=True, dir_okay=False, path_type=Path)


def database(function: _F) -> _F:
    """`--database`; the settings and STEPWELL_DATABASE count where it is not given."""
    return click.option(
        "--database",
        metavar="URL",
        default="",
        help="Where runs are kept: sqlite:///PATH. Default: STEPWELL_DATABASE, stepwell.toml, ./stepwell.db.",
    )(function)


def as_json(function: _F) -> _F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)


def acting(function: _F) -> _F:
    """`--as`: who acts; `cli/acting.py` finds out who that is."""
    return click.option(
        "--as",
        "--by",
        "acting",
        default="",
        metavar="NAME",
        help="Who you are: a name or e-mail address. Default: STEPWELL_USER, stepwell.toml, the local operator.",
    )(function)


def tools(function: _F) -> _F:
    """`--tools`, which may be repeated."""
    return click.option(
        "--tools",
        "tools",
        type=FILE,
        multiple=True,
        metavar="FILE.py",
        help="A file of Python tools; may be repeated. The project's stepwell.toml can name them too.",
    )(function)


def incident_filters(function: _F) -> _F:
    """Which incidents are meant: `--run`, `--workflow`, `--kind`, `--step`."""
    for option in (
        click.option("--step", default="", metavar="STEP", help="Only of the step with this id."),
        click.option("--kind", default="", metavar="KIND", help="Only errors of this kind, such as timeout."),
        click.option("--workflow", default="", metavar="ID", help="Only of runs of this workflow."),
        click.option("--run", default="", metavar="RUN", help="Only of this run."),
    ):
        function = option(function)
    return function
