"""Scope: where we are, what is visible from here, and the one way to touch the world."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.fields import Expression, Template, Value
from stepwell.errors import StepFailed
from stepwell.interpreter.definition import input_of
from stepwell.interpreter.effect import SecretText
from stepwell.interpreter.exports import take_in
from stepwell.interpreter.frame import Outputs, Record, Records
from stepwell.interpreter.instants import instant
from stepwell.interpreter.place import Place
from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft, Outcome

if TYPE_CHECKING:
    from stepwell.definition.compile import BlockPlan, StepPlan
    from stepwell.definition.step import Location
    from stepwell.interpreter.definition import Definition
    from stepwell.interpreter.recipes import PinnedRecipe
    from stepwell.interpreter.runtime import Runtime
    from stepwell.ports import WaitKind

Json: TypeAlias = Any
DEEPEST = 8
"""Workflows that may call each other, one inside the other."""


class Scope(Place):
    """A place with its sight: `context` is what expressions see there."""

    __slots__ = ("chain", "context", "definition", "digest", "is_step", "outputs")
    definition: Definition
    chain: tuple[str, ...]
    """Ids of the workflows that called each other down to here."""
    digest: str
    """That of the definition, empty for the run's own."""

    def __init__(
        self,
        around: Scope | None,
        path: str,
        plan: StepPlan | None,
        context: dict[str, Json],
        outputs: Outputs,
        records: Records,
    ) -> None:
        super().__init__(path, plan, records)
        self.context = context
        self.outputs = outputs
        self.is_step = False
        if around is not None:
            self.runtime = around.runtime
            self.definition = around.definition
            self.chain = around.chain
            self.digest = around.digest

    @classmethod
    def root(cls, runtime: Runtime, definition: Definition, workflow_input: Json, run: dict[str, Json]) -> Scope:
        """The scope of a whole run."""
        return cls._whole(runtime, definition, (definition.plan.workflow.workflow,), paths.ROOT, workflow_input, run)

    @classmethod
    def _whole(
        cls,
        runtime: Runtime,
        definition: Definition,
        chain: tuple[str, ...],
        path: str,
        workflow_input: Json,
        run: dict[str, Json],
    ) -> Scope:
        outputs, records = Outputs(), Records()
        context = {"workflow_input": workflow_input, "step": outputs, "steps": records, "run": run}
        scope = cls(None, path, None, context, outputs, records)
        scope.runtime, scope.definition, scope.chain, scope.digest = runtime, definition, chain, ""
        return scope

    def at(self, plan: StepPlan, path: str) -> Scope:
        """The scope of a step: same sight, its own place."""
        here = Scope(self, path, plan, self.context, self.outputs, self.records)
        here.is_step = True
        return here

    def part(self, path: str) -> Scope:
        """The scope of one of several effects of this step: same sight, a place of its own below the step's."""
        return Scope(self, path, self.plan, self.context, self.outputs, self.records)

    def aside(self, path: str, **bound: Json) -> Scope:
        """The scope of steps kept aside: they see what is seen here, and what they bind is visible to them alone."""
        outputs, records = Outputs(self.outputs), Records(self.records)
        context = self.context | {"step": outputs, "steps": records, **bound}
        return Scope(self, path, None, context, outputs, records)

    def undoing(self, path: str, definition: Definition, context: dict[str, Json]) -> Scope:
        """The scope in which a step is undone: what was kept when it completed, and nothing of what came after."""
        kept = dict(self.context) | context
        scope = self._whole(self.runtime, definition, self.chain, path, kept["workflow_input"], self.context["run"])
        scope.context = kept | {"step": scope.outputs, "steps": scope.records}
        return scope

    def branch(self, name: str, where: Location) -> Scope:
        """The scope of a branch: what its steps bind is visible after the container."""
        assert self.plan is not None
        inner = Scope(self, f"{self.path}/{name}", self.plan, self.context, self.outputs, self.records)
        inner.exports = self.plan.blocks[where].exports
        return inner

    def after_failure(self, failure: StepFailed) -> Scope:
        """The scope of the steps that run once the workflow has failed."""
        context = self.context | {"error": failure.record()}
        return Scope(self, f"{self.path}/{paths.AFTER_FAILURE}", None, context, self.outputs, self.records)

    def iteration(self, index: int, item: Json, length: int, name: str | None, *, previous: Json = None) -> Scope:
        """The scope of one iteration: its own bindings, linked to what is visible around the loop."""
        outer = self.context
        outputs, records = Outputs(self.outputs), Records(self.records)
        loop: dict[str, Json] = {
            "index": index,
            "first": index == 0,
            "last": index == length - 1,
            "length": length,
            "previous": previous,
            "item": item,
            "parent": outer.get("loop"),
        }
        context = outer | {"step": outputs, "steps": records, "loop_item": item, "loop": loop}
        if name:
            context[name] = item
        inner = Scope(self, f"{self.path}/{index}", self.plan, context, outputs, records)
        inner.exports = ()
        return inner

    async def child(self, name: str, inputs: dict[str, Json]) -> Scope:
        """The scope of a sub-workflow: its own input and sight, its definition pinned when the step begins.

        Raises StepFailed: not_found, depth_exceeded, validation_error.
        """
        begun = self.runtime.recall(paths.start(self.path))
        if begun is None:
            digest = self.definition.workflows.get(name) or await self.runtime.resolve(name, self.definition.file)
            definition = await self.runtime.definition(digest)
            filled = input_of(definition, inputs)
            begun_value = self.begin(lambda: {"digest": digest, "input": filled})
        else:
            begun_value = self.begin(dict)
            definition = await self.runtime.definition(begun_value["digest"])
        called = definition.plan.workflow.workflow
        chain = (*self.chain, called)
        if len(chain) > DEEPEST:
            shown = " > ".join(chain)
            raise StepFailed("depth_exceeded", f"workflows call each other more than {DEEPEST} deep: {shown}")
        run = self.context["run"] | {"workflow": called}
        inner = self._whole(self.runtime, definition, chain, self.path, begun_value["input"], run)
        inner.digest = begun_value["digest"]
        return inner

    # ── reading ──

    def evaluate(self, expression: Expression) -> Json:
        """The value of an expression here. Raises ExpressionError."""
        return expression.program.evaluate(self.context)

    def test(self, expression: Expression) -> bool:
        """The boolean that an expression gives here. Raises ExpressionError if it is none."""
        return expression.program.test(self.context)

    def render(self, value: Value) -> Json:
        """A value with its templates resolved."""
        return value.tree.render(self.context)

    def arguments(self, values: Mapping[str, Value]) -> tuple[dict[str, Json], tuple[SecretText, ...]]:
        """Arguments with their templates resolved, and where in them the values of secrets belong."""
        found = {name: value.tree.render(self.context) for name, value in values.items()}
        secrets = [
            SecretText((name, *path), pieces)
            for name, value in values.items()
            if value.tree.has_secrets
            for path, pieces in value.tree.secrets(self.context)
        ]
        return found, tuple(secrets)

    def text(self, template: Template) -> str:
        """A template as text: what is not text is written as JSON, as inside a longer text."""
        found = template.compiled.render(self.context)
        return found if isinstance(found, str) else as_text(found)

    def recipe(self, name: str) -> PinnedRecipe:
        """The recipe that the run pinned under this name."""
        from stepwell.interpreter.recipes import PinnedRecipe

        return PinnedRecipe(name, self.definition.recipes[name])

    def tool_is_idempotent(self, tool: str) -> bool:
        return self.runtime.tool_is_idempotent(tool)

    def offer(self, tool: str) -> dict[str, Json]:
        """A registered tool as a model is told of it. Raises StepFailed (not_found)."""
        return self.runtime.offer(tool)

    def recalled(self) -> Outcome | None:
        """What is recorded for this very place; binds what it exports."""
        found = self.runtime.recall(self.path)
        if found is not None and found.exports:
            take_in(found.exports, self.outputs, self.records)
        return found

    def has_begun(self, part: str | int) -> bool:
        return self.runtime.has_begun(f"{self.path}/{part}")

    def last_output(self, where: Location) -> Json:
        """The output of the last step of a block, in written order, that completed; null if none did."""
        assert self.plan is not None
        return last_output(self.plan.blocks[where], self.records)

    # ── going on ──

    async def run_block(self, where: Location) -> None:
        """Run one of the step's blocks here. Raises StepFailed when the block fails."""
        from stepwell.interpreter.block import run_block

        assert self.plan is not None
        await run_block(self.plan.blocks[where], self)

    async def wait(
        self, kind: WaitKind, request: Json, *, expires_in: float | None = None, on_expire: str = ""
    ) -> Json:
        """Wait for a message to this step."""
        found = await self.runtime.wait(self.path, kind, request, deadline=expires_in or 0.0, on_expire=on_expire)
        self.opened = found.started
        return found.value

    async def wait_event(self, name: str, match: Expression | None, *, expires_in: float | None = None) -> Json:
        """Wait for an event; what it carries, or that it did not come in time. Raises ExpressionError of `match`."""

        def accept(event: Json) -> bool:
            return match is None or match.program.test(self.context | {"event": event})

        found = await self.runtime.wait_event(self.path, name, accept, deadline=expires_in or 0.0)
        self.opened = found.started
        return found.value

    async def sleep(self, delay: float) -> None:
        """Sleep for some seconds, counted from when the step began, across crashes."""
        until = self.begin(lambda: {"until": self.runtime.clock() + delay})["until"]
        await self.runtime.sleep_until(f"{self.path}/~sleep", until, longest=delay, idle=True)

    async def sleep_until(self, text: str) -> None:
        """Sleep until an instant written in ISO 8601 with an offset. Raises StepFailed for another text."""
        try:
            at = instant(text)
        except ValueError as error:
            raise StepFailed("validation_error", str(error)) from None
        self.begin(lambda: {"until": at})
        await self.runtime.sleep_until(f"{self.path}/~sleep", at, idle=True)

    async def withdraw(self, reason: str) -> None:
        """Close the waits below this place, since it can no longer complete."""
        await self.runtime.withdraw(self.path, reason)

    def keep(self, draft: Draft) -> None:
        """Put into the entry of a step that completed what undoing it will need."""
        if self.is_step and self.plan is not None and self.plan.undo is not None:
            from stepwell.interpreter.undo import kept

            if draft.status == "completed":
                draft.undo(kept(self, self.plan))

    # ── what is visible afterwards ──

    def bind(self, plan: StepPlan, outcome: Outcome, path: str) -> None:
        """Make a settled step visible."""
        self.records[plan.id] = Record(outcome, path, self.runtime.recall)
        if outcome.has_value:
            self.outputs.bind(plan.id, outcome)
        else:
            self.outputs.hide(plan.id)
        if plan.exports:
            if outcome.exports:
                take_in(outcome.exports, self.outputs, self.records)
            self._derive_skips(plan)

    def forget(self, plans: Iterable[StepPlan]) -> None:
        """Take out what steps that start another round had bound."""
        for plan in plans:
            for step in (plan.id, *plan.inside):
                self.outputs.hide(step)
                self.records.pop(step, None)

    def _derive_skips(self, plan: StepPlan) -> None:
        """Steps of branches that were not taken are skipped, without a word in the journal."""
        for step in plan.exports:
            if step not in self.records:
                self.records[step] = Record(Outcome("skipped", body=Body(reason={"type": "branch_not_taken"})))


def last_output(block: BlockPlan, records: Records) -> Json:
    """The output of the last step of a block, in written order, that completed; null if none did."""
    for plan in reversed(block.steps):
        record = records.get(plan.id)  # of this very frame, not one around it
        if record is not None and record.outcome.status == "completed":
            return record.outcome.value
    return None


def as_text(value: Json) -> str:
    """How a value that is not text is written inside a text: as JSON."""
    return json.dumps(value, ensure_ascii=False)
