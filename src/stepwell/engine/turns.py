"""A turn of an agent step: its effect as a request to a model, and the model's reply as the turn's value.

The law of the file: a turn is data before it is asked and after it was answered; nothing here remembers another turn.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.ports import ModelRequest, ToolAnswer, ToolOffer, ToolRequest, Turn

if TYPE_CHECKING:
    from stepwell.engine.asking import Asking
    from stepwell.interpreter.effect import ModelCall

Json: TypeAlias = Any


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64
"""Characters of a tool's name that every provider takes."""


def _spoken(effect: ModelCall) -> dict[str, str]:
    """What the tools are called towards providers, which take letters, digits, "_" and "-" alone; each name once."""
    spoken: dict[str, str] = {}
    for offer in effect.offers:
        plain = name = _NOT_IN_NAMES.sub("_", offer["name"])[:_LONGEST]
        number = 2
        while name in spoken.values():
            name = f"{plain[: _LONGEST - 4]}_{number}"
            number += 1
        spoken[offer["name"]] = name
    return spoken


def with_turns(request: ModelRequest, effect: ModelCall) -> ModelRequest:
    """The request with the tools that are offered and with what went before."""
    spoken = _spoken(effect)
    offers = [ToolOffer(spoken[offer["name"]], offer["description"], offer["parameters"]) for offer in effect.offers]
    turns = [
        Turn(
            turn["text"],
            [
                ToolRequest(call["id"], spoken.get(call["name"], call["name"]), call["arguments"])
                for call in turn["calls"]
            ],
            [
                ToolAnswer(one["id"], spoken.get(one["name"], one["name"]), one["value"], one["failed"])
                for one in turn["answers"]
            ],
        )
        for turn in effect.turns
    ]
    return replace(request, tools=offers, turns=turns)


async def take_turn(asking: Asking, request: ModelRequest, effect: ModelCall) -> dict[str, Json]:
    """`{text, calls}` where the model asks for tools, else `{answer}`. Raises StepFailed as `Asking` does."""
    begun = time.monotonic()
    reply = await asking.text(request)
    if reply.calls:
        meant = {name: tool for tool, name in _spoken(effect).items()}
        calls = [
            {"id": call.id, "name": meant.get(call.name, call.name), "arguments": call.arguments}
            for call in reply.calls
        ]
        return {"text": reply.text, "calls": calls}
    if request.schema is None:
        return {"answer": {"text": reply.text}}
    return {"answer": await asking.fitting(reply, request, begun)}
