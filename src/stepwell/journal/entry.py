"""Entries: the facts of which a journal consists, and outcomes: what the interpreter reads in them.

The law of the file: an entry's body is JSON text that is written once; whoever recorded a value goes on with what that
text says (record, then read), so that a first pass and a replay see the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

Json: TypeAlias = Any
EntryKind: TypeAlias = Literal["started", "succeeded", "failed", "settled", "rewound", "cancelled"]
Status: TypeAlias = Literal[
    "running", "completed", "failed", "skipped", "pending_approval", "suspended", "waiting", "cancelled", "compensated"
]

LARGE = 64 * 1024
"""Values whose JSON is longer than this many bytes are stored once by digest and referred to (claim check)."""


class Body(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What an entry says. Times are UTC seconds since 1970; `value_ref` and `args_ref` are digests of large values."""

    status: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")
    value_ref: str = ""
    args: msgspec.Raw = msgspec.Raw(b"null")
    args_ref: str = ""
    error: dict[str, Json] | None = None
    started: float = 0.0
    ended: float = 0.0
    attempts: int = 0
    retry_at: float = 0.0
    """When the next attempt is due, in a failed attempt that is retried."""
    reason: dict[str, Json] | None = None
    """Why a step was skipped or withdrawn: `{"type": ..., "expression": ..., "values": ...}`."""
    exports: dict[str, dict[str, Json]] | None = None
    """Records of inner steps that steps outside the container refer to."""
    undo: dict[str, Json] | None = None
    meta: dict[str, Json] | None = None
    """Facts for people: tokens, model, which way a recipe took."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One fact. `(run, path, generation)` is unique; `order` is the position in the journal, given by the store."""

    path: str
    kind: EntryKind
    body: bytes
    digest: str = ""
    generation: int = 0
    order: int = 0
    at: float = 0.0
    blobs: tuple[tuple[str, bytes], ...] = field(default=(), compare=False)
    """Large values that the body refers to, to be stored with it: (digest, JSON text)."""


@dataclass(slots=True)
class Outcome:
    """How a step, iteration or container ended, as the interpreter sees it.

    `order` is the journal position; all races are decided by it.
    """

    status: str
    value: Json = None
    error: dict[str, Json] | None = None
    order: int = 0
    started: float = 0.0
    ended: float = 0.0
    attempts: int = 0
    reason: dict[str, Json] | None = None
    exports: dict[str, dict[str, Json]] | None = None
    digest: str = ""
    meta: dict[str, Json] | None = None
    retry_at: float = 0.0
