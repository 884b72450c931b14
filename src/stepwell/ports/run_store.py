"""The store of runs: journals, waits and inboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from stepwell.journal.entry import Entry
    from stepwell.ports.people import AuditRecord, Directory
    from stepwell.ports.runs import (
        Amendment,
        Ballot,
        Batch,
        Lease,
        Loaded,
        Message,
        NewRun,
        Outgoing,
        Reopening,
        Repin,
        Run,
        SentEvent,
        Verdict,
        Wait,
    )
    from stepwell.ports.spending import Spending


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
