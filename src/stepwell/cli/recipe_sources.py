"""Recipes as they are named on the command line: a file, `id`, `id@version`, or `library:id@version`.

The law of the file: what exists as a file is that file; of a name that nobody knows, what lists the
known ones is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stepwell.cli.exits import USAGE, Refusal
from stepwell.cli.program import program

if TYPE_CHECKING:
    from stepwell.engine.engine import Engine
    from stepwell.library.recipes import FoundRecipe


LIBRARY = "library:"
"""What a name begins with of which no file is meant."""


def recipe_named(engine: Engine, name: str, *, beside: Path | None = None) -> FoundRecipe:
    """The recipe in a file, or the one that a step would find. Raises DefinitionError, Refusal."""
    if Path(name).is_file():
        return engine.recipes.find(Path(name))
    with recipe_refusals(code=USAGE):
        if name.startswith(LIBRARY):
            return engine.recipes.of_library(name.removeprefix(LIBRARY))
        return engine.recipes.find(name, beside=beside)


def folder_of(name: str) -> Path | None:
    """The folder of a recipe file: its project counts."""
    return Path(name).resolve().parent if Path(name).is_file() else None


@contextmanager
def recipe_refusals(*, code: int) -> Iterator[None]:
    """Tell what is not there, and how to see what is."""
    from stepwell.errors import NotFound

    try:
        yield
    except NotFound as missing:
        hint = f"`{program()} recipes list` lists what there is"
        raise Refusal(str(missing), hint=hint, code=code, kind="not_found") from None
