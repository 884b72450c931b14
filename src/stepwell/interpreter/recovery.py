"""What happens once a step has failed: another round of a container, or the first rule of `on_error` that fits.

The law of the file: what is decided here looks at data only, and is recorded before it shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.interpreter import backoff
from stepwell.interpreter.trouble import begin
from stepwell.journal import path as paths

if TYPE_CHECKING:
    from stepwell.definition.step import ErrorRule
    from stepwell.errors import StepFailed
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome

Json: TypeAlias = Any


async def recover(scope: Scope, failure: StepFailed, number: int) -> Outcome | StepFailed | None:
    """Record the failure as the policies say; the outcome tells whether the block goes on, None: try again.

    A failure means that this one was settled and another is to be recovered from. `number` is that of the trouble,
    should it come to one. Raises Rewind when a rule returns to an earlier step, Ended when the run is to be undone.
    """
    pause = _another_round(scope, failure)
    if pause is not None:
        draft = scope.failure(failure)
        draft.body.retry_at = scope.runtime.clock() + pause
        following = paths.with_round(paths.bare(scope.path), paths.round_number(scope.path) + 1)
        await scope.runtime.take_over([(scope.path, following)], only_doubts=True)
        return await scope.runtime.record(draft)
    index, rule = _rule(scope, failure)
    strategy = rule.strategy if rule is not None else "fail"
    asks = failure.suspends or _in_doubt(scope, failure, rule)
    if (verify := _verifies(scope, failure)) or asks:
        ruled = {"rule": index} if verify and not asks and strategy != "suspend" else {}
        return await begin(scope, failure, number, {"strategy": "verify" if verify else "suspend", **ruled})
    match strategy:
        case "continue" if rule is not None:
            default = rule.default.tree.render(scope.context | {"error": failure.record()}) if rule.default else None
            return await scope.fail(failure, default=default, reason={"type": "continued"})
        case "goto" if rule is not None and rule.goto is not None:
            if scope.rounds_left(rule.max_rounds):
                raise scope.returning(rule.goto, None, failure)
        case "fallback" | "suspend":
            return await begin(scope, failure, number, {"strategy": strategy, "rule": index})
        case "compensate":
            return await scope.undo_run(failure)
    return await scope.fail(failure)


def _in_doubt(scope: Scope, failure: StepFailed, rule: ErrorRule | None) -> bool:
    """Whether nobody knows if this step's call took effect, and the definition does not say itself what to do then.

    A container that fails because of such a call has made none.
    """
    assert scope.plan is not None
    return failure.kind == "in_doubt" and scope.plan.step.acts and (rule is None or "in_doubt" not in rule.errors)


def _verifies(scope: Scope, failure: StepFailed) -> bool:
    """Whether a `verify` block may still find out what came of the call; it is asked once, before any rule."""
    if failure.kind != "in_doubt" or scope.plan is None or scope.plan.verify is None:
        return False
    return not isinstance(failure.detail, dict) or "verify" not in failure.detail


def _another_round(scope: Scope, failure: StepFailed) -> float | None:
    """Seconds until a container is tried again as a whole, or None."""
    plan = scope.plan
    assert plan is not None
    policy = plan.retry
    if plan.step.acts or policy.max_attempts == 1 or not backoff.may_pass(policy, failure):
        return None
    bare, number, tried = paths.bare(scope.path), paths.round_number(scope.path), 1
    while number > tried and _was_retried(scope, paths.with_round(bare, number - tried)):
        tried += 1
    if tried >= policy.max_attempts:
        return None
    return backoff.delay(policy, tried, failure, f"{scope.runtime.run_id}{bare}")


def _was_retried(scope: Scope, path: str) -> bool:
    found = scope.runtime.recall(path)
    return found is not None and bool(found.retry_at)


def _rule(scope: Scope, failure: StepFailed) -> tuple[int, ErrorRule | None]:
    assert scope.plan is not None
    for index, rule in enumerate(scope.plan.rules):
        if rule.errors and not backoff.named(rule.errors, failure):
            continue
        if rule.when is None or rule.when.program.test(scope.context | {"error": failure.record()}):
            return index, rule
    return -1, None
