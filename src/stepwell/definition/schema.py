"""
The language as JSON Schema (2020-12), for editors: derived from the models that read it.

The law of the file: what the schema refuses the loader refuses too; accepted spellings of other designs are not in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from stepwell.definition.fields import Expression
from stepwell.definition.policy import RetryPolicy
from stepwell.definition.recipe import RecipeDefinition
from stepwell.definition.step import Compensation, ErrorRule, Step, Verification
from stepwell.definition.workflow import Workflow

if TYPE_CHECKING:
    from stepwell.definition.step import Kinds

Json: TypeAlias = Any
Schema: TypeAlias = dict[str, Json]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_STEP = Step.__name__
_RULES = "on_error"
_WORDS = ("fail", "continue", "compensate", "suspend")
"""Strategies that need nothing more said."""
_SAID = {
    "id": "Unique in the whole workflow; others refer to the step by it.",
    "type": "The kind of step.",
    "name": "For people; does not change what the workflow does.",
    "description": "For people; does not change what the workflow does.",
    "depends_on": "Steps of the same block that must have settled. Once one step of a block says it, the block is a "
    "graph and no longer a sequence.",
    "join": "When the step runs although dependencies were skipped or failed.",
    "condition": "A boolean expression; false skips the step.",
    "on_error": "What happens once attempts are spent: a strategy, a rule, or a list of rules.",
    "compensate": "Steps that undo this one once it has completed, or the step that does.",
    "verify": "Steps that find out whether a call took effect whose answer was lost.",
    "took_effect": "A boolean expression over the steps of `verify`: whether the call took effect.",
    "idempotent": "Whether it may be called again when nobody knows whether the first call took effect.",
    "strategy": "What happens.",
    "errors": "Kinds of errors that the rule is for; all of them where it is left out.",
    "default": "The output of the step that failed and goes on; null where it is left out.",
    "step": "A step of the same block, which is then kept out of the flow.",
    "goto": "An earlier step of the same block to return to.",
    "max_rounds": "How often it returns at most.",
    "timeout": "A duration, 30s or PT5M or seconds: of one attempt, on containers of their active time.",
    "retry": "How often it is tried again, and when.",
    "output_schema": "JSON Schema of the output.",
    "inputs": "Names and values; every text may hold {{ }}.",
    "when": "A boolean expression.",
    "expires_in": "How long is waited: 30s, 24h, 7d, PT5M or seconds.",
    "input": "JSON Schema of the input.",
    "steps": "What is done, in order unless steps say what they depend on.",
    "output": "What is put out; without it the output of the last step that completed.",
    "defaults": "For every step, overridden by the step.",
    "on_failure": "Steps that run once the run has failed.",
    "version": "A label; the identity of a definition is its digest.",
}


def workflow_schema(kinds: Kinds) -> Schema:
    """The schema of a workflow whose steps are of these kinds."""
    steps: list[type[Step]] = [kind for name in kinds.names() if (kind := kinds.get(name)) is not None]
    definitions = _definitions([Workflow, ErrorRule, Compensation, Verification, RetryPolicy, *steps])
    definitions[_STEP] = _step(definitions, steps)
    definitions[_RULES] = _rules()
    rule, undo = definitions[ErrorRule.__name__], definitions[Compensation.__name__]
    rule["properties"]["fallback"] = rule["properties"]["step"] | {"description": "Short for strategy: fallback, step."}
    rule["required"] = []
    rule["anyOf"] = [{"required": [word]} for word in ("strategy", "goto", "fallback")]
    undo["oneOf"] = [{"required": [word]} for word in ("steps", "step")]
    undo["properties"]["steps"] = {**undo["properties"]["steps"], "minItems": 1}
    whole = definitions.pop(Workflow.__name__)
    return {"$schema": DRAFT, "title": "Workflow of Stepwell", **_untitled(whole), "$defs": definitions}


def recipe_schema() -> Schema:
    """The schema of a recipe."""
    definitions = _definitions([RecipeDefinition])
    whole = definitions.pop(RecipeDefinition.__name__)
    properties = whole["properties"]
    properties["model"] = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/ModelChoice"}],
                           "description": "Which model answers: its name, or more about it."}  # fmt: skip
    described = {"type": "object", "additionalProperties": {"anyOf": [{"$ref": "#/$defs/Label"}, {"type": "string"}]}}
    listed = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    properties["labels"] = {"anyOf": [described, listed], "description": "What `classify` may choose."}
    properties["version"]["type"] = ["string", "number"]
    properties["prompt"] = {"type": "string"}
    whole["required"] = [*whole["required"], "prompt"]
    whole["if"] = {"properties": {"task": {"const": "classify"}}, "required": ["task"]}
    whole["then"] = {"required": ["labels"]}
    return {"$schema": DRAFT, "title": "Recipe of Stepwell", **_untitled(whole), "$defs": definitions}


def _definitions(models: list[type[BaseModel]]) -> dict[str, Schema]:
    """The schemas of models and of what they are made of, by name."""
    _, found = models_json_schema([(model, "validation") for model in dict.fromkeys(models)], by_alias=True)
    definitions: dict[str, Schema] = found["$defs"]
    for schema in definitions.values():
        _told(schema)
    for model in models:
        _corrected(definitions[model.__name__], model)
    return definitions


def _told(schema: Schema) -> None:
    """Titles that only repeat names go, descriptions come."""
    text = schema.get("description")
    if isinstance(text, str):
        schema["description"] = " ".join(text.split())
    for name, inner in schema.get("properties", {}).items():
        inner.pop("title", None)
        if inner.get("default", 0) is None:
            del inner["default"]
        if {} in inner.get("anyOf", ()):
            del inner["anyOf"]
        if name in _SAID:
            inner.setdefault("description", _SAID[name])
    schema.pop("title", None)


def _corrected(schema: Schema, model: type[BaseModel]) -> None:
    """Where the model reads more than its types say."""
    for name, field in model.model_fields.items():
        word = field.alias or name
        said = schema["properties"][word]
        if word == "on_error":
            schema["properties"][word] = {"$ref": f"#/$defs/{_RULES}", "description": _SAID[word]}
        elif word == "for" or _holds_expression(field.annotation):
            more = "number" if word == "for" else "boolean"
            choices = said.pop("anyOf", None) or [{"type": said.pop("type", "string")}]
            said["anyOf"] = [*choices, {"type": more}]
    defaults = schema["properties"].get("defaults")
    if defaults is not None:
        defaults.pop("default", None)


def _holds_expression(annotation: Json) -> bool:
    from typing import get_args

    return annotation is Expression or Expression in get_args(annotation)


def _step(definitions: dict[str, Schema], kinds: list[type[Step]]) -> Schema:
    """A step of whatever kind its `type` names."""
    words = {}
    for kind in kinds:
        word = definitions[kind.__name__]["properties"]["type"]["const"]
        words[word] = f"#/$defs/{kind.__name__}"
    return {
        "description": "One step.",
        "type": "object",
        "required": ["id", "type"],
        "properties": {"type": {"enum": sorted(words)}},
        "oneOf": [{"$ref": reference} for _, reference in sorted(words.items())],
        "discriminator": {"propertyName": "type", "mapping": dict(sorted(words.items()))},
    }


def _rules() -> Schema:
    rule = {"anyOf": [{"enum": [*_WORDS]}, {"$ref": f"#/$defs/{ErrorRule.__name__}"}]}
    return {"anyOf": [*rule["anyOf"], {"type": "array", "items": rule}, {"type": "null"}]}


def _untitled(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name not in {"title", "$schema"}}
