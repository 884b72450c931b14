"""
From canonical data to models: whole if it is right, and as much of it as there is if it is not.

The law of the file: a broken part never hides another problem; what could be read of it stays, so that the checks can
go on, and everything that was wrong with it is kept with its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeAlias, TypeVar, cast, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from stepwell.definition.step import Json, Kinds, Location, Step, read_step

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pydantic_core import ErrorDetails

Details: TypeAlias = "ErrorDetails | dict[str, Any]"
M = TypeVar("M", bound=BaseModel)


class UnknownStep(Step):
    """Stands for a step whose type is missing or unknown."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One of pydantic's errors: of which model, and the location of the object that was read."""

    model: type[BaseModel]
    where: Location
    details: Details


@dataclass(frozen=True, slots=True)
class Parsed(Generic[M]):
    """
    A model and what was wrong with it.

    `broken` holds the identities of the steps that are only partly there; `suspects` are ids that may exist in what
    could not be read, and that nobody should be told are unknown.
    """

    model: M
    faults: tuple[Fault, ...] = ()
    broken: frozenset[int] = frozenset()
    suspects: frozenset[str] = frozenset()


def parse(model: type[M], data: dict[str, Json], kinds: Kinds, names: frozenset[str]) -> Parsed[M]:
    """Read `data` as a model; `names` are the additional roots of its expressions."""
    try:
        return Parsed(model.model_validate(data, context={"kinds": kinds, "names": names}))
    except ValidationError:
        salvage = _Salvage(data, kinds, names)
        found = cast("M", salvage.build(model, data))
        return Parsed(found, tuple(salvage.faults), frozenset(salvage.broken), frozenset(salvage.suspects))


class _Salvage:
    """Builds what can be built; each object is read once, however often pydantic asks."""

    def __init__(self, data: dict[str, Json], kinds: Kinds, names: frozenset[str]) -> None:
        self.kinds = kinds
        self.context = {"kinds": kinds, "names": names, "salvage": self}
        self.faults: list[Fault] = []
        self.broken: set[int] = set()
        self.suspects: set[str] = set()
        self._places = dict(_objects(data))
        self._kept: list[dict[str, Json]] = []
        """Objects that are not of `data`, so that no other object takes their identity."""
        self._done: dict[int, Step] = {}
        self._parts: dict[tuple[type[BaseModel], int], BaseModel] = {}

    def step(self, value: dict[str, Json]) -> Step:
        found = self._done.get(id(value))
        if found is None:
            found = self._done[id(value)] = self._step(value)
        return found

    def part(self, model: type[BaseModel], value: dict[str, Json], written: Json) -> BaseModel:
        key = model, id(written)
        if key not in self._parts:
            self._places.setdefault(id(value), self._places.get(id(written), ()))
            self._kept.append(value)
            self._parts[key] = self.build(model, value)
        return self._parts[key]

    def _step(self, value: dict[str, Json]) -> Step:
        word = value.get("type")
        kind = self.kinds.get(word) if isinstance(word, str) else None
        if kind is not None:
            return cast("Step", self.build(kind, value))
        where = self._places.get(id(value), ())
        try:
            read_step(value, self.context)
        except PydanticCustomError as error:
            self._fault(UnknownStep, where, _custom(error, value))
        self.suspects.update(_ids(value))
        return cast("Step", self._partial(UnknownStep, value, {"type"}))

    def build(self, model: type[BaseModel], value: dict[str, Json]) -> BaseModel:
        where = self._places.get(id(value), ())
        try:
            return model.model_validate(value, context=self.context)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        for details in errors:
            self._fault(model, where, details)
        bad = {details["loc"][0] for details in errors if details["loc"]}
        return cast("BaseModel", self._partial(model, value, bad))

    def _fault(self, model: type[BaseModel], where: Location, details: Details) -> None:
        self.faults.append(Fault(model, where, details))

    def _partial(self, model: type[BaseModel], value: Mapping[str, Json], bad: Collection[str | int]) -> Any:
        """The model with every field that is right by itself; required ones that are missing hold an empty value."""
        kept: dict[str, Any] = {}
        for name, field in model.model_fields.items():
            word = field.alias or name
            if word in value and word not in bad:
                try:
                    kept[name] = _adapter(model, name).validate_python(value[word], context=self.context)
                except ValidationError:
                    self.suspects.update(_ids(value[word]))
            if name not in kept and field.is_required():
                kept[name] = _empty(field.annotation)
        if issubclass(model, Step):
            identity = value.get("id")
            kept["id"] = kept["id"] or (identity if isinstance(identity, str) else "")
            self.suspects.update({kept["id"]} - {""})
        made = model.model_construct(**kept)
        self.broken.add(id(made))
        return made


@cache
def _adapter(model: type[BaseModel], name: str) -> TypeAdapter[Any]:
    field = model.model_fields[name]
    annotation: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return TypeAdapter(annotation)


def _empty(annotation: Any) -> Any:
    origin = get_origin(annotation) or annotation
    if origin is str:
        return ""
    return origin() if origin in {tuple, dict, list} else None


def _custom(error: PydanticCustomError, value: Json) -> Details:
    context = error.context or {}
    return {"type": error.type, "loc": (), "msg": error.message(), "ctx": context, "input": value}


def _objects(data: Json) -> Iterator[tuple[int, Location]]:
    """The identity and location of every object."""
    waiting: list[tuple[Json, Location]] = [(data, ())]
    while waiting:
        value, where = waiting.pop()
        if isinstance(value, dict):
            yield id(value), where
            waiting += [(inner, (*where, key)) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(inner, (*where, index)) for index, inner in enumerate(value)]


def _ids(value: Json) -> Iterator[str]:
    """Everything that may be meant as a step's id."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            if isinstance(name := found.get("id"), str):
                yield name
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found
