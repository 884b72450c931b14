"""Names of `knowledge` and departments: what they mean, found out before a run and kept with it.

The law of the file: what a name means is settled when the run starts; a document that gets the name of a collection,
or a collection that goes to another department later, changes nothing for that run.

A name is that of a collection, else of a document; `collection:NAME` and `document:NAME` say which is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stepwell.definition.step import Location
from stepwell.definition.suggest import did_you_mean
from stepwell.errors import Problem, StepFailed
from stepwell.knowledge.document import as_kept

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.definition.recipe import RecipeDefinition
    from stepwell.definition.step import Step
    from stepwell.engine.parts import Parts
    from stepwell.ports import KnowledgeStore

Json: TypeAlias = Any

_KINDS = ("collection", "document")


@dataclass(frozen=True, slots=True)
class Named:
    """A name where it is written."""

    name: str
    where: Location
    loaded: LoadedWorkflow


def named_in(loaded: LoadedWorkflow, recipes: Mapping[str, RecipeDefinition]) -> list[Named]:
    """Every name of `knowledge` that counts for a step of a workflow."""
    found = [Named(name, ("knowledge", index), loaded) for index, name in enumerate(loaded.workflow.knowledge)]
    for where, step in _steps(loaded):
        own = getattr(step, "knowledge", None)
        found += [Named(name, (*where, "knowledge", index), loaded) for index, name in enumerate(own or ())]
        recipe = recipes.get(str(getattr(step, "recipe", "")))
        if recipe is not None and own != ():
            found += [Named(name, (*where, "recipe"), loaded) for name in recipe.knowledge]
    return found


def _steps(loaded: LoadedWorkflow) -> Iterator[tuple[Location, Step]]:
    pending: list[tuple[Location, Step]] = [
        ((*top, index), step) for top, steps in loaded.workflow.lists() for index, step in enumerate(steps)
    ]
    while pending:
        where, step = pending.pop()
        yield where, step
        for block in step.all_blocks():
            pending += [((*where, *block.where, index), inner) for index, inner in enumerate(block.steps)]


class Meanings:
    """What names mean in the knowledge base of an account as it is now."""

    def __init__(self, collections: Iterable[str], documents: Iterable[str]) -> None:
        self._known = {"collection": frozenset(collections), "document": frozenset(documents)}

    @classmethod
    async def now(cls, store: KnowledgeStore, account: str) -> Meanings:
        return cls(*await store.names(account))

    def kind(self, name: str) -> str:
        """`collection` or `document`; "" for a name that nothing has."""
        kind, plain = split(name)
        return next((one for one in _KINDS if kind in {"", one} and plain in self._known[one]), "")

    def problem(self, named: Named) -> Problem | None:
        """What is wrong with a name."""
        kind, plain = split(named.name)
        if self.kind(named.name):
            if kind or not all(plain in names for names in self._known.values()):
                return None
            message = f"{plain!r} names a collection and a document; the collection is meant"
            return _problem("warning", named, message, f"write collection:{plain} or document:{plain}")
        what = kind or "collection or document"
        message = f"there is no {what} {plain!r} in the knowledge base"
        return _problem("error", named, message, self.suggestion(named.name))

    def suggestion(self, name: str) -> str:
        kind, plain = split(name)
        known = sorted(name for one in _KINDS if kind in {"", one} for name in self._known[one])
        nothing = "the knowledge base is empty: stepwell kb add FILE... --collection NAME"
        return did_you_mean(plain, known, "there are") or (nothing if not known else "")


def split(name: str) -> tuple[str, str]:
    """The kind that a name says it is of ("" for none), and the name as it is kept."""
    kind, _, rest = name.partition(":")
    return (kind, as_kept(rest)) if kind in _KINDS and rest else ("", as_kept(name))


def _problem(severity: Literal["error", "warning"], named: Named, message: str, hint: str) -> Problem:
    line, column = named.loaded.positions.place(named.where)
    pointer = "".join(f"/{part}" for part in named.where)
    return Problem(severity, "knowledge", message, hint, named.loaded.file, line, column, pointer)


class Retrieval:
    """What the names of a workflow and of those that it calls mean, for one engine."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._looked: tuple[LoadedWorkflow, list[Named], list[str]] | None = None
        """The workflow that was looked at last, its names, its departments."""

    async def check(self, loaded: LoadedWorkflow) -> list[Problem]:
        """Names that nothing has, or two things have."""
        named, _ = self._names(loaded)
        if not named or not self._parts.retrieves:
            return []
        meanings = await Meanings.now(self._parts.knowledge, self._parts.account)
        return [problem for one in named if (problem := meanings.problem(one)) is not None]

    async def pins(self, loaded: LoadedWorkflow) -> dict[str, Json]:
        """What a run keeps: `{knowledge: {names, departments}}`, or nothing where it names none."""
        named, departments = self._names(loaded)
        if not self._parts.retrieves or not (named or departments):
            return {}
        store, account = self._parts.knowledge, self._parts.account
        meanings = await Meanings.now(store, account) if named else None
        names = {one.name: meanings.kind(one.name) for one in named} if meanings else {}
        theirs = {
            one: [found.name for found in await store.collections(account, department=one)] for one in departments
        }
        return {"knowledge": {"names": names, "departments": theirs}}

    def _names(self, loaded: LoadedWorkflow) -> tuple[list[Named], list[str]]:
        if self._looked is None or self._looked[0] is not loaded:
            every = [loaded, *self._parts.called_by(loaded)]
            named = [name for one in every for name in named_in(one, self._parts.recipes_of(one))]
            departments = list(dict.fromkeys(one.workflow.department for one in every if one.workflow.department))
            self._looked = (loaded, named, departments)
        return self._looked[1], self._looked[2]


@dataclass(frozen=True, slots=True)
class Searched:
    """The collections and documents in which a step's sources are looked for."""

    collections: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.collections or self.documents)

    def told(self) -> dict[str, Json]:
        facts = {"collections": list(self.collections), "documents": list(self.documents)}
        return {name: value for name, value in facts.items() if value}


async def meant(
    store: KnowledgeStore, account: str, names: Iterable[str], department: str, pins: Mapping[str, Json]
) -> Searched:
    """What a step's names mean by what its run keeps; what that does not tell is found out now.

    Only a workflow that was named by a template has such names. Raises StepFailed("not_found").
    """
    kinds: Mapping[str, str] = pins.get("names") or {}
    found: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    meanings: Meanings | None = None
    for name in names:
        kind = kinds.get(name, "")
        if not kind:
            meanings = meanings or await Meanings.now(store, account)
            kind = meanings.kind(name)
        if not kind:
            assert meanings is not None
            message = f"there is no collection or document {split(name)[1]!r} in the knowledge base"
            raise StepFailed("not_found", message, detail={"hint": meanings.suggestion(name)})
        found[kind].append(split(name)[1])
    if department:
        known: Mapping[str, list[str]] = pins.get("departments") or {}
        theirs = known.get(department)
        if theirs is None:
            theirs = [one.name for one in await store.collections(account, department=department)]
        found["collection"] += theirs
    return Searched(*(tuple(dict.fromkeys(found[kind])) for kind in _KINDS))
