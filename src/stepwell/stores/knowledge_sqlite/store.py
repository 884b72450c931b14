"""The knowledge store on an SQLite file that other stores share.

The law of the file: text is cut and its words are found before the transaction begins; inside it there is only SQL.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.knowledge.document import Prepared, as_kept, prepared
from stepwell.stores.knowledge_sqlite import reading
from stepwell.stores.knowledge_sqlite.reading import Search
from stepwell.stores.knowledge_sqlite.writing import write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepwell.ports import DocumentWrite, Passage, Written
    from stepwell.stores.sqlite.database import Database

Json: TypeAlias = Any
MIGRATIONS = Path(__file__).parent / "migrations"
_SHORT = 20_000
"""Characters that are cut into passages at once; longer texts go to a thread."""


class SqliteKnowledge:
    """`KnowledgeStore` on a `Database`, which whoever opened it closes. A document's name is unique in its account."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        """Applies the missing migrations, so make it before the database is used. Raises Unavailable."""
        database.migrate("knowledge", MIGRATIONS)
        self.database = database
        self._clock = clock

    async def write(self, account: str, write_: DocumentWrite) -> Written:
        """See the port. Raises StepFailed("validation_error"), Unavailable."""
        ready = await self._prepared(write_)
        now = self._clock()
        size = 2 * len(write_.content) + 256
        return await self.database.write(lambda connection: write(connection, account, ready, now), size=size)

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
        """Passages with words of the query, best first, of these collections or documents (of all if none is named)."""
        named = [tuple(as_kept(name) for name in names) for names in (collections, documents)]
        asked = Search(query, named[0], named[1], limit, min_score)
        return await self.database.read(lambda connection: reading.search(connection, account, asked))

    async def documents(self, account: str, *, collection: str = "") -> list[dict[str, Json]]:
        """`{document, collection, version, passages, changed, metadata}` of each, by collection and name."""
        kept = as_kept(collection)
        return await self.database.read(lambda connection: reading.documents(connection, account, kept))

    async def document(self, account: str, document: str, *, version: int = 0) -> dict[str, Json]:
        """See the port; with the version's mode, section, metadata, origin and time. Raises NotFound."""
        kept = as_kept(document)
        return await self.database.read(lambda connection: reading.document(connection, account, kept, version))
