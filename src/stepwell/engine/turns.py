"""A turn of an agent step: its effect as a request to a model, and the model's reply as the turn's value.

The law of the file: a turn is data before it is asked and after it was answered; nothing here remembers another turn.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.ports import ModelRequest, ToolAnswer, ToolOffer, ToolRequest, Turn

if TYPE_CHECKING:
    from stepwell.engine.asking import Asking
    from stepwell.interpreter.effect import ModelCall

Json: TypeAlias = Any


def with_turns(request: ModelRequest, effect: ModelCall) -> ModelRequest:
    """The request with the tools that are offered and with what went before."""
    offers = [ToolOffer(offer["name"], offer["description"], offer["parameters"]) for offer in effect.offers]
    turns = [
        Turn(
            turn["text"],
            [ToolRequest(call["id"], call["name"], call["arguments"]) for call in turn["calls"]],
            [ToolAnswer(one["id"], one["name"], one["value"], one["failed"]) for one in turn["answers"]],
        )
        for turn in effect.turns
    ]
    return replace(request, tools=offers, turns=turns)


async def take_turn(asking: Asking, request: ModelRequest) -> dict[str, Json]:
    """`{text, calls}` where the model asks for tools, else `{answer}`. Raises StepFailed as `Asking` does."""
    begun = time.monotonic()
    reply = await asking.text(request)
    if reply.calls:
        calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in reply.calls]
        return {"text": reply.text, "calls": calls}
    if request.schema is None:
        return {"answer": {"text": reply.text}}
    return {"answer": await asking.fitting(reply, request, begun)}
