"""What a tool's arguments must look like, from its type hints and docstring.

The law of the file: arguments are read as JSON, strictly: "5" is no integer and 1 is no boolean, while a date, a UUID
or a model is read from the JSON that stands for it.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, get_type_hints

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from stepwell.errors import StepFailed
from stepwell.tool import IdempotencyKey

if TYPE_CHECKING:
    from collections.abc import Callable

Json: TypeAlias = Any
_encode = msgspec.json.Encoder().encode
_SECTION = re.compile(r"^\s*(args|arguments|parameters|params)\s*:\s*$", re.IGNORECASE)
_OTHER_SECTION = re.compile(r"^\s*[A-Z][A-Za-z ]*:\s*$")
_ITEM = re.compile(r"^(\s+)\*{0,2}(\w+)(?:\s*\([^)]*\))?\s*:\s*(.*)$")
_FIELD = re.compile(r"^\s*:param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$")


class _SchemaText(GenerateJsonSchema):
    """A default that JSON cannot show is left out of the schema without a warning; the call still has it."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 -- the base class declares it so


@dataclass(frozen=True, slots=True)
class Signature:
    """A tool's parameters: `schema` is JSON Schema, `key_parameter` the one that gets the idempotency key."""

    tool: str
    schema: dict[str, Json]
    model: type[BaseModel]
    fields: tuple[tuple[str, str, bool], ...]
    """(field of the model, parameter, whether it is passed by position)."""
    key_parameter: str = ""

    def bind(self, arguments: dict[str, Json], key: str) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of the call, freshly made. Raises StepFailed("validation_error")."""
        try:
            parsed = self.model.model_validate_json(_encode(arguments))
        except ValidationError as error:
            raise _refusal(self.tool, error) from None
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for field, parameter, by_position in self.fields:
            if by_position:
                positional.append(getattr(parsed, field))
            elif field in parsed.model_fields_set:
                keywords[parameter] = getattr(parsed, field)
        keywords.update(parsed.model_extra or {})
        if self.key_parameter:
            keywords[self.key_parameter] = IdempotencyKey(key)
        return positional, keywords


def read_signature(tool: str, function: Callable[..., Any]) -> Signature:
    """The signature of `function`. Raises TypeError or NameError with a message for the tool's author."""
    hints = get_type_hints(function, include_extras=True)
    documented = parameter_descriptions(inspect.getdoc(function) or "")
    fields: dict[str, Any] = {}
    names: list[tuple[str, str, bool]] = []
    key_parameter, extra = "", "forbid"
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise TypeError(f"*{parameter.name}: a tool is called with named arguments; take a list instead")
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = "allow"
        elif _is_key(hint):
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise TypeError(f"{parameter.name}: the idempotency key is passed by name")
            key_parameter = parameter.name
        else:
            field = f"p{len(names)}"
            default = ... if parameter.default is parameter.empty else parameter.default
            description = documented.get(parameter.name)
            fields[field] = (hint, Field(default, alias=parameter.name, description=description))
            names.append((field, parameter.name, parameter.kind is parameter.POSITIONAL_ONLY))
    config = ConfigDict(strict=True, extra=extra, arbitrary_types_allowed=False)  # type: ignore[typeddict-item] # a literal
    model: type[BaseModel] = create_model(tool, __config__=config, **fields)
    schema = model.model_json_schema(by_alias=True, schema_generator=_SchemaText)
    schema.pop("title", None)
    return Signature(tool, schema, model, tuple(names), key_parameter)


def summary(docstring: str) -> str:
    """The first paragraph of a docstring as one line."""
    return " ".join(inspect.cleandoc(docstring).partition("\n\n")[0].split())


def parameter_descriptions(docstring: str) -> dict[str, str]:
    """Descriptions of parameters from a section "Args:" (Google style) or from ":param name:" (Sphinx style)."""
    found: dict[str, str] = {}
    inside, current, margin = False, "", 0
    for line in docstring.splitlines():
        if match := _FIELD.match(line):
            found[match[1]] = match[2].strip()
            inside, current = False, ""
        elif _SECTION.match(line):
            inside, current, margin = True, "", 0
        elif inside and line.strip():
            item = _ITEM.match(line)
            if item and (not margin or len(item[1]) <= margin):
                margin, current = len(item[1]), item[2]
                found[current] = item[3].strip()
            elif _OTHER_SECTION.match(line) or not line[0].isspace():
                inside = False
            elif current:
                found[current] = f"{found[current]} {line.strip()}"
    return found


def _is_key(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, IdempotencyKey)


def _refusal(tool: str, error: ValidationError) -> StepFailed:
    problems = []
    for found in error.errors(include_url=False, include_input=False, include_context=False):
        parameter = ".".join(str(part) for part in found["loc"])
        problems.append({"argument": parameter, "problem": _sentence(found["type"], found["msg"])})
    said = "; ".join(f"{problem['argument']} {problem['problem']}" for problem in problems[:5])
    more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
    return StepFailed("validation_error", f"{tool}: {said}{more}", detail={"arguments": problems[:50]})


def _sentence(code: str, message: str) -> str:
    match code:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return "is not an argument of this tool"
        case "json_invalid":
            return "cannot be read: nested too deep"
        case _:
            return message.replace("Input should be", "should be", 1)
