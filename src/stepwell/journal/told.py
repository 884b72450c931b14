"""What the journal tells of one path, gathered from the entries that belong to it.

The law of the file: of several generations of one path the newest counts; attempts of older ones are not shown again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Entry, outcome_of

Json: TypeAlias = Any
_NULL = msgspec.Raw(b"null")
_decode = msgspec.json.Decoder(Body).decode
_MARKED = re.compile(r"/[@?!$~]")
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
    parts: dict[str, Told] = field(default_factory=dict)
    """Of an agent step: its turns ("t1") and the calls that they ask for ("t1.0")."""
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
        said = self.end or self.begin
        return said.meta if said is not None else None

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
                **_usage(body),
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
                **_usage(end),
            }

    def _bodies(self) -> Iterable[Body]:
        for body in (self.end, self.begin, *(body for _, body in sorted(self.failed.items()))):
            if body is not None:
                yield body


_TAKEN = (
    "model", "finish_reason", "input_tokens", "output_tokens", "cached_tokens", "tokens_without_price", "fell_back",
    "queued_ms",
)  # fmt: skip


def _usage(body: Body) -> dict[str, Json]:
    """What an attempt took of a model, if it asked one: an unknown cost is null."""
    meta = body.meta or {}
    if meta.get("input_tokens") is None:
        return {}
    usage = {word: meta[word] for word in _TAKEN if meta.get(word) is not None}
    return {"usage": usage | {"cost_usd": meta.get("cost_usd")}}


def tell(entries: Iterable[Entry], fetch: Callable[[str], bytes] | None = None) -> dict[str, Told]:
    """What the journal tells of every path of a step, iteration or branch.

    `fetch` gives the JSON text of a large value by its digest.
    """
    told: dict[str, Told] = {}
    newest: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda entry: entry.order):
        newest[entry.path] = entry
        if entry.kind == "rewound":
            _forget(newest, entry, fetch)
    for entry in sorted(newest.values(), key=lambda entry: entry.order):
        if entry.kind != "rewound":
            _add(told, entry)
    return told


def _forget(newest: dict[str, Entry], rewound: Entry, fetch: Callable[[str], bytes] | None) -> None:
    """Leave out what a person made the run do again (see `Fold.rewound`); rounds that were left stay."""
    if fetch is None and _decode(rewound.body).value_ref:
        return
    said = outcome_of(rewound, fetch or _nothing).value
    for path in said.get("reopen", ()):
        newest.pop(path, None)
    for top in said.get("drop", ()):
        for path in [path for path in newest if paths.is_at_or_below(path, top)]:
            del newest[path]


def _nothing(digest: str) -> bytes:
    raise KeyError(digest)


_PASSED = ("~fallback", "~verify", "~undo")
"""Marks below which steps lie."""


def owner(path: str) -> str:
    """The step, iteration or branch that an entry or a wait belongs to: "/x/@2" and "/x/~sleep2/?" belong to "/x"."""
    if not _MARKED.search(path):
        return path
    segments = path.split("/")
    for index, segment in enumerate(segments):
        if segment[:1] and segment[0] in "@?!$~":
            last = index + 1 == len(segments) or segments[index + 1][:1] in {"~", "@", "?", "!", "$"}
            if last or segment.partition("#")[0] not in _PASSED:
                return "/".join(segments[:index])
    return path


def _add(told: dict[str, Told], entry: Entry) -> None:
    path = owner(entry.path)
    mark = entry.path[len(path) + 1 :]
    if mark[:1] == "!" or (mark[:1] == "~" and mark != "~start"):
        return
    of = told.setdefault(path, Told())
    of.first = min(of.first or entry.order, entry.order)
    if mark[:1] == "$":
        part, _, mark = mark[1:].partition("/")
        of = of.parts.setdefault(part, Told())
        if mark[:1] == "~" and mark != "~start":
            return
    _take(of, mark, entry)


def _take(of: Told, mark: str, entry: Entry) -> None:
    body = _decode(entry.body)
    if not mark:
        of.ending, of.end = entry, body
    elif mark == "?":
        of.withdrawn = body.reason if body.status == "cancelled" else None
    elif mark.endswith("~start"):  # of the step, or of an attempt that may not be made twice
        of.beginning, of.begin = entry, body
    elif mark[1:].isdigit():
        of.failed[int(mark[1:])] = body
