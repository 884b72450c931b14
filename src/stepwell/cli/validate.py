"""`stepwell validate`: all problems of workflow, recipe and test files, without executing anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.program import program
from stepwell.cli.text import json_text, visible

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.errors import Problem
    from stepwell.library.recipes import FileRecipes


_PUBLISHED = frozenset({"workflow", "recipe"})
"""What is missing in files may be published."""
_TESTS = (".test.yaml", ".test.yml")


@click.command(
    cls=Command,
    example="stepwell validate workflow.yaml\nstepwell validate workflows/*.yaml recipes/*.yaml --json",
    epilog="Exit codes: 0 right (warnings do not count), 1 problems, 2 wrong use.",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@options.tools
@options.as_json
def validate(*, files: tuple[Path, ...], tools: tuple[Path, ...], as_json: bool) -> None:
    """Check workflow, recipe and test files: every problem with its file, line and column, and how to fix it.

    The project's settings are checked too, and the tools and models that steps name; nothing is executed.
    """
    found: list[Problem] = []
    for file in files:
        if not file.exists():
            raise exits.Refusal(f"{file}: there is no such file")
        if file.is_dir():
            raise exits.Refusal(f"{file} is a folder", hint=f"name the files: {program()} validate {file}/*.yaml")
    for file in files:
        problems = _problems(file, tools)
        found += [problem for problem in problems if problem not in found]
        if not as_json:
            _print(file, problems)
    if as_json:
        click.echo(json_text([_object(problem) for problem in found], indent=2))
    wrong = any(problem.severity == "error" for problem in found)
    click.get_current_context().exit(exits.FAILED if wrong else exits.OK)


def _problems(file: Path, tools: tuple[Path, ...]) -> list[Problem]:
    """Everything that can be checked, also where something else is wrong already."""
    from stepwell.cli.validate_project import (
        asks_the_project,
        project_problems,
        published_problems,
        recipe_problems,
        settings_problems,
        unchecked,
    )
    from stepwell.definition.load import load_file
    from stepwell.errors import DefinitionError
    from stepwell.kinds import discover
    from stepwell.library.recipes import is_recipe

    if file.name.endswith(_TESTS):
        return _problems_of_tests(file)
    if is_recipe(file):
        return recipe_problems(file)
    wrong = settings_problems(file)
    recipes = None if wrong else _Recipes(file)
    loaded: LoadedWorkflow | None
    try:
        loaded = load_file(file, kinds=discover(), recipes=recipes)
        problems = list(loaded.warnings)
    except DefinitionError as error:
        problems = error.problems
        loaded = unchecked(file)
    if loaded is not None and not wrong and asks_the_project(loaded):
        problems = _together(problems, project_problems(file, loaded, tools))
        if any(problem.code in _PUBLISHED and problem.severity == "error" for problem in problems):
            again = published_problems(file, tools)
            problems = problems if again is None else _together(*again)
    return [*wrong, *sorted(problems, key=lambda problem: (problem.file, problem.line, problem.column))]


def _problems_of_tests(file: Path) -> list[Problem]:
    """What is wrong with a test file, which `*.yaml` names as well."""
    from stepwell.errors import DefinitionError
    from stepwell.testing.suite import load_suite

    try:
        load_suite(file)
    except DefinitionError as error:
        return error.problems
    return []


def _together(problems: list[Problem], of_project: list[Problem]) -> list[Problem]:
    """What loading told, and what the project tells besides."""
    told = {(problem.file, problem.line, problem.message) for problem in problems}
    return [*problems, *(one for one in of_project if not told & _same(one))]


def _same(problem: Problem) -> set[tuple[str, int, str]]:
    """How loading would have told a problem of the project, which begins with its step."""
    messages = (problem.message, problem.message.partition(": ")[2])
    return {(problem.file, problem.line, message) for message in messages}


class _Recipes:
    """The recipes that a file sees, looked for when a check first asks about one."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @cached_property
    def found(self) -> FileRecipes:
        from stepwell.cli.opening import settings_at
        from stepwell.library.recipes import FileRecipes

        return FileRecipes(self._file, settings_at(self._file.resolve().parent).recipes)

    def names(self) -> Collection[str]:
        return _Names(self)

    def output_schema(self, recipe: str) -> dict[str, Any] | None:
        return self.found.output_schema(recipe)


class _Names(Collection[str]):
    """The ids of those recipes."""

    def __init__(self, recipes: _Recipes) -> None:
        self._recipes = recipes

    def __contains__(self, name: object) -> bool:
        return name in self._recipes.found.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._recipes.found.names())

    def __len__(self) -> int:
        return len(self._recipes.found.names())


def _print(file: Path, problems: list[Problem]) -> None:
    exits.tell_problems(problems, err=False)
    counts = {word: sum(problem.severity == word for problem in problems) for word in ("error", "warning", "note")}
    told = [f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts.items() if count]
    sign = click.style("wrong", fg="red", bold=True) if counts["error"] else click.style("right", fg="green", bold=True)
    click.echo(f"{visible(file)}: {sign}" + (f" ({', '.join(told)})" if told else ""))


def _object(problem: Problem) -> dict[str, object]:
    names = ("severity", "code", "file", "line", "column", "path", "message", "hint")
    values = asdict(problem)
    return {name: values[name] for name in names}
