"""Compiling a definition: everything about a step that can be known before the run, worked out once.

The law of the file: a plan is computed from the definition alone and never changed; runs of one definition share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.graph import order_block
from stepwell.definition.policy import ErrorRule, RetryPolicy
from stepwell.definition.visibility import exports
from stepwell.definition.workflow import DEFAULT_STEP_TIMEOUT, Workflow

if TYPE_CHECKING:
    from stepwell.definition.step import Location, Step

Json: TypeAlias = Any
DEFAULT_RETRY = RetryPolicy.model_validate({})
ONCE = RetryPolicy.model_validate({"max_attempts": 1})


@dataclass(slots=True)
class StepPlan:
    """One step, its place in its block, and its policies with all defaults applied.

    `deps` and `dependents` are indexes into the block; `exports` are the ids inside the step's own blocks that texts
    outside them refer to; `timeout` is in seconds, for one attempt (actions) or of active time (containers), or None.
    """

    step: Step
    id: str
    deps: tuple[int, ...] = ()
    dependents: tuple[int, ...] = ()
    in_flow: bool = True
    timeout: float | None = None
    retry: RetryPolicy = DEFAULT_RETRY
    rules: tuple[ErrorRule, ...] = ()
    blocks: dict[Location, BlockPlan] = field(default_factory=dict)
    exports: tuple[str, ...] = ()
    tolerant: bool = False
    """Whether `on_error` lets the step go on whatever fails in it: a loop then tolerates every failed iteration."""
    inside: tuple[str, ...] = ()
    """Ids of all steps inside whose outputs are bound where the container's are: those of branches, not of loops."""


@dataclass(slots=True)
class BlockPlan:
    """A list of steps as a sequence or a graph."""

    steps: tuple[StepPlan, ...]
    sequence: bool
    exports: tuple[str, ...] = ()

    def downstream(self, target: str) -> tuple[StepPlan, ...] | None:
        """The step `target` and all that come after it, in written order; None if it is not of this block."""
        start = next((index for index, plan in enumerate(self.steps) if plan.id == target and plan.in_flow), None)
        if start is None:
            return None
        if self.sequence:
            return self.steps[start:]
        reached, waiting = {start}, [start]
        while waiting:
            fresh = set(self.steps[waiting.pop()].dependents) - reached
            reached |= fresh
            waiting += fresh
        return tuple(plan for index, plan in enumerate(self.steps) if index in reached)


@dataclass(slots=True)
class Plan:
    """A whole workflow, compiled."""

    workflow: Workflow
    root: BlockPlan
    on_failure: BlockPlan | None = None
    digest: str = ""


def compile_workflow(workflow: Workflow, digest: str = "") -> Plan:
    """Compile a checked workflow."""
    seen_outside = exports(workflow)
    failing = workflow.on_failure.steps if workflow.on_failure else None
    return Plan(
        workflow,
        _block(workflow.steps, workflow, seen_outside, ()),
        _block(failing, workflow, seen_outside, ()) if failing else None,
        digest,
    )


def _block(
    steps: tuple[Step, ...], workflow: Workflow, seen: dict[tuple[str, Location], tuple[str, ...]], ids: tuple[str, ...]
) -> BlockPlan:
    order = order_block(steps)
    plans = tuple(_step(step, workflow, seen) for step in steps)
    for index, plan in enumerate(plans):
        plan.in_flow = order.in_flow[index]
        plan.deps = order.deps[index]
        plan.dependents = order.dependents[index]
    return BlockPlan(tuple(plan for plan in plans if plan.in_flow) if order.sequence else plans, order.sequence, ids)


def _step(step: Step, workflow: Workflow, seen: dict[tuple[str, Location], tuple[str, ...]]) -> StepPlan:
    defaults = workflow.defaults
    plan = StepPlan(step, step.id)
    timeout = getattr(step, "timeout", None)
    retry = getattr(step, "retry", None)
    if step.acts:
        plan.timeout = timeout or defaults.timeout or DEFAULT_STEP_TIMEOUT
        plan.retry = _merged(retry, defaults.retry)
    else:
        plan.timeout = timeout
        plan.retry = retry or ONCE
    plan.rules = (*(step.on_error or ()), *(defaults.on_error or ()))
    always = next((rule for rule in plan.rules if not rule.errors and rule.when is None), None)
    plan.tolerant = always is not None and always.strategy == "continue" and always is plan.rules[0]
    exported: list[str] = []
    inside: list[str] = []
    for block in step.blocks():
        ids = seen.get((step.id, block.where), ())
        plan.blocks[block.where] = _block(block.steps, workflow, seen, ids)
        exported += ids
        if block.exports:
            inside += [inner for one in plan.blocks[block.where].steps for inner in (one.id, *one.inside)]
    plan.exports = tuple(dict.fromkeys(exported))
    plan.inside = tuple(inside)
    return plan


def _merged(own: RetryPolicy | None, default: RetryPolicy | None) -> RetryPolicy:
    """The step's policy; what it does not say the workflow's default says."""
    if own is None or default is None:
        return own or default or DEFAULT_RETRY
    said = {name: getattr(own, name) for name in own.model_fields_set}
    return default.model_copy(update=said)
