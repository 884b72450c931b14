"""Run a block for each item of a list, or until an expression holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from stepwell.definition.fields import Duration, Expression, Json, Value
from stepwell.definition.policy import RetryPolicy
from stepwell.definition.step import Block, Recipes, Schema, Steps
from stepwell.errors import StepFailed
from stepwell.interpreter.interruption import Withdrawn
from stepwell.interpreter.kind import Control
from stepwell.journal import path as paths
from stepwell.kinds.causes import failed_inside

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome

BODY = ("steps",)
_TYPE_NAMES = {
    dict: "an object",
    str: "text",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}


def _over(value: Json, info: ValidationInfo) -> Json:
    if isinstance(value, list):
        return Value._parse(value, info)  # noqa: SLF001 -- the field's own parser, reached by another spelling
    if isinstance(value, str):
        return Expression._parse(value, info)  # noqa: SLF001
    if isinstance(value, Expression | Value):
        return value
    raise PydanticCustomError(
        "over",
        "`over` is a list, or an expression that gives one; this is {found}",
        {
            "found": _TYPE_NAMES.get(type(value), type(value).__name__),
            "hint": "write over: step.fetch.items",
            "code": "type",
        },
    )


def _share(value: Json) -> Json:
    text = str(value).strip()
    if isinstance(value, bool) or not (text.removesuffix("%").replace(".", "", 1).isdigit()):
        raise PydanticCustomError(
            "tolerate",
            "{found} is neither a count nor a share",
            {"found": repr(value), "hint": 'write 2 or "5%"', "code": "type"},
        )
    return text if text.endswith("%") else int(float(text))


class Loop(Control):
    """Runs `steps` for each item of `over`, or until `until` holds; the output is the list of iteration outputs."""

    inner_texts: ClassVar[frozenset[str]] = frozenset({"until", "output"})
    item_texts: ClassVar[frozenset[str]] = frozenset({"key"})

    type: Literal["loop"]
    over: Annotated[Expression | Value, BeforeValidator(_over, json_schema_input_type=str | list[Json])] | None = None
    until: Expression | None = None
    max_iterations: int | None = Field(None, ge=1, le=1_000_000)
    on_exhausted: Literal["fail", "continue"] = "fail"
    item_name: str | None = Field(None, alias="as", pattern=r"^[^\W\d]\w*$", max_length=64)
    key: Expression | None = None
    concurrency: int = Field(1, ge=1, le=1000)
    max_items: int = Field(10_000, ge=1, le=1_000_000)
    tolerate: Annotated[int | str, BeforeValidator(_share, json_schema_input_type=int | str)] = 0
    steps: Steps = Field(min_length=1)
    output: Value | None = None
    timeout: Duration | None = None
    retry: RetryPolicy | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.over is None) == (self.until is None):
            raise PydanticCustomError(
                "loop", "a loop has either `over` or `until`", {"hint": "write over: <list>, or until: <expression>"}
            )
        if self.until is not None and self.max_iterations is None:
            raise PydanticCustomError(
                "loop_unbounded",
                "a loop with `until` needs `max_iterations`",
                {"hint": "add max_iterations: 10", "code": "loop_unbounded", "at": "until"},
            )
        if self.until is not None and self.concurrency > 1:
            raise PydanticCustomError(
                "loop", "rounds of `until` come one after another", {"hint": "remove it", "at": "concurrency"}
            )
        return self

    def blocks(self) -> Iterable[Block]:
        names = (self.item_name,) if self.item_name else ()
        return [Block(BODY, self.steps, exports=False, certain=self.until is not None, item={}, binds=names)]

    def shape(self, recipes: Recipes) -> Schema | None:
        del recipes
        return {"type": "array"}

    def items(self, scope: Scope) -> list[Json]:
        """The list to go over. Raises StepFailed that names the loop, the source and what was found instead."""
        if isinstance(self.over, Value):
            found = scope.render(self.over)
        else:
            found = scope.evaluate(self.over) if self.over else []
        if not isinstance(found, list):
            source = self.over.source if isinstance(self.over, Expression) else "over"
            shown = _TYPE_NAMES.get(type(found), type(found).__name__)
            hint = "; JSON text is read with parse_json()" if isinstance(found, str) else ""
            raise StepFailed(
                "expression_error",
                f"loop {self.id} goes over a list, but {source} is {shown}{hint}",
                detail={"code": "type", "found": shown},
            )
        if len(found) > self.max_items:
            raise StepFailed(
                "validation_error", f"loop {self.id} has {len(found)} items, more than max_items: {self.max_items}"
            )
        return found

    def _tolerated(self, count: int) -> float:
        if isinstance(self.tolerate, str):
            return count * float(self.tolerate.removesuffix("%")) / 100
        return self.tolerate

    def _keys(self, scope: Scope, items: list[Json]) -> list[Json]:
        if self.key is None:
            return []
        keys = [
            scope.iteration(index, item, len(items), self.item_name).evaluate(self.key)
            for index, item in enumerate(items)
        ]
        seen: dict[str, int] = {}
        for index, key in enumerate(keys):
            text = repr(key)
            if text in seen:
                raise StepFailed(
                    "validation_error", f"loop {self.id}: items {seen[text]} and {index} have the same key {key!r}"
                )
            seen[text] = index
        return keys

    async def _iterate(self, scope: Scope) -> Outcome:
        """One iteration in its own scope; a failure is an outcome."""
        if found := scope.recalled():
            return found
        try:
            await scope.run_block(BODY)
            value = scope.render(self.output) if self.output is not None else scope.last_output(BODY)
            done = scope.test(self.until) if self.until is not None else None
        except StepFailed as failure:
            return await scope.fail(failure)
        except Withdrawn as withdrawn:
            if withdrawn.place != paths.parent(scope.path):
                raise
            return scope.give_up(withdrawn.reason)
        return scope.complete(value, meta={"until": done} if done is not None else None)

    def _start(self, scope: Scope) -> Json:
        items = self.items(scope)
        keys = self._keys(scope, items)
        return {"over": items, "keys": keys} if keys else {"over": items}

    async def run(self, scope: Scope) -> Outcome:
        from stepwell.interpreter.settle import settle_pool  # asyncio is not needed to read a definition

        if self.until is not None:
            return await self._run_until(scope)
        items = scope.begin(lambda: self._start(scope))["over"]
        tolerated = len(items) if scope.plan is not None and scope.plan.tolerant else self._tolerated(len(items))
        done: list[Outcome | None] = [None] * len(items)
        failed = 0

        async def iterate(index: int) -> Outcome:
            nonlocal failed
            before = done[index - 1] if index and self.concurrency == 1 else None
            inner = scope.iteration(
                index, items[index], len(items), self.item_name, previous=before.value if before else None
            )
            outcome = done[index] = await self._iterate(inner)
            if outcome.error is not None:
                failed += 1
                if failed > tolerated:
                    await scope.withdraw(f"iteration {index} failed")
            return outcome

        outcomes = await settle_pool(
            scope,
            iterate,
            len(items),
            self.concurrency,
            begun=scope.has_begun,
            may_start=lambda: failed <= tolerated,
        )
        return self._gather(scope, outcomes, tolerated)

    def _gather(self, scope: Scope, outcomes: list[Outcome | None], tolerated: float) -> Outcome:
        failures = [(index, outcome) for index, outcome in enumerate(outcomes) if outcome and outcome.error]
        if len(failures) > tolerated:
            raise failed_inside(failures, "index")
        values = [outcome.value if outcome and not outcome.error else None for outcome in outcomes]
        if not failures and not self.tolerate:
            return scope.complete(values)
        errors = {str(index): outcome.error for index, outcome in failures}
        return scope.complete(values, meta={"errors": errors, "count": len(failures)})

    async def _run_until(self, scope: Scope) -> Outcome:
        limit = self.max_iterations or 1
        scope.begin(lambda: {"until": limit})
        values: list[Json] = []
        for index in range(limit):
            previous = values[-1] if values else None
            outcome = await self._iterate(scope.iteration(index, None, limit, self.item_name, previous=previous))
            if outcome.error is not None:
                raise failed_inside([(index, outcome)], "index")
            values.append(outcome.value)
            if outcome.meta and outcome.meta.get("until"):
                return scope.complete(values)
        if self.on_exhausted == "continue":
            return scope.complete(values)
        source = self.until.source if self.until else ""
        raise StepFailed("max_iterations_reached", f"loop {self.id}: {source} was still false after {limit} rounds")
