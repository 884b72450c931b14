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

from stepwell.definition.canonical import digest_of
from stepwell.definition.limits import LARGEST_FILE
from stepwell.definition.load import load_recipe_file
from stepwell.definition.recipe import RecipeDefinition
from stepwell.definition.step import Schema
from stepwell.definition.suggest import close
from stepwell.errors import DefinitionError, NotFound, Problem

Json: TypeAlias = Any

SUFFIXES = (".yaml", ".yml", ".json")
_DECLARED = re.compile(r"^[\"']?recipe(?:_id)?[\"']?[ \t]*:", re.MULTILINE)
_WORKFLOW = re.compile(r"^[\"']?workflow(?:_id)?[\"']?[ \t]*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FoundRecipe:
    """A recipe with where it came from. `data` is plain JSON, `digest` (SHA-256, hexadecimal) its identity."""

    definition: RecipeDefinition
    data: dict[str, Json]
    digest: str
    file: Path


def output_schema_of(recipe: RecipeDefinition) -> Schema:
    """JSON Schema of what a recipe's steps put out."""
    if recipe.output_schema is not None:
        return recipe.output_schema
    match recipe.task:
        case "classify":
            labels = list(recipe.labels or ())
            share = {"type": "number", "minimum": 0, "maximum": 1}
            scores = _record(dict.fromkeys(labels, share))
            return _record({"label": {"type": "string", "enum": labels}, "confidence": share, "scores": scores})
        case "extract_summary":
            return _record({"text": {"type": "string"}, "sentences": {"type": "array", "items": {"type": "string"}}})
        case "generate":
            return _record({"text": {"type": "string"}})


def _record(properties: dict[str, Json]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


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
        others = []
        for file in self._files(name):
            found = self._load(file)
            if isinstance(found, DefinitionError):
                raise found
            if version in {"", found.definition.version}:
                return found
            others.append(found.definition.version)
        raise NotFound(self._missing(name, version, others))

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
                if file.is_file() and _is_recipe(file, strict=folder in self._beside[:1]):
                    yield file

    def _load(self, file: Path) -> FoundRecipe | DefinitionError:
        if file not in self._loaded:
            try:
                self._loaded[file] = _found(file)
            except DefinitionError as error:
                self._loaded[file] = error
        return self._loaded[file]

    def _missing(self, name: str, version: str, others: list[str]) -> str:
        if others:
            return f"recipe {name!r} has no version {version!r}; there is {', '.join(dict.fromkeys(others))}"
        near = close(name, self.names())
        return f"there is no recipe {name!r}" + (f"; did you mean {near!r}?" if near else "")

    def _hint(self) -> str:
        places = ", ".join(str(folder) for folder in self.folders) or "no folder"
        return f"looked for <id>.yaml, .yml and .json in {places}"


def _found(file: Path) -> FoundRecipe:
    definition = load_recipe_file(file)
    named = file.stem.partition("@")[0]
    if definition.recipe != named:
        message = f"this file holds the recipe {definition.recipe!r}, but its name says {named!r}"
        problem = Problem("error", "recipe_name", message, f"call it {definition.recipe}{file.suffix}", str(file))
        raise DefinitionError([problem])
    data = definition.model_dump(mode="json", exclude_defaults=True)
    return FoundRecipe(definition, data, digest_of(data), file)


def _rank(file: Path) -> tuple[str, bool, int, str]:
    """Plain names before those with a version, and .yaml before .yml before .json."""
    suffix = SUFFIXES.index(file.suffix) if file.suffix in SUFFIXES else len(SUFFIXES)
    return file.stem.partition("@")[0], "@" in file.stem, suffix, file.name


def _is_recipe(file: Path, *, strict: bool) -> bool:
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
