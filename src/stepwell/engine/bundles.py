"""Bundles: what a run pins, that is its definition, its recipes and its sub-workflows, stored under one digest.

The law of the file: a bundle is never changed; publishing or editing anything later cannot touch a run that has one.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.compile import compile_workflow
from stepwell.definition.load import from_data
from stepwell.engine.shelf import recipe_of
from stepwell.errors import DefinitionError, NotFound, StepFailed
from stepwell.interpreter.definition import Definition
from stepwell.journal.entry import decode, encode
from stepwell.kinds import discover

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.engine.parts import Calls, Parts

Json: TypeAlias = Any
KEPT = 256
"""Compiled definitions that are kept at once."""


class Bundles:
    """Stored definitions, compiled once per digest."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store
        self._compiled: dict[tuple[str, str], Definition] = {}
        self._stored: dict[tuple[str, str], None] = {}

    async def store(self, account: str, loaded: LoadedWorkflow) -> str:
        """Keep a workflow with what it names; returns the digest. Raises NotFound, DefinitionError.

        One that was published is kept already, with what it named then.
        """
        digest, bodies = self.bundled(loaded)
        for inner, body in bodies.items():
            if (account, inner) not in self._stored:
                await self._store.put_definition(account, inner, encode(body))
                _keep(self._stored, (account, inner), None)
        return digest

    def bundled(self, loaded: LoadedWorkflow) -> tuple[str, dict[str, Json]]:
        """The digest of a workflow and the bodies to be kept, what is called before its callers. Raises as `store`."""
        bodies: dict[str, Json] = {}
        return self._bundle(loaded, {}, {}, bodies), bodies

    def _bundle(
        self, loaded: LoadedWorkflow, calls: Calls, done: dict[tuple[str, str], str], bodies: dict[str, Json]
    ) -> str:
        """The digest of a workflow, and in `done` that of everything below it; each is looked into once."""
        if pinned := self._parts.shelf.pinned(loaded.file):
            return pinned
        key = (loaded.file, loaded.digest)
        if key not in done:
            recipes = {
                name: recipe.model_dump(mode="json", exclude_unset=True, exclude={"tests"})
                for name, recipe in self._parts.recipes_of(loaded).items()
            }
            called = self._parts.children_of(loaded, calls)
            children = {name: self._bundle(child, calls, done, bodies) for name, child in called.items()}
            digest = done[key] = sha256(encode([loaded.digest, recipes, children])).hexdigest()
            bodies[digest] = {
                "workflow": loaded.data, "recipes": recipes, "workflows": children, "file": loaded.file
            }  # fmt: skip
        return done[key]

    async def get(self, account: str, digest: str) -> Definition:
        """A stored definition, compiled. Raises NotFound."""
        key = (account, digest)
        if key not in self._compiled:
            body = decode(await self._store.definition(account, digest))
            workflow = from_data(body["workflow"], discover())
            recipes = {name: recipe_of(data) for name, data in body["recipes"].items()}
            plan = compile_workflow(workflow, digest)
            _keep(self._compiled, key, Definition(plan, recipes, body["workflows"], body["file"]))
        return self._compiled[key]

    async def resolve(self, account: str, name: str, file: str) -> str:
        """The digest of a workflow named at run time, stored now. Raises StepFailed."""
        try:
            return await self.store(account, self._parts.child(name, file))
        except (NotFound, DefinitionError) as error:
            raise StepFailed("not_found", f"workflow {name!r}: {error}") from None


def _keep(cache: dict[Any, Any], key: tuple[str, str], value: Any) -> None:
    while len(cache) >= KEPT:
        del cache[next(iter(cache))]
    cache[key] = value
