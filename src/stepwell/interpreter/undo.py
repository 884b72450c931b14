"""Undoing a run: the steps that completed and say how to undo them, the last completed first, one at a time.

The law of the file: what is undone, and in which order, is frozen in the journal before the first of it; each step is
undone in the sight that it had when it completed. One that cannot be undone halts the rest until a person settles it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.errors import StepFailed
from stepwell.interpreter.block import run_block
from stepwell.interpreter.exports import outcome_from, record_of
from stepwell.interpreter.frame import Record
from stepwell.interpreter.incident import asked, settled_by
from stepwell.interpreter.interruption import Ended
from stepwell.journal import path as paths
from stepwell.journal.entry import NULL, Body, Draft, Entry, Outcome, decode, outcome_of, read_body

if TYPE_CHECKING:
    from stepwell.definition.compile import StepPlan
    from stepwell.interpreter.scope import Scope

Json: TypeAlias = Any
_NOT_KEPT = frozenset({"step", "steps", "run", "error"})


def kept(scope: Scope, plan: StepPlan) -> dict[str, Json]:
    """What undoing a step will need of what it sees now: its own output is in its entry already."""
    roots = [root for root in plan.undo_roots if root not in _NOT_KEPT and root in scope.context]
    if not scope.digest:  # the input of the run is known
        roots = [root for root in roots if root != "workflow_input"]
    seen: dict[str, Json] = {}
    for step in plan.undo_refs:
        try:
            seen[step] = record_of(scope.records[step].outcome)
        except KeyError:  # its own, or one that was not reached
            continue
    return {
        "workflow": scope.digest,
        "step": plan.id,
        "own": plan.id in plan.undo_refs,
        "context": {root: scope.context[root] for root in roots},
        "steps": seen,
    }


def to_undo(entries: Iterable[Entry], fetch: Callable[[str], bytes]) -> list[dict[str, Json]]:
    """What the steps of a journal kept, with path and record, the last completed first.

    One that settled again, since the run went back, counts once. `fetch` gives a large value's JSON text by its digest.
    """
    found: dict[str, tuple[int, dict[str, Json]]] = {}
    for entry in entries:
        body = read_body(entry)
        if body.undo is NULL and not body.undo_ref:
            continue
        one: dict[str, Json] = decode(fetch(body.undo_ref) if body.undo_ref else body.undo)
        record = record_of(outcome_of(entry, fetch)) if one.pop("own") else {"status": "completed"}
        found[entry.path] = entry.order, {"path": entry.path, "record": record, **one}
    return [one for _, one in sorted(found.values(), key=lambda pair: -pair[0])]


def begun(scope: Scope) -> Outcome | None:
    """What is recorded once the run is being undone; its value is the plan, its error what it is undone for."""
    return scope.runtime.recall(paths.start(paths.UNDO))


async def undo_all(scope: Scope, error: dict[str, Json] | None) -> None:
    """Undo the whole run. Raises StepFailed (compensation_failed) if a person gives up on it."""
    plan = begun(scope)
    if plan is None:
        draft = Draft(paths.start(paths.UNDO), "started", Body(started=scope.runtime.clock(), error=error))
        draft.value({"plan": await scope.runtime.undo_plan()})
        plan = await scope.runtime.record(draft)
    for index, one in enumerate(plan.value["plan"]):
        await _undo(scope, paths.child(paths.UNDO, index), one, error)


async def _undo(scope: Scope, bare: str, one: dict[str, Json], error: dict[str, Json] | None) -> None:
    for number in count(1):
        path = paths.with_round(bare, number)
        done = scope.runtime.recall(path)
        if done is None:
            done = await _attempt(scope, path, one, error)
        if not done.retry_at:
            return


async def _attempt(scope: Scope, path: str, one: dict[str, Json], error: dict[str, Json] | None) -> Outcome:
    """Undo one step; how that ended, recorded. Raises StepFailed if a person says that it stays as it is."""
    runtime = scope.runtime
    definition = await runtime.definition(one["workflow"]) if one["workflow"] else scope.definition
    plan = definition.plan.find(one["step"])
    assert plan is not None
    assert plan.undo is not None
    inner = scope.undoing(path, definition, one["context"] | {"error": error})
    for step, record in (one["steps"] | {plan.id: one["record"]}).items():
        outcome = outcome_from(record)
        inner.records[step] = Record(outcome)
        if outcome.has_value:
            inner.outputs[step] = outcome.value
    try:
        await run_block(plan.undo, inner)
    except StepFailed as failure:
        return await _settle(inner, plan, one["path"], failure)
    except Ended as end:
        if end.undoes:
            return await _settle(inner, plan, one["path"], StepFailed("compensation_failed", end.message))
    return await runtime.record(inner.draft("completed", None, meta={"undoes": one["path"]}))


async def _settle(inner: Scope, plan: StepPlan, undone: str, failure: StepFailed) -> Outcome:
    """Ask a person what becomes of a step that could not be undone."""
    runtime, place = inner.runtime, paths.trouble(inner.path, 1)
    title = f"{plan.step.name or plan.id} could not be undone: {failure.message}"
    answer = await asked(runtime, place, title, failure, ["retry", "skip", "fail"], undoes=undone)
    meta = {"undoes": undone, **settled_by(answer)}
    match answer["action"]:
        case "retry":
            draft = inner.failure(failure)
            draft.body.retry_at, draft.body.meta = runtime.clock(), meta
            return await runtime.record(draft)
        case "skip":
            draft = inner.draft("skipped", None, error=failure.record(), reason={"type": "operator"}, meta=meta)
            return await runtime.record(draft)
    detail = {"undoes": undone, "cause": failure.record()}
    message = f"the run is not undone as a whole: {undone} could not be undone: {failure.message}"
    raise StepFailed("compensation_failed", message, retryable=False, detail=detail)
