"""What requests to models take, and what bounds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from stepwell.ports.people import AuditRecord

Json: TypeAlias = Any

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
