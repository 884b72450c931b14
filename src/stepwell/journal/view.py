"""The view of a run: its journal told as a list of steps, for people and programs.

The law of the file: a view is derived and never stored; the same journal gives the same view, and what it shows of a
step is what the journal says of it. Only steps that were never reached are concluded, from what settled around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from stepwell.definition.workflow import Workflow
from stepwell.journal.entry import Entry, outcome_of
from stepwell.journal.path import bare
from stepwell.journal.places import Place, Places
from stepwell.journal.rows import RunRow, WaitRow
from stepwell.journal.story import Story, story
from stepwell.journal.told import Told, owner, tell
from stepwell.journal.turns import turns_of

Json: TypeAlias = Any
Fetch: TypeAlias = Callable[[str], bytes]

_FINAL = frozenset({"completed", "failed", "compensated", "cancelled", "timed_out"})
_WAITING = {"approval": "pending_approval", "timer": "waiting", "event": "waiting", "incident": "suspended"}
_WORST_FIRST = ("suspended", "pending_approval", "waiting")


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step, in one round and iteration. Times are UTC seconds since 1970, 0 where there is none yet."""

    path: str
    id: str
    type: str
    status: str
    name: str = ""
    round: int = 1
    index: int | None = None
    attempts: int = 0
    attempt_log: tuple[dict[str, Json], ...] = ()
    input: Json = None
    output: Json = None
    error: dict[str, Json] | None = None
    skip_reason: dict[str, Json] | None = None
    started: float = 0.0
    ended: float = 0.0
    meta: dict[str, Json] | None = None
    completed_by: str | None = None
    """fallback, verify or operator, where it was not the step itself."""
    turns: tuple[dict[str, Json], ...] = ()
    """What an agent step's model said and asked for, turn by turn."""
    parts: int | None = None
    """How many items a loop over a list has."""

    def as_json(self) -> dict[str, Json]:
        return {
            "path": self.path,
            "id": self.id,
            "type": self.type,
            "status": self.status,
            "round": self.round,
            "index": self.index,
            "attempts": self.attempts,
            "attempt_log": list(self.attempt_log),
            "input": self.input,
            "output": self.output,
            "error": self.error,
            "skip_reason": self.skip_reason,
            "started_at": instant(self.started),
            "ended_at": instant(self.ended),
        } | {name: value for name in ("completed_by", "turns") if (value := getattr(self, name))}


@dataclass(frozen=True, slots=True)
class RunTree:
    """A run with its steps, flat and in journal order: a container comes before what is inside it."""

    run: RunRow
    steps: tuple[StepRecord, ...]
    waits: tuple[WaitRow, ...] = field(default=())
    """What the run waits for now."""
    workflow: Workflow | None = None
    """What the run pinned; None if it is gone."""
    story: Story = field(default=Story())

    def as_json(self) -> dict[str, Json]:
        """The answer of `runs show RUN --json` (SURFACES, Exact answers); times are ISO 8601 in UTC."""
        run = self.run
        return {
            "id": run.id,
            "status": run.status,
            "workflow": {"id": run.workflow, "version": run.version, "digest": run.definition},
            "input": run.input,
            "output": run.output,
            "error": run.error,
            "waits": [wait_json(wait) for wait in self.waits] or _wake(run),
            "started_at": instant(run.started or run.created),
            "ended_at": instant(run.ended),
            "active_ms": round(run.active * 1000),
            "usage": run.usage,
            "steps": [step.as_json() for step in self.steps],
        }


def instant(seconds: float) -> str | None:
    """UTC seconds since 1970 as ISO 8601 with milliseconds; None for 0, which means "not yet"."""
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def wait_json(wait: WaitRow) -> dict[str, Json]:
    """A wait as programs see it."""
    request = wait.request if isinstance(wait.request, Mapping) else {}
    return {
        "id": wait.id,
        "kind": wait.kind,
        "path": owner(wait.path),
        "title": request.get("title"),
        "status": wait.status,
        "opened_at": instant(wait.opened),
        "deadline": instant(wait.deadline),
    }


def _wake(run: RunRow) -> list[dict[str, Json]]:
    """A run that sleeps without a wait of its own (a long back-off) still says until when."""
    if run.status != "waiting" or not run.wake_at:
        return []
    nothing = {"id": None, "path": None, "title": None, "status": "pending", "opened_at": None}
    return [nothing | {"kind": "timer", "deadline": instant(run.wake_at)}]


def build(
    run: RunRow,
    workflow: Workflow | None,
    entries: Iterable[Entry],
    waits: Sequence[WaitRow],
    fetch: Fetch | None = None,
    children: Mapping[str, Workflow] | None = None,
) -> RunTree:
    """The view of a run from all of its entries and waits.

    `fetch` gives a large value's JSON text by its digest; without it such a value is shown as `{"$ref": digest}`.
    `children` are the workflows that sub-workflow steps called, by the steps' paths (see `called_in`).
    """
    entries = [*entries]
    told = tell(entries, fetch)
    pending = {owner(wait.path): wait for wait in waits if wait.status == "pending"}
    asked = {owner(wait.path): wait for wait in waits}
    for path in asked:  # also one that is decided, before the pass that reads the decision
        told.setdefault(path, Told())
    undone = frozenset(
        one.meta["undoes"] for one in told.values() if one.meta and "undoes" in one.meta and one.status == "completed"
    )
    builder = _Builder(run, Places(workflow, children), told, asked, pending, fetch, undone)
    return RunTree(run, builder.steps(), tuple(pending.values()), workflow, story(entries, fetch))


def called_in(entries: Iterable[Entry]) -> dict[str, str]:
    """The digests of the workflows that sub-workflow steps called, by the steps' paths."""
    found: dict[str, str] = {}
    for entry in entries:
        if entry.kind == "started" and b'"digest"' in entry.body:
            value = outcome_of(entry, lambda _: b"null").value
            if isinstance(value, dict) and isinstance(value.get("digest"), str) and "input" in value:
                found[entry.path.removesuffix("/~start")] = value["digest"]
    return found


@dataclass(slots=True)
class _Builder:
    run: RunRow
    places: Places
    told: dict[str, Told]
    asked: dict[str, WaitRow]
    pending: dict[str, WaitRow]
    fetch: Fetch | None
    undone: frozenset[str]
    """Paths of the steps that were undone."""

    def steps(self) -> tuple[StepRecord, ...]:
        keyed = []
        reached = self._reached()
        for path, (order, place) in reached.items():
            if place.is_step:
                keyed.append(((order, path.count("/"), 0), self._record(path, place)))
        for number, (order, record) in enumerate(self._unreached(reached)):
            keyed.append(((order, record.path.count("/"), number), record))
        keyed.sort(key=lambda pair: pair[0])
        return tuple(record for _, record in keyed)

    def _reached(self) -> dict[str, tuple[float, Place]]:
        """Every place with an entry at it or below it, with the order of the first of them."""
        reached: dict[str, tuple[float, Place]] = {}
        for path, told in self.told.items():
            order = told.first or float("inf")
            at = path
            while at:
                before = reached.get(at)
                if before is not None and before[0] <= order:
                    break
                reached[at] = (order, self.places.at(at))
                at = at.rpartition("/")[0]
        return reached

    def _unreached(self, reached: Mapping[str, tuple[float, Place]]) -> Iterable[tuple[float, StepRecord]]:
        """Steps without an entry whose surroundings have settled: they are skipped, and this is why."""
        begun = {bare(path) for path in reached}  # a step that began in a later round was not skipped before
        for path, (order, place) in reached.items():
            told = self.told.get(path)
            if told is None or (told.meta and "taken_from" in told.meta):
                continue  # what is inside is told where it was done
            taken = told.decided("branch") if place.shape.chooses else None
            if isinstance(taken, str):
                reason = {"type": "branch_not_taken", "taken": taken}
                yield from self._skipped(path, self.places.passed_over(place, taken), order, reason)
            if told.ending is not None:
                expected = self.places.expected(place, taken)
                missing = ((prefix, step) for prefix, step in expected if f"{path}{prefix}/{step.id}" not in begun)
                yield from self._skipped(path, missing, told.ending.order, self._reason_inside(told))
                if told.status == "skipped":
                    yield from self._skipped_branches(path, place, told)
        if self.run.status in _FINAL:
            root = self.places.expected(self.places.at(""))
            missing = ((prefix, step) for prefix, step in root if f"/{step.id}" not in begun)
            yield from self._skipped("", missing, float("inf"), self._run_reason())

    def _skipped_branches(self, path: str, place: Place, told: Told) -> Iterable[tuple[float, StepRecord]]:
        """What is inside a condition that was itself skipped, and so never chose."""
        if place.shape.chooses and told.ending is not None:
            inside = self.places.all_inside(place)
            yield from self._skipped(path, inside, told.ending.order, self._reason_inside(told))

    def _skipped(
        self, path: str, steps: Iterable[tuple[str, Place]], order: float, reason: dict[str, Json]
    ) -> Iterable[tuple[float, StepRecord]]:
        for prefix, step in steps:
            below = f"{path}{prefix}/{step.id}"
            yield order, self._skip(below, step, reason)
            yield from self._skipped(below, self.places.all_inside(step), order, reason)

    def _skip(self, path: str, step: Place, reason: dict[str, Json]) -> StepRecord:
        index = self.places.index(path)
        return StepRecord(path, step.id, step.type, "skipped", name=step.name, index=index, skip_reason=reason)

    def _run_reason(self) -> dict[str, Json]:
        return {"type": "upstream_failed" if self.run.status in {"failed", "compensated"} else "run_ended"}

    def _reason_inside(self, told: Told) -> dict[str, Json]:
        if told.status == "skipped" and told.reason:
            return told.reason
        return {"type": "upstream_failed" if told.status == "failed" else "run_ended"}

    def _record(self, path: str, place: Place) -> StepRecord:
        told = self.told.get(path, Told())
        wait = self.asked.get(path)
        asked = wait.request if wait is not None and wait.kind == "approval" else None
        value = self._value(told.value, told.value_ref)
        return StepRecord(
            path=path,
            id=place.id,
            type=place.type,
            status="compensated" if path in self.undone else told.status or self._open_status(path),
            name=place.name,
            round=place.round,
            index=self.places.index(path),
            attempts=told.attempts,
            attempt_log=tuple(told.attempt_log(instant)),
            input=self._value(told.args, told.args_ref) if told.has_args else asked,
            output=value,
            error=told.error,
            skip_reason=told.reason if told.status in {"skipped", "cancelled"} else None,
            started=min((at for at in (told.started, wait.opened if wait else 0.0) if at), default=0.0),
            ended=told.ended,
            meta=told.meta,
            completed_by=(told.meta or {}).get("completed_by"),
            turns=turns_of(told, self._value, instant) if told.parts else (),
            parts=len(over) if isinstance(over := told.decided("over"), list) else None,
        )

    def _open_status(self, path: str) -> str:
        """The status of a step that has not ended: what it, or something inside it, waits for."""
        if self.run.status in _FINAL:
            return "cancelled"
        if path in self.pending:
            return _WAITING[self.pending[path].kind]
        if self.run.status in {"queued", "running"}:
            return "running"
        inside = {_WAITING[wait.kind] for at, wait in self.pending.items() if at.startswith(f"{path}/")}
        worst = next((status for status in _WORST_FIRST if status in inside), "")
        return worst or ("waiting" if self.run.status == "waiting" else "running")

    def _value(self, raw: msgspec.Raw, ref: str) -> Json:
        if not ref:
            return msgspec.json.decode(raw)
        if self.fetch is None:
            return {"$ref": ref}
        return msgspec.json.decode(self.fetch(ref))
