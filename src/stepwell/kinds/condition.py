"""Choose one branch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from stepwell.definition.fields import Duration, Expression, Json
from stepwell.definition.policy import RetryPolicy
from stepwell.definition.step import Block, Location, Recipes, Schema, Steps
from stepwell.interpreter.kind import Control

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome


class Case(BaseModel):
    """One of the ordered cases: the first whose `when` holds is taken."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    when: Expression
    steps: Steps = ()
    name: str = ""


class Condition(Control):
    """Takes `then` or `else`, or the first of `cases` that holds; the output is `{branch, output}`."""

    type: Literal["condition"]
    when: Expression | None = None
    then: Steps | None = None
    otherwise: Steps | None = Field(None, alias="else")
    cases: tuple[Case, ...] | None = None
    timeout: Duration | None = None
    retry: RetryPolicy | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.when is None) == (self.cases is None):
            raise PydanticCustomError(
                "condition",
                "a condition has either `when` with `then`, or `cases`",
                {"hint": "write when: <expression> and then: [...], or cases: [{when, steps}, ...]"},
            )
        if self.cases is not None and self.then is not None:
            raise PydanticCustomError(
                "condition", "`then` belongs to `when`; here are `cases`", {"hint": "put it in a case", "at": "then"}
            )
        if self.cases is not None and not self.cases:
            raise PydanticCustomError("condition", "`cases` is empty", {"hint": "add a case", "at": "cases"})
        return self

    def _branches(self) -> Iterator[tuple[str, Location, Steps]]:
        if self.cases is not None:
            for index, case in enumerate(self.cases):
                yield case.name or f"case_{index}", ("cases", index, "steps"), case.steps
        else:
            yield "then", ("then",), self.then or ()
        yield "else", ("else",), self.otherwise or ()

    def blocks(self) -> Iterable[Block]:
        return [Block(where, steps, name=name) for name, where, steps in self._branches()]

    def shape(self, recipes: Recipes) -> Schema | None:
        del recipes
        names = [name for name, _, _ in self._branches()]
        return {
            "type": "object",
            "properties": {"branch": {"enum": names}, "output": {}},
            "required": ["branch", "output"],
            "additionalProperties": False,
        }

    def _choose(self, scope: Scope) -> Json:
        if self.when is not None:
            return {"branch": "then" if scope.test(self.when) else "else"}
        for name, where, _ in self._branches():
            if where[0] == "cases" and self.cases and scope.test(self.cases[int(where[1])].when):
                return {"branch": name}
        return {"branch": "else"}

    async def run(self, scope: Scope) -> Outcome:
        chosen = scope.begin(lambda: self._choose(scope))["branch"]
        where = next(where for name, where, _ in self._branches() if name == chosen)
        await scope.run_block(where)
        return scope.complete({"branch": chosen, "output": scope.last_output(where)})
