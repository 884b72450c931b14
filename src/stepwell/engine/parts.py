"""The parts of an engine, put together by `assemble.py` or by a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from stepwell.definition.load import load_file
from stepwell.definition.step import NoRecipes, Recipes
from stepwell.engine.clock import USUAL, Rhythm
from stepwell.engine.shelf import Shelf
from stepwell.engine.vault import NO_VAULT, Vault
from stepwell.errors import DefinitionError, NotFound, Problem
from stepwell.kinds import discover

if TYPE_CHECKING:
    from stepwell.definition.budget import Budget
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.definition.recipe import RecipeDefinition
    from stepwell.engine.tool_checks import ToolServers
    from stepwell.engine.world import World
    from stepwell.library.recipes import FoundRecipe
    from stepwell.ports import KnowledgeStore, Library, Limiter, RunStore, Tools

Json: TypeAlias = Any
Calls: TypeAlias = "dict[tuple[str, str], dict[str, LoadedWorkflow]]"
"""What each workflow calls, by its file and digest."""
LONGEST_CHAIN = 100
"""Workflows that name each other, one inside the other. How many may be entered is the interpreter's to say."""


class RecipeFinder(Recipes, Protocol):
    """Recipes as a workflow's place in the file system shows them."""

    def find(self, reference: str) -> FoundRecipe:
        """The recipe that `id` or `id@version` names. Raises NotFound, DefinitionError."""


class Models(Protocol):
    """What preflight and doctor ask of the models."""

    def available(self) -> Sequence[Problem]:
        """Why a configured model cannot be asked."""

    def problems_with(self, model: Json, task: str = "generate") -> Sequence[Problem]:
        """Why a step with this choice of model and this task could not be performed."""

    def unpriced(self, model: Json, task: str = "generate") -> Sequence[str]:
        """The models that a step may ask and whose price nobody knows."""

    def budget_of(self, workflow: str) -> Sequence[Budget]:
        """The budgets of the settings that bound a workflow."""


def no_workflow(name: str, beside: Path) -> Path:
    """Where nothing is looked for, nothing is found."""
    raise NotFound(f"there is no workflow {name!r} beside {beside}")


@dataclass(slots=True)
class Parts:
    """Everything that an engine stands on."""

    store: RunStore
    world: World
    tools: Tools
    knowledge: KnowledgeStore
    recipes_beside: Callable[[Path], RecipeFinder | NoRecipes] = lambda _: NoRecipes()
    """Recipes that a workflow file sees."""
    workflow_file: Callable[[str, Path], Path] = no_workflow
    """Where the workflow of a name is, for a file that names it. Raises NotFound."""
    tool_files: tuple[Path, ...] = ()
    models: Models | None = None
    servers: ToolServers | None = None
    """The MCP servers of the settings, if there are any."""
    limiter: Limiter | None = None
    vault: Vault = NO_VAULT
    """The secrets that workflows may name."""
    retrieves: bool = True
    """Whether models are given sources of the knowledge base; where they are scripted, nothing is looked for."""
    library: Library | None = None
    account: str = "default"
    """Whose library it is."""
    world_of: Callable[[dict[str, Json]], World | None] = lambda _: None
    """What runs of another project may touch, by the project that they were started in; None for the engine's own."""
    rhythm: Rhythm = USUAL
    remembers: dict[str, Json] = field(default_factory=dict)
    """What runs that are started here keep in their `project` besides."""
    closing: list[Callable[[], Any]] = field(default_factory=list)
    """What to await or call when the engine closes, last first."""
    shelf: Shelf = field(init=False)

    def __post_init__(self) -> None:
        self.shelf = Shelf(self.store, self.library, self.account)

    def finder(self, file: str) -> RecipeFinder | NoRecipes:
        """The recipes that a workflow sees, by the name of its file."""
        return self.shelf.recipes(file) if self.shelf.pinned(file) else self.recipes_beside(Path(file or "."))

    def load(self, path: Path) -> LoadedWorkflow:
        """A workflow from a file, checked against the recipes that it sees. Raises DefinitionError."""
        return load_file(path, kinds=discover(), recipes=self.recipes_beside(path))

    def recipes_of(self, loaded: LoadedWorkflow) -> dict[str, RecipeDefinition]:
        """The recipes that a workflow's steps call, by the names they call them. Raises NotFound, DefinitionError."""
        finder = self.finder(loaded.file)
        names = {str(getattr(step, "recipe", "")) for step in loaded.workflow.every_step() if step.type == "recipe"}
        return (
            {name: finder.find(name).definition for name in sorted(names)} if not isinstance(finder, NoRecipes) else {}
        )

    def children_of(self, loaded: LoadedWorkflow, known: Calls | None = None) -> dict[str, LoadedWorkflow]:
        """The sub-workflows that a workflow names for certain, by the names it calls them.

        `known` keeps what has been looked into, each workflow once. Raises NotFound, and DefinitionError also for
        workflows that call each other in a circle or too deep.
        """
        known = {} if known is None else known
        self._look_into(loaded, (), known)
        return known[loaded.file, loaded.digest]

    def called_by(self, loaded: LoadedWorkflow) -> list[LoadedWorkflow]:
        """Every workflow that is named for certain below a workflow, each once. Raises as `children_of`."""
        known: Calls = {}
        self.children_of(loaded, known)
        found = {(child.file, child.digest): child for called in known.values() for child in called.values()}
        return list(found.values())

    def _look_into(self, loaded: LoadedWorkflow, chain: tuple[str, ...], known: Calls) -> None:
        called = loaded.workflow.workflow
        if called in chain:
            circle = " > ".join((*chain[chain.index(called) :], called))
            message = f"workflows call each other in a circle: {circle}"
            hint = "a workflow that is named by a template may; its depth is bounded"
            raise DefinitionError([Problem("error", "recursion", message, hint, loaded.file)])
        if len(chain) >= LONGEST_CHAIN:
            message = f"workflows call each other more than {LONGEST_CHAIN} deep, from {chain[0]} to {called}"
            raise DefinitionError([Problem("error", "depth", message, "call fewer, one inside the other", loaded.file)])
        if (loaded.file, loaded.digest) in known:
            return
        found: dict[str, LoadedWorkflow] = {}
        for step in loaded.workflow.every_step():
            name = getattr(step, "workflow", None)
            if step.type != "sub_workflow" or name is None or not name.compiled.is_constant or name.source in found:
                continue
            child = found[name.source] = self.child(name.source, loaded.file)
            self._look_into(child, (*chain, called), known)
        known[loaded.file, loaded.digest] = found

    def child(self, name: str, file: str) -> LoadedWorkflow:
        """The workflow `id` or `id@version` that a workflow sees, by the name of its file: in files, then published.

        Raises NotFound, DefinitionError.
        """
        if self.shelf.pinned(file):
            pinned = self.shelf.children(file)
            if name not in pinned:
                raise NotFound(f"there is no workflow {name!r}; {file} did not pin it when it was published")
            return pinned[name]
        try:
            return self._in_files(name, Path(file or "."))
        except NotFound as missing:
            try:
                return self.shelf.find(name)
            except NotFound as unpublished:
                raise NotFound(f"{missing}; {unpublished}") from None

    def _in_files(self, name: str, beside: Path) -> LoadedWorkflow:
        path = self.workflow_file(name, beside)
        loaded = self.load(path)
        version = name.partition("@")[2]
        if version and path.stem != name and loaded.workflow.version != version:
            held = f"version {loaded.workflow.version!r}" if loaded.workflow.version else "no version"
            raise NotFound(f"there is no workflow {name!r}; {path} says {held}")
        return loaded

    async def close(self) -> None:
        for close in reversed(self.closing):
            result = close()
            if hasattr(result, "__await__"):
                await result
        await self.store.close()
