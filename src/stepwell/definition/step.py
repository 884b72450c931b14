"""
Steps and blocks: what a definition consists of, before anything is said about doing it.

The law of the file: whoever walks a definition (checks, compiler, plans, pictures) does so through `blocks()`,
`recovery()` and `texts()`, so a new kind of step needs no change there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    SerializeAsAny,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from stepwell.definition.fields import Expression, StepId, Value
from stepwell.definition.suggest import close, listing, noun
from stepwell.definition.texts import Text, further_roots, texts_in

Json: TypeAlias = Any
Schema: TypeAlias = dict[str, Json]
Location: TypeAlias = tuple[str | int, ...]
Join: TypeAlias = Literal["any_completed", "all_completed", "all_settled"]
Purpose: TypeAlias = Literal["", "fallback", "undo", "verify"]


class Recipes(Protocol):
    """What checks need to know of recipes, which are named `id` or `id@version`."""

    def names(self) -> Collection[str] | None:
        """The ids of all recipes there are, or None where nobody knows."""

    def output_schema(self, recipe: str) -> Schema | None:
        """The schema of a recipe's output, or None where it is unknown."""


class NoRecipes:
    """Nothing is known of any recipe."""

    def names(self) -> None:
        return None

    def output_schema(self, recipe: str) -> None:
        del recipe


@dataclass(frozen=True, slots=True)
class Block:
    """
    A nested list of steps and how it lies in its step.

    `where` locates it in the step's own data; `segment` is its part of the path ("" where it has none); `exports` says
    whether its steps are visible after the container; `certain` whether it surely runs when the container does;
    `item` is the schema of `loop_item` for a loop's body (`{}`: unknown), None for other blocks; `binds` are further
    names for the item (`as`).
    """

    where: Location
    steps: tuple[Step, ...]
    segment: str = ""
    exports: bool = True
    certain: bool = False
    item: Schema | None = None
    binds: tuple[str, ...] = ()
    name: str = ""
    """What the container calls it when it chooses between its blocks."""
    purpose: Purpose = ""
    """What a block is for that is no part of what the step does when all goes well."""
    roots: tuple[str, ...] = ()
    """Roots that texts of its steps see besides the usual ones."""


def fallback_block(rule: ErrorRule, where: Location) -> Block:
    """The steps that a rule holds for taking the place of the step that failed."""
    steps = (*where, "steps")
    return Block(steps, rule.steps, FALLBACK, exports=False, purpose="fallback", roots=("error",))


FALLBACK = "~fallback"
UNDO = "~undo"
VERIFY = "~verify"
UNDO_STEPS: Location = ("compensate", "steps")
VERIFY_STEPS: Location = ("verify", "steps")


class ErrorRule(BaseModel):
    """
    One rule of `on_error`: for these error kinds and under this condition, that strategy.

    A `fallback` holds its `steps`, or names a `step` of the block, which is then kept out of the flow.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    strategy: Literal["fail", "continue", "fallback", "compensate", "suspend", "goto"]
    errors: tuple[str, ...] = ()
    when: Expression | None = None
    default: Value | None = None
    step: StepId | None = None
    steps: Steps = ()
    goto: StepId | None = None
    max_rounds: int = Field(3, ge=1, le=100)

    @property
    def takes_all(self) -> bool:
        """Whether it fits every error."""
        return not self.errors and self.when is None


class Compensation(BaseModel):
    """`compensate`: how a completed step is undone, by steps of its own or by a step that is kept out of the flow."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    steps: Steps = ()
    step: StepId | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_form(cls, data: Json) -> Json:
        if not isinstance(data, dict) or {"step", "steps"} <= data.keys() or not data.keys() & {"step", "steps"}:
            raise PydanticCustomError(
                "compensate",
                "`compensate` is {steps: [...]} or {step: its-id}",
                {"hint": "write compensate: {step: its-id}", "code": "policy"},
            )
        return data


class Verification(BaseModel):
    """
    `verify`: steps that find out whether a call took effect whose answer was lost.

    `took_effect` and `output` see these steps; `output` is then the output of the call, else that of the last of the
    steps that completed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    steps: Steps = Field(min_length=1)
    took_effect: Expression
    output: Value | None = None


def _rules(value: Json, info: ValidationInfo) -> Json:
    """A word, one rule, or an ordered list of either, as a list of rules."""
    rules = value if isinstance(value, list | tuple) else [value]
    return tuple(_part(ErrorRule, _rule(rule), rule, info) for rule in rules)


def _part(model: type[BaseModel], value: Json, written: Json, info: ValidationInfo) -> Json:
    """Of a broken definition what can be read of a part; otherwise the part as it is."""
    salvage: Salvage | None = info.context.get("salvage") if info.context else None
    return salvage.part(model, value, written) if salvage is not None and isinstance(written, dict) else value


def _undo(value: Json, info: ValidationInfo) -> Json:
    return _part(Compensation, value, value, info)


def _verification(value: Json, info: ValidationInfo) -> Json:
    return _part(Verification, value, value, info)


def _rule(value: Json) -> Json:
    if isinstance(value, str):
        return {"strategy": value}
    if isinstance(value, dict) and "strategy" not in value:
        found: Mapping[str, Json] = value
        for word in ("goto", "fallback"):
            if word in found:
                rest = {key: inner for key, inner in found.items() if key != word}
                target = "goto" if word == "goto" else "step"
                return {"strategy": word, target: found[word], **rest}
    return value


ErrorRules = Annotated[tuple[ErrorRule, ...], BeforeValidator(_rules)]
Undo = Annotated[Compensation, BeforeValidator(_undo)]
Verify = Annotated[Verification, BeforeValidator(_verification)]


class Step(BaseModel):
    """What every step has. A kind narrows `type` to its own word and adds its fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, populate_by_name=True, serialize_by_alias=True
    )

    acts: ClassVar[bool] = False
    """Whether it reaches the world (has a timeout of one attempt, and retries)."""
    inner_texts: ClassVar[frozenset[str]] = frozenset()
    """Fields whose texts see what the step's own block sees."""
    item_texts: ClassVar[frozenset[str]] = frozenset()
    """Fields whose texts see the item of the step's own loop, but not the steps of its block."""
    boolean_texts: ClassVar[frozenset[str]] = frozenset({"condition", "when", "until", "match", "took_effect"})
    prose_texts: ClassVar[frozenset[str]] = frozenset(
        {"prompt", "system", "content", "subject", "message", "title", "show"}
    )
    extra_roots: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Roots that texts of a field see besides the usual ones, by the field's name."""

    id: StepId
    type: str
    name: str = ""
    description: str = ""
    depends_on: tuple[StepId, ...] | None = None
    join: Join = "any_completed"
    condition: Expression | None = None
    on_error: ErrorRules | None = None
    compensate: Undo | None = None

    def blocks(self) -> Iterable[Block]:
        """The nested step lists that it runs when all goes well, in written order."""
        return ()

    def recovery(self) -> Iterator[Block]:
        """The step lists for when it fails, is undone or must be verified; nothing outside sees their steps."""
        for index, rule in enumerate(self.on_error or ()):
            if rule.steps:
                yield fallback_block(rule, ("on_error", index))
        if self.compensate is not None and self.compensate.steps:
            yield Block(UNDO_STEPS, self.compensate.steps, UNDO, exports=False, purpose="undo", roots=("error",))
        if (verify := self.verification()) is not None:
            roots = ("error", "call")
            yield Block(VERIFY_STEPS, verify.steps, VERIFY, exports=False, purpose="verify", roots=roots)

    def verification(self) -> Verification | None:
        """How a call in doubt is settled, for kinds that have a field `verify`."""
        found = vars(self).get("verify")
        return found if isinstance(found, Verification) else None

    def all_blocks(self) -> list[Block]:
        """Every step list inside the step."""
        return [*self.blocks(), *self.recovery()]

    def shape(self, recipes: Recipes) -> Schema | None:
        """JSON Schema of the output, or None where nothing is known."""
        del recipes
        return None

    def unperformed(self) -> Iterable[tuple[Location, str]]:
        """Parts that are understood but not carried out by this version: where, and what to say."""
        return ()

    def texts(self) -> Iterator[Text]:
        """Every expression and template of the step, without those of nested steps."""
        for name, field in type(self).model_fields.items():
            held = getattr(self, name)
            if type(held) in _PLAIN:
                continue
            for where, value in texts_in(held, (field.alias or name,), Step):
                word = next((part for part in reversed(where) if isinstance(part, str)), "")
                yield Text(
                    where,
                    value,
                    inner=name in self.inner_texts,
                    item=name in self.item_texts,
                    within=VERIFY_STEPS if name == "verify" else None,
                    roots=(*self.extra_roots.get(name, ()), *further_roots(name, word)),
                    boolean=isinstance(value, Expression) and word in self.boolean_texts,
                    prose=name in self.prose_texts,
                )


_PLAIN = frozenset({type(None), str, int, float, bool})


class Kinds(Protocol):
    """The registry of step kinds: an explicit value, passed as pydantic validation context under "kinds"."""

    def get(self, type_: str) -> type[Step] | None: ...

    def names(self) -> Sequence[str]: ...


class Salvage(Protocol):
    """Reads the steps of a broken definition, under "salvage" in the validation context: it never fails."""

    def step(self, value: dict[str, Json]) -> Step: ...

    def part(self, model: type[BaseModel], value: dict[str, Json], written: Json) -> BaseModel:
        """Of a part of a step; `written` is the object as it stands in the definition."""


def _step(value: Json, info: ValidationInfo) -> Json:
    if isinstance(value, Step):
        return value
    salvage: Salvage | None = info.context.get("salvage") if info.context else None
    if salvage is not None and isinstance(value, dict):
        return salvage.step(value)
    return read_step(value, info.context or {})


def read_step(value: Json, context: Mapping[str, Json]) -> Step:
    """The step that an object describes. Raises ValidationError of pydantic, PydanticCustomError for no known kind."""
    if not isinstance(value, dict):
        shape = {"found": noun(value), "hint": "write - id: its-id and type: its-type", "code": "type"}
        raise PydanticCustomError("step", "a step is an object with id and type, this is {found}", shape)
    kinds: Kinds = context["kinds"]
    word = value.get("type")
    if "type" not in value:
        near = close("type", value)
        hint = f"write `type` instead of '{near}'" if near else listing("known types", kinds.names())
        raise PydanticCustomError("step", "this step has no type", {"hint": hint, "code": "step_type"})
    if not isinstance(word, str):
        wrong = {"found": noun(word), "hint": listing("known types", kinds.names()), "code": "type", "at": "type"}
        raise PydanticCustomError("step", "`type`: text is wanted, this is {found}", wrong)
    kind = kinds.get(word)
    if kind is None:
        raise PydanticCustomError(
            "step",
            "unknown step type '{word}'",
            {"word": word, "code": "step_type", "known": list(kinds.names()), "hint": "", "at": "type"},
        )
    return kind.model_validate(value, context=context)


AnyStep = Annotated[SerializeAsAny[InstanceOf[Step]], BeforeValidator(_step)]
"""A step of whatever kind its `type` names."""
Steps = tuple[AnyStep, ...]
for _model in (ErrorRule, Compensation, Verification, Step):  # steps hold rules, and rules hold steps
    _model.model_rebuild()


def walk(steps: Iterable[Step]) -> Iterator[Step]:
    """All steps, nested ones after their container, those for recovery last; bounded in depth by the loader."""
    for step in steps:
        yield step
        for block in step.all_blocks():
            yield from walk(block.steps)
