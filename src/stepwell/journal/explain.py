"""Why a run stands where it stands: for every step that is not finished, was skipped or failed, in plain sentences.

The law of the file: an explanation is derived from the view and the definition alone; what neither says is not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stepwell.definition.graph import order_block
from stepwell.definition.step import Block, Step
from stepwell.journal.due import DUE, begun, is_due, queued
from stepwell.journal.mending import by_operator, failed, in_doubt, mended
from stepwell.journal.path import bare, parent, round_number
from stepwell.journal.places import Places
from stepwell.journal.told import owner
from stepwell.journal.view import RunTree, StepRecord, instant
from stepwell.journal.wording import dead, error_text, listed, lowered, stamp_text, time_text, values, waiting

Json: TypeAlias = Any

OPEN = frozenset({"running", "pending_approval", "waiting", "suspended"})
_FINAL = frozenset({"completed", "failed", "compensated", "cancelled", "timed_out"})
_TOLD = OPEN | {"skipped", "cancelled", "failed", "compensated"}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one step stands as it does. `status` is "not begun" for a step that the run has not reached."""

    path: str
    id: str
    type: str
    status: str
    why: str
    facts: dict[str, Json] = field(default_factory=dict)

    def as_json(self) -> dict[str, Json]:
        told = {"path": self.path, "id": self.id, "type": self.type, "status": self.status, "why": self.why}
        return told | {"facts": self.facts}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a run stands as it does, and its steps in the order of the journal.

    `goes_on` says what moves it: `(action, id)` with the actions decide (an approval), resume, wait (until it is due),
    event (its name), operate (an incident), raise (a budget, by this command).
    """

    run: str
    status: str
    why: str
    goes_on: tuple[tuple[str, str], ...]
    steps: tuple[Reason, ...]


def explain(tree: RunTree, *, now: float = 0.0, gone: bool = False) -> Explanation:
    """The explanation of a run as its view tells it.

    `now` (UTC seconds) tells whether a parked run is due; `gone` says that the process that owned it runs no more.
    """
    run: Any = tree.run
    standing = _Standing(tree, is_due(run, tree.waits, now), "" if gone else getattr(run, "owner", ""), now)
    found = _Explainer(tree, moved=bool(standing.owner))
    return Explanation(run.id, run.status, _run_why(standing), tuple(_goes_on(standing)), tuple(found.reasons()))


@dataclass(frozen=True, slots=True)
class _Standing:
    """How the run stands: whether it is due, and the living process that owns it, if any."""

    tree: RunTree
    due: bool
    owner: str
    now: float


# the run


def _run_why(standing: _Standing) -> str:
    run: Any = standing.tree.run
    error = error_text(run.error)
    because = f": {error}" if error else ""
    match run.status:
        case "completed":
            return f"It completed at {time_text(run.ended)}."
        case "cancelled":
            said = str((run.error or {}).get("message", "")).rstrip(" .")
            reason = f": {said}" if said and said != "the run was cancelled" else ""
            return f"It was cancelled at {time_text(run.ended)}{reason}."
        case "timed_out":
            return f"Its active time was used up after {run.active:g} s, at {time_text(run.ended)}."
        case "failed" | "compensated":
            place = f" at {run.error['path']}" if run.error and run.error.get("path") else ""
            word = "failed" if run.status == "failed" else "was compensated after a failure"
            return f"It {word}{place}{because}."
        case _ if standing.due:
            return DUE
        case _:
            return _open_why(standing, because)


def _open_why(standing: _Standing, because: str) -> str:
    tree = standing.tree
    run: Any = tree.run
    match run.status:
        case "pending_approval":
            count = sum(wait.kind == "approval" for wait in tree.waits)
            who = "a person decides" if count == 1 else f"people decide {count} approvals"
            return f"It is parked: nothing can move until {who}."
        case "waiting":
            times = (*(wait.deadline for wait in tree.waits), run.wake_at)
            until = min((at for at in times if at), default=0.0)
            return f"It is parked: nothing can move until {time_text(until) if until else 'something happens'}."
        case "suspended":
            places = listed(w.request.get("undoes") or owner(w.path) for w in tree.waits if w.kind == "incident")
            undoing = " while it is being undone" if tree.story.undoing is not None else ""
            return f"It is parked{undoing}: an operator has to say what becomes of {places or 'it'}{because}."
        case "stuck":
            return f"A replay found something else than the journal holds; nothing was executed{because}."
        case "queued":
            return queued(run)
        case _:
            return begun(getattr(run, "owner", ""), standing.owner)


def _goes_on(standing: _Standing) -> Iterator[tuple[str, str]]:
    run: Any = standing.tree.run
    if run.status in _FINAL:
        return
    if standing.due:
        yield "resume", run.id
    for wait in standing.tree.waits:
        if 0 < wait.deadline <= standing.now:
            continue
        match wait.kind:
            case "approval":
                yield "decide", wait.id
            case "event":
                yield "event", str(getattr(wait, "topic", "") or "")
            case "incident":
                if raising := raising_of(wait):
                    yield "raise", raising
                yield "operate", wait.id
            case _:
                pass
    if run.status == "waiting" and not standing.due:
        yield "wait", run.id
    elif run.status not in {"pending_approval", "suspended", "waiting"} and not standing.owner:
        yield "resume", run.id


def raising_of(wait: Any) -> str:
    """The command that makes room in the budget for which an incident waits; "" for others."""
    error = wait.request["error"]
    detail = error.get("detail")
    said = error.get("kind") == "budget_exceeded" and isinstance(detail, dict) and "budget" in detail
    return str(detail.get("hint") or "") if said else ""


# its steps


class _Explainer:
    def __init__(self, tree: RunTree, *, moved: bool) -> None:
        self.tree = tree
        self.moved = moved
        self.places = Places(tree.workflow)
        self.records = {record.path: record for record in tree.steps}
        by_round = sorted(self.tree.steps, key=lambda record: round_number(record.path))
        self.newest = {bare(record.path): record for record in by_round}
        self.waits = {owner(wait.path): wait for wait in tree.waits}
        self.open = [record for record in tree.steps if record.status in OPEN]
        self.failed = [record for record in tree.steps if record.status == "failed"]
        self.holders = {above for record in self.open for above in _above(record.path)}

    def reasons(self) -> Iterator[Reason]:
        for record in self.tree.steps:
            if record.status in _TOLD or (record.status == "completed" and record.completed_by):
                why, facts = self._why(record)
                yield Reason(record.path, record.id, record.type, record.status, why, facts)
        if self.tree.run.status not in _FINAL:
            yield from self._not_begun()

    def _why(self, record: StepRecord) -> tuple[str, dict[str, Json]]:
        match record.status:
            case "skipped":
                return self._skipped(record), record.skip_reason or {}
            case "cancelled":
                return self._cancelled(record), record.skip_reason or {}
            case "failed":
                return failed(self.tree.run.id, record)
            case "compensated":
                return "It completed and was undone.", {}
            case "completed":
                return mended(record), {"completed_by": record.completed_by, "error": record.error}
            case _:
                wait = self.waits.get(record.path)
                return waiting(wait) if wait is not None else self._running(record)

    def _running(self, record: StepRecord) -> tuple[str, dict[str, Json]]:
        inside = [one for one in self.open if one.path.startswith(f"{record.path}/") and one.path not in self.holders]
        if inside:
            names = [one.path[len(record.path) + 1 :] for one in inside]
            items = f" ({record.parts} items)" if record.parts is not None else ""
            return f"It waits for what is inside it{items}: {listed(names)}.", {"inside": [one.path for one in inside]}
        last = record.attempt_log[-1] if record.attempt_log else None
        if last is not None and last["status"] == "failed" and last["retry_at"]:
            due = last["retry_at"]
            text = (
                f"Attempt {last['number']} failed ({error_text(last['error'])}); the next is due at {stamp_text(due)}."
            )
            return text, {"attempt": last["number"] + 1, "retry_at": due, "error": last["error"]}
        began = f" since {time_text(record.started)}" if record.started else ""
        if self.moved:
            queued, waited = record.meta or {}, ""
            if queued.get("waited_for"):
                full = "the account had as many model calls in flight as it may"
                waited = f" At {time_text(queued['at'])} it waited for a slot: {full} ({queued['waited_for']})."
            return f"It is running{began}.{waited}", {"started_at": instant(record.started), **queued}
        return f"It was begun{began and f' at {time_text(record.started)}'} and has not ended.", {
            "started_at": instant(record.started)
        }

    def _skipped(self, record: StepRecord) -> str:
        reason = record.skip_reason or {}
        around = self._skipped_around(record, reason)
        if around is not None:
            return f"It lies in {around.id}, which was skipped: {lowered(self._skipped(around))}"
        told: dict[str, Callable[[], str]] = {
            "condition_false": lambda: f"Its condition `{reason.get('expression')}` was false{values(reason)}.",
            "dependencies_skipped": lambda: dead(reason),
            "branch_not_taken": lambda: self._not_taken(record, reason),
            "upstream_failed": lambda: self._after_failure(record),
            "run_ended": lambda: self._ended(record),
            "operator": lambda: by_operator(reason),
        }
        tell = told.get(str(reason.get("type")))
        return tell() if tell else f"It was skipped: {reason.get('type') or 'the journal does not say why'}."

    def _not_taken(self, record: StepRecord, reason: Mapping[str, Json]) -> str:
        taken = f"the branch {reason['taken']!r}" if reason.get("taken") else "another branch"
        return f"{self._chooser(record)} took {taken}."

    def _skipped_around(self, record: StepRecord, reason: Mapping[str, Json]) -> StepRecord | None:
        """The container that was skipped as a whole, for the same reason."""
        above = parent(record.path)
        while above:
            found = self.records.get(above)
            if found is not None:
                return found if found.status == "skipped" and found.skip_reason == reason else None
            above = parent(above)
        return None

    def _chooser(self, record: StepRecord) -> str:
        above = parent(record.path)
        while above and above not in self.records:
            above = parent(above)
        return self.records[above].id if above else "The condition around it"

    def _after_failure(self, record: StepRecord) -> str:
        home = parent(record.path)
        beside = (one for one in self.failed if parent(one.path) == home)
        around = (one for one in self.failed if home.startswith(f"{one.path}/"))
        failed = next(iter([*beside, *around]), None)
        if failed is not None:
            return f"{failed.id} failed before it was reached: {error_text(failed.error)}."
        error = self.tree.run.error
        return "The run failed before it was reached" + (f": {error_text(error)}." if error else ".")

    def _ended(self, record: StepRecord) -> str:
        if (race := self._race(record)) is not None:
            return f"It was cut off: the race in {race.id} was decided without its branch."
        status = self.tree.run.status
        word = {"cancelled": "was cancelled", "timed_out": "used up its time", "failed": "failed"}.get(status, "ended")
        what = f"The run {word}" if status in _FINAL else "What it lies in ended"
        return f"{what} before it was reached."

    def _race(self, record: StepRecord) -> StepRecord | None:
        """The container whose output says that the branch of a step was cut off."""
        path = record.path
        for above in _above(path):
            found = self.records.get(above)
            branch = path[len(above) + 1 :].partition("/")[0]
            if found is not None and isinstance(found.output, Mapping):
                ended = found.output.get(branch)
                if isinstance(ended, Mapping) and ended.get("status") == "cancelled":
                    return found
        return None

    def _cancelled(self, record: StepRecord) -> str:
        reason = record.skip_reason or {}
        match reason.get("type"):
            case "race_lost":
                return "It was cut off: the race around it was decided without it."
            case "withdrawn":
                message = reason.get("message")
                return "What it waited for was withdrawn" + (f": {message}." if message else ".")
            case "in_doubt":
                return f"It was stopped while its call was in flight.{in_doubt(self.tree.run.id, record)}"
            case _:
                return self._open_at_the_end(record)

    def _open_at_the_end(self, record: StepRecord) -> str:
        if (race := self._race(record)) is not None:
            return f"It was cut off: the race in {race.id} was decided without its branch."
        around = next((one for one in self.failed if record.path.startswith(f"{one.path}/")), None)
        if around is not None:
            return f"It was given up, since {around.id} could only fail: {error_text(around.error)}."
        words = {"timed_out": "used up its active time", "cancelled": "was cancelled"}
        return f"The run {words.get(self.tree.run.status, 'ended')} while it was open."

    # steps that were not reached

    def _not_begun(self) -> Iterator[Reason]:
        """Steps beside open ones that still wait for what they depend on."""
        homes = dict.fromkeys(["", *(parent(record.path) for record in self.open)])
        for home in homes:
            for block in self._blocks_at(home):
                yield from self._waiting_steps(home, block)

    def _blocks_at(self, home: str) -> Iterator[Block]:
        shape = self.places.at(home).shape
        if not home:
            workflow = self.tree.workflow
            if workflow is not None:
                yield Block((), workflow.steps)
            return
        begun = {record.id for record in self.open if parent(record.path) == home}
        for block in shape.blocks:
            if not block.segment and any(step.id in begun for step in block.steps):
                yield block

    def _waiting_steps(self, home: str, block: Block) -> Iterator[Reason]:
        workflow = self.places.at(home).workflow
        order = order_block(block.steps, workflow.aside if workflow is not None else None)
        newest = [self.newest.get(f"{home}/{step.id}") for step in block.steps]
        settled = _settled(newest, order.deps)
        going = self.tree.run.status == "running" and not any(
            one is not None and one.status == "failed" and index in settled for index, one in enumerate(newest)
        )
        for index, step in enumerate(block.steps):
            if newest[index] is not None or not order.in_flow[index]:
                continue
            names = [block.steps[dep].id for dep in order.deps[index] if dep not in settled]
            if names or going:
                why = _after(step, names) if names else "Its turn has come; nothing of it is recorded yet."
                yield Reason(f"{home}/{step.id}", step.id, step.type, "not begun", why, {"after": names})


def _settled(newest: Sequence[StepRecord | None], deps: Sequence[Sequence[int]]) -> set[int]:
    """The steps of a block that have ended and are not done again because one before them is."""
    found: set[int] = set()
    grown = True
    while grown:
        ended = (index for index, one in enumerate(newest) if one is not None and one.status not in OPEN)
        more = {index for index in ended if index not in found and found.issuperset(deps[index])}
        found |= more
        grown = bool(more)
    return found


def _above(path: str) -> Iterator[str]:
    while path := parent(path):
        yield path


def _after(step: Step, names: list[str]) -> str:
    verb = "comes after" if step.depends_on is None else "depends on"
    return f"It {verb} {listed(names)}, which {'has' if len(names) == 1 else 'have'} not settled."
