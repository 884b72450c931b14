"""Write text into a knowledge document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from stepwell.definition.fields import Template, Value
from stepwell.definition.step import Recipes, Schema
from stepwell.interpreter.effect import Effect, KnowledgeWrite
from stepwell.interpreter.kind import Action

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope

WRITTEN: Schema = {
    "type": "object",
    "properties": {
        "document": {"type": "string"},
        "version": {"type": "integer"},
        "chunks": {"type": "integer"},
    },
    "required": ["document", "version", "chunks"],
    "additionalProperties": False,
}


class KbWrite(Action):
    """Writes one version of a document; the output is `{document, version, chunks}`."""

    type: Literal["kb_write"]
    document: Template
    content: Template
    collection: Template | None = None
    mode: Literal["append", "replace", "upsert"] = "append"
    key: Template | None = None
    """The section that `upsert` replaces or adds."""
    metadata: dict[str, Value] = {}
    idempotent: bool = True

    def shape(self, recipes: Recipes) -> Schema | None:
        del recipes
        return WRITTEN

    def effect(self, scope: Scope) -> Effect:
        return KnowledgeWrite(
            document=scope.text(self.document),
            content=scope.text(self.content),
            collection=scope.text(self.collection) if self.collection else "default",
            mode=self.mode,
            section=scope.text(self.key) if self.key else "",
            metadata={name: scope.render(value) for name, value in self.metadata.items()},
        )
