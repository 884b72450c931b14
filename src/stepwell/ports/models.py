"""Language models, embeddings, and the limit on calls of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool that a model may ask for; `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: dict[str, Json]


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A call that a model asks for. `id` is the provider's; `arguments` are an object, or the text that was no JSON."""

    id: str
    name: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What came of a call that a model asked for: the tool's result, or with `failed` the error's message."""

    id: str
    name: str
    value: Json
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a model that used tools: what it said, the calls it asked for, and what came of each, in order."""

    text: str
    calls: Sequence[ToolRequest]
    answers: Sequence[ToolAnswer]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a language model. `schema` asks for JSON that fits; `timeout` is in seconds.

    `tools` are offered, and `turns` are what went before, after the prompt. `on_text` is told each piece of text as it
    comes: given, the answer is streamed. It is called in the event loop and returns at once.
    """

    model: str
    prompt: str
    system: str = ""
    schema: dict[str, Json] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float = 60.0
    key: str = ""
    tools: Sequence[ToolOffer] = ()
    turns: Sequence[Turn] = ()
    on_text: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A model's whole answer. `finish_reason` "length" means that it was cut; `calls` are tools that it asks for.

    `cached_tokens` are those of the input that the provider had kept from before; they are among `input_tokens`.
    """

    text: str
    model: str
    finish_reason: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    calls: Sequence[ToolRequest] = ()
    cached_tokens: int = 0


class LanguageModel(Protocol):
    """Raises StepFailed, classified."""

    async def complete(self, request: ModelRequest) -> ModelReply: ...


@dataclass(frozen=True, slots=True)
class LimitStanding:
    """How a limit stands for one account. `limit` 0 is none; `scope` says whose calls `holding` and `waiting` count."""

    limit: int
    scope: Literal["process", "shared"]
    holding: int
    waiting: int
    degraded: str = ""
    """Why a shared limit is not in force now, and each process counts for itself; "" if it is."""
    admitted_degraded: int = 0
    """Calls that this process has let through without having asked the shared limit."""


class Limiter(Protocol):
    """Bounds how many calls to models an account has in flight at once."""

    def slot(self, account: str) -> AbstractAsyncContextManager[None]:
        """A slot for one call, first come, first served.

        Giving it back never fails. Waiting for it is told to `adapters.limits.queueing`. Raises StepFailed only where
        a limit that cannot be asked is to refuse.
        """

    async def standing(self, account: str) -> LimitStanding: ...

    async def aclose(self) -> None: ...


class Embedder(Protocol):
    """Vectors of texts, each of the same length and of Euclidean norm 1."""

    identity: str
    """Names the model and its version: vectors of two identities cannot be compared."""

    async def queries(self, texts: Sequence[str]) -> list[list[float]]: ...

    async def passages(self, texts: Sequence[str]) -> list[list[float]]: ...
