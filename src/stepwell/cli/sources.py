"""Workflows as they are named on the command line: a file, `id` or `id@version` of the library, or a run.

The law of the file: what exists as a file is that file, whatever else has its name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.exits import Refusal
from stepwell.cli.program import program

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.engine.engine import Engine
    from stepwell.ports import Run

_RUN = re.compile(r"[0-9a-f]{4,}")
_REFERENCE = re.compile(r"[a-z][a-z0-9_-]*(@[^/\\@]+)?")


class WorkflowArgument(click.Path):
    """A file that exists, or something that can be the name of a published workflow."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if is_reference(str(value)) and not Path(value).exists():
            return Path(value)
        return super().convert(value, param, ctx)


def is_reference(text: str) -> bool:
    """Whether a text can name a published workflow."""
    return _REFERENCE.fullmatch(text) is not None


def folder_of(*names: str | Path) -> Path | None:
    """The folder of the first of these that is a file: its project counts."""
    return next((Path(name).resolve().parent for name in names if Path(name).is_file()), None)


def are_files(*names: str | Path) -> bool:
    """Whether each of these is a file, so that no library is needed to find them."""
    return all(Path(name).is_file() for name in names)


async def workflow_named(engine: Engine, name: Path | str) -> LoadedWorkflow:
    """The workflow in a file, or the published one. Raises DefinitionError, Refusal."""
    from stepwell.errors import NotFound

    if are_files(name) or not is_reference(str(name)):
        return engine.load(name)
    try:
        return await engine.versions.get(str(name))
    except NotFound as missing:
        raise Refusal(
            f"there is no file {name}, and {missing}",
            hint=f"`{program()} workflows list` shows what is published",
            kind="not_found",
        ) from None


async def definition_named(engine: Engine, name: str) -> LoadedWorkflow | Run:
    """The same, or the run whose pinned definition is meant. Raises DefinitionError, Refusal."""
    from stepwell.cli.opening import find_run

    may_be_run = not are_files(name) and _RUN.fullmatch(name) is not None
    if may_be_run and not is_reference(name):
        return await find_run(engine, name)
    try:
        return await workflow_named(engine, name)
    except Refusal:
        if not may_be_run:
            raise
        return await find_run(engine, name)
