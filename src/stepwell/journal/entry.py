"""Entries: the facts of which a journal consists, and outcomes: what the interpreter reads in them.

The law of the file: an entry's body is JSON text that is written once; whoever recorded a value goes on with what that
text says (record, then read), so that a first pass and a replay see the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import msgspec

Json: TypeAlias = Any
EntryKind: TypeAlias = Literal["started", "succeeded", "failed", "settled", "rewound", "cancelled"]

LARGE = 64 * 1024
"""Values whose JSON is longer than this many bytes are stored once by digest and referred to (claim check)."""

NULL = msgspec.Raw(b"null")


class Body(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What an entry says. Times are UTC seconds since 1970; `value_ref` and `args_ref` are digests of large values."""

    status: str = ""
    value: msgspec.Raw = NULL
    value_ref: str = ""
    args: msgspec.Raw = NULL
    args_ref: str = ""
    error: dict[str, Json] | None = None
    started: float = 0.0
    ended: float = 0.0
    attempts: int = 0
    retry_at: float = 0.0
    """When the next attempt is due, in a failed attempt that is retried."""
    active: float = 0.0
    """Active seconds of the run when the entry was made."""
    reason: dict[str, Json] | None = None
    """Why a step was skipped, withdrawn or let pass: `{"type": ..., "expression": ..., "values": ...}`."""
    exports: dict[str, dict[str, Json]] | None = None
    """Records of inner steps that steps outside the container refer to."""
    meta: dict[str, Json] | None = None
    """Facts for people: tokens, model, which way a recipe took."""
    undo: msgspec.Raw = NULL
    """What is kept for the day the step is undone: `{"workflow", "step", "context"}`."""
    undo_ref: str = ""


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


class Outcome:
    """How a step, iteration or container ended, as the interpreter sees it.

    `order` is the journal position (0: not known yet, for entries that ride along); all races are decided by it.
    A large value is loaded when it is first touched.
    """

    __slots__ = (
        "_fetch", "_value", "active", "attempts", "digest", "ended", "error", "exports", "kind", "meta", "order",
        "reason", "retry_at", "started", "status",
    )  # fmt: skip

    def __init__(
        self,
        status: str,
        value: Json = None,
        *,
        body: Body | None = None,
        order: int = 0,
        kind: str = "",
        digest: str = "",
    ) -> None:
        self.status = status
        self.kind = kind
        self.order = order
        self.digest = digest
        self._value = value
        self._fetch: Callable[[], Json] | None = None
        self.error = body.error if body else None
        self.started = body.started if body else 0.0
        self.ended = body.ended if body else 0.0
        self.attempts = body.attempts if body else 0
        self.active = body.active if body else 0.0
        self.retry_at = body.retry_at if body else 0.0
        self.reason = body.reason if body else None
        self.exports = body.exports if body else None
        self.meta = body.meta if body else None

    @property
    def value(self) -> Json:
        if self._fetch is not None:
            self._value = self._fetch()
            self._fetch = None
        return self._value

    @property
    def continued(self) -> bool:
        """Whether the step failed and its block goes on all the same (`on_error: continue`)."""
        return self.reason is not None and self.reason.get("type") == "continued"

    @property
    def has_value(self) -> bool:
        """Whether the step's output can be read: also that of one that failed, where its block goes on, or back."""
        return self.status == "completed" or (self.reason is not None and self.reason.get("type") in _GOES_ON)

    @property
    def is_large(self) -> bool:
        """Whether the value has not been loaded yet."""
        return self._fetch is not None

    def __repr__(self) -> str:
        return f"Outcome({self.status!r}, order={self.order})"


_GOES_ON = frozenset({"continued", "goto"})
_BODY = msgspec.json.Decoder(Body)
_VALUE = msgspec.json.Decoder()
_ENCODE = msgspec.json.Encoder()
_STATUS = {"succeeded": "completed", "failed": "failed", "started": "running"}


def encode(value: Json) -> bytes:
    """A plain JSON value as text: exact integers, key order kept."""
    return _ENCODE.encode(value)


def decode(text: bytes | msgspec.Raw) -> Json:
    """The value of JSON text."""
    return _VALUE.decode(text)


def read_body(entry: Entry) -> Body:
    """The body of an entry, its values still as JSON text."""
    return _BODY.decode(entry.body)


def without_undo(entry: Entry) -> Entry:
    """The same entry, with nothing that would undo the step."""
    body = _BODY.decode(entry.body)
    if body.undo is NULL and not body.undo_ref:
        return entry
    body.undo, body.undo_ref = NULL, ""
    return replace(entry, body=_ENCODE.encode(body))


def outcome_of(entry: Entry, fetch: Callable[[str], bytes]) -> Outcome:
    """The outcome that an entry records; `fetch` loads a large value by digest when it is touched."""
    body = _BODY.decode(entry.body)
    status = body.status or _STATUS.get(entry.kind, entry.kind)
    outcome = Outcome(status, body=body, order=entry.order, kind=entry.kind, digest=entry.digest)
    if body.value_ref:
        reference = body.value_ref
        outcome._fetch = lambda: _VALUE.decode(fetch(reference))  # noqa: SLF001 -- its own module
    elif body.value is not NULL:
        outcome._value = _VALUE.decode(body.value)  # noqa: SLF001
    return outcome


class Draft:
    """An entry being written: values in, record-then-read outcome out."""

    __slots__ = ("blobs", "body", "digest", "kind", "path", "text")

    def __init__(self, path: str, kind: EntryKind, body: Body, *, digest: str = "") -> None:
        self.path = path
        self.kind: EntryKind = kind
        self.body = body
        self.digest = digest
        self.blobs: list[tuple[str, bytes]] = []
        self.text: bytes | None = None

    @property
    def status(self) -> str:
        return self.body.status or _STATUS.get(self.kind, self.kind)

    def value(self, value: Json, text: bytes | None = None) -> None:
        """Put the value in; `text` is its JSON if the caller has it."""
        self.text = encode(value) if text is None else text
        if len(self.text) > LARGE:
            self.body.value_ref = self._claim(self.text)
        else:
            self.body.value = msgspec.Raw(self.text)

    def arguments(self, text: bytes) -> None:
        """Put the rendered arguments in, as JSON text."""
        if len(text) > LARGE:
            self.body.args_ref = self._claim(text)
        else:
            self.body.args = msgspec.Raw(text)

    def undo(self, kept: Json) -> None:
        """Put in what undoing the step will need."""
        text = encode(kept)
        if len(text) > LARGE:
            self.body.undo_ref = self._claim(text)
        else:
            self.body.undo = msgspec.Raw(text)

    def _claim(self, text: bytes) -> str:
        digest = blake2b(text, digest_size=16).hexdigest()
        self.blobs.append((digest, text))
        return digest

    def entry(self, *, generation: int, at: float) -> Entry:
        body = _ENCODE.encode(self.body)
        return Entry(self.path, self.kind, body, self.digest, generation, 0, at, tuple(self.blobs))

    def outcome(self) -> Outcome:
        """What was written, read back."""
        value = _VALUE.decode(self.text) if self.text is not None else None
        return Outcome(self.status, value, body=self.body, kind=self.kind, digest=self.digest)
