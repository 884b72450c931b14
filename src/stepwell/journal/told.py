"""What the journal tells of one path, gathered from the entries that belong to it.

The law of the file: of several generations of one path the newest counts; attempts of older ones are not shown again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from stepwell.journal.entry import Body, Entry

Json: TypeAlias = Any
_NULL = msgspec.Raw(b"null")
_decode = msgspec.json.Decoder(Body).decode
_ENDED = {"succeeded": "completed", "failed": "failed", "cancelled": "cancelled"}


@dataclass(slots=True)
class Told:
    """One path's entries: how it began, its failed attempts, and how it ended."""

    first: int = 0
    """Order of the first entry; 0: none."""
    ending: Entry | None = None
    end: Body | None = None
    beginning: Entry | None = None
    begin: Body | None = None
    failed: dict[int, Body] = field(default_factory=dict)
    withdrawn: dict[str, Json] | None = None
    """Why its wait was withdrawn; a step that is left this way has no ending of its own."""

    @property
    def status(self) -> str:
        """How it ended; empty while it has not."""
        if self.ending is None or self.end is None:
            return "cancelled" if self.withdrawn else ""
        return _ENDED.get(self.ending.kind) or self.end.status

    @property
    def value(self) -> msgspec.Raw:
        return self.end.value if self.end is not None else _NULL

    @property
    def value_ref(self) -> str:
        return self.end.value_ref if self.end is not None else ""

    @property
    def args(self) -> msgspec.Raw:
        return next((body.args for body in self._bodies() if bytes(body.args) != b"null"), _NULL)

    @property
    def args_ref(self) -> str:
        return next((body.args_ref for body in self._bodies() if body.args_ref), "")

    @property
    def has_args(self) -> bool:
        return bool(self.args_ref) or bytes(self.args) != b"null"

    @property
    def error(self) -> dict[str, Json] | None:
        return self.end.error if self.end is not None else None

    @property
    def reason(self) -> dict[str, Json] | None:
        return self.end.reason if self.end is not None else self.withdrawn

    @property
    def meta(self) -> dict[str, Json] | None:
        return self.end.meta if self.end is not None else None

    @property
    def started(self) -> float:
        starts = [body.started for body in self._bodies() if body.started]
        if not starts and self.beginning is not None:
            starts = [self.beginning.at]
        return min(starts, default=self.ended)

    @property
    def ended(self) -> float:
        if self.ending is None or self.end is None:
            return 0.0
        return self.end.ended or self.ending.at

    @property
    def attempts(self) -> int:
        """Attempts made so far, the running one included once it has been announced."""
        said = [body.attempts for body in (self.begin, self.end) if body is not None]
        return max([*said, *self.failed], default=0)

    def decided(self, name: str) -> Json:
        """A part of what a container decided when it began."""
        if self.begin is None or self.begin.value_ref:
            return None
        value = msgspec.json.decode(self.begin.value)
        return value.get(name) if isinstance(value, dict) else None

    def attempt_log(self, instant: Callable[[float], str | None]) -> Iterable[dict[str, Json]]:
        """Every attempt that has ended, oldest first."""
        for number, body in sorted(self.failed.items()):
            yield {
                "number": number,
                "status": "failed",
                "started_at": instant(body.started),
                "ended_at": instant(body.ended),
                "error": body.error,
                "retry_at": instant(body.retry_at),
            }
        end = self.end
        if end is not None and end.attempts and end.attempts not in self.failed:
            before = self.failed.get(end.attempts - 1)
            began = max(end.started, before.retry_at if before is not None else 0.0)
            yield {
                "number": end.attempts,
                "status": self.status,
                "started_at": instant(min(began, self.ended)),
                "ended_at": instant(self.ended),
                "error": end.error,
                "retry_at": None,
            }

    def _bodies(self) -> Iterable[Body]:
        for body in (self.end, self.begin, *(body for _, body in sorted(self.failed.items()))):
            if body is not None:
                yield body


def tell(entries: Iterable[Entry]) -> dict[str, Told]:
    """What the journal tells of every path of a step, iteration or branch."""
    told: dict[str, Told] = {}
    newest: dict[str, Entry] = {}
    for entry in entries:
        held = newest.get(entry.path)
        if held is None or entry.generation >= held.generation:
            newest[entry.path] = entry
    for entry in sorted(newest.values(), key=lambda entry: entry.order):
        if entry.kind != "rewound":
            _add(told, entry)
    return told


def owner(path: str) -> str:
    """The step, iteration or branch that an entry or a wait belongs to: "/x/@2" and "/x/~sleep2/?" belong to "/x"."""
    for mark in ("/@", "/?", "/~", "/!", "/$"):
        path = path.partition(mark)[0]
    return path


def _add(told: dict[str, Told], entry: Entry) -> None:
    path = owner(entry.path)
    mark = entry.path[len(path) + 1 :]
    if mark[:1] in {"!", "$"} or (mark[:1] == "~" and mark != "~start"):
        return
    of = told.setdefault(path, Told())
    of.first = min(of.first or entry.order, entry.order)
    body = _decode(entry.body)
    if not mark:
        of.ending, of.end = entry, body
    elif mark == "?":
        of.withdrawn = body.reason if body.status == "cancelled" else None
    elif mark.endswith("~start"):  # of the step, or of an attempt that may not be made twice
        of.beginning, of.begin = entry, body
    elif mark[1:].isdigit():
        of.failed[int(mark[1:])] = body
