"""Short cuts for scripts: load a workflow, run it to its end or first wait."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.load import load_file
from stepwell.engine.engine import open_engine
from stepwell.engine.settings import Settings
from stepwell.kinds import discover
from stepwell.library.recipes import FileRecipes

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.ports import Run

Json: TypeAlias = Any


def load(path: Path | str) -> LoadedWorkflow:
    """A workflow from a file, checked against the recipes of its project. Raises DefinitionError with all problems."""
    settings = Settings.load(Path(path), os.environ)
    return load_file(path, kinds=discover(), recipes=FileRecipes(path, settings.recipes))


def run(workflow: Path | str, inputs: Json = None, *, database: str = "", tools: Sequence[Path | str] = ()) -> Run:
    """Run a workflow until it ends or waits for somebody, blocking. Raises DefinitionError, InputError."""

    async def to_the_end() -> Run:
        settings = Settings.load(Path(workflow), os.environ)
        async with open_engine(database, settings=settings, tools=tools) as engine:
            handle = await engine.start(engine.load(workflow), inputs)
            return await handle.wait()

    return asyncio.run(to_the_end())
