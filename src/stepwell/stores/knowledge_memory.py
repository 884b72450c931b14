"""The knowledge store in memory: for tests, and the model that the SQLite store is compared with."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from stepwell.errors import NotFound
from stepwell.knowledge.bigrams import query_words
from stepwell.knowledge.document import DEFAULT, JOINT, Indexed, Prepared, as_kept, prepared
from stepwell.knowledge.ranking import scores
from stepwell.knowledge.showing import DocumentVersion, moment
from stepwell.ports import DocumentWrite, Passage, Written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepwell.knowledge.bigrams import Wanted

Json: TypeAlias = Any


@dataclass(slots=True)
class _Part:
    section: str
    since: int
    content: str
    passages: tuple[Indexed, ...]
    position: int
    until: int = 0


@dataclass(slots=True)
class _Document:
    name: str
    collection: str
    parts: list[_Part] = field(default_factory=list)
    versions: list[DocumentVersion] = field(default_factory=list)

    def at(self, version: int) -> list[_Part]:
        found = [part for part in self.parts if part.since <= version and (not part.until or part.until > version)]
        return sorted(found, key=lambda part: part.position)

    def now(self) -> list[_Part]:
        return self.at(len(self.versions))


class MemoryKnowledge:
    """`KnowledgeStore` in this process; nothing survives it."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._documents: dict[tuple[str, str], _Document] = {}
        self._made: dict[tuple[str, str], Written] = {}

    async def write(self, account: str, write: DocumentWrite) -> Written:
        """See the port. Raises StepFailed("validation_error")."""
        ready = prepared(write)
        key = (account, ready.write.idempotency_key)
        if ready.write.idempotency_key and key in self._made:
            return self._made[key]
        made = self._written(account, ready)
        self._made[key] = made
        return made

    def _written(self, account: str, ready: Prepared) -> Written:
        asked = ready.write
        document = self._documents.setdefault((account, asked.document), _Document(asked.document, asked.collection))
        if asked.collection != DEFAULT:
            document.collection = asked.collection
        version = len(document.versions) + 1
        position = max((part.position for part in document.parts), default=0) + 1
        for part in document.now():
            if asked.mode == "replace" or (asked.mode == "upsert" and part.section == asked.section):
                part.until = version
                if asked.mode == "upsert":
                    position = part.position
        document.parts.append(_Part(asked.section, version, asked.content, ready.passages, position))
        metadata, origin = _copied(asked.metadata), _copied(asked.origin)
        document.versions.append(
            DocumentVersion(
                asked.document, document.collection, version, version, "", asked.mode, asked.section, metadata, origin,
                self._clock(),
            )
        )  # fmt: skip
        return Written(asked.document, version, len(ready.passages))

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
        collections, documents = [as_kept(name) for name in collections], [as_kept(name) for name in documents]
        everything = [
            (document, passage)
            for (owner, _), document in sorted(self._documents.items())
            if owner == account
            for part in document.now()
            for passage in part.passages
        ]
        wanted = query_words(query)
        counts = {word: sum(_holds(passage, word) for _, passage in everything) for word in wanted}
        asked = [
            (document, passage)
            for document, passage in everything
            if any(_holds(passage, word) for word in wanted)
            and (not (collections or documents) or document.collection in collections or document.name in documents)
        ]
        ranked = scores(wanted, counts, len(everything), [passage.words for _, passage in asked])
        found = [
            Passage(passage.text, document.name, score, document.collection, len(document.versions))
            for (document, passage), score in zip(asked, ranked, strict=True)
            if score > 0 and score >= min_score
        ]
        return sorted(found, key=lambda passage: -passage.score)[:limit]

    async def documents(self, account: str, *, collection: str = "") -> list[dict[str, Json]]:
        """`{document, collection, version, passages, changed, metadata}` of each, by collection and name."""
        collection = as_kept(collection)
        found = [
            {
                "document": document.name,
                "collection": document.collection,
                "version": len(document.versions),
                "passages": sum(len(part.passages) for part in document.now()),
                "changed": moment(document.versions[-1].at),
                "metadata": _copied(document.versions[-1].metadata),
            }
            for (owner, _), document in self._documents.items()
            if owner == account and collection in {"", document.collection}
        ]
        return sorted(found, key=lambda one: (one["collection"], one["document"]))

    async def document(self, account: str, document: str, *, version: int = 0) -> dict[str, Json]:
        """See the port; with the version's mode, section, metadata, origin and time. Raises NotFound."""
        document = as_kept(document)
        found = self._documents.get((account, document))
        if found is None or not 0 <= version <= len(found.versions):
            raise NotFound(f"there is no document {document!r}" + (f" with a version {version}" if version else ""))
        version = version or len(found.versions)
        shown = found.versions[version - 1].shown()
        text = JOINT.join(part.content for part in found.at(version))
        copied: dict[str, Json] = _copied(shown)
        return copied | {"text": text, "newest": len(found.versions)}


def _holds(passage: Indexed, wanted: Wanted) -> bool:
    return any(wanted.weight(word) for word in passage.words.split())


def _copied(value: Json) -> Json:
    return msgspec.json.decode(msgspec.json.encode(value))
