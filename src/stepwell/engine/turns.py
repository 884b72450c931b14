"""A turn of an agent step: its effect as a request to a model, and the model's reply as the turn's value.

The law of the file: a turn is data before it is asked and after it was answered; nothing here remembers another turn.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.errors import StepFailed
from stepwell.interpreter.agent import MOST_CALLS
from stepwell.ports import ModelRequest, ToolAnswer, ToolOffer, ToolRequest, Turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepwell.engine.asking import Asking
    from stepwell.interpreter.effect import ModelCall
    from stepwell.ports import ModelReply

Json: TypeAlias = Any


SHOWN = 5
"""Calls that a failure shows of those that were not made."""
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
    used: set[str] = set()
    return replace(request, tools=offers, turns=[_turn(turn, spoken, used) for turn in effect.turns])


def _turn(turn: Json, spoken: dict[str, str], used: set[str]) -> Turn:
    """A turn as a model is told of it. The answers stand in the order of the calls.

    Some servers give one id to every call; others refuse a history in which an id stands twice.
    """
    ids = []
    for call in turn["calls"]:
        wanted, number = call["id"] or "call", 2
        while wanted in used:
            wanted, number = f"{call['id'] or 'call'}_{number}", number + 1
        used.add(wanted)
        ids.append(wanted)
    calls = [
        ToolRequest(own, spoken.get(call["name"], call["name"]), call["arguments"])
        for own, call in zip(ids, turn["calls"], strict=True)
    ]
    answers = [
        ToolAnswer(own, spoken.get(one["name"], one["name"]), one["value"], one["failed"])
        for own, one in zip(ids, turn["answers"], strict=True)
    ]
    return Turn(turn["text"], calls, answers)


async def take_turn(asking: Asking, request: ModelRequest, effect: ModelCall) -> dict[str, Json]:
    """`{text, calls}` where the model asks for tools, else `{answer}`.

    Raises StepFailed as `Asking` does, and for calls that are too many or may have been cut.
    """
    begun = time.monotonic()
    reply = await asking.text(request)
    if reply.calls:
        _check(reply, asking)
        meant = {name: tool for tool, name in _spoken(effect).items()}
        ids = _distinct([call.id for call in reply.calls], effect)
        calls = [
            {"id": own, "name": meant.get(call.name, call.name), "arguments": call.arguments}
            for own, call in zip(ids, reply.calls, strict=True)
        ]
        return {"text": reply.text, "calls": calls}
    if request.schema is None:
        return {"answer": {"text": reply.text}}
    return {"answer": await asking.fitting(reply, request, begun)}


def _check(reply: ModelReply, asking: Asking) -> None:
    """Raises StepFailed for calls that are not to be made; the model may ask better the next time."""
    asked = [{"name": call.name, "arguments": call.arguments} for call in reply.calls[:SHOWN]]
    detail = {"answer": reply.text, "calls": asked, "finish_reason": reply.finish_reason}
    if len(reply.calls) > MOST_CALLS:
        message = f"the model asks for {len(reply.calls)} calls at once, more than {MOST_CALLS}"
        raise asking.with_usage(StepFailed("output_invalid", message, detail=detail))
    if reply.finish_reason == "length":
        message = "the model was cut while it asked for tools, so none is called; raise max_tokens"
        raise asking.with_usage(StepFailed("truncated_output", message, detail=detail))


def _distinct(ids: Sequence[str], effect: ModelCall) -> list[str]:
    """The ids of a turn's calls, each different from all others of the conversation: providers refuse one twice."""
    seen = {call["id"] for turn in effect.turns for call in turn["calls"]}
    found: list[str] = []
    for given in ids:
        own, number = given or "call", 2
        while own in seen:
            own, number = f"{given or 'call'}_{number}", number + 1
        seen.add(own)
        found.append(own)
    return found
