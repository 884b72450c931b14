"""Compiling a definition: everything about a step that can be known before the run, worked out once.

The law of the file: a plan is computed from the definition alone and never changed; runs of one definition share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from stepwell.definition.graph import order_block
from stepwell.definition.policy import RetryPolicy
from stepwell.definition.step import ErrorRule, walk
from stepwell.definition.visibility import exports, refs_of
from stepwell.definition.workflow import DEFAULT_STEP_TIMEOUT, Workflow

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    fallbacks: dict[int, BlockPlan] = field(default_factory=dict)
    """What takes the step's place, by the index of the rule in `rules`; a named step is a block of its own plan."""
    undo: BlockPlan | None = None
    """What undoes the step once it has completed."""
    undo_refs: tuple[str, ...] = ()
    """Ids of the steps outside `undo`, the step itself among them, that texts inside refer to."""
    undo_roots: tuple[str, ...] = ()
    """The other roots of those texts; also such as exist inside `undo` only (a loop's own item)."""
    verify: BlockPlan | None = None
    """What finds out whether a call took effect whose answer was lost."""


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
    steps: dict[str, StepPlan] = field(default_factory=dict)
    """Every step by its id, wherever it lies: those kept aside and those of recovery blocks too."""

    def find(self, step_id: str) -> StepPlan | None:
        """The step with this id, wherever it lies."""
        return self.steps.get(step_id)


def compile_workflow(workflow: Workflow, digest: str = "") -> Plan:
    """Compile a checked workflow."""
    return _Compiler(workflow).plan(digest)


class _Common(NamedTuple):
    """Workflow-wide error rules, and what the fallbacks among them run, by their index."""

    rules: tuple[ErrorRule, ...]
    fallbacks: dict[int, BlockPlan]


_NO_RULES = _Common((), {})


class _Compiler:
    """
    Compiles one workflow.

    Workflow-wide error rules hold for every step but those that undo or verify, whose failure is for a person; inside
    the steps of such a rule its fallbacks do not hold, so that no chain of fallbacks comes back.
    """

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._exports = exports(workflow)
        self._steps: dict[str, StepPlan] = {}
        undone = (step.compensate for step in workflow.every_step())
        self._undoing = {compensate.step for compensate in undone if compensate is not None}
        self._common = _NO_RULES
        """The workflow-wide rules that hold for what is compiled now."""

    def plan(self, digest: str) -> Plan:
        workflow = self._workflow
        rules = workflow.defaults.on_error or ()
        self._common = _Common(tuple(rule for rule in rules if rule.strategy != "fallback"), {})
        fallbacks = {index: self._block(block.steps) for index, block in workflow.fallbacks().items()}
        self._common = _Common(rules, fallbacks)
        failing = self._block(workflow.on_failure.steps) if workflow.on_failure else None
        root = self._block(workflow.steps)
        for plan in self._steps.values() if workflow.aside else ():
            _link(plan, self._steps)
        return Plan(workflow, root, failing, digest, self._steps)

    def _block(self, steps: tuple[Step, ...], ids: tuple[str, ...] = ()) -> BlockPlan:
        order = order_block(steps, self._workflow.aside)
        plans = tuple(self._alone(step) if step.id in self._undoing else self._step(step) for step in steps)
        for index, plan in enumerate(plans):
            plan.in_flow = order.in_flow[index]
            plan.deps = order.deps[index]
            plan.dependents = order.dependents[index]
        return BlockPlan(
            tuple(plan for plan in plans if plan.in_flow) if order.sequence else plans, order.sequence, ids
        )

    def _alone(self, step: Step) -> StepPlan:
        """A step that the workflow-wide error rules do not reach."""
        common, self._common = self._common, _NO_RULES
        plan = self._step(step)
        self._common = common
        return plan

    def _step(self, step: Step) -> StepPlan:
        plan = self._steps[step.id] = StepPlan(step, step.id)
        self._policies(plan)
        exported: list[str] = []
        inside: list[str] = []
        for block in step.blocks():
            ids = self._exports.get((step.id, block.where), ())
            plan.blocks[block.where] = self._block(block.steps, ids)
            exported += ids
            if block.exports:
                inside += [inner for one in plan.blocks[block.where].steps for inner in (one.id, *one.inside)]
        plan.exports = tuple(dict.fromkeys(exported))
        plan.inside = tuple(inside)
        self._recovery(plan)
        return plan

    def _policies(self, plan: StepPlan) -> None:
        step, defaults = plan.step, self._workflow.defaults
        timeout, retry = getattr(step, "timeout", None), getattr(step, "retry", None)
        if step.acts:
            plan.timeout = timeout or defaults.timeout or DEFAULT_STEP_TIMEOUT
            plan.retry = _merged(retry, defaults.retry)
        else:
            plan.timeout = timeout
            plan.retry = retry or ONCE
        plan.rules = (*(step.on_error or ()), *self._common.rules)
        always = next((rule for rule in plan.rules if rule.takes_all), None)
        plan.tolerant = always is not None and always.strategy == "continue" and always is plan.rules[0]

    def _recovery(self, plan: StepPlan) -> None:
        own = len(plan.step.on_error or ())
        plan.fallbacks = {own + index: block for index, block in self._common.fallbacks.items()}
        for block in plan.step.recovery():
            if block.purpose == "fallback":
                plan.fallbacks[int(block.where[1])] = self._block(block.steps)
                continue
            common, self._common = self._common, _NO_RULES
            inner = self._block(block.steps)
            self._common = common
            if block.purpose == "verify":
                plan.verify = inner
            else:
                plan.undo = inner
                plan.undo_refs, plan.undo_roots = _outside(block.steps)


def _link(plan: StepPlan, known: dict[str, StepPlan]) -> None:
    """Make a block of each step that is kept aside for this one."""
    for index, rule in enumerate(plan.step.on_error or ()):
        if rule.strategy == "fallback" and rule.step is not None:
            plan.fallbacks[index] = BlockPlan((known[rule.step],), sequence=True)
    undoing = plan.step.compensate.step if plan.step.compensate is not None else None
    if undoing is not None:
        plan.undo = BlockPlan((known[undoing],), sequence=True)
        plan.undo_refs, plan.undo_roots = _outside([known[undoing].step])


def _outside(steps: Iterable[Step]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ids of other steps, and the other roots, that texts of these steps and of those inside them refer to."""
    inside = [*walk(steps)]
    own = {step.id for step in inside}
    refs = [ref for step in inside for text in step.texts() for ref in refs_of(text.value)]
    ids = dict.fromkeys(ref.step_id for ref in refs if ref.step_id is not None and ref.step_id not in own)
    return tuple(ids), tuple(dict.fromkeys(ref.root for ref in refs if ref.step_id is None))


def _merged(own: RetryPolicy | None, default: RetryPolicy | None) -> RetryPolicy:
    """The step's policy; what it does not say the workflow's default says."""
    if own is None or default is None:
        return own or default or DEFAULT_RETRY
    said = {name: getattr(own, name) for name in own.model_fields_set}
    return default.model_copy(update=said)
