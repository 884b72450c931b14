"""What a plan is made of, and what it is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from stepwell.interpreter.definition import Definition
    from stepwell.interpreter.effect import Effect
    from stepwell.interpreter.runtime import Attempt
    from stepwell.interpreter.whole import Conclusion
    from stepwell.journal.entry import Entry

Json: TypeAlias = Any


def _no_blobs(digest: str) -> bytes:
    raise KeyError(digest)


def any_tool(name: str) -> dict[str, Json]:
    """The registration of a tool of which nothing is known."""
    return {"name": name, "description": "", "parameters": {"type": "object"}, "idempotent": True}


@dataclass(frozen=True, slots=True)
class Known:
    """Everything that a plan follows from. Times are UTC seconds since 1970; durations are seconds.

    `answers` are attempts that were made and are in no entry yet, by path and number; `messages` are decisions and due
    times by the path of the step that waits; `open` are the waits that were opened, by path, and when; `events` are
    those that no wait has used. `workflows` are sub-workflows by digest, `names` the digests of those named by texts.
    """

    run_id: str
    definition: Definition
    workflow_input: Json
    facts: dict[str, Json]
    entries: Sequence[Entry]
    now: float
    active: float = 0.0
    generation: int = 0
    near: float = 30.0
    """Sleeps up to this long are not waits of the run."""
    answers: Mapping[tuple[str, int], Attempt] = field(default_factory=dict)
    messages: Mapping[str, Json] = field(default_factory=dict)
    open: Mapping[str, float] = field(default_factory=dict)
    events: Sequence[dict[str, Json]] = ()
    workflows: Mapping[str, Definition] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    fetch: Callable[[str], bytes] = _no_blobs
    """The JSON text of a large value by its digest."""
    repeatable: Callable[[str], bool] = lambda _tool: True
    """What the registration of a tool says of a second call."""
    offer: Callable[[str], dict[str, Json]] = any_tool
    """What the registration of a tool says of it. Raises StepFailed (not_found)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An attempt that is to be made; `timeout` is in seconds.

    `intent`, if there is one, is recorded before: found alone later, it says that nobody knows whether the call was
    made. It takes the next place of the journal.
    """

    path: str
    number: int
    effect: Effect
    digest: str
    timeout: float | None = None
    intent: Entry | None = None


@dataclass(frozen=True, slots=True)
class WantedWait:
    """A message that is waited for. `at` is when it is due by itself (0: never).

    `kind` is approval, event, incident, timer, or sleep: a time so near that nothing is opened for it.
    """

    path: str
    kind: str
    request: Json = None
    at: float = 0.0
    on_expire: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What follows from what is known: entries in the order of the journal, what is wanted, or how the run ended."""

    entries: tuple[Entry, ...]
    effects: tuple[Wanted, ...]
    waits: tuple[WantedWait, ...]
    names: tuple[str, ...]
    """Workflows named by texts of the run whose digest is not known."""
    outcome: Conclusion | None
