"""Effects: what a step wants done to the world, as data that can be hashed, shown and sent.

The law of the file: an effect holds rendered arguments only, never a step's name, timeout or retry, so that its digest
changes exactly when what would be done changes. Of secrets it holds names, and where their values belong: rendered
arguments are never searched for references, and the values are put in when the effect is performed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from typing import Any, ClassVar, Self, TypeAlias

import msgspec

from stepwell.errors import StepFailed
from stepwell.expressions import SecretName

Json: TypeAlias = Any
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class SecretText:
    """A text among the arguments into which values of secrets belong: its place, and what it is joined from."""

    place: tuple[str | int, ...]
    pieces: tuple[str | SecretName, ...]


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

    def secret_names(self) -> tuple[str, ...]:
        """The secrets whose values belong into it."""
        return ()

    def revealed(self, value_of: Callable[[str], str]) -> Self:
        """The same with the values of secrets in their places: to be performed, and for nothing else."""
        del value_of
        return self

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
    department: str = ""
    """Whose collections are meant besides; the workflow says it, it is no argument of the step."""
    temperature: float | None = None
    max_tokens: int | None = None
    recipe: str = ""
    tools: tuple[str, ...] = ()
    """Names of the tools that an agent step may use."""
    offers: tuple[dict[str, Json], ...] = ()
    """Those tools as the model is told of them: name, description, parameters; given, this is a turn of an agent."""
    turns: tuple[dict[str, Json], ...] = ()
    """The turns before, each `{text, calls: [{id, name, arguments}], answers: [{id, name, value, failed}]}`."""

    def arguments(self) -> Json:
        return {
            name: value
            for name in (  # offers are what the registry says of tools: they are recorded when the step begins
                "recipe", "task", "model", "system", "prompt", "inputs", "labels", "schema", "knowledge", "temperature",
                "max_tokens", "tools", "turns",
            )
            if (value := getattr(self, name)) not in (None, "", ())
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToolCall(Effect):
    """A call of a registered tool. `repeatable` is what the step or the tool's registration says of a second call.

    With `own_session` the tool's server keeps a state that belongs to the run alone.
    """

    word = "tool"

    tool: str
    call: dict[str, Json] = field(default_factory=dict)
    repeatable: bool = True
    secrets: tuple[SecretText, ...] = ()
    own_session: bool = False

    def arguments(self) -> Json:
        return self.call

    def secret_names(self) -> tuple[str, ...]:
        return tuple(
            {str(piece): None for text in self.secrets for piece in text.pieces if isinstance(piece, SecretName)}
        )

    def revealed(self, value_of: Callable[[str], str]) -> Self:
        call: Json = self.call
        for text in self.secrets:
            told = "".join(value_of(piece) if isinstance(piece, SecretName) else piece for piece in text.pieces)
            call = _with(call, text.place, told)
        return replace(self, call=call, secrets=())

    def edited(self, edits: dict[str, Json]) -> Self:
        """An argument that a person gave is data; a secret stays where its text was left as it is shown."""
        call = self.call | edits
        kept = tuple(text for text in self.secrets if _at(call, text.place) == _at(self.call, text.place))
        return replace(self, call=call, secrets=kept)

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


def _at(value: Json, place: tuple[str | int, ...]) -> Json:
    """What lies at a place of arguments; None if there is nothing."""
    for key in place:
        inside = isinstance(value, dict) and key in value
        if not inside and not (isinstance(value, list) and isinstance(key, int) and key < len(value)):
            return None
        value = value[key]
    return value


def _with(value: Json, place: tuple[str | int, ...], text: str) -> Json:
    """A copy of arguments with a text at a place; what lies beside the way there is shared."""
    if not place:
        return text
    copy: Json = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _with(copy[place[0]], place[1:], text)
    return copy


def encoded(effect: Effect) -> bytes:
    """The effect's arguments as JSON text."""
    return _encode(effect.arguments())


def digest(effect: Effect, text: bytes) -> str:
    """The digest (BLAKE2b, 128 bits, hexadecimal) of an effect whose encoded arguments are `text`."""
    hashed = blake2b(text, digest_size=16)
    hashed.update(effect.word.encode())
    if isinstance(effect, ToolCall):
        hashed.update(effect.tool.encode())
    if names := effect.secret_names():
        hashed.update(_encode(names))
    return hashed.hexdigest()
