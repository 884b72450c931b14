"""Registered tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Tool:
    """What is known of a registered tool without calling it."""

    name: str
    description: str
    parameters: dict[str, Json]
    idempotent: bool = True


@dataclass(frozen=True, slots=True)
class ToolCallContext:
    """What a tool may know of the call it serves. `key` is the same for every attempt of the step."""

    run_id: str
    path: str
    attempt: int
    key: str
    timeout: float
    chain: tuple[str, ...] = ()
    """The workflows of the runs that led to this call, its own last."""
    own_session: bool = False
    """Whether the tool's server keeps a state for this run that no other run may see, such as a browser."""


class Tools(Protocol):
    """Registered tools. `call` returns plain JSON (normalised) and raises StepFailed."""

    def get(self, name: str) -> Tool | None: ...

    def names(self) -> list[str]: ...

    async def call(self, name: str, arguments: dict[str, Json], context: ToolCallContext) -> Json: ...
