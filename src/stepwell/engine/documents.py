"""Documents as people keep them: added from files, described in collections, removed.

The law of the file: a file that has not changed makes no new version; a file never takes the place of a document that
did not come from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.documents import read_document
from stepwell.errors import InputError, NotFound, Problem, StepFailed
from stepwell.knowledge.document import DEFAULT, as_kept
from stepwell.ports import DocumentWrite

if TYPE_CHECKING:
    from stepwell.adapters.documents import ReadDocument
    from stepwell.engine.people import People, Who
    from stepwell.people.actor import Actor
    from stepwell.ports import Collection, KnowledgeStore

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class ToAdd:
    """A file, and the document that it is to be."""

    file: Path
    document: str
    collection: str = DEFAULT
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class Added:
    """What became of a file: `added` with a new version, `unchanged`, or `failed` for `problem`."""

    file: Path
    document: str
    status: str
    version: int = 0
    passages: int = 0
    note: str = ""
    problem: Problem | None = None


class Documents:
    """Hangs on an engine as `engine.documents`."""

    def __init__(self, store: KnowledgeStore, people: People, account: str) -> None:
        self._store = store
        self._people = people
        self._account = account

    async def add(self, files: Iterable[ToAdd], *, by: Who = "") -> AsyncIterator[Added]:
        """Make each file the newest version of its document, and tell what became of it. Raises Forbidden."""
        actor = await self._editor(by, "document.add", "")
        for one in files:
            try:
                yield await _add(self._store, self._account, one, actor.name)
            except InputError as wrong:
                yield Added(one.file, one.document, "failed", problem=wrong.problems[0])
            except StepFailed as failure:
                problem = Problem("error", "document", failure.message, "", str(one.file))
                yield Added(one.file, one.document, "failed", problem=problem)

    async def remove(self, document: str, *, by: Who = "") -> int:
        """Remove a document with all its versions; returns how many there were. Raises NotFound, Forbidden."""
        actor = await self._editor(by, "document.remove", document)
        gone = await self._store.remove(self._account, document)
        await self._people.note(actor.did("document.remove", as_kept(document), {"versions": gone}))
        return gone

    async def describe(
        self, collection: str, *, description: str | None = None, department: str | None = None, by: Who = ""
    ) -> Collection:
        """Make a collection, or say more of it. Raises StepFailed("validation_error"), Forbidden."""
        actor = await self._editor(by, "collection.describe", collection)
        made = await self._store.describe(self._account, collection, description=description, department=department)
        said = {"description": description, "department": department}
        detail = {name: value for name, value in said.items() if value is not None}
        await self._people.note(actor.did("collection.describe", made.name, detail))
        return made

    async def _editor(self, by: Who, action: str, thing: str) -> Actor:
        actor = await self._people.actor(by)
        if not actor.is_local:
            about = actor.did(action, thing)
            await self._people.demand(actor, "editor", "admin", to="change the knowledge base", about=about)
        return actor


async def _add(store: KnowledgeStore, account: str, one: ToAdd, by: str) -> Added:
    read = await asyncio.to_thread(read_document, one.file, encoding=one.encoding)
    mark = _mark(read)
    before = await _newest(store, account, one.document)
    if before is not None:
        _same_origin(one, before)
        if before["metadata"].get("sha256") == mark and one.collection in {DEFAULT, before["collection"]}:
            return Added(one.file, one.document, "unchanged", before["version"], before["passages"], read.note)
    metadata = {"file": one.file.name, "sha256": mark} | ({"title": read.title} if read.title else {})
    origin = {"file": str(one.file.resolve())} | ({"by": by} if by else {})
    write = DocumentWrite(
        one.document, read.text, as_kept(one.collection), "replace", metadata=metadata, origin=origin, pages=read.pages
    )
    made = await store.write(account, write)
    return Added(one.file, one.document, "added", made.version, made.chunks, read.note)


async def _newest(store: KnowledgeStore, account: str, document: str) -> dict[str, Json] | None:
    try:
        return (await store.versions(account, document))[0]
    except NotFound:
        return None


def _same_origin(one: ToAdd, before: dict[str, Json]) -> None:
    """Raises InputError where a document that is not of this file would be lost behind it.

    A file of the same name in another folder is the same one, checked out elsewhere, unless it is to go elsewhere.
    """
    known = before["origin"].get("file") or before["metadata"].get("file")
    same_place = one.collection in {DEFAULT, before["collection"]}
    if known and (known == str(one.file.resolve()) or (same_place and Path(known).name == one.file.name)):
        return
    whose = f"from {known}" if known else "written by runs"
    message = f"there is a document {one.document!r} already, in the collection {before['collection']!r}, {whose}"
    raise InputError(
        [Problem("error", "document", message, "give this one another name with --document", str(one.file))]
    )


def _mark(read: ReadDocument) -> str:
    return sha256(repr((read.text, read.title, read.pages)).encode("utf-8", "surrogatepass")).hexdigest()
