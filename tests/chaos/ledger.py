"""The ledger of calls, which the tools write outside of the engine, compared with the journals.

The law of the file: a call needs an excuse for coming after another one of the same step: the process that made the
other one was killed in between, or the other one said that it failed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from stepwell.journal.entry import Entry, read_body

ONCE = "/charge"
"""How the paths of steps end that may not be repeated."""


@dataclass(slots=True)
class Call:
    """A call, and how it ended if it did. Times are UTC seconds."""

    key: str
    pid: int
    at: float
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Death:
    """When a process was sent SIGKILL, and when it was surely dead."""

    sent: float
    dead: float


@dataclass(slots=True)
class Verdict:
    """What the ledger and the journals say of each other. Texts name each single case."""

    calls: int = 0
    hit: int = 0
    """Killed processes that had made calls."""
    cut_off: int = 0
    """Calls that the death of their process cut off, or whose result it kept from being recorded."""
    in_doubt: int = 0
    repeated: list[str] = field(default_factory=list)
    unexcused: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    uncalled: list[str] = field(default_factory=list)


def read_ledger(file: Path) -> dict[str, list[Call]]:
    """Calls by key, in order. Lines that a kill tore are left out: the call had not begun, or never ended."""
    calls: defaultdict[str, list[Call]] = defaultdict(list)
    for text in file.read_text("utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if line["word"] == "call":
            calls[line["key"]].append(Call(line["key"], line["pid"], line["at"]))
            continue
        for call in reversed(calls[line["key"]]):
            if call.pid == line["pid"]:
                call.ended = line["word"]
                break
    return dict(calls)


def compare(
    calls: Mapping[str, list[Call]], journals: Mapping[str, Iterable[Entry]], deaths: Mapping[int, Death]
) -> Verdict:
    """Judge every call and every recorded result. `journals` are by run id."""
    callers = {call.pid for made in calls.values() for call in made}
    verdict = Verdict(calls=sum(map(len, calls.values())), hit=len(callers & deaths.keys()))
    for made in calls.values():
        for before, after in pairwise(made):
            _judge_pair(before, after, deaths, verdict)
    for run_id, entries in journals.items():
        for entry in entries:
            _judge_entry(f"{run_id}{entry.path}", entry, calls, verdict)
    return verdict


def _judge_pair(before: Call, after: Call, deaths: Mapping[int, Death], verdict: Verdict) -> None:
    death = deaths.get(before.pid)
    if death is not None and before.at <= death.dead and death.sent <= after.at:
        verdict.cut_off += 1
    elif before.ended != "fail":
        verdict.unexcused.append(f"{after.key}: {before} was followed by {after}")
    if before.key.endswith(ONCE):
        verdict.twice.append(f"{after.key}: {before} and {after}")


def _judge_entry(key: str, entry: Entry, calls: Mapping[str, list[Call]], verdict: Verdict) -> None:
    made = calls.get(key, [])
    if entry.kind == "failed" and entry.path.endswith(ONCE):
        error: dict[str, Any] = read_body(entry).error or {}
        verdict.in_doubt += error.get("kind") == "in_doubt"
    if entry.kind != "succeeded":
        return
    verdict.repeated += [f"{key}: recorded at {entry.at}, {call}" for call in made if call.at > entry.at]
    if entry.digest and not any(call.ended == "end" for call in made):
        verdict.uncalled.append(f"{key} is recorded as done, and the ledger knows nothing of it: {made}")
