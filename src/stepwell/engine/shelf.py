"""The shelf: workflows and recipes out of the library, loaded with everything that they pinned.

The law of the file: what was published is taken as it was pinned then; nothing of it is looked for in files again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.canonical import digest_of
from stepwell.definition.load import LoadedWorkflow, from_data, load_text
from stepwell.definition.positions import Positions
from stepwell.definition.recipe import RecipeDefinition, output_schema_of
from stepwell.errors import DefinitionError, NotFound
from stepwell.journal.entry import decode
from stepwell.kinds import discover
from stepwell.library.recipes import FoundRecipe, missing_recipe

if TYPE_CHECKING:
    from stepwell.definition.step import Schema
    from stepwell.library.recipes import FileRecipes
    from stepwell.ports import Library, Published, RunStore

Json: TypeAlias = Any

KEPT = 128
"""Definitions that are kept at once."""
PLACE = "library:"
"""What the names of files begin with that are on the shelf and nowhere else."""


def recipe_of(data: dict[str, Json]) -> RecipeDefinition:
    """A recipe of the plain data that a bundle keeps."""
    return RecipeDefinition.model_validate(data, context={"names": frozenset({"input"})})


class PinnedRecipes:
    """The recipes that a published workflow pinned, by the names by which its steps call them."""

    def __init__(self, recipes: dict[str, RecipeDefinition], place: str) -> None:
        self._recipes = recipes
        self._place = place

    def names(self) -> list[str]:
        return sorted({name.partition("@")[0] for name in self._recipes})

    def find(self, reference: str) -> FoundRecipe:
        """The recipe that a step's reference names. Raises NotFound."""
        try:
            definition = self._recipes[reference]
        except KeyError:
            raise NotFound(f"{self._place} pinned no recipe {reference!r}") from None
        return found_recipe(definition, self._place)

    def output_schema(self, recipe: str) -> Schema | None:
        return output_schema_of(self._recipes[recipe]) if recipe in self._recipes else None


def found_recipe(definition: RecipeDefinition, place: str) -> FoundRecipe:
    """A recipe that lies in no file."""
    return FoundRecipe(definition, definition.data(), definition.digest, Path(place))


class Shelf:
    """What the library of one account gives to whoever loads and checks workflows; it reads at once and blocks."""

    def __init__(self, store: RunStore, library: Library | None, account: str) -> None:
        self._store = store
        self._library = library
        self._account = account
        self._pinned: dict[str, str] = {}
        self._bundles: dict[str, dict[str, Json]] = {}
        self._recipes: dict[str, PinnedRecipes] = {}
        self._children: dict[str, LoadedWorkflow] = {}
        """What was read and never changes, by digest."""

    def pinned(self, file: str) -> str:
        """The digest under which a workflow of the shelf was stored when it was published; "" for one in a file."""
        return self._pinned.get(file, "")

    def find(self, name: str) -> LoadedWorkflow:
        """The workflow `id`, `id@number` or `id@label`. Raises NotFound, DefinitionError."""
        if self._library is None:
            raise NotFound(f"there is no library in which {name!r} could be")
        workflow, _, version = name.partition("@")
        return self.load(self._library.find_now(self._account, workflow, version))

    def load(self, version: Published) -> LoadedWorkflow:
        """A published version, checked again with what it pinned. Raises DefinitionError."""
        suffix = Path(version.file).suffix if Path(version.file).suffix in {".yaml", ".yml", ".json"} else ""
        file = f"{PLACE}{version.workflow}@{version.number}{suffix}"
        self._pinned[file] = version.definition
        return load_text(version.text, file=file, kinds=discover(), recipes=self.recipes(file))

    def recipes(self, file: str) -> PinnedRecipes:
        """The recipes that a workflow of the shelf pinned."""
        digest = self._pinned[file]
        if digest not in self._recipes:
            data = self._bundle(digest)["recipes"]
            found = PinnedRecipes({name: recipe_of(recipe) for name, recipe in data.items()}, file)
            keep(self._recipes, digest, found)
        return self._recipes[digest]

    def children(self, file: str) -> dict[str, LoadedWorkflow]:
        """The sub-workflows that a workflow of the shelf pinned, by the names by which its steps call them."""
        return {name: self._child(digest) for name, digest in self._bundle(self._pinned[file])["workflows"].items()}

    def recipe(self, reference: str) -> FoundRecipe:
        """The published recipe `id` or `id@label`. Raises NotFound."""
        if self._library is None:
            raise NotFound(f"there is no library in which the recipe {reference!r} could be")
        recipe, _, version = reference.partition("@")
        found = self._library.recipe_now(self._account, recipe, version)
        return found_recipe(recipe_of(decode(found.body)), f"{PLACE}{recipe}@{found.version}")

    def recipe_labels(self, recipe: str) -> list[str]:
        """The labels under which a recipe was published on its own, the last first."""
        return [] if self._library is None else self._library.recipes.labels_now(self._account, recipe)

    def recipe_names(self) -> list[str]:
        """The ids of published recipes."""
        return [] if self._library is None else self._library.recipe_names_now(self._account)

    def _child(self, digest: str) -> LoadedWorkflow:
        if digest not in self._children:
            data = self._bundle(digest)["workflow"]
            file = f"{PLACE}{data['workflow']}#{digest[:12]}"
            self._pinned[file] = digest
            workflow = from_data(data, discover())
            keep(self._children, digest, LoadedWorkflow(workflow, data, digest_of(data), (), file, Positions(None)))
        return self._children[digest]

    def _bundle(self, digest: str) -> dict[str, Json]:
        if digest not in self._bundles:
            keep(self._bundles, digest, decode(self._store.definition_now(self._account, digest)))
        return self._bundles[digest]


def keep(cache: dict[str, Any], key: str, value: Json) -> None:
    """Keep a value, and forget the oldest of many."""
    while len(cache) >= KEPT:
        del cache[next(iter(cache))]
    cache[key] = value


class RecipesInFilesOrOnTheShelf:
    """The recipes that a workflow file sees: those in files, and where there is none of a name, the published one."""

    def __init__(self, files: FileRecipes, shelf: Shelf) -> None:
        self.files = files
        self._shelf = shelf

    def names(self) -> list[str]:
        return sorted({*self.files.names(), *self._shelf.recipe_names()})

    def find(self, reference: str) -> FoundRecipe:
        """The recipe `id` or `id@label`. Raises NotFound, DefinitionError."""
        try:
            return self.files.find(reference)
        except NotFound:
            try:
                return self._shelf.recipe(reference)
            except NotFound:
                name, _, version = reference.partition("@")
                there = [*self.files.labels(name), *self._shelf.recipe_labels(name)]
                raise NotFound(missing_recipe(name, version, there, self.names())) from None

    def output_schema(self, recipe: str) -> Schema | None:
        try:
            return output_schema_of(self.find(recipe).definition)
        except (NotFound, DefinitionError):
            return None
