"""The world of a pass: what it may touch, put together by whoever wires an engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from stepwell.engine.clock import SYSTEM
from stepwell.engine.vault import NO_VAULT

if TYPE_CHECKING:
    from stepwell.definition.workflow import Workflow
    from stepwell.engine.events import Listeners
    from stepwell.engine.performer import Performer
    from stepwell.engine.vault import Vault
    from stepwell.interpreter.definition import Definition
    from stepwell.interpreter.effect import Effect
    from stepwell.ports import Clock, RunStore, Tools, Wait


class Definitions(Protocol):
    """Stored definitions, compiled."""

    async def get(self, account: str, digest: str) -> Definition:
        """Raises NotFound."""

    async def resolve(self, account: str, name: str, file: str) -> str:
        """The digest of a workflow named at run time, stored now. Raises StepFailed."""


@dataclass(frozen=True, slots=True)
class World:
    """What a pass may touch: the store, performers by effect type, tools, listeners and the clock."""

    store: RunStore
    performers: Mapping[type[Effect], Performer]
    tools: Tools
    listeners: Listeners
    definitions: Definitions | None = None
    opened: Callable[[Wait], None] = lambda _: None
    """Told of every wait that a pass opens, once it is durable."""
    clock: Clock = SYSTEM
    vault: Vault = NO_VAULT
    """Whose values are put into calls, and kept out of what comes of them."""
    prepare: Callable[[Workflow], Awaitable[None]] | None = None
    """To be awaited before a pass: learns what has to be known of the tools that its steps call."""
    ended: Callable[[str], None] = lambda _run_id: None
    """Told when a run has ended: nothing needs to be kept for it any more."""
