"""The port between the pure interpreter and the durable world.

The law of the file: between two calls of a runtime the interpreter is pure, and whatever a runtime answers it answers
again on replay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from stepwell.definition.compile import StepPlan
    from stepwell.errors import StepFailed
    from stepwell.interpreter.definition import Definition
    from stepwell.interpreter.effect import Effect
    from stepwell.journal.entry import Draft, Outcome
    from stepwell.ports import WaitKind

Json: TypeAlias = Any


class Attempt:
    """One performed attempt: its result or its failure, with times in UTC seconds."""

    __slots__ = ("ended", "failure", "meta", "number", "outgoing", "queued", "started", "text", "value")

    def __init__(self, number: int, started: float) -> None:
        self.number = number
        self.started = started
        self.ended = started
        self.value: Json = None
        self.text: bytes | None = None
        self.meta: dict[str, Json] | None = None
        self.outgoing: tuple[Any, ...] = ()
        self.failure: StepFailed | None = None
        self.queued = False
        """Whether it waits for a slot of a limit now."""

    def queue(self, waits: bool) -> None:  # noqa: FBT001 -- the one thing that is told
        """Note that it begins to wait for a slot, or does no more."""
        self.queued = waits


class Runtime(Protocol):
    """What the interpreter may ask of the world."""

    run_id: str

    async def definition(self, digest: str) -> Definition:
        """A stored definition. Raises NotFound."""

    async def resolve(self, name: str, file: str) -> str:
        """The digest of the workflow that `name` means for a definition from `file`. Raises StepFailed (not_found)."""

    def recall(self, path: str) -> Outcome | None:
        """What is recorded under a path."""

    def has_begun(self, path: str) -> bool:
        """Whether anything is recorded at or below a path."""

    def is_live(self, path: str) -> bool:
        """Whether this pass has done or recorded anything new at or below a path."""

    def round_of(self, path: str) -> int:
        """The current round of the step at a path (without its round)."""

    def rewinds_by(self, cause: str) -> int:
        """How often the step at `cause` (without its round) has returned to an earlier one."""

    def cause_of(self, block: str) -> tuple[str, str] | None:
        """The step id and path of what last rewound the block at a path."""

    def edits_of(self, path: str) -> dict[str, Json]:
        """Arguments that a person gave for the step at a path when the run was made to go back."""

    def next_round(self, path: str) -> int:
        """The round that the step at a path (without its round) gets when it starts another."""

    async def take_over(self, rounds: Sequence[tuple[str, str]], *, only_doubts: bool = False) -> None:
        """Let next rounds begin with what was finished in those before, or only with the calls that are in doubt there.

        Each is a pair of paths: of the round that is left, and of the next.
        """

    async def undo_plan(self) -> list[dict[str, Json]]:
        """What is to be undone, the last completed first: what each step kept, with its path and value.

        From here on the run is being undone: neither a cancel nor its timeout ends it. Raises Abort if it was
        cancelled before.
        """

    async def rewind(self, block: str, cause: str, stale: Sequence[str], failed: Draft) -> None:
        """Record that `cause` failed and why every step of `stale` (paths without rounds) starts another round."""

    def active(self) -> float:
        """Active seconds of the run so far."""

    def ride(self, draft: Draft) -> Outcome:
        """Record something that can be derived again; it becomes durable with the next append."""

    async def record(self, draft: Draft, *, outgoing: Sequence[Any] = ()) -> Outcome:
        """Record a fact; returns when it is durable, with its order."""

    async def perform(
        self, plan: StepPlan, path: str, number: int, effect: Effect, text: bytes, digest: str
    ) -> Attempt:
        """Make an effect real, bounded by the step's timeout. A failure is data."""

    async def wait(
        self, path: str, kind: WaitKind, request: Json, *, deadline: float = 0.0, on_expire: str = ""
    ) -> Outcome:
        """Wait for a message to the step at `path`: durable, and holding nothing once the run parks.

        `deadline` is in seconds from now (0: none). Raises Pause, Withdrawn.
        """

    async def wait_event(
        self, path: str, name: str, accept: Callable[[Json], bool], *, deadline: float = 0.0
    ) -> Outcome:
        """Wait for an event of a name that `accept` takes; its value is `{"woken_by", "event"}`.

        An event that came up to a day before counts; each satisfies at most one wait of the run. `deadline` is in
        seconds from now (0: none). Raises Pause, Withdrawn, and what `accept` raises.
        """

    async def sleep_until(self, path: str, at: float, *, longest: float = math.inf, idle: bool = False) -> None:
        """Return at an instant (UTC seconds): in process when it is near, parked when it is far.

        Never later than in `longest` seconds: a clock that was set back since the instant was recorded delays nothing.

        `idle` says that the run waits for a time, which does not count as active; a back-off does.
        """

    async def withdraw(self, path: str, reason: str) -> None:
        """Close every wait below `path`, open now or opened later in this pass."""

    def clock(self) -> float:
        """UTC seconds now. Whoever uses the answer records it."""

    def remaining(self) -> float:
        """Active seconds left until the run's timeout."""

    def tool_is_idempotent(self, tool: str) -> bool:
        """What the tool's registration says."""

    def offer(self, tool: str) -> dict[str, Json]:
        """A tool's registration: `{name, description, parameters, idempotent}`. Raises StepFailed (not_found).

        Whoever uses the answer records it.
        """

    def enter(self) -> None:
        """One more task can run."""

    def leave(self) -> None:
        """One task less can run; when none can and nothing is in flight, whoever waits is told to pause."""
