"""Retrieve passages from the knowledge base."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from stepwell.definition.fields import Template
from stepwell.definition.step import Recipes, Schema
from stepwell.interpreter.effect import Effect, KnowledgeRead
from stepwell.interpreter.kind import Action

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope

PASSAGES: Schema = {
    "type": "object",
    "properties": {
        "passages": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "document": {"type": "string"},
                    "score": {"type": "number"},
                    "collection": {"type": "string"},
                    "version": {"type": "integer"},
                    "heading": {"type": "string"},
                    "page": {"type": "integer"},
                },
                "required": ["text", "document", "score"],
            },
        }
    },
    "required": ["passages"],
}


class KbSearch(Action):
    """Searches collections and documents; the output is `{passages: [{text, document, score, …}]}`."""

    type: Literal["kb_search"]
    query: Template
    collections: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    limit: int = Field(5, ge=1, le=100)
    min_score: float = Field(0.0, ge=0.0)

    def shape(self, recipes: Recipes) -> Schema | None:
        del recipes
        return PASSAGES

    def effect(self, scope: Scope) -> Effect:
        return KnowledgeRead(
            query=scope.text(self.query),
            collections=self.collections,
            documents=self.documents,
            limit=self.limit,
            min_score=self.min_score,
        )
