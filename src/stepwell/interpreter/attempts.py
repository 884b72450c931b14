"""Attempts: doing an action until it succeeds, cannot pass by itself, or has been tried often enough.

The law of the file: attempts are counted from the journal, so no pause and no crash resets them, and a step that had
its last attempt is never tried again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.schemas import problems_of
from stepwell.errors import StepFailed
from stepwell.interpreter import backoff
from stepwell.interpreter.effect import ModelCall, digest, encoded
from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft

if TYPE_CHECKING:
    from stepwell.definition.policy import RetryPolicy
    from stepwell.interpreter.effect import Effect
    from stepwell.interpreter.kind import Action
    from stepwell.interpreter.runtime import Attempt
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome

Json: TypeAlias = Any

_ANSWERS = frozenset({"output_invalid", "truncated_output"})
"""Kinds that model steps retry within the same attempts, since the model may answer better next time."""

_KEPT = 64_000
"""How long, as JSON, an answer that does not fit may be and still be kept with the error."""


async def run_attempts(effect: Effect, scope: Scope, schema: dict[str, Json] | None = None) -> Outcome:
    """The outcome of a succeeded effect, whose result must fit `schema`.

    Raises StepFailed, with `scope.spent` set, once attempts are spent.
    """
    runtime = scope.runtime
    plan = scope.plan
    assert plan is not None
    text = encoded(effect)
    mark = digest(effect, text)
    number = await _resume(scope)
    first = 0.0
    while True:
        attempt = await runtime.perform(plan, scope.path, number, effect, text, mark)
        first = first or attempt.started
        failure = attempt.failure or _unfit(schema, effect, attempt) or _rejected(effect, attempt, scope)
        if failure is None:
            return await _succeed(scope, attempt, text, mark)
        scope.spent = attempt
        attempt.text = text
        pause = _pause(scope, effect, failure, number, attempt.ended - first)
        if pause is None:
            raise failure
        await _try_again(scope, attempt, failure, attempt.ended + pause)
        number += 1


def effect_of(step: Action, scope: Scope) -> Effect:
    """What the step wants done, with the arguments that a person gave instead of its own. Raises StepFailed."""
    effect = step.effect(scope)
    edits = edits_of(scope)
    return effect.edited(edits) if edits else effect


def edits_of(scope: Scope) -> dict[str, Json]:
    """What people put in the place of arguments: with the order to do it again, then at each incident."""
    found = dict(scope.runtime.edits_of(scope.path))
    number = 1
    while (settled := scope.runtime.recall(paths.wait(paths.trouble(scope.path, number)))) is not None:
        found |= settled.value.get("edits") or {} if settled.status == "completed" else {}
        number += 1
    return found


async def _resume(scope: Scope) -> int:
    """The number of the next attempt, once it is due."""
    number, last = 1, None
    while (found := scope.runtime.recall(paths.attempt(scope.path, number))) is not None:
        number, last = number + 1, found
    if last is not None and last.retry_at:
        pause = last.retry_at - last.ended
        await scope.runtime.sleep_until(f"{scope.path}/~sleep{number - 1}", last.retry_at, longest=pause)
    return number


async def _succeed(scope: Scope, attempt: Attempt, text: bytes, mark: str) -> Outcome:
    body = Body(started=attempt.started, ended=attempt.ended, attempts=attempt.number, meta=attempt.meta)
    draft = Draft(scope.path, "succeeded", body, digest=mark)
    draft.value(attempt.value, attempt.text)
    draft.arguments(text)
    scope.keep(draft)
    return await scope.runtime.record(draft, outgoing=attempt.outgoing)


async def _try_again(scope: Scope, attempt: Attempt, failure: StepFailed, due: float) -> None:
    body = Body(
        error=failure.record(),
        started=attempt.started,
        ended=attempt.ended,
        attempts=attempt.number,
        retry_at=due,
        meta=attempt.meta,
    )
    await scope.runtime.record(Draft(paths.attempt(scope.path, attempt.number), "failed", body))
    await scope.runtime.sleep_until(f"{scope.path}/~sleep{attempt.number}", due)


def _unfit(schema: dict[str, Json] | None, effect: Effect, attempt: Attempt) -> StepFailed | None:
    """The failure of a result that does not fit the step's `output_schema`; model steps have seen to that already."""
    if schema is None or isinstance(effect, ModelCall):
        return None
    problems = list(problems_of(schema, attempt.value))
    if not problems:
        return None
    # The answer is kept, so that a fallback can make something of it: as a whole, or only its length.
    length = len(json.dumps(attempt.value))
    answer = {"answer": attempt.value} if length <= _KEPT else {"answer_length": length}
    detail = {**answer, "problems": problems}
    return StepFailed("output_invalid", f"the result does not fit output_schema: {problems[0]}", detail=detail)


def _rejected(effect: Effect, attempt: Attempt, scope: Scope) -> StepFailed | None:
    """The failure of a successful result that `retry.when` turns down; of an agent step only the answer is a result."""
    assert scope.plan is not None
    policy = scope.plan.retry
    if policy.when is None or not _mentions(policy, "result"):
        return None
    result = attempt.value
    if not scope.is_step:
        if not isinstance(effect, ModelCall) or "answer" not in result:
            return None
        result = result["answer"]
    if not policy.when.program.test(scope.context | {"result": result, "error": None}):
        return None
    return StepFailed("result_rejected", f"retry.when holds for the result: {policy.when.source}", retryable=True)


def _mentions(policy: RetryPolicy, root: str) -> bool:
    return policy.when is not None and any(ref.root == root for ref in policy.when.program.refs())


def _pause(scope: Scope, effect: Effect, failure: StepFailed, number: int, elapsed: float) -> float | None:
    """Seconds until the next attempt, or None when there is none."""
    assert scope.plan is not None
    policy = scope.plan.retry
    if number >= policy.max_attempts or not _may_retry(scope, effect, failure):
        return None
    pause = backoff.delay(policy, number, failure, f"{scope.runtime.run_id}{scope.path}")
    hint = failure.retry_after or 0.0
    if hint > backoff.LONGEST_HINT or pause > scope.runtime.remaining():
        return None
    if policy.max_elapsed is not None and elapsed + pause > policy.max_elapsed:
        return None
    return pause


def _may_retry(scope: Scope, effect: Effect, failure: StepFailed) -> bool:
    assert scope.plan is not None
    policy = scope.plan.retry
    if not effect.again() and not _never_sent(failure):
        return False
    if failure.kind == "result_rejected":
        return True
    answer = isinstance(effect, ModelCall) and failure.kind in _ANSWERS and failure.kind not in policy.unless
    if not (backoff.may_pass(policy, failure) or (answer and policy.on is None)):
        return False
    if policy.when is None or not _mentions(policy, "error"):
        return True
    return policy.when.program.test(scope.context | {"error": failure.record(), "result": None})


def _never_sent(failure: StepFailed) -> bool:
    """Whether the request surely never reached the other side, so that even a charge may be tried again."""
    return isinstance(failure.detail, dict) and failure.detail.get("sent") is False
