"""Every outside thing as a protocol, on one page.

The law of the file: every method that touches data takes the account first (a lease carries it), and raises
`Unavailable` when the thing behind it does not work, so that a pass can be abandoned with nothing recorded.
Times are UTC seconds since 1970 unless a name says otherwise; durations are seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from stepwell.journal.entry import Entry

Json: TypeAlias = Any

RUNNABLE = ("queued", "running")
PARKED = ("pending_approval", "waiting", "suspended", "stuck")
FINAL = ("completed", "failed", "compensated", "cancelled", "timed_out")
WaitKind: TypeAlias = Literal["approval", "event", "timer", "incident"]
WaitStatus: TypeAlias = Literal["pending", "decided", "expired", "withdrawn", "cancelled"]
MessageKind: TypeAlias = Literal["decision", "cancel", "event", "action", "rewind"]


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Clock(Protocol):
    """What time it is, in seconds. Only `now` can be set by somebody; only differences of the others mean anything."""

    def now(self) -> float:
        """UTC since 1970: for what is shown, and for instants that outlive the process (expiries, due times)."""

    def monotonic(self) -> float:
        """For timeouts, back-off and active time; it stands still while the machine sleeps."""

    def uptime(self) -> float:
        """For what goes on while the machine sleeps: leases, and the time between two events."""


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


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


class RunStore(Protocol):
    """Runs, their journals, waits and inboxes."""

    @property
    def people(self) -> Directory:
        """The people of the same database."""

    @property
    def spending(self) -> Spending:
        """What the runs of the same database spent."""

    async def put_definition(self, account: str, digest: str, body: bytes) -> None:
        """Keep a definition (JSON text) under its digest; the same digest again changes nothing."""

    async def definition(self, account: str, digest: str) -> bytes:
        """The definition's text. Raises NotFound."""

    def definition_now(self, account: str, digest: str) -> bytes:
        """The same, at once and blocking: for a definition that is checked."""

    async def create(self, run: NewRun, *, notes: Sequence[AuditRecord] = ()) -> tuple[Run, bool]:
        """Store a queued run, durable on return; the second value says whether it is new. If so, `notes` are kept.

        With an idempotency key (scoped to account and workflow), a run that is there already is returned if its
        definition and input are equal, else Conflict is raised. Where the run's lane is full (as many runs of it have
        been claimed and not ended as it has places): `queue` changes nothing here, `reject` raises Conflict and stores
        nothing, `cancel_oldest` posts a cancel to the oldest ones above the limit, this run counted, in the same
        transaction.
        """

    async def run(self, account: str, run_id: str) -> Run:
        """One run. Raises NotFound, also for a run of another account."""

    async def runs(
        self, account: str, *, statuses: Sequence[str] = (), workflow: str = "", limit: int = 50, before: str = ""
    ) -> list[Run]:
        """Runs, newest first; `before` is the id of the last one already seen."""

    async def claim(
        self, worker: str, ttl: float, *, limit: int = 1, run_id: str = "", due_only: bool = False
    ) -> list[Lease]:
        """Take runs that are queued, due (`wake_at`), have unread messages, or whose owner is dead or has lapsed.

        With `run_id`, only that run, and also a parked one with nothing due unless `due_only`. Each claim raises the
        epoch and sets the run's status to running. Expired waits (deadline passed) are turned into messages first:
        with `run_id` those of that run, else those of all runs, owned ones too; a `limit` of 0 does only that.
        Reminders and escalations that are due are stored likewise, and wake nobody. A run that was never claimed is
        passed over while its lane is full, or an older one of the lane waits.
        """

    async def next_due(self) -> float:
        """When (UTC seconds) a wait expires or reminds, or a parked run is due, next; 0 if nothing is timed."""

    async def renew(self, leases: Sequence[Lease], ttl: float) -> list[Lease]:
        """Prolong leases; returns those that were lost."""

    async def load(self, lease: Lease) -> Loaded:
        """Everything that a pass needs."""

    def append(self, lease: Lease, batch: Batch) -> Awaitable[int]:
        """Write a batch; resolves, when it is durable, to the order of its first entry (the others follow by one).

        The hand-over happens before this returns, in call order. Raises LeaseLost if the epoch is not the lease's
        any more. Whoever does not await the result must still let its exception be seen by a later call.
        """

    async def withdraw(self, lease: Lease, paths: Sequence[str], reason: str) -> list[str]:
        """Close pending waits; returns the paths that are withdrawn now.

        Others were decided first; their message comes.
        """

    async def inbox(self, lease: Lease, after: int) -> list[Message]:
        """Messages of the leased run that came after `after`."""

    async def arrived(self, worker: str) -> list[Message]:
        """All unread messages, oldest first, of the runs that this worker, in this store object, holds."""

    async def release(self, lease: Lease, batch: Batch, verdict: Verdict) -> bool:
        """End a pass: the batch, the new status and the lease's end in one transaction.

        False (and nothing written but the batch) if the verdict parks the run and messages came after `verdict.seen`:
        the caller still owns the run and goes on. A final verdict closes open waits as cancelled and writes always.
        """

    async def post(self, account: str, message: Message, *, notes: Sequence[AuditRecord] = ()) -> Message:
        """Put a message into a run's inbox and wake the run, and keep the notes.

        Raises NotFound; Conflict if the run has ended.
        """

    async def decide(self, account: str, wait_id: str, ballot: Ballot, *, notes: Sequence[AuditRecord] = ()) -> Wait:
        """One transaction: rules, vote and notes, and, if that settles it, compare-and-set, inbox row and wake-up.

        Returns the wait: decided, or pending while more votes are wanted. A person's vote counts once. Raises NotFound,
        Forbidden, AlreadyDecided (detail: the decision that counts), Gone (expired, withdrawn, cancelled), Conflict if
        what was shown has changed, and InputError for a form that is filled in wrongly, in this order.
        """

    async def amend(
        self,
        account: str,
        wait_id: str,
        change: Callable[[Wait], Amendment],
        *,
        notes: Sequence[AuditRecord] = (),
    ) -> Wait:
        """Give a wait other rules, worked out from what is stored, in one transaction; what `change` raises is raised.

        `change` is quick and pure: it may be called more than once.
        """

    async def send_event(self, account: str, event: SentEvent) -> int:
        """Keep an event for 24 hours and wake every run that has a pending wait for its name; returns how many waits.

        Each gets a message of kind event with the wait's path. The same id again changes nothing and tells nobody.
        """

    async def events(self, lease: Lease, name: str, since: float) -> list[SentEvent]:
        """Events of a name since an instant that the leased run has not used, oldest first."""

    async def wait(self, account: str, wait_id: str) -> Wait:
        """One wait. Raises NotFound."""

    async def waits(
        self, account: str, *, run_id: str = "", kind: str = "", pending_only: bool = True, limit: int = 1000
    ) -> list[Wait]:
        """Waits, oldest first."""

    async def history(self, account: str, run_id: str) -> list[Entry]:
        """All entries of a run in order, of all generations."""

    async def peek(self, account: str, run_id: str) -> Loaded:
        """What a pass of this run would load if it began now, whoever owns the run. Raises NotFound."""

    async def reopen(self, account: str, run_id: str, back: Reopening, *, notes: Sequence[AuditRecord] = ()) -> Run:
        """Let a run go back: its entry, the end of waits, the next generation and the wake-up in one transaction.

        Its active time starts anew. Raises NotFound, and Conflict if the run is carried on, has gone on since it was
        looked at, or has a message that nobody has read.
        """

    async def repin(self, account: str, run_id: str, pin: Repin, *, notes: Sequence[AuditRecord] = ()) -> Run:
        """Give a parked run another definition: the pin, its entry, the wake-up and the notes in one transaction.

        Raises NotFound, and Conflict if the run is not parked as `pin` says: it went on, or has another definition.
        """

    async def blob(self, account: str, digest: str) -> bytes:
        """A large value's JSON text. Raises NotFound."""

    def blob_now(self, account: str, digest: str) -> bytes:
        """The same, at once and blocking: for a template that touches a large value in the middle of rendering."""

    async def outgoing(self, account: str, *, run_id: str = "", limit: int = 100) -> list[Outgoing]:
        """Stored notifications, newest first."""

    async def changed(self, timeout: float) -> bool:
        """Wait until something may have become claimable or arrived, in this or another process, at most `timeout`."""

    async def heartbeat(self, worker: str, *, serves: bool, ttl: float) -> None:
        """Say that this worker lives, and whether it carries on any run of the database (`serves`)."""

    async def served(self) -> bool:
        """Whether a living worker serves this database."""

    async def close(self) -> None:
        """Flush, checkpoint and close; idempotent."""


# ── people ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody of an account. `name` is what they are called by and recorded as; `email` finds them too.

    Names and addresses are unique, whatever their case or form (see `people/names.py`).
    """

    name: str
    email: str = ""
    roles: tuple[str, ...] = ()
    """viewer, operator, approver, editor, admin, and words of the account's own such as care-manager."""
    departments: tuple[str, ...] = ()
    display: str = ""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """An act of a person. `object` is the id of what it was done to; `order` is given by the store and grows."""

    by: str
    action: str
    object: str = ""
    channel: str = ""
    origin: str = ""
    detail: Json = None
    at: float = 0.0
    order: int = 0


class Directory(Protocol):
    """The people of an account, and the trail of what they did. The trail grows; nothing else can be done to it."""

    async def person(self, account: str, who: str) -> Person:
        """One person by name or e-mail address. Raises NotFound."""

    async def people(self, account: str, *, role: str = "", department: str = "") -> list[Person]:
        """People by name; only those who have the role and the department, where they are given."""

    async def empty(self, account: str) -> bool:
        """Whether there is nobody, so that rules about people do not count yet."""

    async def put(
        self, account: str, people: Sequence[Person], *, replaces: bool = False, notes: Sequence[AuditRecord] = ()
    ) -> list[Person]:
        """Store all of them and the notes, or nothing; returns them as stored. With `replaces`, also over themselves.

        Raises InputError with everything that is wrong with any of them.
        """

    async def remove(self, account: str, who: str, *, notes: Sequence[AuditRecord] = ()) -> Person:
        """Remove one person, by name or e-mail address, and keep the notes. Raises NotFound."""

    async def note(self, account: str, *records: AuditRecord) -> None:
        """Add to the trail."""

    async def audit(
        self,
        account: str,
        *,
        limit: int = 50,
        before: int = 0,
        object: str = "",  # noqa: A002 -- the name of the record's field
        by: str = "",
    ) -> list[AuditRecord]:
        """The trail, newest first; `before` is the order of the last one already seen."""


# ── spending ─────────────────────────────────────────────────────────────────────────────────────────────────────────


NANO = 1_000_000_000
"""Money is counted in whole billionths of a US dollar, so that sums are exact."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What may be spent in one scope: a run (`subject` is its id), a workflow (its id) or the account ("").

    `below` narrows a run's to what lies below a path; `period` is "", a month (2026-03) or a day (2026-03-14) in UTC.
    What counts is the higher of what is said here and what it was raised to.
    """

    scope: Literal["run", "workflow", "account"]
    subject: str = ""
    below: str = ""
    period: str = ""
    tokens: int | None = None
    nano_usd: int | None = None
    on_exceed: Json = "fail"


@dataclass(frozen=True, slots=True)
class Reservation:
    """A request to a model before it is made: whose it is, and what it takes at most. `id` is unique for ever.

    `epoch` is that of the lease under which it is made: a later one means that nobody awaits it any more. `until` is
    from when nobody does, whatever became of its process.
    """

    id: str
    run_id: str
    workflow: str
    path: str
    attempt: int
    model: str
    epoch: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    nano_usd: int | None = None
    at: float = 0.0
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Spent:
    """What a request took. Money is None where the model's price is not known; `lost`: nobody knows what it took."""

    input_tokens: int = 0
    output_tokens: int = 0
    nano_usd: int | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """How a limit stands: what holds (with what it was raised to), what is spent, and what open reservations hold."""

    limit: Limit
    tokens: int = 0
    nano_usd: int = 0
    open_tokens: int = 0
    open_nano_usd: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """What requests took together. `key` is what they have in common, such as a day or a model.

    `lost` of the requests were counted with the most that they can have taken; `unpriced` are tokens of which nobody
    knows the price, in no sum of money.
    """

    key: str
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    nano_usd: int = 0
    lost: int = 0
    unpriced: int = 0


UsageKey: TypeAlias = Literal["workflow", "model", "day", "run", "step", "attempt"]


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Which requests are meant: an empty field means any. `since` and `before` are instants."""

    run_ids: Sequence[str] = ()
    workflow: str = ""
    since: float = 0.0
    before: float = 0.0


EVERY_REQUEST = UsageFilter()


class Spending(Protocol):
    """What requests to models took, and what they may take. What is settled is never taken back."""

    async def reserve(self, account: str, asked: Reservation, limits: Sequence[Limit]) -> Standing | None:
        """Reserve in one transaction, or answer the first limit that does not let it in, and reserve nothing.

        What is open and awaited by nobody any more (an earlier epoch of the same run, or past its `until`) is settled
        as lost before. It fits a limit if what is spent, open and asked for together do not exceed it.
        """

    def settle(self, account: str, reservation_id: str, spent: Spent) -> Awaitable[bool]:
        """Say what a reserved request took; true if that was not said before. Handed over before this returns.

        A request that was settled as lost meanwhile is put right. With `lost`, what was reserved counts.
        """

    def record(self, account: str, asked: Reservation, spent: Spent) -> Awaitable[None]:
        """Count a request that needed no reservation; of one that is lost what was `asked` counts.

        Handed over before this returns; the same id again is nothing.
        """

    async def standings(self, account: str, limits: Sequence[Limit]) -> list[Standing]:
        """How limits stand, in their order."""

    async def raise_to(self, account: str, limit: Limit, *, notes: Sequence[AuditRecord] = ()) -> Limit:
        """Let more be spent in a scope; returns what holds now of all raises, which never go down. The notes are kept.

        A raise belongs to the scope with its subject, path and period.
        """

    async def usage(self, account: str, by: UsageKey, which: UsageFilter = EVERY_REQUEST) -> list[Usage]:
        """What was spent, by what the requests have in common, in the order of the keys. Open reservations are not in.

        The key of a step is its path, that of an attempt its path and number with "/@" between.
        """


# ── the library ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PublishedRecipe:
    """A recipe that a published workflow pinned, as JSON text; `version` is the label that its author gave it."""

    recipe: str
    version: str
    digest: str
    body: bytes


@dataclass(frozen=True, slots=True)
class RecipeVersion:
    """A recipe that was published on its own. `version` is its author's label, which no other content ever gets.

    `digest` is that of what it does, `content` that of all that its author wrote; `body` is it as JSON text, `text` the
    file as it was. Lists leave `text` empty.
    """

    recipe: str
    version: str
    digest: str
    content: str
    body: bytes
    text: str = ""
    file: str = ""
    note: str = ""
    by: str = ""
    at: float = 0.0


class RecipeStore(Protocol):
    """Recipes published on their own, and those that published workflows pinned. What ends in `now` blocks."""

    async def publish(
        self, account: str, new: RecipeVersion, *, notes: Sequence[AuditRecord] = ()
    ) -> tuple[RecipeVersion, bool]:
        """Store a version, durable on return, with the notes; the second value says whether it is new.

        Raises Conflict if its label has another content, also one that was deleted.
        """

    def find_now(self, account: str, recipe: str, version: str = "") -> RecipeVersion:
        """A version, or the one published last. Raises NotFound."""

    def labels_now(self, account: str, recipe: str) -> list[str]:
        """The labels of a recipe's versions, those published last first."""

    async def versions(self, account: str, recipe: str = "") -> list[RecipeVersion]:
        """All versions of a recipe, or of every recipe, those published last first."""

    async def pinned(self, account: str) -> list[PublishedRecipe]:
        """The recipes that published workflows pinned, by id and label; of one label the last."""

    async def delete(
        self, account: str, recipe: str, version: str, *, notes: Sequence[AuditRecord] = ()
    ) -> RecipeVersion:
        """Take a version out of the library, and keep the notes.

        Raises NotFound, and Conflict (detail: runs, at most ten) while a run that has not ended pinned it, itself or in
        a workflow that it calls.
        """


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A workflow to be published. `definition` is the digest of a stored definition, which pins all that it names.

    `content` is a digest of what its author wrote, names and descriptions included, layout and comments left out;
    `text` is the file as it was; `label` is its `version:`.
    """

    workflow: str
    definition: str
    content: str
    text: str
    file: str = ""
    label: str = ""
    note: str = ""
    by: str = ""
    at: float = 0.0
    origin: str = "publish"
    recipes: Sequence[PublishedRecipe] = ()
    """Those that it pinned: from then on the library has them."""


@dataclass(frozen=True, slots=True)
class Published:
    """A version of a workflow. `number` counts from 1 and is never given again; lists leave `text` empty."""

    workflow: str
    number: int
    definition: str
    content: str
    text: str
    file: str
    label: str
    note: str
    by: str
    at: float
    origin: str


class Library(Protocol):
    """Published workflows. A version never changes; a run that was started with one does not need it any more."""

    async def publish(
        self, account: str, new: NewVersion, *, notes: Sequence[AuditRecord] = ()
    ) -> tuple[Published, bool]:
        """Store the next version, durable on return; the second value says whether it is new.

        If so the notes are kept, and what they are about is the version, `id@number`. Where the newest version has the
        same definition and content already, that one is returned.
        """

    async def find(self, account: str, workflow: str, version: str = "") -> Published:
        """A version by its number, else the newest one with this label; without either the newest. Raises NotFound."""

    def find_now(self, account: str, workflow: str, version: str = "") -> Published:
        """The same, at once and blocking: for a definition that names it while it is checked."""

    @property
    def recipes(self) -> RecipeStore:
        """Recipes with versions of their own."""

    def recipe_now(self, account: str, recipe: str, version: str = "") -> PublishedRecipe:
        """The recipe of this id and label (without one, that published last), at once and blocking. Raises NotFound.

        One that was published on its own comes before those that workflows pinned.
        """

    def recipe_names_now(self, account: str) -> list[str]:
        """The ids of all published recipes, sorted. Blocks."""

    async def versions(self, account: str, workflow: str) -> list[Published]:
        """All versions of a workflow, newest first."""

    async def workflows(self, account: str) -> list[Published]:
        """The newest version of every workflow, by id."""

    async def delete(self, account: str, workflow: str, number: int, *, notes: Sequence[AuditRecord] = ()) -> Published:
        """Take a version out of the library, and keep the notes.

        Raises NotFound, and Conflict (detail: runs, at most ten) while a run that has not ended pinned its definition,
        itself or by calling it.
        """


# ── models, tools, knowledge ────────────────────────────────────────────────────────────────────────────────────────


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


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage found; `score` ranks within one answer and means nothing across answers (see `knowledge/fusion.py`).

    `heading` is the path of headings above it, `start` and `end` its place in the document's text at this version.
    """

    text: str
    document: str
    score: float
    collection: str = ""
    version: int = 0
    heading: str = ""
    start: int = 0
    end: int = 0
    page: int = 0
    """The page on which it begins, counted from 1; 0 for a document without pages."""
    by_words: int = 0
    """Its rank among the passages that hold words of the query, from 1; 0 if it is not among the first of them."""
    by_meaning: int = 0
    """Its rank among those whose vectors are nearest, from 1; 0 if it is not among the first of them, or has none."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a knowledge write made."""

    document: str
    version: int
    chunks: int


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """A write to a document; `mode` is append, replace, or upsert of the section named by `section`."""

    document: str
    content: str
    collection: str = "default"
    mode: Literal["append", "replace", "upsert"] = "append"
    section: str = ""
    metadata: dict[str, Json] = field(default_factory=dict)
    idempotency_key: str = ""
    origin: dict[str, Json] = field(default_factory=dict)
    """Provenance: run, path, requester; or the file."""
    pages: Sequence[int] = ()
    """Where each page of the content begins, in characters."""


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents that belong together. A collection of a department is meant by the workflows of that department."""

    name: str
    description: str = ""
    department: str = ""
    documents: int = 0


@dataclass(frozen=True, slots=True)
class VectorCount:
    """How many of the passages that can be found have a vector. `problem` says why no more are being made."""

    passages: int
    vectors: int
    problem: str = ""


class KnowledgeStore(Protocol):
    """Versioned documents in collections, searched by words and by meaning."""

    async def write(self, account: str, write: DocumentWrite) -> Written:
        """One transaction, one version; a repeated idempotency key returns the same version.

        The passages are found by their words at once, and by their meaning once they have vectors. Where a `replace`
        takes away a version, the new one's origin says which, in `replaced`.
        """

    async def search(
        self,
        account: str,
        query: str,
        *,
        collections: Sequence[str] = (),
        documents: Sequence[str] = (),
        limit: int = 5,
        min_score: float = 0.0,
    ) -> list[Passage]:
        """Passages, best first, of these collections and these documents (of all if none is named)."""

    async def documents(self, account: str, *, collection: str = "") -> list[dict[str, Json]]:
        """`{document, collection, version, passages, changed, metadata}` of each, by collection and name."""

    async def document(self, account: str, document: str, *, version: int = 0) -> dict[str, Json]:
        """A document's text at a version (0: the newest). Raises NotFound."""

    async def versions(self, account: str, document: str) -> list[dict[str, Json]]:
        """All versions of a document, newest first, each as `document` gives it but without text. Raises NotFound."""

    async def remove(self, account: str, document: str) -> int:
        """Remove a document with all its versions; returns how many there were. Raises NotFound."""

    async def collections(self, account: str, *, department: str = "") -> list[Collection]:
        """All collections, or a department's, by name: those that were described, and those that hold a document."""

    async def describe(
        self, account: str, collection: str, *, description: str | None = None, department: str | None = None
    ) -> Collection:
        """Make a collection, or say more of it; None leaves what was said. Raises StepFailed("validation_error")."""

    async def names(self, account: str) -> tuple[list[str], list[str]]:
        """The names of all collections and of all documents, sorted."""

    async def vectors(self, account: str) -> VectorCount:
        """How far the vectors are."""

    def wake(self) -> None:
        """Go on making vectors that are missing, in the background; returns at once."""

    async def make_vectors(self, *, told: Callable[[int], None] | None = None) -> int:
        """Make the vectors that are missing, in every account; returns how many were made.

        `told` is called with the number made so far. Raises StepFailed if there is no model for it.
        """


class RecipeLibrary(Protocol):
    """Recipes by id, as plain data (see `definition/recipe.py`)."""

    def get(self, recipe: str, version: str = "") -> Json: ...
