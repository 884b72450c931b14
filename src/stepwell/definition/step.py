"""
Steps and blocks: what a definition consists of, before anything is said about doing it.

The law of the file: whoever walks a definition (checks, compiler, plans, pictures) does so through `blocks()` and
`texts()`, so a new kind of step needs no change there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, InstanceOf, SerializeAsAny, ValidationInfo
from pydantic_core import PydanticCustomError

from stepwell.definition.fields import Expression, StepId, Template, Value
from stepwell.definition.policy import ErrorRules
from stepwell.definition.suggest import close, listing, noun

Json: TypeAlias = Any
Schema: TypeAlias = dict[str, Json]
Location: TypeAlias = tuple[str | int, ...]
Join: TypeAlias = Literal["any_completed", "all_completed", "all_settled"]


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


@dataclass(frozen=True, slots=True)
class Text:
    """
    An expression or template of a step, with where it stands and what else it may see.

    `inner` means that it sees what the step's block sees (`until`, the loop's `output`); `item` that it sees the loop's
    item but no step of the block (`key`); `roots` are further roots
    (`error`, `result`, `event`); `boolean` says that it must give a boolean; `prose` that foreign braces in it are
    no more than a warning.
    """

    where: Location
    value: Expression | Template | Value
    inner: bool = False
    item: bool = False
    roots: tuple[str, ...] = ()
    boolean: bool = False
    prose: bool = False


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
    boolean_texts: ClassVar[frozenset[str]] = frozenset({"condition", "when", "until", "match"})
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
    compensate: Json = None

    def blocks(self) -> Iterable[Block]:
        """The nested step lists, in written order."""
        return ()

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
            for where, value in _texts(held, (field.alias or name,)):
                word = next((part for part in reversed(where) if isinstance(part, str)), "")
                key = name if name not in {"on_error", "retry"} else f"{name}.{word}"
                yield Text(
                    where,
                    value,
                    inner=name in self.inner_texts,
                    item=name in self.item_texts,
                    roots=(*self.extra_roots.get(name, ()), *_ROOTS.get(key, ())),
                    boolean=isinstance(value, Expression) and word in self.boolean_texts,
                    prose=name in self.prose_texts,
                )


_PLAIN = frozenset({type(None), str, int, float, bool})
_ROOTS: dict[str, tuple[str, ...]] = {
    "on_error.when": ("error",),
    "on_error.default": ("error",),
    "retry.when": ("error", "result"),
}


def _texts(value: Json, where: Location) -> Iterator[tuple[Location, Expression | Template | Value]]:
    if isinstance(value, Expression | Template | Value):
        yield where, value
    elif isinstance(value, Step):
        return
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            yield from _texts(getattr(value, name), (*where, field.alias or name))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, (*where, key))
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*where, index))


class Kinds(Protocol):
    """The registry of step kinds: an explicit value, passed as pydantic validation context under "kinds"."""

    def get(self, type_: str) -> type[Step] | None: ...

    def names(self) -> Sequence[str]: ...


class Salvage(Protocol):
    """Reads the steps of a broken definition, under "salvage" in the validation context: it never fails."""

    def step(self, value: dict[str, Json]) -> Step: ...


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


def walk(steps: Iterable[Step]) -> Iterator[Step]:
    """All steps, nested ones after their container, in written order; bounded in depth by the loader."""
    for step in steps:
        yield step
        for block in step.blocks():
            yield from walk(block.steps)
