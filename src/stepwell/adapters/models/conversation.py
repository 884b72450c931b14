"""Between the port and pydantic-ai: a request as its messages and parameters, and its answer as a reply.

The law of the file: nothing is sent here and nothing is lost: a tool has the same name for whoever asked as it was
offered under, whatever the provider allows in names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stepwell.adapters.models.answer import KEPT, decoded
from stepwell.adapters.models.price import Price
from stepwell.errors import StepFailed
from stepwell.ports import ModelReply, ModelRequest, ToolRequest, Turn

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart, ToolCallPart
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

Json: TypeAlias = Any
Way: TypeAlias = Literal["", "native", "tool", "words"]
"""How a schema is asked for: not at all, by the provider's own means, as a tool that must be called, or in words."""

OUTPUT = "output"
"""What the answer is called as a native schema, and as a tool."""
_LONGEST = 64
"""Characters of a tool's name that every provider takes."""
_MOST_TOKENS = 10**9
"""Tokens beyond which a count is no count."""
_SAMPLE = 1000
"""Tokens that a listed price is asked for: providers ask more for the tokens of very long prompts."""
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")


class ToolNames:
    """Names of tools as providers allow them (letters, digits, `_`, `-`, at most 64), and back."""

    def __init__(self, names: Iterable[str]) -> None:
        self._safe: dict[str, str] = {}
        self._own: dict[str, str] = {}
        for name in names:
            self.safe(name)

    def safe(self, name: str) -> str:
        if name not in self._safe:
            plain = _UNSAFE.sub("_", name)[:_LONGEST] or "_"
            wanted, number = plain, 2
            while wanted in self._own or wanted == OUTPUT:
                ending = f"_{number}"
                wanted, number = plain[: _LONGEST - len(ending)] + ending, number + 1
            self._safe[name] = wanted
            self._own[wanted] = name
        return self._safe[name]

    def own(self, safe: str) -> str:
        return self._own.get(safe, safe)

    @classmethod
    def of(cls, request: ModelRequest) -> ToolNames:
        called = (call.name for turn in request.turns for call in turn.calls)
        return cls([*(tool.name for tool in request.tools), *called])


def schema_in_words(schema: Mapping[str, Json]) -> str:
    """The request for JSON, for models that take no schema."""
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return f"Answer with one JSON value and nothing else. It must fit this JSON Schema:\n{text}"


def messages(request: ModelRequest, way: Way, names: ToolNames) -> list[ModelMessage]:
    """The prompt, and what went on after it."""
    from pydantic_ai.messages import ModelRequest as Message

    prompt = request.prompt
    if way == "words" and request.schema is not None:
        prompt = f"{prompt}\n\n{schema_in_words(request.schema)}"
    begun: list[ModelMessage] = [Message.user_text_prompt(prompt, instructions=request.system or None)]
    for turn in request.turns:
        begun += _turn(turn, names)
    return begun


def _turn(turn: Turn, names: ToolNames) -> list[ModelMessage]:
    from pydantic_ai.messages import ModelRequest as Message
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart

    said: list[ModelResponsePart] = [TextPart(turn.text)] if turn.text else []
    for call in turn.calls:
        # What was no object goes back as one: a history that providers refuse would end the conversation.
        arguments = call.arguments if isinstance(call.arguments, dict) else {"arguments": call.arguments}
        said.append(ToolCallPart(names.safe(call.name), arguments, tool_call_id=call.id))
    came = [
        ToolReturnPart(
            names.safe(answer.name),
            answer.value if isinstance(answer.value, str) else json.dumps(answer.value, ensure_ascii=False),
            tool_call_id=answer.id,
            outcome="failed" if answer.failed else "success",
        )
        for answer in turn.answers
    ]
    turned: list[ModelMessage] = [ModelResponse(parts=said)] if said else []
    return [*turned, Message(parts=came)] if came else turned


def parameters(request: ModelRequest, way: Way, names: ToolNames) -> ModelRequestParameters:
    """The tools that are offered and the form of the answer."""
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    offered = [
        ToolDefinition(
            name=names.safe(tool.name),
            description=tool.description,
            parameters_json_schema=tool.parameters or {"type": "object", "properties": {}},
        )
        for tool in request.tools
    ]
    if way == "native" and request.schema is not None:
        # `strict` undecided: it is set where the schema allows it, and the schema is not bent to it where it does not.
        shape = OutputObjectDefinition(json_schema=request.schema, name=OUTPUT)
        return ModelRequestParameters(
            function_tools=offered, output_mode="native", allow_text_output=True, output_object=shape
        )
    if way == "tool" and request.schema is not None:
        return ModelRequestParameters(
            function_tools=offered, output_mode="tool", allow_text_output=False, output_tools=[_as_tool(request.schema)]
        )
    return ModelRequestParameters(function_tools=offered, output_mode="text", allow_text_output=True)


def _as_tool(schema: dict[str, Json]) -> ToolDefinition:
    from pydantic_ai.tools import ToolDefinition

    if not _is_object(schema):  # a tool's arguments are an object
        schema = {
            "type": "object",
            "properties": {OUTPUT: schema},
            "required": [OUTPUT],
            "additionalProperties": False,
            **{word: schema[word] for word in ("$defs", "definitions") if word in schema},
        }
    return ToolDefinition(name=OUTPUT, description="Give the answer.", parameters_json_schema=schema, kind="output")


def _is_object(schema: Mapping[str, Json]) -> bool:
    return schema.get("type") == "object" or ("type" not in schema and "properties" in schema)


def reply(answer: ModelResponse, request: ModelRequest, name: str, names: ToolNames, price: Price | None) -> ModelReply:
    """What the port says of an answer.

    Raises StepFailed, with the tokens that it cost: "refused", and "server_error" where the answer ended in an error.
    """
    said, calls = "".join(_words(answer)), []
    for part in answer.tool_calls:
        if part.tool_name == OUTPUT:
            said = _of_output_tool(part, request.schema or {})
        elif request.tools:  # what was not offered cannot be asked for
            calls.append(ToolRequest(part.tool_call_id, names.own(part.tool_name), arguments_of(part.args)))
    usage = answer.usage
    made = ModelReply(
        text=said,
        model=answer.model_name or name,
        finish_reason=_finish(answer),
        input_tokens=tokens_told(usage.input_tokens),
        output_tokens=tokens_told(usage.output_tokens),
        cost_usd=_cost(answer, price),
        calls=tuple(calls),
        cached_tokens=tokens_told(usage.cache_read_tokens),
    )
    if (answer.provider_details or {}).get("finish_reason") == "error":
        detail: dict[str, Json] = {"answer": made.text[:KEPT]}
        if made.input_tokens or made.output_tokens:  # told with the end, so that it is all that was taken
            detail |= {"usage": {**asdict(made), "text": "", "calls": ()}}
        raise StepFailed("server_error", f"model {name}: the answer ended in an error of the provider", detail=detail)
    if made.finish_reason == "content_filter":
        refusal = str((answer.provider_details or {}).get("refusal") or "") or made.text
        detail = {"answer": refusal, "usage": {**asdict(made), "text": "", "calls": ()}}
        raise StepFailed("refused", f"model {name}: the model refused to answer: {refusal}"[:500], detail=detail)
    return made


def tokens_told(told: float) -> int:
    """A number of tokens as a server tells it; 0, which is unknown, for what can be none."""
    return math.ceil(told) if 0 <= told <= _MOST_TOKENS else 0


def _words(answer: ModelResponse) -> Iterable[str]:
    return (part.content for part in answer.parts if part.part_kind == "text")


def _finish(answer: ModelResponse) -> str:
    """Why the answer ended; an answer that is the call of the output tool has stopped like any other."""
    called = {part.tool_name for part in answer.tool_calls}
    return "stop" if called == {OUTPUT} and answer.finish_reason == "tool_call" else answer.finish_reason or "stop"


def _of_output_tool(part: ToolCallPart, schema: Mapping[str, Json]) -> str:
    """The answer that came as the call of the output tool, as text."""
    text = part.args if isinstance(part.args, str) else json.dumps(part.args or {}, ensure_ascii=False)
    if _is_object(schema):
        return text
    good, value = decoded(text)
    wrapped = good and isinstance(value, dict) and value.keys() == {OUTPUT}
    return json.dumps(value[OUTPUT], ensure_ascii=False) if wrapped else text


def arguments_of(given: str | dict[str, Json] | None) -> Json:
    """A call's arguments as an object, or the text that holds none; models leave them out, or encode them twice."""
    if given is None or isinstance(given, dict):
        return given or {}
    if not given.strip():
        return {}
    good, value = decoded(given)
    if good and isinstance(value, str):
        good, value = decoded(value)
    return value if good and isinstance(value, dict) else given


def _cost(answer: ModelResponse, price: Price | None) -> float | None:
    """In US dollars: by the settings' price, else by those that come with the library; None where neither knows."""
    usage = answer.usage
    if max(usage.input_tokens, usage.output_tokens) > _MOST_TOKENS:
        return None
    if price is not None:
        return price.of(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)
    try:
        return float(answer.cost().total_price)
    except (LookupError, ValueError):
        return None


def listed_price(model: Model) -> Price | None:
    """The price in the list that comes with the library, for short prompts; None for models that it does not know."""
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.usage import RequestUsage

    def cost(usage: RequestUsage) -> float | None:
        answer = ModelResponse(
            parts=[], usage=usage, model_name=model.model_name, provider_name=model.system, provider_url=model.base_url
        )
        return _cost(answer, None)

    asked, answered = cost(RequestUsage(input_tokens=_SAMPLE)), cost(RequestUsage(output_tokens=_SAMPLE))
    if asked is None or answered is None:
        return None
    return Price(round(asked * 1000, 6), round(answered * 1000, 6))
