"""Published workflows and recipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepwell.ports.people import AuditRecord

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class PublishedRecipe:
    """A recipe that a published workflow pinned, as JSON text; `version` is the label that its author gave it."""

    recipe: str
    version: str
    digest: str
    body: bytes


@dataclass(frozen=True, slots=True)
class RecipeVersion:
    """A recipe that was published on its own. `version` is its author's label, which no other content ever gets.

    `digest` is that of what it does, `content` that of all that its author wrote; `body` is it as JSON text, `text` the
    file as it was. Lists leave `text` empty.
    """

    recipe: str
    version: str
    digest: str
    content: str
    body: bytes
    text: str = ""
    file: str = ""
    note: str = ""
    by: str = ""
    at: float = 0.0


class RecipeStore(Protocol):
    """Recipes published on their own, and those that published workflows pinned. What ends in `now` blocks."""

    async def publish(
        self, account: str, new: RecipeVersion, *, notes: Sequence[AuditRecord] = ()
    ) -> tuple[RecipeVersion, bool]:
        """Store a version, durable on return, with the notes; the second value says whether it is new.

        Raises Conflict if its label has another content, also one that was deleted.
        """

    def find_now(self, account: str, recipe: str, version: str = "") -> RecipeVersion:
        """A version, or the one published last. Raises NotFound."""

    def labels_now(self, account: str, recipe: str) -> list[str]:
        """The labels of a recipe's versions, those published last first."""

    async def versions(self, account: str, recipe: str = "") -> list[RecipeVersion]:
        """All versions of a recipe, or of every recipe, those published last first."""

    async def pinned(self, account: str) -> list[PublishedRecipe]:
        """The recipes that published workflows pinned, by id and label; of one label the last."""

    async def delete(
        self, account: str, recipe: str, version: str, *, notes: Sequence[AuditRecord] = ()
    ) -> RecipeVersion:
        """Take a version out of the library, and keep the notes.

        Raises NotFound, and Conflict (detail: runs, at most ten) while a run that has not ended pinned it, itself or in
        a workflow that it calls.
        """


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A workflow to be published. `definition` is the digest of a stored definition, which pins all that it names.

    `content` is a digest of what its author wrote, names and descriptions included, layout and comments left out;
    `text` is the file as it was; `label` is its `version:`.
    """

    workflow: str
    definition: str
    content: str
    text: str
    file: str = ""
    label: str = ""
    note: str = ""
    by: str = ""
    at: float = 0.0
    origin: str = "publish"
    recipes: Sequence[PublishedRecipe] = ()
    """Those that it pinned: from then on the library has them."""


@dataclass(frozen=True, slots=True)
class Published:
    """A version of a workflow. `number` counts from 1 and is never given again; lists leave `text` empty."""

    workflow: str
    number: int
    definition: str
    content: str
    text: str
    file: str
    label: str
    note: str
    by: str
    at: float
    origin: str


class Library(Protocol):
    """Published workflows. A version never changes; a run that was started with one does not need it any more."""

    async def publish(
        self, account: str, new: NewVersion, *, notes: Sequence[AuditRecord] = ()
    ) -> tuple[Published, bool]:
        """Store the next version, durable on return; the second value says whether it is new.

        If so the notes are kept, and what they are about is the version, `id@number`. Where the newest version has the
        same definition and content already, that one is returned.
        """

    async def find(self, account: str, workflow: str, version: str = "") -> Published:
        """A version by its number, else the newest one with this label; without either the newest. Raises NotFound."""

    def find_now(self, account: str, workflow: str, version: str = "") -> Published:
        """The same, at once and blocking: for a definition that names it while it is checked."""

    @property
    def recipes(self) -> RecipeStore:
        """Recipes with versions of their own."""

    def recipe_now(self, account: str, recipe: str, version: str = "") -> PublishedRecipe:
        """The recipe of this id and label (without one, that published last), at once and blocking. Raises NotFound.

        One that was published on its own comes before those that workflows pinned.
        """

    def recipe_names_now(self, account: str) -> list[str]:
        """The ids of all published recipes, sorted. Blocks."""

    async def versions(self, account: str, workflow: str) -> list[Published]:
        """All versions of a workflow, newest first."""

    async def workflows(self, account: str) -> list[Published]:
        """The newest version of every workflow, by id."""

    async def delete(self, account: str, workflow: str, number: int, *, notes: Sequence[AuditRecord] = ()) -> Published:
        """Take a version out of the library, and keep the notes.

        Raises NotFound, and Conflict (detail: runs, at most ten) while a run that has not ended pinned its definition,
        itself or by calling it.
        """


class RecipeLibrary(Protocol):
    """Recipes by id, as plain data (see `definition/recipe.py`)."""

    def get(self, recipe: str, version: str = "") -> Json: ...
