"""Performs searches in the knowledge base and writes to it."""

from __future__ import annotations

from typing import Literal, assert_never, cast

from stepwell.engine.performer import CallContext, Performed
from stepwell.interpreter.effect import Effect, KnowledgeRead, KnowledgeWrite
from stepwell.ports import DocumentWrite, KnowledgeStore


class KnowledgePerformer:
    """Works for `KnowledgeRead` and `KnowledgeWrite`; a write carries the step's idempotency key."""

    def __init__(self, store: KnowledgeStore) -> None:
        self._store = store

    async def __call__(self, effect: Effect, context: CallContext) -> Performed:
        """Raises StepFailed("validation_error") for a write that names no document or section; Unavailable."""
        if not isinstance(effect, KnowledgeRead | KnowledgeWrite):
            raise TypeError(f"a search or a write is wanted, this is {type(effect).__name__}")
        match effect:
            case KnowledgeRead():
                return await self._search(effect, context)
            case KnowledgeWrite():
                return await self._write(effect, context)
            case _:
                assert_never(effect)

    async def _search(self, effect: KnowledgeRead, context: CallContext) -> Performed:
        found = await self._store.search(
            context.account,
            effect.query,
            collections=effect.collections,
            documents=effect.documents,
            limit=effect.limit,
            min_score=effect.min_score,
        )
        passages = [
            {
                "text": passage.text,
                "document": passage.document,
                "score": passage.score,
                "collection": passage.collection,
                "version": passage.version,
                "heading": passage.heading,
                "page": passage.page,
            }
            for passage in found
        ]
        return Performed({"passages": passages})

    async def _write(self, effect: KnowledgeWrite, context: CallContext) -> Performed:
        written = await self._store.write(
            context.account,
            DocumentWrite(
                document=effect.document,
                content=effect.content,
                collection=effect.collection,
                mode=cast("Literal['append', 'replace', 'upsert']", effect.mode),
                section=effect.section,
                metadata=effect.metadata,
                idempotency_key=context.key,
                origin={"run": context.run_id, "path": context.path, "requester": context.requester},
            ),
        )
        return Performed({"document": written.document, "version": written.version, "chunks": written.chunks})
