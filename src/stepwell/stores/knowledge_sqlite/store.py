"""The knowledge store on an SQLite file that other stores share.

The law of the file: text is cut and its words are found before the transaction begins, inside it there is only SQL;
vectors come after it and are in nobody's way.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.knowledge.document import Prepared, as_kept, named, prepared
from stepwell.knowledge.fusion import fused
from stepwell.knowledge.ranking import speaking
from stepwell.ports import VectorCount
from stepwell.stores.knowledge_sqlite import meaning, reading, writing
from stepwell.stores.knowledge_sqlite.reading import Search
from stepwell.stores.vector_maker import VectorMaker

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from stepwell.ports import Collection, DocumentWrite, Embedder, Passage, Written
    from stepwell.stores.sqlite.database import Database

Json: TypeAlias = Any
MIGRATIONS = Path(__file__).parent / "migrations"
_SHORT = 20_000
"""Characters that are cut into passages at once; longer texts go to a thread."""


class SqliteKnowledge:
    """`KnowledgeStore` on a `Database`, which whoever opened it closes. A document's name is unique in its account.

    Without an embedder, or with one that is not installed, passages are found by their words alone. `aclose` ends the
    making of vectors; what is missing then is made another time, by whatever process.
    """

    def __init__(
        self, database: Database, embedder: Embedder | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        """Applies the missing migrations, so make it before the database is used. Raises Unavailable."""
        database.migrate("knowledge", MIGRATIONS)
        self.database = database
        self._clock = clock
        self._maker = VectorMaker(embedder, self._missing, self._keep, self._disown)
        self._nearest = meaning.Nearest(self._maker.model)

    async def write(self, account: str, write_: DocumentWrite) -> Written:
        """See the port. Raises StepFailed("validation_error"), Unavailable."""
        ready = await self._prepared(write_)
        now = self._clock()
        size = 2 * len(write_.content) + 256
        made = await self.database.write(lambda connection: writing.write(connection, account, ready, now), size=size)
        self._maker.wake()
        return made

    async def _prepared(self, asked: DocumentWrite) -> Prepared:
        if len(asked.content) <= _SHORT:
            return prepared(asked)
        return await asyncio.to_thread(prepared, asked)

    async def search(
        self,
        account: str,
        query: str,
        *,
        collections: Sequence[str] = (),
        documents: Sequence[str] = (),
        limit: int = 5,
        min_score: float = 0.0,
    ) -> list[Passage]:
        """See the port."""
        named_ = [tuple(as_kept(name) for name in names) for names in (collections, documents)]
        asked = Search(query, named_[0], named_[1], limit, min_score)
        vector = await self._maker.query(query)
        return await self.database.read(lambda connection: self._found(connection, account, asked, vector))

    def _found(
        self, connection: sqlite3.Connection, account: str, asked: Search, vector: Sequence[float] | None
    ) -> list[Passage]:
        ranked, count = reading.by_words(connection, account, asked)
        near = None
        if vector is not None:
            kept_to = reading.documents_named(connection, account, asked)
            near = self._nearest.find(connection, account, vector, kept_to, asked.depth)
        words = [number for _, number in ranked] if near is None else speaking(ranked, count)
        unknown = meaning.without(connection, words, self._maker.model) if near is not None else ()
        both = fused(words, near, asked.depth, unknown=unknown)
        found = [one for one in both if one[1].score >= asked.min_score]
        return reading.passages(connection, found[: asked.limit])

    async def documents(self, account: str, *, collection: str = "") -> list[dict[str, Json]]:
        """See the port."""
        kept = as_kept(collection)
        return await self.database.read(lambda connection: reading.documents(connection, account, kept))

    async def document(self, account: str, document: str, *, version: int = 0) -> dict[str, Json]:
        """See the port; with the version's mode, section, metadata, origin and time. Raises NotFound."""
        kept = as_kept(document)
        return await self.database.read(lambda connection: reading.document(connection, account, kept, version))

    async def versions(self, account: str, document: str) -> list[dict[str, Json]]:
        """See the port. Raises NotFound."""
        kept = as_kept(document)
        return await self.database.read(lambda connection: reading.versions(connection, account, kept))

    async def remove(self, account: str, document: str) -> int:
        """See the port. Raises NotFound."""
        kept = as_kept(document)
        return await self.database.write(lambda connection: writing.remove(connection, account, kept))

    async def collections(self, account: str, *, department: str = "") -> list[Collection]:
        """See the port."""
        kept = as_kept(department)
        return await self.database.read(lambda connection: reading.collections(connection, account, kept))

    async def describe(
        self, account: str, collection: str, *, description: str | None = None, department: str | None = None
    ) -> Collection:
        """See the port. Raises StepFailed("validation_error")."""
        kept = named("collection", collection)
        whose = None if department is None else as_kept(department)
        return await self.database.write(
            lambda connection: writing.describe(connection, account, kept, description, whose)
        )

    async def names(self, account: str) -> tuple[list[str], list[str]]:
        """See the port."""
        return await self.database.read(lambda connection: reading.names(connection, account))

    async def vectors(self, account: str) -> VectorCount:
        """See the port."""
        model = self._maker.model
        passages, made = await self.database.read(lambda connection: meaning.counted(connection, account, model))
        return VectorCount(passages, made, self._maker.problem())

    def wake(self) -> None:
        """See the port."""
        self._maker.wake()

    async def make_vectors(self, *, told: Callable[[int], None] | None = None) -> int:
        """See the port. Raises StepFailed, Unavailable."""
        return await self._maker.make_all(told)

    async def aclose(self) -> None:
        """End the making of vectors; idempotent."""
        await self._maker.aclose()

    async def _missing(self) -> list[meaning.Missing]:
        return await self.database.read(meaning.missing)

    async def _keep(self, found: Sequence[tuple[meaning.Missing, Sequence[float]]]) -> None:
        model = self._maker.model
        await self.database.write(lambda connection: meaning.keep(connection, model, found), size=1000 * len(found))

    async def _disown(self) -> None:
        model = self._maker.model
        await self.database.write(lambda connection: meaning.disown(connection, model))
