"""The knowledge store in memory: for tests, and the model that the SQLite store is compared with."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from stepwell.errors import NotFound
from stepwell.knowledge.bigrams import query_words
from stepwell.knowledge.document import DEFAULT, JOINT, Indexed, Prepared, as_kept, named, prepared
from stepwell.knowledge.fusion import DEPTH, fused
from stepwell.knowledge.ranking import scores, speaking
from stepwell.knowledge.showing import DocumentVersion, moment, with_replaced
from stepwell.knowledge.vectors import packed, unpacked
from stepwell.ports import Collection, DocumentWrite, Embedder, Passage, VectorCount, Written
from stepwell.stores.vector_maker import VectorMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepwell.knowledge.bigrams import Wanted
    from stepwell.knowledge.fusion import Fused

Json: TypeAlias = Any


@dataclass(eq=False, slots=True)
class _Held:
    """A passage in its part; `vector` is empty until it is made."""

    indexed: Indexed
    part: _Part
    document: _Document
    vector: tuple[float, ...] = ()

    def told(self) -> str:
        return self.indexed.told()


@dataclass(eq=False, slots=True)
class _Part:
    section: str
    since: int
    content: str
    position: int
    passages: list[_Held] = field(default_factory=list)
    until: int = 0


@dataclass(eq=False, slots=True)
class _Document:
    account: str
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

    def __init__(self, embedder: Embedder | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._documents: dict[tuple[str, str], _Document] = {}
        self._collections: dict[tuple[str, str], Collection] = {}
        self._made: dict[tuple[str, str], Written] = {}
        self._maker: VectorMaker[_Held] = VectorMaker(embedder, self._missing, self._keep, _nothing)

    async def write(self, account: str, write: DocumentWrite) -> Written:
        """See the port. Raises StepFailed("validation_error")."""
        ready = prepared(write)
        key = (account, ready.write.idempotency_key)
        if ready.write.idempotency_key and key in self._made:
            return self._made[key]
        made = self._written(account, ready)
        self._made[key] = made
        self._maker.wake()
        return made

    def _written(self, account: str, ready: Prepared) -> Written:
        asked = ready.write
        document = self._documents.setdefault(
            (account, asked.document), _Document(account, asked.document, asked.collection)
        )
        if asked.collection != DEFAULT:
            document.collection = asked.collection
        version = len(document.versions) + 1
        position = max((part.position for part in document.parts), default=0) + 1
        for part in document.now():
            if asked.mode == "replace" or (asked.mode == "upsert" and part.section == asked.section):
                part.until = version
                if asked.mode == "upsert":
                    position = part.position
        part = _Part(asked.section, version, asked.content, position)
        part.passages += [_Held(passage, part, document) for passage in ready.passages]
        document.parts.append(part)
        before = document.versions[-1] if document.versions and asked.mode == "replace" else None
        metadata, origin = _copied(asked.metadata), _copied(with_replaced(asked.origin, before))
        document.versions.append(
            DocumentVersion(
                asked.document, document.collection, version, version, "", asked.mode, asked.section, metadata, origin,
                self._clock(), len(ready.passages),
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
        """See the port."""
        collections, documents = [as_kept(name) for name in collections], [as_kept(name) for name in documents]
        vector = await self._maker.query(query)
        held = [passage for passage in self._now() if passage.document.account == account]
        asked = [
            passage
            for passage in held
            if not (collections or documents)
            or passage.document.collection in collections
            or passage.document.name in documents
        ]
        near = None
        if vector is not None and any(passage.vector for passage in held):
            near = _nearest(asked, unpacked(packed(vector)))
        scored = _by_words(query, held, asked)[: max(DEPTH, limit)]
        words = [passage for _, passage in scored] if near is None else speaking(scored, len(query_words(query)))
        unknown = {passage for passage in words if not passage.vector}
        ranked = fused(words, near, max(DEPTH, limit), unknown=unknown)
        return [_passage(passage, ranks) for passage, ranks in ranked if ranks.score >= min_score][:limit]

    def _now(self) -> list[_Held]:
        return [
            passage
            for _, document in sorted(self._documents.items())
            for part in document.now()
            for passage in part.passages
        ]

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

    async def versions(self, account: str, document: str) -> list[dict[str, Json]]:
        """See the port. Raises NotFound."""
        found = self._named(account, document)
        newest = len(found.versions)
        return [_copied(replace(one, newest=newest).listed()) for one in reversed(found.versions)]

    async def remove(self, account: str, document: str) -> int:
        """See the port. Raises NotFound."""
        found = self._named(account, document)
        del self._documents[account, found.name]
        self._made = {key: made for key, made in self._made.items() if (key[0], made.document) != (account, found.name)}
        return len(found.versions)

    async def collections(self, account: str, *, department: str = "") -> list[Collection]:
        """See the port."""
        held = [document.collection for document in self._documents.values() if document.account == account]
        described = [name for owner, name in self._collections if owner == account]
        found = [
            replace(self._collections.get((account, name), Collection(name)), documents=held.count(name))
            for name in sorted({*held, *described})
        ]
        wanted = as_kept(department).casefold()
        return [one for one in found if not wanted or one.department.casefold() == wanted]

    async def describe(
        self, account: str, collection: str, *, description: str | None = None, department: str | None = None
    ) -> Collection:
        """See the port. Raises StepFailed("validation_error")."""
        kept = named("collection", collection)
        before = self._collections.get((account, kept), Collection(kept))
        self._collections[account, kept] = Collection(
            kept,
            before.description if description is None else description,
            before.department if department is None else as_kept(department),
        )
        return next(one for one in await self.collections(account) if one.name == kept)

    async def names(self, account: str) -> tuple[list[str], list[str]]:
        """See the port."""
        held = sorted(name for owner, name in self._documents if owner == account)
        return [one.name for one in await self.collections(account)], held

    async def vectors(self, account: str) -> VectorCount:
        """See the port."""
        held = [passage for passage in self._now() if passage.document.account == account]
        return VectorCount(len(held), sum(bool(passage.vector) for passage in held), self._maker.problem())

    def wake(self) -> None:
        """See the port."""
        self._maker.wake()

    async def make_vectors(self, *, told: Callable[[int], None] | None = None) -> int:
        """See the port. Raises StepFailed."""
        return await self._maker.make_all(told)

    async def aclose(self) -> None:
        """End the making of vectors; idempotent."""
        await self._maker.aclose()

    def _named(self, account: str, document: str) -> _Document:
        found = self._documents.get((account, as_kept(document)))
        if found is None:
            raise NotFound(f"there is no document {as_kept(document)!r}")
        return found

    async def _missing(self) -> list[_Held]:
        return [passage for passage in self._now() if not passage.vector][:4]

    async def _keep(self, found: Sequence[tuple[_Held, Sequence[float]]]) -> None:
        for passage, vector in found:
            passage.vector = unpacked(packed(vector))


async def _nothing() -> None:
    """Vectors of another model do not survive in memory."""


def _by_words(query: str, held: Sequence[_Held], asked: Sequence[_Held]) -> list[tuple[float, _Held]]:
    wanted = query_words(query)
    counts = {word: sum(_holds(passage.indexed, word) for passage in held) for word in wanted}
    holding = [passage for passage in asked if any(_holds(passage.indexed, word) for word in wanted)]
    ranked = scores(wanted, counts, len(held), [passage.indexed.words for passage in holding])
    found = sorted(zip(ranked, holding, strict=True), key=lambda one: -one[0])
    return [one for one in found if one[0] > 0]


def _nearest(asked: Sequence[_Held], vector: Sequence[float]) -> list[_Held]:
    def near(passage: _Held) -> float:
        return sum(one * other for one, other in zip(passage.vector, vector, strict=True))

    return sorted((passage for passage in asked if passage.vector), key=near, reverse=True)


def _passage(held: _Held, fused_: Fused) -> Passage:
    indexed, document = held.indexed, held.document
    before = sum(len(part.content) + len(JOINT) for part in document.now() if part.position < held.part.position)
    start = before + indexed.start
    return Passage(
        indexed.text, document.name, fused_.score, document.collection, len(document.versions), indexed.heading, start,
        start + len(indexed.text), indexed.page, fused_.by_words, fused_.by_meaning,
    )  # fmt: skip


def _holds(passage: Indexed, wanted: Wanted) -> bool:
    return any(wanted.weight(word) for word in passage.words.split())


def _copied(value: Json) -> Json:
    return msgspec.json.decode(msgspec.json.encode(value))
