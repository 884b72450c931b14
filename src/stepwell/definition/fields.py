"""
Field types that step kinds are written with: expressions, templates, durations, identifiers.

A field's validator raises `PydanticCustomError` whose context holds `code`, `hint` and `offset` (characters from the
start of the scalar), so that the loader can point at the very character.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, StringConstraints, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from stepwell.definition.suggest import noun
from stepwell.expressions import (
    ExpressionError,
    Program,
    TemplateTree,
    compile_expression,
    compile_tree,
)
from stepwell.expressions import Template as CompiledTemplate
from stepwell.expressions import compile_template as compile_text

Json = Any

StepId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
WorkflowId = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]

_SIMPLE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*$")
_ISO = re.compile(
    r"^P(?:(\d+(?:\.\d+)?)W)?(?:(\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?$"
)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 100 * 365 * 86400.0


def seconds(value: Json) -> float:
    """
    A duration in seconds from "500ms", "30s", "5m", "24h", "3d", ISO 8601 ("PT5M") or a number of seconds.

    Raises ValueError with a message that says what is accepted.
    """
    found: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value) if -1e15 < value < 1e15 else math.inf
    elif isinstance(value, str):
        if match := _SIMPLE.match(value):
            found = float(match[1]) * _UNITS[match[2]]
        elif (match := _ISO.match(value)) and value not in {"P", "PT"} and not value.endswith("T"):
            scale = (604800.0, 86400.0, 3600.0, 60.0, 1.0)
            found = sum(float(part) * unit for part, unit in zip(match.groups(), scale, strict=True) if part)
        elif re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", value):
            found = float(value)
    if found is None:
        raise ValueError(f"{value!r} is not a duration; write 500ms, 30s, 5m, 24h, 3d, PT5M or a number of seconds")
    if not 0 <= found <= _LONGEST:
        raise ValueError(f"a duration lies between 0 and 100 years, this is {value!r}")
    return found


def _duration(value: Json) -> float:
    try:
        return seconds(value)
    except ValueError as error:
        raise PydanticCustomError("duration", "{text}", {"text": str(error), "hint": ""}) from None


Duration = Annotated[float, BeforeValidator(_duration, json_schema_input_type=str | float)]
"""Seconds."""


def _names(info: ValidationInfo) -> frozenset[str]:
    context = info.context
    found = context.get("names") if isinstance(context, Mapping) else None
    return found if isinstance(found, frozenset) else frozenset()


def _described(error: ExpressionError, where: tuple[str | int, ...]) -> dict[str, Json]:
    hint = error.hint or ""
    return {"text": error.message, "code": error.code, "hint": hint, "offset": error.offset, "where": where}


def _refuse(error: ExpressionError) -> PydanticCustomError:
    return PydanticCustomError("expression", "{text}", _described(error, ()))


def _broken_texts(value: Json, names: frozenset[str], where: tuple[str | int, ...] = ()) -> Iterator[dict[str, Json]]:
    """Every wrong text inside a value that did not compile as a whole; its depth was bounded when it was loaded."""
    if isinstance(value, str):
        try:
            compile_text(value, names=names)
        except ExpressionError as error:
            yield _described(error, where)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _broken_texts(inner, names, (*where, key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _broken_texts(inner, names, (*where, index))


def _string_schema(_: Any, handler: GetJsonSchemaHandler) -> dict[str, Json]:
    return dict(handler(core_schema.str_schema()))


class Expression:
    """A compiled expression of a definition, with its source text."""

    __slots__ = ("program", "source")

    def __init__(self, source: str, *, names: frozenset[str] = frozenset()) -> None:
        self.source = source
        self.program: Program = compile_expression(source, names=names)

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.source == self.source

    def __hash__(self) -> int:
        return hash(self.source)

    @classmethod
    def _parse(cls, value: Json, info: ValidationInfo) -> Expression:
        if isinstance(value, Expression):
            return value
        if isinstance(value, bool):
            value = "true" if value else "false"
        if not isinstance(value, str):
            raise PydanticCustomError(
                "expression",
                "an expression is text, this is {found}",
                {"found": noun(value), "code": "type", "hint": "quote it", "offset": 0},
            )
        try:
            return cls(value, names=_names(info))
        except ExpressionError as error:
            raise _refuse(error) from None

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            cls._parse, serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value.source)
        )

    __get_pydantic_json_schema__ = staticmethod(_string_schema)


class Template:
    """A compiled text with `{{ }}`; a text that is one reference renders to the native value."""

    __slots__ = ("compiled", "source")

    def __init__(self, source: str, *, names: frozenset[str] = frozenset()) -> None:
        self.source = source
        self.compiled: CompiledTemplate = compile_text(source, names=names)

    def __repr__(self) -> str:
        return f"Template({self.source!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and other.source == self.source

    def __hash__(self) -> int:
        return hash(self.source)

    @classmethod
    def _parse(cls, value: Json, info: ValidationInfo) -> Template:
        if isinstance(value, Template):
            return value
        if not isinstance(value, str):
            raise PydanticCustomError(
                "template",
                "text is wanted, this is {found}",
                {"found": noun(value), "hint": "quote it", "code": "type", "offset": 0},
            )
        try:
            return cls(value, names=_names(info))
        except ExpressionError as error:
            raise _refuse(error) from None

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            cls._parse, serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value.source)
        )

    __get_pydantic_json_schema__ = staticmethod(_string_schema)


class Value:
    """Any JSON value in which every text, at any depth, is a template."""

    __slots__ = ("source", "tree")

    def __init__(self, source: Json, *, names: frozenset[str] = frozenset()) -> None:
        self.source = source
        self.tree: TemplateTree = compile_tree(source, names=names)

    def __repr__(self) -> str:
        return f"Value({self.source!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and other.source == self.source

    def __hash__(self) -> int:
        return hash(repr(self.source))

    @classmethod
    def _parse(cls, value: Json, info: ValidationInfo) -> Value:
        if isinstance(value, Value):
            return value
        names = _names(info)
        try:
            return cls(value, names=names)
        except ExpressionError as error:
            errors = [*_broken_texts(value, names)] or [_described(error, ())]
        raise PydanticCustomError("value", "{text}", {**errors[0], "errors": errors})

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            cls._parse, serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value.source)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Json]:
        return dict(handler(core_schema.any_schema()))
