"""Recipes in files: where they are looked for, and what checks and runs ask of them.

    beside the workflow file:  <folder>/<id>.yaml, <folder>/recipes/<id>.yaml
    then in every folder of the project, in the order of the settings

File names end in .yaml, .yml or .json; `<id>@<version>.yaml` keeps another version. The first file found counts, and
with `id@version` the first of that version. A file is read once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from stepwell.definition.limits import LARGEST_FILE
from stepwell.definition.load import read_recipe_file
from stepwell.definition.positions import Location, Positions
from stepwell.definition.recipe import RecipeDefinition, output_schema_of
from stepwell.definition.step import Schema
from stepwell.definition.suggest import close
from stepwell.errors import DefinitionError, NotFound, Problem

Json: TypeAlias = Any

NOWHERE = Positions(None)
SUFFIXES = (".yaml", ".yml", ".json")
_DECLARED = re.compile(r"^[\"']?recipe(?:_id)?[\"']?[ \t]*:", re.MULTILINE)
_WORKFLOW = re.compile(r"^[\"']?workflow(?:_id)?[\"']?[ \t]*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FoundRecipe:
    """A recipe with where it came from. `data` is plain JSON, `digest` (SHA-256, hexadecimal) its identity.

    `text` is what was written and `positions` where in it; both are empty for one that a workflow pinned.
    """

    definition: RecipeDefinition
    data: dict[str, Json]
    digest: str
    file: Path
    text: str = ""
    positions: Positions = NOWHERE
    warnings: tuple[Problem, ...] = ()

    @property
    def reference(self) -> str:
        return f"{self.definition.recipe}@{self.definition.version}"

    def place(self, where: Location) -> str:
        """Where something is written: file:line."""
        line, _ = self.positions.place(where, key=True)
        return f"{self.file}:{line}" if line else str(self.file)


class FileRecipes:
    """The recipes that a workflow file sees: those beside it, then those of the project's `folders`.

    Is both `RecipeLibrary` and what the checks ask (`Recipes`). Without a workflow file, the project's alone.
    """

    def __init__(self, workflow_file: Path | str | None = None, folders: Sequence[Path | str] = ()) -> None:
        self._beside: tuple[Path, ...] = ()
        if workflow_file is not None:
            folder = Path(workflow_file).resolve().parent
            self._beside = (folder, folder / "recipes")
        self.folders = tuple(dict.fromkeys((*self._beside, *(Path(folder).resolve() for folder in folders))))
        self._loaded: dict[Path, FoundRecipe | DefinitionError] = {}

    def names(self) -> list[str]:
        """The ids of all recipes, sorted; files of other things beside the workflow are not among them."""
        return sorted({file.stem.partition("@")[0] for file in self._files()})

    def find(self, reference: str) -> FoundRecipe:
        """The recipe that `id` or `id@version` names.

        Raises NotFound with what there is instead, or DefinitionError if the file found is wrong.
        """
        name, _, version = reference.partition("@")
        for file in self._files(name):
            found = self._load(file)
            if isinstance(found, DefinitionError):
                raise found
            if version in {"", found.definition.version}:
                return found
        raise NotFound(missing_recipe(name, version, self.labels(name), self.names()))

    def labels(self, name: str) -> list[str]:
        """The versions of a recipe that are right, in the order in which their files count."""
        loaded = [self._load(file) for file in self._files(name)]
        return [found.definition.version for found in loaded if not isinstance(found, DefinitionError)]

    def every(self) -> list[FoundRecipe]:
        """Every recipe and version that is right, by id; of one version the first file counts."""
        found: dict[str, FoundRecipe] = {}
        for file in self._files():
            if not isinstance(one := self._load(file), DefinitionError):
                found.setdefault(one.reference, one)
        return sorted(found.values(), key=lambda one: one.definition.recipe)

    def get(self, recipe: str, version: str = "") -> Json:
        """A recipe as plain data. Raises NotFound or DefinitionError."""
        return self.find(f"{recipe}@{version}" if version else recipe).data

    def output_schema(self, recipe: str) -> Schema | None:
        """The schema of a recipe's output; None if there is no such recipe or its file is wrong (see `problems`)."""
        try:
            return output_schema_of(self.find(recipe).definition)
        except (NotFound, DefinitionError):
            return None

    def problems(self, references: Sequence[str] | None = None) -> list[Problem]:
        """What is wrong with the named recipes, missing ones included; without names, with all files."""
        if references is None:
            loaded = [self._load(file) for file in self._files()]
            return [problem for found in loaded if isinstance(found, DefinitionError) for problem in found.problems]
        problems: list[Problem] = []
        for reference in dict.fromkeys(references):
            try:
                self.find(reference)
            except NotFound as missing:
                problems.append(Problem("error", "recipe", str(missing), self._hint()))
            except DefinitionError as wrong:
                problems += wrong.problems
        return problems

    def _files(self, name: str | None = None) -> Iterator[Path]:
        """Recipe files in the order in which they count; with `name`, those that may hold that recipe."""
        for folder in self.folders:
            if not folder.is_dir():
                continue
            for file in sorted(folder.iterdir(), key=_rank):
                if file.suffix not in SUFFIXES or (name is not None and file.stem.partition("@")[0] != name):
                    continue
                if file.is_file() and is_recipe(file, strict=folder in self._beside[:1]):
                    yield file

    def _load(self, file: Path) -> FoundRecipe | DefinitionError:
        if file not in self._loaded:
            try:
                self._loaded[file] = _found(file)
            except DefinitionError as error:
                self._loaded[file] = error
        return self._loaded[file]

    def _hint(self) -> str:
        places = ", ".join(str(folder) for folder in self.folders) or "no folder"
        return f"looked for <id>.yaml, .yml and .json in {places}"


def missing_recipe(name: str, version: str, others: Sequence[str], names: Sequence[str] = ()) -> str:
    """That there is no such recipe, or no such version of it among those that there are."""
    if others:
        return f"recipe {name!r} has no version {version!r}; there is {', '.join(dict.fromkeys(others))}"
    near = close(name, names)
    return f"there is no recipe {name!r}" + (f"; did you mean {near!r}?" if near else "")


def recipe_in(file: Path) -> FoundRecipe:
    """The recipe of a file, whatever the file is called. Raises DefinitionError."""
    loaded = read_recipe_file(file)
    recipe = loaded.definition
    return FoundRecipe(recipe, recipe.data(), recipe.digest, file, loaded.text, loaded.positions, loaded.warnings)


def _found(file: Path) -> FoundRecipe:
    found = recipe_in(file)
    if problem := misnamed(found):
        raise DefinitionError([problem])
    return found


def misnamed(found: FoundRecipe) -> Problem | None:
    """Why a recipe would not be found under the name of its file."""
    file, recipe = found.file, found.definition.recipe
    named = file.stem.partition("@")[0]
    if recipe == named:
        return None
    message = f"this file holds the recipe {recipe!r}, but its name says {named!r}"
    line, column = found.positions.place(("recipe",))
    return Problem("error", "recipe_name", message, f"call it {recipe}{file.suffix}", str(file), line, column)


def _rank(file: Path) -> tuple[str, bool, int, str]:
    """Plain names before those with a version, and .yaml before .yml before .json."""
    suffix = SUFFIXES.index(file.suffix) if file.suffix in SUFFIXES else len(SUFFIXES)
    return file.stem.partition("@")[0], "@" in file.stem, suffix, file.name


def is_recipe(file: Path, *, strict: bool = True) -> bool:
    """Whether a file says that it is a recipe.

    Where files of all kinds lie (`strict`) it must say so at its top; in a folder for recipes it is one unless it says
    that it is a workflow.
    """
    try:
        if strict and file.stat().st_size > LARGEST_FILE:
            return False
        text = file.read_text("utf-8", "replace")
    except OSError:
        return not strict  # what cannot be read in a folder for recipes is told when it is loaded
    if file.suffix == ".json":
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return not strict
        keys = set(data) if isinstance(data, dict) else set()
        return bool(keys & {"recipe", "recipe_id"}) or (not strict and not keys & {"workflow", "workflow_id"})
    return bool(_DECLARED.search(text)) or (not strict and not _WORKFLOW.search(text))
