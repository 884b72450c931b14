"""Versions: publishing workflows, finding them again, comparing them, and moving parked runs to another one.

The law of the file: a version never changes, and no run follows it anywhere; only `migrate` gives a run another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.positions import Positions
from stepwell.engine.migration import Migration, Migrations
from stepwell.errors import DefinitionError, InputError, NotFound, Problem
from stepwell.journal.entry import decode, encode
from stepwell.library.differences import Difference, Side, differences
from stepwell.ports import NewVersion, Published, PublishedRecipe, Run

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.definition.positions import Node
    from stepwell.engine.bundles import Bundles
    from stepwell.engine.parts import Parts
    from stepwell.engine.people import People, Who
    from stepwell.engine.preflight import Preflight
    from stepwell.people.actor import Actor
    from stepwell.ports import Library

Json: TypeAlias = Any

_OF_THE_DAY = ("tool", "model", "approvers", "knowledge")
"""Problems with these codes are those of who and what is here today, not of what is published."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Two definitions and what differs. `places` locate the data of each in its text, where it is known."""

    before: Side
    after: Side
    found: tuple[Difference, ...]
    places: tuple[Positions, Positions]

    @property
    def cosmetic(self) -> bool:
        """Whether nothing that is done differs."""
        return all(one.cosmetic for one in self.found)


class Versions:
    """The published workflows of one account, as `engine.versions`."""

    def __init__(
        self, parts: Parts, bundles: Bundles, preflight: Preflight, people: People, now: Callable[[], float]
    ) -> None:
        self._parts = parts
        self._people = people
        self._bundles = bundles
        self._preflight = preflight
        self._account = parts.account
        self._now = now
        self._migrations = Migrations(parts, bundles, now)

    @property
    def _library(self) -> Library:
        if self._parts.library is None:
            raise NotFound("this engine has no library")
        return self._parts.library

    # ── publishing ──

    async def publish(self, loaded: LoadedWorkflow, *, note: str = "", by: Who = "") -> tuple[Published, bool]:
        """Publish a workflow with everything that it names; the second value says whether there is a new version.

        Raises DefinitionError with what is missing of what it names, and Forbidden.
        """
        actor = await self._editor(by, "workflow.publish", loaded.workflow.workflow)
        _, problems = await self._preflight.check(loaded, {}, connects=False)
        wrong = [one for one in problems if one.severity == "error" and _concerns_all(one)]
        if wrong:
            raise DefinitionError(wrong)
        digest = await self._bundles.store(self._account, loaded)
        bundle = await self._bundle(digest)
        new = NewVersion(
            workflow=loaded.workflow.workflow,
            definition=digest,
            content=_content(loaded.data),
            text=text_of(loaded),
            file=loaded.file,
            label=loaded.workflow.version,
            note=note,
            by=actor.name,
            at=self._now(),
            recipes=_recipes(bundle),
        )
        noted = actor.did("workflow.publish", new.workflow, _detail(new))
        return await self._library.publish(self._account, new, notes=[noted])

    async def rollback(self, reference: str, *, note: str = "", by: Who = "") -> tuple[Published, bool]:
        """Publish an earlier version (`id@version`) again, as the next one. Raises NotFound."""
        old = await self.find(reference)
        actor = await self._editor(by, "workflow.rollback", reference)
        new = NewVersion(
            workflow=old.workflow,
            definition=old.definition,
            content=old.content,
            text=old.text,
            file=old.file,
            label=old.label,
            note=note,
            by=actor.name,
            at=self._now(),
            origin=f"rollback of {old.number}",
            recipes=_recipes(await self._bundle(old.definition)),
        )
        noted = actor.did("workflow.rollback", new.workflow, _detail(new))
        return await self._library.publish(self._account, new, notes=[noted])

    async def delete(self, reference: str, *, by: Who = "") -> Published:
        """Take `id@number` out of the library. Raises NotFound, Conflict while open runs use it, and Forbidden."""
        workflow, _, number = reference.partition("@")
        if not number.isdigit():
            raise InputError([Problem("error", "version", f"{reference!r} is no version", f"write {workflow}@NUMBER")])
        actor = await self._editor(by, "workflow.delete", reference)
        noted = actor.did("workflow.delete", reference)
        return await self._library.delete(self._account, workflow, int(number), notes=[noted])

    async def _editor(self, by: Who, action: str, thing: str) -> Actor:
        actor = await self._people.actor(by)
        if not actor.is_local:
            await self._people.demand(actor, "editor", "admin", to="publish workflows", about=actor.did(action, thing))
        return actor

    # ── finding ──

    async def workflows(self) -> list[Published]:
        """The newest version of every workflow."""
        return await self._library.workflows(self._account)

    async def versions(self, workflow: str) -> list[Published]:
        """All versions of a workflow, newest first. Raises NotFound if there is none."""
        found = await self._library.versions(self._account, workflow)
        if not found:
            raise NotFound(f"there is no workflow {workflow!r} in the library")
        return found

    async def find(self, reference: str) -> Published:
        """What was published as `id` (the newest), `id@number` or `id@label`. Raises NotFound."""
        workflow, _, version = reference.partition("@")
        return await self._library.find(self._account, workflow, version)

    async def get(self, reference: str) -> LoadedWorkflow:
        """The same, ready to be started: with the recipes and sub-workflows that it pinned. Raises DefinitionError."""
        return self._parts.shelf.load(await self.find(reference))

    # ── comparing ──

    async def diff(self, before: LoadedWorkflow | Run, after: LoadedWorkflow | Run) -> Compared:
        """What differs between two definitions: loaded ones, or those that runs pinned. Raises NotFound."""
        sides = [await self._side(one) for one in (before, after)]
        (first, old), (second, new) = sides
        return Compared(first, second, tuple(differences(first, second)), (old, new))

    async def _side(self, one: LoadedWorkflow | Run) -> tuple[Side, Positions]:
        if isinstance(one, Run):
            bundle = await self._bundle(one.definition)
            return Side(f"run {one.id}", bundle["workflow"], _pins(bundle)), Positions(None)
        digest, bodies = self._bundles.bundled(one)
        bundle = bodies[digest] if digest in bodies else await self._bundle(digest)
        return Side(one.file.removeprefix("library:"), one.data, _pins(bundle)), one.positions

    async def _bundle(self, digest: str) -> dict[str, Json]:
        body: dict[str, Json] = decode(await self._parts.store.definition(self._account, digest))
        return body

    # ── moving ──

    async def migrate(self, run_id: str, to: LoadedWorkflow, *, by: Who = "", dry_run: bool = False) -> Migration:
        """Move a parked run to another definition, or with `dry_run` only say what that would do.

        Where anything conflicts nothing is changed; `conflicts` of the answer lists all of it. Raises NotFound, and
        Conflict if the run is not parked, and Forbidden.
        """
        actor = await self._people.actor(by)
        if not dry_run:
            noted = actor.did("run.migrate", run_id)
            await self._people.demand(actor, "operator", "admin", to="move a run to another version", about=noted)
        digest = await self._bundles.store(self._account, to)
        plan = await self._migrations.plan(run_id, digest)
        if dry_run or plan.conflicts or plan.same:
            return plan
        run = await self._migrations.move(plan, actor)
        return replace(plan, run=run, done=True)


def text_of(loaded: LoadedWorkflow) -> str:
    """The text that a definition was loaded from; its data as JSON where that is not known."""
    waiting: list[Node] = [loaded.positions.root] if loaded.positions.root is not None else []
    while waiting:
        node = waiting.pop()
        if node.span is not None:
            return node.span.source.text
        waiting += [*node.mapping.values(), *node.items]
    return json.dumps(loaded.data, ensure_ascii=False, indent=2)


def _concerns_all(problem: Problem) -> bool:
    return problem.file != "input" and not problem.code.startswith(_OF_THE_DAY)


def _detail(new: NewVersion) -> dict[str, Json]:
    said = {"definition": new.definition, "label": new.label, "note": new.note, "origin": new.origin}
    return {name: value for name, value in said.items() if value}


def _content(data: dict[str, Json]) -> str:
    text = json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode(errors="replace")).hexdigest()


def _recipes(bundle: dict[str, Json]) -> Sequence[PublishedRecipe]:
    found = []
    for data in bundle["recipes"].values():
        body = encode(data)
        found.append(PublishedRecipe(data["recipe"], str(data.get("version", "1")), sha256(body).hexdigest(), body))
    return found


def _pins(bundle: dict[str, Json]) -> dict[str, str]:
    """Digests of what a bundle calls, by words for people."""
    recipes = {f"recipe {name}": sha256(encode(data)).hexdigest() for name, data in bundle["recipes"].items()}
    return recipes | {f"workflow {name}": digest for name, digest in bundle["workflows"].items()}
