"""What `stepwell validate` finds in the project around a file: its settings, and the tools and models that steps name.

The law of the file: nothing is executed but the tools files that the project names, and no connection is made.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.errors import Problem

_ASKING = frozenset({"tool_call", "llm_call", "recipe", "sub_workflow"})
"""Kinds of step that need something of the project."""


def settings_problems(file: Path) -> list[Problem]:
    """What is wrong with the stepwell.toml that counts for a file."""
    folder = file.resolve().parent
    if not any((place / "stepwell.toml").is_file() for place in (folder, *folder.parents, Path.cwd())):
        return []
    from stepwell.cli.opening import settings_at
    from stepwell.errors import DefinitionError

    try:
        settings_at(folder)
    except DefinitionError as error:
        return error.problems
    return []


def recipe_problems(file: Path) -> list[Problem]:
    """What is wrong with a recipe, its tests included, with its project's settings and with the model that it names."""
    from stepwell.cli.opening import opened, run_async
    from stepwell.errors import DefinitionError
    from stepwell.library.recipes import misnamed, recipe_in

    try:
        found = recipe_in(file)
    except DefinitionError as error:
        return [*settings_problems(file), *error.problems]
    wrong = [*settings_problems(file), *found.warnings]
    if (problem := misnamed(found)) is not None:
        wrong.append(problem)

    start = file.resolve().parent

    async def work() -> list[Problem]:
        with tempfile.TemporaryDirectory(prefix="stepwell-") as folder:
            async with opened(f"sqlite:///{folder}/empty.db", start=start, missing="make") as engine:
                return [_told(problem) for problem in engine.recipes.problems(found)]

    if any(problem.severity == "error" for problem in wrong):
        return wrong
    return [*wrong, *run_async(work())]


def asks_the_project(loaded: LoadedWorkflow) -> bool:
    """Whether a step names something that only the project knows."""
    return any(step.type in _ASKING for step in loaded.workflow.every_step())


def project_problems(file: Path, loaded: LoadedWorkflow, tools: Sequence[Path]) -> list[Problem]:
    """What a workflow names that its project does not have, calls included; the settings must be right."""
    from stepwell.cli.opening import opened, run_async
    from stepwell.errors import DefinitionError

    start = file.resolve().parent

    async def work() -> list[Problem]:
        with tempfile.TemporaryDirectory(prefix="stepwell-") as folder:
            database = f"sqlite:///{folder}/empty.db"
            async with opened(database, start=start, tools=tools, missing="make") as engine:
                found = await engine.preflight(loaded, {}, connects=False)
                known = bool(tools or engine.settings.tools)
        return [_told(problem) for problem in found if _counts(problem, known=known)]

    try:
        return run_async(work())
    except DefinitionError as error:
        return error.problems


def published_problems(file: Path, tools: Sequence[Path]) -> tuple[list[Problem], list[Problem]] | None:
    """What loading tells and what its project tells, with what is published in the project's database besides.

    None where there is no database to ask.
    """
    from stepwell.cli.opening import NoDatabase, opened, run_async
    from stepwell.errors import DefinitionError, Unavailable

    start = file.resolve().parent

    async def work() -> tuple[list[Problem], list[Problem]]:
        async with opened(start=start, tools=tools) as engine:
            loaded: LoadedWorkflow | None
            try:
                loaded = engine.load(file)
                problems = list(loaded.warnings)
            except DefinitionError as error:
                problems, loaded = error.problems, unchecked(file)
            found = await engine.preflight(loaded, {}, connects=False) if loaded is not None else []
            known = bool(tools or engine.settings.tools)
        return problems, [_told(problem) for problem in found if _counts(problem, known=known)]

    try:
        return run_async(work())
    except (NoDatabase, Unavailable):
        return None
    except DefinitionError as error:
        return error.problems, []


def _counts(problem: Problem, *, known: bool) -> bool:
    """Inputs are given to runs; and where no tools file is named, a run may name it."""
    return problem.file != "input" and (known or problem.code != "tool")


def _told(problem: Problem) -> Problem:
    """What is not installed or no key is there for stops a run here, and is no mistake of the file."""
    elsewhere = problem.code.startswith("model") and problem.code != "model_unknown"
    return replace(problem, severity="warning") if elsewhere else problem


def unchecked(file: Path) -> LoadedWorkflow | None:
    """A workflow whose every part can be read, though what it says may be wrong; else None."""
    from stepwell.definition import json_text, spellings, yaml_text
    from stepwell.definition.canonical import names_in
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.definition.parse import parse
    from stepwell.definition.positions import Positions, plain
    from stepwell.definition.report import Report, TooWrong
    from stepwell.definition.workflow import Workflow
    from stepwell.kinds import discover

    report = Report(str(file))
    try:
        text = file.read_text("utf-8-sig")
        composed = (json_text if file.suffix == ".json" else yaml_text).compose(text, report)
    except (TooWrong, OSError, UnicodeDecodeError):  # told where the file was loaded
        return None
    if report.has_errors or not isinstance(composed.value, dict):
        return None
    root = spellings.canonical(composed, discover(), report)
    data = plain(root)
    parsed = parse(Workflow, data, discover(), names_in(data))
    if parsed.faults:
        return None
    return LoadedWorkflow(parsed.model, data, "", (), str(file), Positions(root))
