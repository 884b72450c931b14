"""Recipes: reusable prompts as they are written in `recipes/<id>.yaml` (LANGUAGE, section 7)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from stepwell.definition.canonical import digest_of
from stepwell.definition.fields import Template, WorkflowId
from stepwell.definition.retrieval import text_answer

Json = Any
Schema = dict[str, Any]


class Label(BaseModel):
    """A class that `classify` may choose."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    description: str = ""
    examples: tuple[str, ...] = ()


class ModelChoice(BaseModel):
    """Which model answers. `name` is a model of the project's settings or a provider's own name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: str = ""
    name: str = ""
    temperature: float | None = Field(None, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=1)
    fallback: tuple[str, ...] | None = None
    """Models that are asked in turn when it fails; none said: those of the settings."""


def _model(value: Json) -> Json:
    return {"name": value} if isinstance(value, str) else value


def _labels(value: Json) -> Json:
    """Labels by name; a list of names, and a text as a description, are short for that."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value) and len({*value}) == len(value):
        return {name: {} for name in value}
    if isinstance(value, dict):
        return {name: {"description": one} if isinstance(one, str) else one for name, one in value.items()}
    return value


def _text(value: Json) -> Json:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class RecipeTest(BaseModel):
    """An input with what is expected of the output: its fields, as `definition/expectation.py` reads them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    input: dict[str, Json] = Field(default_factory=dict)
    expect: dict[str, Json] = Field(default_factory=dict)


class RecipeDefinition(BaseModel):
    """A recipe. In `system` and `prompt` an input is written `{{workflow_input.name}}` or `{{input.name}}`."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    recipe: WorkflowId
    version: Annotated[str, BeforeValidator(_text)] = "1"
    name: str = ""
    description: str = ""
    task: Literal["generate", "classify", "extract_summary"] = "generate"
    system: Template | None = None
    prompt: Template | None = None
    input: dict[str, Json] = Field(default_factory=dict)
    output_schema: dict[str, Json] | None = None
    labels: Annotated[dict[str, Label] | None, BeforeValidator(_labels)] = None
    model: Annotated[ModelChoice, BeforeValidator(_model)] = ModelChoice()
    knowledge: tuple[str, ...] = ()
    tests: tuple[RecipeTest, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.task == "classify" and not self.labels:
            hint = "labels: {refund: {description: ...}}"
            raise PydanticCustomError("recipe", "a classify recipe needs `labels`", {"hint": hint})
        if self.prompt is None:
            raise PydanticCustomError("recipe", "a recipe needs a `prompt`", {"hint": 'prompt: "{{input.text}}"'})
        return self

    def data(self) -> dict[str, Json]:
        """The recipe as plain JSON, the same wherever it was read from."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @property
    def digest(self) -> str:
        """The identity of what it does (SHA-256, hexadecimal), which its tests and what only people read are not of."""
        return digest_of({name: value for name, value in self.data().items() if name != "tests"})


def output_schema_of(recipe: RecipeDefinition) -> Schema:
    """JSON Schema of what a recipe's steps put out."""
    if recipe.output_schema is not None:
        return recipe.output_schema
    match recipe.task:
        case "classify":
            labels = list(recipe.labels or ())
            share = {"type": "number", "minimum": 0, "maximum": 1}
            scores = _record(dict.fromkeys(labels, share))
            return _record({"label": {"type": "string", "enum": labels}, "confidence": share, "scores": scores})
        case "extract_summary":
            return _record({"text": {"type": "string"}, "sentences": {"type": "array", "items": {"type": "string"}}})
        case "generate":
            return text_answer(cited=bool(recipe.knowledge))


def _record(properties: dict[str, Json]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
