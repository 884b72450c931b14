"""What happens once a step has failed: the first rule of `on_error` that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.definition.policy import ErrorRule
    from stepwell.errors import StepFailed
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome


async def recover(scope: Scope, failure: StepFailed) -> Outcome:
    """Record the failure as the rules say; the outcome tells whether the block goes on."""
    rule = _rule(scope, failure)
    if rule is None or rule.strategy == "fail":
        return await scope.fail(failure)
    # Other strategies than `continue` are refused before a run starts (definition/check/performed.py).
    assert rule.strategy == "continue", rule.strategy
    default = rule.default.tree.render(scope.context | {"error": failure.record()}) if rule.default else None
    return await scope.fail(failure, default=default, reason={"type": "continued"})


def _rule(scope: Scope, failure: StepFailed) -> ErrorRule | None:
    assert scope.plan is not None
    for rule in scope.plan.rules:
        if rule.errors and failure.kind not in rule.errors:
            continue
        if rule.when is None or rule.when.program.test(scope.context | {"error": failure.record()}):
            return rule
    return None
