"""
Loading definitions: text in, a workflow out, or every problem of the text at once.

The law of the file: a definition that loads has passed every check; loading executes nothing and opens no socket.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepwell.definition import json_text, spellings, yaml_text
from stepwell.definition.canonical import digest_of, names_in
from stepwell.definition.check import check, check_recipe
from stepwell.definition.limits import LARGEST_FILE
from stepwell.definition.parse import parse
from stepwell.definition.positions import Json, Node, Positions, plain
from stepwell.definition.recipe import RecipeDefinition
from stepwell.definition.report import Report, TooWrong
from stepwell.definition.sentences import findings_of
from stepwell.definition.step import Kinds, NoRecipes, Recipes
from stepwell.definition.suggest import noun
from stepwell.definition.workflow import Workflow
from stepwell.errors import DefinitionError, Problem

if TYPE_CHECKING:
    from os import PathLike


@dataclass(frozen=True, slots=True)
class LoadedWorkflow:
    """
    A checked workflow.

    `data` is plain JSON in canonical words, which `from_data` reads; `digest` (SHA-256, hexadecimal) is the identity of
    what it does; `warnings` are problems of severity warning and note.
    """

    workflow: Workflow
    data: dict[str, Json]
    digest: str
    warnings: tuple[Problem, ...]
    file: str
    positions: Positions


@dataclass(frozen=True, slots=True)
class LoadedRecipe:
    """A checked recipe with the text that it was read from; `warnings` as those of a workflow."""

    definition: RecipeDefinition
    text: str
    warnings: tuple[Problem, ...]
    positions: Positions


class _NoKinds:
    def get(self, type_: str) -> None:
        del type_

    def names(self) -> tuple[str, ...]:
        return ()


def load_text(text: str, *, file: str = "", kinds: Kinds, recipes: Recipes | None = None) -> LoadedWorkflow:
    """
    Load a workflow from YAML, or from JSON if `file` ends in .json or the text begins with a brace.

    Raises DefinitionError with all problems.
    """
    report = Report(file)
    root = spellings.canonical(_composed(text, report, "workflow"), kinds, report)
    data, positions = plain(root), Positions(root)
    parsed = parse(Workflow, data, kinds, names_in(data))
    report.locate(findings_of(parsed.faults, positions), positions)
    report.locate(check(parsed, recipes or NoRecipes()), positions)
    if report.has_errors:
        raise report.error()
    return LoadedWorkflow(parsed.model, data, digest_of(data), tuple(report.sorted()), file, positions)


def load_file(path: str | PathLike[str], *, kinds: Kinds, recipes: Recipes | None = None) -> LoadedWorkflow:
    """Load a workflow from a file. Raises DefinitionError, also if the file cannot be read."""
    return load_text(_read(path), file=str(path), kinds=kinds, recipes=recipes)


def from_data(data: dict[str, Json], kinds: Kinds) -> Workflow:
    """
    The workflow of `LoadedWorkflow.data`, which was checked when it was loaded.

    Raises pydantic's ValidationError for data that no loader made, or whose kinds are not installed.
    """
    return Workflow.model_validate(data, context={"kinds": kinds, "names": names_in(data)})


def read_recipe(text: str, *, file: str = "") -> LoadedRecipe:
    """Load a recipe from YAML or JSON, with what it was written as. Raises DefinitionError with all problems."""
    report = Report(file)
    root = spellings.canonical_recipe(_composed(text, report, "recipe"))
    positions = Positions(root)
    parsed = parse(RecipeDefinition, plain(root), _NoKinds(), frozenset({"input"}))
    report.locate(findings_of(parsed.faults, positions), positions)
    report.locate(check_recipe(parsed), positions)
    if report.has_errors:
        raise report.error()
    return LoadedRecipe(parsed.model, text, tuple(report.sorted()), positions)


def read_recipe_file(path: str | PathLike[str]) -> LoadedRecipe:
    """The same from a file. Raises DefinitionError, also if the file cannot be read."""
    return read_recipe(_read(path), file=str(path))


def load_recipe_text(text: str, *, file: str = "") -> RecipeDefinition:
    """Load a recipe from YAML or JSON. Raises DefinitionError with all problems."""
    return read_recipe(text, file=file).definition


def load_recipe_file(path: str | PathLike[str]) -> RecipeDefinition:
    """Load a recipe from a file. Raises DefinitionError, also if the file cannot be read."""
    return read_recipe_file(path).definition


def _composed(text: str, report: Report, what: str) -> Node:
    """The text as nodes, at the top an object. Raises DefinitionError where reading must stop."""
    text = text.removeprefix("\ufeff")
    is_json = report.file.endswith(".json") or (
        text.lstrip()[:1] == "{" and not report.file.endswith((".yaml", ".yml"))
    )
    try:
        if len(text) > LARGEST_FILE or len(text.encode(errors="replace")) > LARGEST_FILE:
            raise report.stop((1, 1), "size", f"the file is larger than {LARGEST_FILE // 1_000_000} MB", "split it")
        root: Node = (json_text if is_json else yaml_text).compose(text, report)
        if not isinstance(root.value, dict):
            hint = f"begin with  {what}: its-id"
            raise report.stop(root.place(), "type", f"a {what} is an object, this is {noun(root.value)}", hint)
    except TooWrong:
        raise report.error() from None
    return root


def _read(path: str | PathLike[str]) -> str:
    """The text of a file, read no further than the largest size. Raises DefinitionError."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_FILE + 4)
    except OSError as error:
        message = f"cannot read the file: {error.strerror or error}"
        raise DefinitionError([Problem("error", "file", message, "", str(path))]) from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(content) > LARGEST_FILE and error.start >= LARGEST_FILE:
            return content[: error.start].decode("utf-8-sig") + " "
        before = content[: error.start].decode("utf-8-sig")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        problem = Problem("error", "file", "the file is not UTF-8", "save it as UTF-8", str(path), line, column)
        raise DefinitionError([problem]) from None
