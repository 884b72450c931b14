"""Runs, waits, messages and batches as stores take and give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepwell.journal.entry import Entry
    from stepwell.ports.people import Person

Json: TypeAlias = Any

RUNNABLE = ("queued", "running")
PARKED = ("pending_approval", "waiting", "suspended", "stuck")
FINAL = ("completed", "failed", "compensated", "cancelled", "timed_out")
WaitKind: TypeAlias = Literal["approval", "event", "timer", "incident"]
WaitStatus: TypeAlias = Literal["pending", "decided", "expired", "withdrawn", "cancelled"]
MessageKind: TypeAlias = Literal["decision", "cancel", "event", "action", "rewind"]


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be created. `definition` is the digest of a stored definition; `project` says where it came from."""

    id: str
    account: str
    workflow: str
    version: str
    definition: str
    input: Json
    requester: str = ""
    project: dict[str, Json] = field(default_factory=dict)
    idempotency_key: str = ""
    created: float = 0.0
    lane: str = ""
    """Runs with an equal lane (the workflow and its concurrency key) share `lane_limit` places; "" is no lane."""
    lane_limit: int = 0
    on_limit: Literal["queue", "reject", "cancel_oldest"] = "queue"
    seed: Sequence[Entry] = ()
    """Entries of another run that this one begins with: what it uses again."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as stored. `error` is a `StepFailed.record()`; `wake_at` is when a parked run wants to go on by itself."""

    id: str
    account: str
    workflow: str
    version: str
    definition: str
    input: Json
    status: str
    output: Json = None
    error: dict[str, Json] | None = None
    requester: str = ""
    project: dict[str, Json] = field(default_factory=dict)
    idempotency_key: str = ""
    created: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    active: float = 0.0
    generation: int = 0
    wake_at: float = 0.0
    owner: str = ""
    epoch: int = 0
    usage: dict[str, Json] = field(default_factory=dict)
    lane: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write one run's journal, fenced by `epoch`. `key` is the store's own number of the run."""

    run_id: str
    account: str
    key: int
    epoch: int
    owner: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that a run waits for. `id` is stable and unguessable enough to be typed: it is what people decide.

    `path` is the waiting step's path (without "/?"). `request` is what is shown; `digest` binds a decision to it.
    """

    id: str
    path: str
    kind: WaitKind
    request: Json
    digest: str = ""
    opened: float = 0.0
    deadline: float = 0.0
    on_expire: str = "reject"
    status: WaitStatus = "pending"
    decision: Json = None
    decided: float = 0.0
    generation: int = 0
    run_id: str = ""
    account: str = ""
    workflow: str = ""
    topic: str = ""
    """The name of the event that a wait of kind event is for."""
    rules: Json = None
    """Who may decide an approval, and what happens meanwhile (`approvals/rules.py`); the digest does not cover them."""
    next_at: float = 0.0
    """When the next reminder or escalation is due; 0 for never."""
    votes: tuple[dict[str, Json], ...] = ()
    """What has been said by whom, in order, each `{decision, by, at, …}`; given by the store."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """What somebody says to a wait. `digest`, if given, is of what they were shown.

    Without a `voter` no rules about persons hold: it is the operator of a machine that knows no people, or somebody
    whose permission was checked before.
    """

    body: Json
    voter: Person | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Amendment:
    """Other rules for a wait, when its next reminder or escalation is due, and whom to tell."""

    rules: Json
    next_at: float
    outgoing: Sequence[Outgoing] = ()


@dataclass(frozen=True, slots=True)
class SentEvent:
    """Something that happened outside and was told to the account. `order` is given by the store and grows."""

    id: str
    name: str
    data: Json = None
    at: float = 0.0
    order: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A row of a run's inbox. `order` is given by the store and grows; `path` is the step's path for decisions."""

    run_id: str
    kind: MessageKind
    path: str = ""
    body: Json = None
    order: int = 0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A notification, mail or webhook to be delivered after commit. `key` makes storing it twice store it once."""

    key: str
    channel: str
    to: Json
    subject: str
    body: Json
    priority: str = "normal"
    at: float = 0.0
    status: str = "stored"
    run_id: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one append writes in one transaction, or not at all."""

    entries: Sequence[Entry] = ()
    open: Sequence[Wait] = ()
    """Waits to open; one that is there already (same path and generation) stays as it is."""
    consume: Sequence[int] = ()
    """Orders of inbox messages that the entries take account of."""
    outgoing: Sequence[Outgoing] = ()
    satisfied: Sequence[str] = ()
    """Paths of pending waits for events that the entries satisfy: they become decided."""
    used: Sequence[int] = ()
    """Orders of the events that satisfied them: each satisfies at most one wait of a run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a pass ended. `wake_at` is 0 where nothing but a message can wake the run."""

    status: str
    output: Json = None
    error: dict[str, Json] | None = None
    wake_at: float = 0.0
    active: float = 0.0
    usage: dict[str, Json] = field(default_factory=dict)
    ended: float = 0.0
    seen: int = 0
    """Order of the last inbox message that the pass has read."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a pass needs to go on: entries with no settled ancestor, unread messages, waits that are still there.

    Of a run that was made to go back (its generation is not 0) all entries are loaded: what had settled may be open.
    """

    run: Run
    entries: Sequence[Entry]
    messages: Sequence[Message]
    waits: Sequence[Wait]


@dataclass(frozen=True, slots=True)
class Repin:
    """Another definition for a parked run. `epoch` and `before` (its definition) are those that were looked at.

    `wake` makes the run due at once: it has something to do under the new definition.
    """

    definition: str
    version: str
    epoch: int
    before: str
    entry: Entry
    wake: bool = False


@dataclass(frozen=True, slots=True)
class Reopening:
    """A run that is parked or has ended goes back. `epoch` is that which was looked at.

    `entry` (kind rewound, of the run's next generation) says what is done again; `withdraw` are paths of pending waits
    that are not waited for any more.
    """

    epoch: int
    entry: Entry
    withdraw: Sequence[str] = ()
    reason: str = "the run goes back"
