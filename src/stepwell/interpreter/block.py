"""Blocks: running a list of steps as a sequence or as a graph.

The law of the file: a step starts the moment the steps it depends on have settled; once a step of the block has
failed, nothing fresh starts, and what runs is awaited.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from stepwell.errors import NonDeterminism, StepFailed
from stepwell.expressions import ExpressionError
from stepwell.interpreter.attempts import effect_of
from stepwell.interpreter.effect import digest, encoded
from stepwell.interpreter.interruption import Ended, Rewind
from stepwell.interpreter.kind import Action, RunnableStep
from stepwell.interpreter.place import ended
from stepwell.interpreter.reasons import explain
from stepwell.interpreter.recovery import recover
from stepwell.interpreter.scope import Scope
from stepwell.interpreter.settle import Crew, within
from stepwell.interpreter.trouble import mend
from stepwell.journal import path as paths

if TYPE_CHECKING:
    from stepwell.definition.compile import BlockPlan, StepPlan
    from stepwell.definition.fields import Expression
    from stepwell.journal.entry import Outcome


async def run_block(block: BlockPlan, scope: Scope) -> None:
    """Run the steps of a block below `scope.path`. Raises StepFailed when one fails and nothing handles it."""
    while True:
        _bind_cause(block, scope)
        try:
            if block.sequence:
                await _run_sequence(block, scope)
            else:
                await _Graph(block, scope).run()
        except Rewind as rewind:
            stale = block.downstream(rewind.target)
            if stale is None:
                raise
            bare = [f"{scope.path}/{plan.id}" for plan in stale]
            rewind.failed.kind = "failed"  # not settled: what lies below, this way back first of all, is loaded again
            await scope.runtime.take_over(_next_rounds(bare, scope), only_doubts=True)
            await scope.runtime.rewind(scope.path, rewind.cause, bare, rewind.failed)
            scope.forget(stale)
        else:
            return


def _next_rounds(stale: list[str], scope: Scope) -> list[tuple[str, str]]:
    """Of every step that has begun and starts another round, the round that is left and the next."""
    runtime, found = scope.runtime, []
    for bare in stale:
        number = runtime.round_of(bare)
        while (done := runtime.recall(paths.with_round(bare, number))) is not None and done.retry_at:
            number += 1
        left = paths.with_round(bare, number)
        if runtime.has_begun(left):
            found.append((left, paths.with_round(bare, runtime.next_round(bare))))
    return found


def _bind_cause(block: BlockPlan, scope: Scope) -> None:
    """Let the steps of a new round see the last record of the step that asked for it."""
    found = scope.runtime.cause_of(scope.path)
    outcome = scope.runtime.recall(found[1]) if found else None
    if found is not None and outcome is not None:
        plan = next((plan for plan in block.steps if plan.id == found[0]), None)
        if plan is not None:
            scope.bind(plan, outcome, found[1])


async def _run_sequence(block: BlockPlan, scope: Scope) -> None:
    for plan in block.steps:
        try:
            await visit(plan, scope)
        except (StepFailed, Ended) as problem:
            _skip_rest(block, scope, problem)
            raise


def _skip_rest(block: BlockPlan, scope: Scope, problem: StepFailed | Ended) -> None:
    """Say of the steps that were not reached why they were not."""
    reason = {"type": "upstream_failed"} if isinstance(problem, StepFailed) else {"type": "run_ended"}
    for plan in block.steps:
        path = _path(plan, scope)
        if plan.in_flow and not scope.runtime.has_begun(path):
            scope.at(plan, path).skip(reason)


def _path(plan: StepPlan, scope: Scope) -> str:
    bare = f"{scope.path}/{plan.id}"
    return paths.with_round(bare, scope.runtime.round_of(bare))


async def visit(plan: StepPlan, scope: Scope) -> Outcome:
    """Bring one step to its end, or read how it ended, and make it visible.

    Raises StepFailed if the block must fail, Ended at an `end` step.
    """
    path = _path(plan, scope)
    outcome = await _round(plan, scope, path)
    while outcome.retry_at:  # a container is tried again as a whole
        pause = outcome.retry_at - outcome.ended
        await scope.runtime.sleep_until(f"{path}/~sleep", outcome.retry_at, longest=pause)
        scope.forget([plan])
        path = paths.with_round(paths.bare(path), paths.round_number(path) + 1)
        outcome = await _round(plan, scope, path)
    scope.bind(plan, outcome, path)
    if outcome.meta and "end" in outcome.meta:
        raise ended(outcome)
    if outcome.status == "failed" and not outcome.continued:
        raise _failure(outcome)
    return outcome


async def _round(plan: StepPlan, scope: Scope, path: str) -> Outcome:
    here = scope.at(plan, path)
    outcome = scope.runtime.recall(path)
    if outcome is None:
        return await _run(plan, here)
    _compare(plan, here, outcome)
    return outcome


def _failure(outcome: Outcome) -> StepFailed:
    assert outcome.error is not None
    first = outcome.reason.get("order") if outcome.reason else None
    return StepFailed.of(outcome.error, order=first or outcome.order)


async def _run(plan: StepPlan, here: Scope) -> Outcome:
    """Bring a round of a step to its end: troubles that an earlier pass was left with, then attempts, then troubles."""
    failure: StepFailed | None = None
    for number in count(1):
        if here.runtime.recall(paths.start(paths.trouble(here.path, number))) is not None:
            found = await mend(here, number)
        elif failure is not None:
            found = await _recover(here, failure, number)
        else:
            found = await _try(plan, here, number)
        failure = found if isinstance(found, StepFailed) else None
        if found is not None and not isinstance(found, StepFailed):
            return found
    raise AssertionError(here.path)


async def _try(plan: StepPlan, here: Scope, number: int) -> Outcome | StepFailed | None:
    step = plan.step
    assert isinstance(step, RunnableStep)
    try:
        if step.condition is not None and _is_false(step.condition, here):
            return here.skip({"type": "condition_false", **explain(step.condition, here.context)})
        if plan.step.acts or plan.timeout is None:
            return await step.run(here)
        return await _bounded(plan.timeout, step, here)
    except ExpressionError as error:
        failure = StepFailed("expression_error", _located(error), retryable=False, detail={"code": error.code})
    except StepFailed as problem:
        failure = problem
    return await _recover(here, failure, number)


async def _recover(here: Scope, failure: StepFailed, number: int) -> Outcome | StepFailed | None:
    try:
        return await recover(here, failure, number)
    except ExpressionError as error:
        failure = StepFailed(
            "expression_error", f"on_error: {_located(error)}", retryable=False, detail={"code": error.code}
        )
        return await here.fail(failure)


async def _bounded(limit: float, step: RunnableStep, here: Scope) -> Outcome:
    """Run a container within so many seconds of active time, counted from when it began, across passes."""
    outcome = await within(here, step.run(here), limit - here.spent_active())
    if outcome is None:
        raise StepFailed("timeout", f"{step.id} was active for {limit:g} s, its timeout")
    return outcome


def _is_false(condition: Expression, here: Scope) -> bool:
    """Whether the step is to be skipped; one that has begun was not, whatever the condition would say now."""
    return here.runtime.recall(paths.start(here.path)) is None and not here.test(condition)


def _located(error: ExpressionError) -> str:
    hint = f" ({error.hint})" if error.hint else ""
    return f"{error.message} in {error.source[:200]!r} at {error.line}:{error.column}{hint}"


def _compare(plan: StepPlan, here: Scope, outcome: Outcome) -> None:
    """Make sure that what is recorded is what the definition asks for now. Raises NonDeterminism."""
    if not outcome.digest or not isinstance(plan.step, Action):
        return
    try:
        effect = effect_of(plan.step, here)
    except ExpressionError as error:
        raise NonDeterminism(here.path, outcome.digest, f"an expression error: {error.message}") from None
    now = digest(effect, encoded(effect))
    if now != outcome.digest:
        raise NonDeterminism(here.path, outcome.digest, now)


class _Graph:
    """A block in which steps name what they depend on."""

    def __init__(self, block: BlockPlan, scope: Scope) -> None:
        self._steps = block.steps
        self._block = block
        self._scope = scope
        self._crew = Crew(scope)
        self._missing = [len(plan.deps) for plan in block.steps]
        self._outcomes: dict[int, Outcome] = {}

    async def run(self) -> None:
        for index, plan in enumerate(self._steps):
            if plan.in_flow and not plan.deps:
                self._crew.spawn(self._visit(index))
        try:
            await self._crew.settled()
        except (StepFailed, Ended) as problem:
            _skip_rest(self._block, self._scope, problem)
            raise

    async def _visit(self, index: int) -> None:
        plan = self._steps[index]
        path = _path(plan, self._scope)
        if self._crew.failing and not self._scope.runtime.has_begun(path):
            return
        reason = self._dead_end(plan)
        if reason is not None and self._scope.runtime.recall(path) is None:
            outcome = self._scope.at(plan, path).skip(reason)
            self._scope.bind(plan, outcome, path)
        else:
            outcome = await visit(plan, self._scope)
        self._outcomes[index] = outcome
        for dependent in plan.dependents:
            self._missing[dependent] -= 1
            if self._missing[dependent] == 0:
                self._crew.spawn(self._visit(dependent))

    def _dead_end(self, plan: StepPlan) -> dict[str, Any] | None:
        """Why the step is skipped on account of the steps it depends on, or None (LANGUAGE, skip rule)."""
        if not plan.deps:
            return None
        states = {self._steps[dep].id: self._outcomes[dep].status for dep in plan.deps}
        match plan.step.join:
            case "all_settled":
                return None
            case "all_completed":
                dead = any(state != "completed" for state in states.values())
            case _:
                dead = all(state == "skipped" for state in states.values())
        return {"type": "dependencies_skipped", "join": plan.step.join, "values": states} if dead else None
