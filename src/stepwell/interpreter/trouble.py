"""Troubles: what is done about a failure that attempts did not mend: a fallback, a `verify`, a person.

The law of the file: a trouble has a number, and the failure is recorded under it before anything is done about it, so
that no pass tries again what another has given up. What is done is journalled like everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.schemas import problems_of
from stepwell.errors import StepFailed
from stepwell.expressions import ExpressionError
from stepwell.interpreter.attempts import effect_of
from stepwell.interpreter.effect import encoded
from stepwell.interpreter.incident import ACTIONS, asked, settled_by
from stepwell.interpreter.kind import Action
from stepwell.interpreter.runtime import Attempt
from stepwell.interpreter.scope import last_output
from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft, decode

if TYPE_CHECKING:
    from stepwell.definition.compile import BlockPlan
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome

Json: TypeAlias = Any


async def begin(scope: Scope, failure: StepFailed, number: int, what: dict[str, Json]) -> Outcome | StepFailed | None:
    """Record that attempts did not mend it and what is done about it, then do that."""
    spent = scope.spent
    place = paths.start(paths.trouble(scope.path, number))
    body = Body(error=failure.record(), started=scope.opened or scope.runtime.clock())
    if spent is not None:
        body.started, body.ended, body.attempts, body.meta = spent.started, spent.ended, spent.number, spent.meta
        if scope.runtime.recall(paths.attempt(scope.path, spent.number)) is None:  # else it was in doubt, and settled
            tried = Body(error=failure.record(), started=spent.started, ended=spent.ended, attempts=spent.number)
            tried.meta = spent.meta
            scope.runtime.ride(Draft(paths.attempt(scope.path, spent.number), "failed", tried))
    draft = Draft(place, "started", body)
    draft.value(what)
    if spent is not None and spent.text is not None:
        draft.arguments(spent.text)
    await scope.runtime.record(draft)
    return await mend(scope, number)


async def mend(scope: Scope, number: int) -> Outcome | StepFailed | None:
    """Do about trouble `number` what was decided; the outcome tells how the step ended, None: it is tried again.

    A failure is what the step comes to now: it is for the step's rules to say what follows.
    """
    told = scope.runtime.recall(paths.start(paths.trouble(scope.path, number)))
    assert told is not None
    assert told.error is not None
    failure = StepFailed.of(told.error)
    _restore(scope, told)
    match told.value["strategy"]:
        case "fallback":
            return await _fall_back(scope, number, told.value["rule"], failure)
        case "verify":
            return await _verify(scope, number, failure, ruled="rule" in told.value)
    return await _ask(scope, number, failure)


def _restore(scope: Scope, told: Outcome) -> None:
    """Know again which attempt was the last, in a pass that did not make it."""
    if told.attempts and (scope.spent is None or scope.spent.number < told.attempts):
        assert scope.plan is not None
        spent = scope.spent = Attempt(told.attempts, told.started)
        spent.ended, spent.meta = told.ended, told.meta
        if isinstance(scope.plan.step, Action):
            spent.text = encoded(effect_of(scope.plan.step, scope))


async def _mended(scope: Scope, value: Json, failure: StepFailed, meta: dict[str, Json]) -> Outcome:
    """Record that the step completed after all; it keeps its error."""
    spent = scope.spent
    draft = scope.draft("completed", value, error=failure.record() | {"path": failure.path or scope.path}, meta=meta)
    if spent is not None:
        draft.body.started, draft.body.attempts = spent.started, spent.number
        draft.body.meta = (spent.meta or {}) | meta
        if spent.text is not None:
            draft.arguments(spent.text)
    return await scope.runtime.record(draft)


async def _fall_back(scope: Scope, number: int, rule: int, failure: StepFailed) -> Outcome:
    """Run the steps of a fallback; what they give is what the step gives."""
    assert scope.plan is not None
    block = scope.plan.fallbacks[rule]
    inner = scope.aside(paths.aside(scope.path, "fallback", number), error=failure.record())
    try:
        value = await _run_aside(block, inner)
    except StepFailed as second:
        return await scope.fail(_because(second, failure))
    unfit = _unfit(scope, value)
    if unfit is not None:
        return await scope.fail(StepFailed("output_invalid", unfit, detail={"cause": failure.record()}))
    return await _mended(scope, value, failure, {"completed_by": "fallback", "fallback": block.steps[-1].id})


def _because(second: StepFailed, first: StepFailed) -> StepFailed:
    """The failure of a fallback, with what it was to mend as the first of its causes."""
    detail = dict(second.detail) if isinstance(second.detail, dict) else {}
    second.detail = innermost = detail
    while isinstance(cause := innermost.get("cause"), dict):
        deeper = dict(cause.get("detail") or {})
        innermost["cause"] = cause | {"detail": deeper}
        innermost = deeper
    innermost["cause"] = first.record()
    return second


async def _run_aside(block: BlockPlan, inner: Scope) -> Json:
    from stepwell.interpreter.block import run_block

    await run_block(block, inner)
    return last_output(block, inner.records)


def _unfit(scope: Scope, value: Json) -> str | None:
    """Why what a fallback gave is not what the step promises to give, or None."""
    schema = getattr(scope.plan.step, "output_schema", None) if scope.plan is not None else None
    problems = list(problems_of(schema, value)) if schema else []
    return f"what the fallback gave does not fit output_schema: {problems[0]}" if problems else None


async def _verify(scope: Scope, number: int, failure: StepFailed, *, ruled: bool) -> Outcome | StepFailed | None:
    """Find out whether a call in doubt took effect.

    Where that cannot be found out, a person is asked; `ruled`: a rule of the step says what follows instead.
    """
    assert scope.plan is not None
    assert scope.plan.verify is not None
    said = getattr(scope.plan.step, "verify", None)
    assert said is not None
    spent = scope.spent
    number_of_call = spent.number if spent else 1
    intent = scope.runtime.recall(paths.start(paths.attempt(scope.path, number_of_call)))
    taken = ((intent.meta if intent else None) or {}).get("taken_from", "")  # from an earlier round of a container
    call = {
        "key": f"{scope.runtime.run_id}{taken.rpartition('/@')[0] or scope.path}",
        "attempt": number_of_call,
        "arguments": decode(spent.text) if spent and spent.text else None,
    }
    inner = scope.aside(paths.aside(scope.path, "verify", number), error=failure.record(), call=call)
    try:
        found = await _run_aside(scope.plan.verify, inner)
        took_effect = inner.test(said.took_effect)
        value = inner.render(said.output) if took_effect and said.output is not None else found
    except StepFailed as second:
        because = second.record()
    except ExpressionError as error:
        because = {"kind": "expression_error", "message": error.message}
    else:
        return await _found(scope, failure, value, took_effect=took_effect)
    if not ruled:
        return await _ask(scope, number, failure, verify=because)
    failure.detail = (failure.detail if isinstance(failure.detail, dict) else {}) | {"verify": because}
    return failure


async def _found(scope: Scope, failure: StepFailed, value: Json, *, took_effect: bool) -> Outcome | StepFailed | None:
    if took_effect:
        return await _mended(scope, value, failure, {"completed_by": "verify"})
    return _not_made(scope, failure)


def _not_made(scope: Scope, failure: StepFailed) -> StepFailed | None:
    """What a call that surely took no effect comes to: None, to be made again, unless its attempts are spent."""
    assert scope.plan is not None
    cause = failure.detail.get("cause") if isinstance(failure.detail, dict) else None
    made = scope.spent.number if scope.spent else 1
    if cause is None or made < scope.plan.retry.max_attempts:  # a process that ended is no fault of the call's
        return None
    plain = StepFailed.of(cause)
    plain.detail = {"sent": False, "verified": True}
    return plain


async def _ask(scope: Scope, number: int, failure: StepFailed, **facts: Json) -> Outcome | None:
    """Open an incident and do what the person says."""
    plan = scope.plan
    assert plan is not None
    actions = [action for action in ACTIONS if action != "fallback" or plan.fallbacks]
    arguments = decode(scope.spent.text) if scope.spent and scope.spent.text else None
    if arguments is None and isinstance(plan.step, Action) and scope.runtime.recall(paths.start(scope.path)):
        arguments = effect_of(plan.step, scope).arguments()  # of an agent step, whose turns have their own
    title = f"{plan.step.name or plan.id} failed: {failure.message}"
    schema = getattr(plan.step, "output_schema", None)
    facts |= {"step": plan.id, "type": plan.step.type, "arguments": arguments, "output_schema": schema}
    facts["tool"] = getattr(plan.step, "tool", None)
    answer = await asked(scope.runtime, paths.trouble(scope.path, number), title, failure, actions, **facts)
    if answer["action"] == "retry":
        return await _again(scope, failure, answer)
    return await _settle(scope, number, failure, answer)


async def _again(scope: Scope, failure: StepFailed, answer: dict[str, Json]) -> Outcome | None:
    """Try again: an action goes on with its next attempt, a container begins a round with what was finished in it."""
    assert scope.plan is not None
    if isinstance(scope.plan.step, Action):
        return None
    draft = scope.failure(failure)
    draft.body.retry_at, draft.body.meta = scope.runtime.clock(), settled_by(answer)
    number = paths.round_number(scope.path) + 1
    await scope.runtime.take_over([(scope.path, paths.with_round(paths.bare(scope.path), number))])
    return await scope.runtime.record(draft)


async def _settle(scope: Scope, number: int, failure: StepFailed, answer: dict[str, Json]) -> Outcome:
    assert scope.plan is not None
    match answer["action"]:
        case "provide":
            meta = {"completed_by": "operator", **settled_by(answer)}
            return await _mended(scope, answer.get("output"), failure, meta)
        case "skip":
            reason = {"type": "operator", "message": answer.get("comment") or "", "by": answer.get("by")}
            return await scope.runtime.record(scope.draft("skipped", None, error=failure.record(), reason=reason))
        case "fallback":
            return await _fall_back(scope, number, min(scope.plan.fallbacks), failure)
        case "compensate":
            return await scope.undo_run(failure)
    return await scope.fail(failure)
