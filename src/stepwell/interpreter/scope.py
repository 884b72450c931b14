"""Scope: where we are, what is visible from here, and the one way to touch the world."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.fields import Expression, Template, Value
from stepwell.definition.schemas import problems_of, with_defaults
from stepwell.errors import StepFailed
from stepwell.expressions import ExpressionError
from stepwell.interpreter.frame import Outputs, Record, Records
from stepwell.interpreter.instants import instant
from stepwell.interpreter.interruption import Ended
from stepwell.interpreter.normalise import CONTAINER_LIMIT
from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft, Outcome

if TYPE_CHECKING:
    from stepwell.definition.compile import BlockPlan, StepPlan
    from stepwell.definition.step import Location
    from stepwell.interpreter.definition import Definition
    from stepwell.interpreter.recipes import PinnedRecipe
    from stepwell.interpreter.runtime import Attempt, Runtime
    from stepwell.ports import WaitKind

Json: TypeAlias = Any
DEEPEST = 8
"""Workflows that may call each other, one inside the other."""


class Scope:
    """The place of one step, iteration or branch. `context` is what expressions see."""

    __slots__ = (
        "chain", "context", "definition", "exports", "opened", "outputs", "path", "plan", "records", "runtime", "spent",
    )  # fmt: skip
    runtime: Runtime
    definition: Definition
    chain: tuple[str, ...]
    """Ids of the workflows that called each other down to here."""

    def __init__(
        self,
        around: Scope | None,
        path: str,
        plan: StepPlan | None,
        context: dict[str, Json],
        outputs: Outputs,
        records: Records,
    ) -> None:
        self.path = path
        self.plan = plan
        self.context = context
        self.outputs = outputs
        self.records = records
        self.exports: tuple[str, ...] = plan.exports if plan else ()
        self.opened = 0.0
        self.spent: Attempt | None = None
        if around is not None:
            self.runtime = around.runtime
            self.definition = around.definition
            self.chain = around.chain

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
        scope.runtime, scope.definition, scope.chain = runtime, definition, chain
        return scope

    def at(self, plan: StepPlan, path: str) -> Scope:
        """The scope of a step: same sight, its own place."""
        return Scope(self, path, plan, self.context, self.outputs, self.records)

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
            filled = self._input_of(definition, inputs)
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
        return self._whole(self.runtime, definition, chain, self.path, begun_value["input"], run)

    def _input_of(self, definition: Definition, inputs: dict[str, Json]) -> Json:
        schema = definition.plan.workflow.input
        filled = with_defaults(schema, inputs)
        for problem in problems_of(schema, filled) if schema else ():
            raise StepFailed("validation_error", f"input of {definition.plan.workflow.workflow}: {problem}")
        return filled

    def spent_active(self) -> float:
        """Active seconds since this place began, across passes."""
        begun = self.runtime.recall(paths.start(self.path))
        return self.runtime.active() - begun.active if begun is not None else 0.0

    async def run_all(self) -> list[Json]:
        """Run the whole definition here; the one element is its output. Raises StepFailed, Ended.

        Once it has failed, its `on_failure` steps run; it has failed whatever they do, but their failure is told too.
        """
        from stepwell.interpreter.block import run_block

        plan = self.definition.plan
        try:
            await run_block(plan.root, self)
        except StepFailed as failure:
            if plan.on_failure is not None:
                await self._after_failure(plan.on_failure, failure)
            raise
        if plan.workflow.output is not None:
            try:
                return [self.render(plan.workflow.output)]
            except ExpressionError as error:
                raise StepFailed("expression_error", f"output: {error.message} in {error.source[:200]!r}") from None
        return [_last_output(plan.root, self.records)]

    async def _after_failure(self, block: BlockPlan, failure: StepFailed) -> None:
        from stepwell.interpreter.block import run_block

        try:
            await run_block(block, self.after_failure(failure))
        except Ended:
            return
        except StepFailed as second:
            detail = failure.detail if isinstance(failure.detail, dict) else {}
            failure.detail = detail | {"on_failure": second.record()}

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

    def recalled(self) -> Outcome | None:
        """What is recorded for this very place; binds what it exports."""
        found = self.runtime.recall(self.path)
        if found is not None and found.exports:
            self._import(found.exports)
        return found

    def has_begun(self, part: str | int) -> bool:
        return self.runtime.has_begun(f"{self.path}/{part}")

    def last_output(self, where: Location) -> Json:
        """The output of the last step of a block, in written order, that completed; null if none did."""
        assert self.plan is not None
        return _last_output(self.plan.blocks[where], self.records)

    # ── going on ──

    async def run_block(self, where: Location) -> None:
        """Run one of the step's blocks here. Raises StepFailed when the block fails."""
        from stepwell.interpreter.block import run_block

        assert self.plan is not None
        await run_block(self.plan.blocks[where], self)

    def begin(self, compute: Callable[[], Json]) -> Json:
        """What the container decides when it begins: computed once, recorded, and read on replay."""
        place = paths.start(self.path)
        found = self.runtime.recall(place)
        if found is None:
            self.opened = self.runtime.clock()
            draft = Draft(place, "started", Body(started=self.opened))
            draft.value(compute())
            found = self.runtime.ride(draft)
        else:
            self.opened = found.started
        return found.value

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

    # ── ending ──

    def complete(self, value: Json, *, meta: dict[str, Json] | None = None) -> Outcome:
        """Settle this place as completed; it can be derived again, so it rides with the next append."""
        return self.runtime.ride(self.draft("completed", value, meta=meta))

    async def settle_together(self, drafts: Sequence[Draft]) -> list[Outcome]:
        """Record what decides a race together with what it decides: in one append, or not at all."""
        for draft in drafts[:-1]:
            self.runtime.ride(draft)
        await self.runtime.record(drafts[-1])
        return [outcome for draft in drafts if (outcome := self.runtime.recall(draft.path)) is not None]

    def give_up(self, reason: str) -> Outcome:
        """Settle this place as cancelled: what it waited for was withdrawn."""
        return self.runtime.ride(self.draft("cancelled", None, reason={"type": "withdrawn", "message": reason}))

    def skip(self, reason: dict[str, Json]) -> Outcome:
        """Settle this step as skipped."""
        return self.runtime.ride(self.draft("skipped", None, reason=reason))

    async def end_run(self, status: str, output: Json, message: str) -> Outcome:
        """Record that the run ends here, then leave."""
        body = Body(
            status="completed", started=self.runtime.clock(), meta={"end": {"status": status, "message": message}}
        )
        body.ended = body.started
        draft = Draft(self.path, "settled", body)
        draft.value(output)
        outcome = await self.runtime.record(draft)
        raise Ended(status, outcome.value, message, outcome.order)

    async def fail(
        self, failure: StepFailed, *, default: Json = None, reason: dict[str, Json] | None = None
    ) -> Outcome:
        """Record that this place failed. `default` is the output under `continue`, where `reason` says so."""
        return await self.runtime.record(self.failure(failure, default=default, reason=reason))

    def failure(self, failure: StepFailed, *, default: Json = None, reason: dict[str, Json] | None = None) -> Draft:
        """The entry that says so, still to be recorded."""
        spent = self.spent
        body = Body(
            status="failed",
            error=failure.record() | ({} if failure.path else {"path": self.path}),
            started=spent.started if spent else self.opened or self.runtime.clock(),
            ended=spent.ended if spent else self.runtime.clock(),
            attempts=spent.number if spent else 0,
            reason=reason or ({"type": "failed_inside", "order": failure.order} if failure.order else None),
            exports=self._exports(),
            meta=spent.meta if spent else None,
        )
        draft = Draft(self.path, "failed" if spent else "settled", body)
        if spent and spent.text is not None:
            draft.arguments(spent.text)
        if reason is not None:
            draft.value(default)
        return draft

    def draft(
        self,
        status: str,
        value: Json,
        *,
        error: dict[str, Json] | None = None,
        reason: dict[str, Json] | None = None,
        meta: dict[str, Json] | None = None,
    ) -> Draft:
        """The entry that settles this place, still to be recorded."""
        now = self.runtime.clock()
        body = Body(
            status=status,
            started=self.opened or now,
            ended=now,
            error=error,
            reason=reason,
            exports=self._exports(),
            meta=meta,
        )
        draft = Draft(self.path, "settled", body)
        if value is not None:
            draft.value(value)
            if draft.text is not None and len(draft.text) > CONTAINER_LIMIT:
                size = len(draft.text) / 1024 / 1024
                limit = CONTAINER_LIMIT // 1024 // 1024
                message = f"what was gathered is {size:.0f} MB of JSON, more than {limit} MB"
                raise StepFailed("output_too_large", message, detail={"bytes": len(draft.text)})
        return draft

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
                self._import(outcome.exports)
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

    def _exports(self) -> dict[str, dict[str, Json]] | None:
        if not self.exports:
            return None
        found: dict[str, dict[str, Json]] = {}
        for step in self.exports:
            if step in self.records:
                outcome = self.records[step].outcome
                record: dict[str, Json] = {"status": outcome.status, "attempts": outcome.attempts}
                if outcome.value is not None:
                    record["value"] = outcome.value
                for name in ("error", "reason", "meta"):
                    if (part := getattr(outcome, name)) is not None:
                        record[name] = part
                if outcome.ended:
                    record |= {"started": outcome.started, "ended": outcome.ended}
                found[step] = record
        return found or None

    def _import(self, exports: dict[str, dict[str, Json]]) -> None:
        for step, record in exports.items():
            if step in self.records:
                continue
            body = Body(
                error=record.get("error"),
                reason=record.get("reason"),
                meta=record.get("meta"),
                attempts=record.get("attempts", 0),
                started=record.get("started", 0.0),
                ended=record.get("ended", 0.0),
            )
            outcome = Outcome(record["status"], record.get("value"), body=body)
            self.records[step] = Record(outcome)
            if outcome.has_value:
                self.outputs[step] = outcome.value


def _last_output(block: BlockPlan, records: Records) -> Json:
    for plan in reversed(block.steps):
        record = records.get(plan.id)  # of this very frame, not one around it
        if record is not None and record.outcome.status == "completed":
            return record.outcome.value
    return None


def as_text(value: Json) -> str:
    """How a value that is not text is written inside a text: as JSON."""
    return json.dumps(value, ensure_ascii=False)


def explain(expression: Expression, context: dict[str, Json]) -> dict[str, Json]:
    """The expression and the values that it saw, for the reason of a skip; long values are cut."""
    from stepwell.expressions import compile_expression

    values: dict[str, Json] = {}
    for ref in expression.program.refs():
        name = str(ref).rstrip("?")
        if "*" in name or "?" in name:
            continue
        try:
            value = compile_expression(name, names=frozenset(context)).evaluate(context)
        except ExpressionError:
            continue
        if isinstance(value, str):
            values[name] = value if len(value) <= 200 else f"{value[:200]}…"
        elif value is None or isinstance(value, bool | int | float):
            values[name] = value
        else:
            values[name] = f"{'array' if isinstance(value, list) else 'object'} of {len(value)}"
    return {"expression": expression.source, "values": values}
