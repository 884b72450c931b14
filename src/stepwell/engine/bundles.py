"""Bundles: what a run pins, that is its definition and the recipes it uses, stored under one digest.

The law of the file: a bundle is never changed; publishing or editing anything later cannot touch a run that has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.compile import compile_workflow
from stepwell.definition.load import from_data
from stepwell.definition.recipe import RecipeDefinition
from stepwell.engine.advance import Definition
from stepwell.journal.entry import decode, encode
from stepwell.kinds import discover

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.ports import Run, RunStore

Json: TypeAlias = Any


class Bundles:
    """Stored definitions, compiled once per digest."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._compiled: dict[tuple[str, str], Definition] = {}
        self._stored: set[tuple[str, str]] = set()

    async def store(self, account: str, loaded: LoadedWorkflow, recipes: Mapping[str, RecipeDefinition]) -> str:
        """Keep a workflow with its recipes, by the names steps call them; returns the digest."""
        pinned = {name: recipes[name].model_dump(mode="json", exclude_unset=True) for name in sorted(recipes)}
        digest = sha256(encode([loaded.digest, pinned])).hexdigest()
        if (account, digest) not in self._stored:
            body = {"workflow": loaded.data, "recipes": pinned, "file": loaded.file}
            await self._store.put_definition(account, digest, encode(body))
            self._stored.add((account, digest))
        return digest

    async def definition(self, run: Run) -> Definition:
        """What a run pinned. Raises NotFound."""
        key = (run.account, run.definition)
        if key not in self._compiled:
            body = decode(await self._store.definition(*key))
            workflow = from_data(body["workflow"], discover())
            recipes = {
                name: RecipeDefinition.model_validate(data, context={"names": frozenset({"input"})})
                for name, data in body["recipes"].items()
            }
            self._compiled[key] = Definition(compile_workflow(workflow, run.definition), recipes)
        return self._compiled[key]
