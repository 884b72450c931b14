"""Tools for a model whose server takes none but holds an answer to a schema: it chooses between a call and an answer.

The law of the file: what the model says is a call only if it fits the tool's parameters; anything else is its answer.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, TypeAlias

from stepwell.adapters.models.answer import parse_answer
from stepwell.errors import StepFailed
from stepwell.ports import ModelReply, ModelRequest, ToolOffer, ToolRequest, Turn

Json: TypeAlias = Any


def asked_by_schema(request: ModelRequest) -> ModelRequest:
    """The same request without tools and turns: both stand in the prompt, and the schema holds the choice."""
    parts = [request.prompt]
    if request.tools:
        parts.append("Tools that you can call:\n" + "\n".join(_offered(tool) for tool in request.tools))
    parts += [_told(turn) for turn in request.turns]
    if request.tools:
        parts.append('Call one tool with {"tool": NAME, "arguments": {…}}, or give the answer with {"answer": …}.')
    schema = _choice(request) if request.tools else request.schema
    return replace(request, prompt="\n\n".join(parts), schema=schema, tools=(), turns=(), on_text=None)


def answered_by_schema(reply: ModelReply, request: ModelRequest) -> ModelReply:
    """What the model chose under the schema of `asked_by_schema`; its words as they are where it chose nothing."""
    try:
        chosen = parse_answer(reply.text, _choice(request), finish_reason=reply.finish_reason)
    except StepFailed:
        return reply
    if "tool" in chosen:
        call = ToolRequest(f"call_{len(request.turns) + 1}", chosen["tool"], chosen["arguments"])
        return replace(reply, text="", calls=(call,), finish_reason="tool_call")
    answer = chosen["answer"]
    plain = request.schema is None and isinstance(answer, str)
    return replace(reply, text=answer if plain else json.dumps(answer, ensure_ascii=False))


def _offered(tool: ToolOffer) -> str:
    schema = json.dumps(tool.parameters or {}, ensure_ascii=False, separators=(",", ":"))
    return f"- {tool.name}: {tool.description} Arguments: {schema}"


def _told(turn: Turn) -> str:
    lines = [turn.text] if turn.text else []
    came = {answer.id: answer for answer in turn.answers}
    for call in turn.calls:
        lines.append(f"You called {call.name} with {json.dumps(call.arguments, ensure_ascii=False)}.")
        if (answer := came.get(call.id)) is not None:
            value = answer.value if isinstance(answer.value, str) else json.dumps(answer.value, ensure_ascii=False)
            lines.append(f"{'It failed' if answer.failed else 'It gave'}: {value}")
    return "\n".join(lines)


def _choice(request: ModelRequest) -> dict[str, Json]:
    """One of the tools with its arguments, or the answer. Inner schemas are moved, and what they refer to with them."""
    defined: dict[str, Json] = {"answer": _moved(request.schema or {"type": "string"}, "#/$defs/answer")}
    options = [_only({"answer": {"$ref": "#/$defs/answer"}})]
    for number, tool in enumerate(request.tools, 1):
        place = f"tool_{number}"
        defined[place] = _moved(tool.parameters or {"type": "object", "properties": {}}, f"#/$defs/{place}")
        options.append(_only({"tool": {"const": tool.name}, "arguments": {"$ref": f"#/$defs/{place}"}}))
    return {"anyOf": options, "$defs": defined}


def _only(properties: dict[str, Json]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _moved(schema: Json, place: str) -> Json:
    """A schema that stands at `place` of another one: references into itself go there."""
    if isinstance(schema, list):
        return [_moved(part, place) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: place + value[1:]
        if word == "$ref" and isinstance(value, str) and value.startswith("#")
        else _moved(value, place)
        for word, value in schema.items()
    }
