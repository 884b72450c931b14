"""Effects: what a step wants done to the world, as data that can be hashed, shown and sent.

The law of the file: an effect holds rendered arguments only, never a step's name, timeout or retry, so that its digest
changes exactly when what would be done changes. Secrets are placeholders here; performers put them in.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from typing import Any, ClassVar, Self, TypeAlias

import msgspec

from stepwell.errors import StepFailed

Json: TypeAlias = Any
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Effect:
    """The base of all effects; `word` names it in digests and journals."""

    word: ClassVar[str] = ""
    idempotent: ClassVar[bool] = True

    def arguments(self) -> Json:
        """What is shown as the step's input, and hashed."""
        raise NotImplementedError(type(self).__name__)

    def again(self) -> bool:
        """Whether it may be performed again when nobody knows whether it was."""
        return self.idempotent

    def edited(self, edits: dict[str, Json]) -> Self:
        """The same with other arguments. Raises StepFailed (validation_error) for one that it does not have."""
        unknown = edits.keys() - self.editable()
        if unknown:
            names = ", ".join(sorted(self.editable()))
            raise StepFailed("validation_error", f"no argument {min(unknown)!r} can be edited; there are {names}")
        return replace(self, **edits)

    def editable(self) -> set[str]:
        """The names of the arguments that a person may change before it is tried again."""
        return {one.name for one in fields(self)}


@dataclass(frozen=True, slots=True)
class ModelCall(Effect):
    """One question to a model: a recipe, or a prompt written in the step.

    `task` is generate, classify or extract_summary; `labels` belong to classify; `schema` is what the answer must fit.
    """

    word = "model"

    prompt: str
    system: str = ""
    task: str = "generate"
    model: Json = None
    schema: dict[str, Json] | None = None
    labels: Json = None
    inputs: Json = None
    knowledge: tuple[str, ...] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    recipe: str = ""

    def arguments(self) -> Json:
        return {
            name: value
            for name in (
                "recipe", "task", "model", "system", "prompt", "inputs", "labels", "schema", "knowledge", "temperature",
                "max_tokens",
            )
            if (value := getattr(self, name)) not in (None, "", ())
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToolCall(Effect):
    """A call of a registered tool. `repeatable` is what the step or the tool's registration says of a second call."""

    word = "tool"

    tool: str
    call: dict[str, Json] = field(default_factory=dict)
    repeatable: bool = True

    def arguments(self) -> Json:
        return self.call

    def edited(self, edits: dict[str, Json]) -> Self:
        return replace(self, call=self.call | edits)

    def again(self) -> bool:
        return self.repeatable


@dataclass(frozen=True, slots=True)
class KnowledgeRead(Effect):
    """A search for passages."""

    word = "kb_search"

    query: str
    collections: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    limit: int = 5
    min_score: float = 0.0

    def arguments(self) -> Json:
        return {
            "query": self.query,
            "collections": self.collections,
            "documents": self.documents,
            "limit": self.limit,
            "min_score": self.min_score,
        }


@dataclass(frozen=True, slots=True)
class KnowledgeWrite(Effect):
    """A write to a document; it is idempotent by its key."""

    word = "kb_write"

    document: str
    content: str
    collection: str = "default"
    mode: str = "append"
    section: str = ""
    metadata: dict[str, Json] = field(default_factory=dict)

    def arguments(self) -> Json:
        return {
            "document": self.document,
            "collection": self.collection,
            "mode": self.mode,
            "section": self.section,
            "content": self.content,
            "metadata": self.metadata,
        }


@dataclass(frozen=True, slots=True)
class Notify(Effect):
    """A message to people; it is stored with the step's entry and delivered afterwards, never in the run's way."""

    word = "notify"

    to: Json
    subject: str
    message: str
    priority: str = "normal"

    def arguments(self) -> Json:
        return {"to": self.to, "subject": self.subject, "message": self.message, "priority": self.priority}


def encoded(effect: Effect) -> bytes:
    """The effect's arguments as JSON text."""
    return _encode(effect.arguments())


def digest(effect: Effect, text: bytes) -> str:
    """The digest (BLAKE2b, 128 bits, hexadecimal) of an effect whose encoded arguments are `text`."""
    hashed = blake2b(text, digest_size=16)
    hashed.update(effect.word.encode())
    if isinstance(effect, ToolCall):
        hashed.update(effect.tool.encode())
    return hashed.hexdigest()
