"""Checks of budgets before a run: that money can be counted, and that the model asked instead is there.

The law of the file: a model whose price nobody knows is never taken to be free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.step import NoRecipes
from stepwell.engine.budget_words import PRICE_HINT
from stepwell.errors import Problem

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.definition.step import Step
    from stepwell.engine.parts import Models, Parts

Json: TypeAlias = Any


def check_budgets(parts: Parts, loaded: LoadedWorkflow, called: Sequence[LoadedWorkflow]) -> Iterator[Problem]:
    """What stands in the way of the budgets of a workflow, with those that it calls, once all else is right."""
    models = parts.models
    if models is None:
        return
    budgets = [one for one in (loaded.workflow.budget, *models.budget_of(loaded.workflow.workflow)) if one is not None]
    inner = [child.workflow.budget for child in called if child.workflow.budget is not None]
    for name in sorted({one.instead for one in (*budgets, *inner)} - {""}):
        problems = [*models.problems_with(name)]
        yield from (_at(loaded, f"on_exceed: {one.message}", one.hint) for one in problems if one.severity == "error")
    everything = any(one.usd is not None for one in budgets)
    for workflow in (loaded, *called):
        own = workflow.workflow.budget
        if not everything and (own is None or own.usd is None):
            continue
        for model in sorted(set(_unpriced(parts, models, workflow))):
            message = f"the budget is in dollars, and the price of the model {model!r} is not known"
            yield _at(workflow, message, PRICE_HINT)


def _unpriced(parts: Parts, models: Models, loaded: LoadedWorkflow) -> Iterator[str]:
    for step in loaded.workflow.every_step():
        model, task = _asked(parts, loaded, step)
        if task:
            yield from models.unpriced(model, task)


def _asked(parts: Parts, loaded: LoadedWorkflow, step: Step) -> tuple[Json, str]:
    """The model and the task of a step; no task for one that asks no model."""
    own = getattr(step, "model", None)
    if step.type == "llm_call":
        return own, "generate"
    finder = parts.finder(loaded.file)
    recipe = getattr(step, "recipe", None)
    if step.type != "recipe" or isinstance(finder, NoRecipes) or not isinstance(recipe, str):
        return None, ""
    found = finder.find(recipe).definition
    return own or found.model.model_dump(exclude_defaults=True) or None, found.task


def _at(loaded: LoadedWorkflow, message: str, hint: str) -> Problem:
    line, column = loaded.positions.place(("budget",)) if loaded.workflow.budget is not None else (0, 0)
    return Problem("error", "budget", message, hint, loaded.file, line, column, "/budget" if line else "")
