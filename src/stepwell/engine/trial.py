"""Calling a tool outside any run: for whoever wants to see what it gives.

The law of the file: it is called as a step would call it, with secrets put in and kept out of what comes back.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.fields import Value
from stepwell.definition.http_call import HTTP, may_repeat
from stepwell.engine.flight import without_secrets
from stepwell.engine.performer import CallContext
from stepwell.errors import InputError, Problem, StepFailed
from stepwell.expressions import ExpressionError
from stepwell.interpreter.effect import SecretText, ToolCall
from stepwell.interpreter.normalise import normalise

if TYPE_CHECKING:
    from stepwell.engine.world import World
    from stepwell.ports import Tool

Json: TypeAlias = Any


class ToolTrial:
    """Calls of one engine's tools."""

    def __init__(self, world: World, account: str) -> None:
        self._world = world
        self._account = account

    def repeatable(self, tool: Tool, arguments: dict[str, Json]) -> bool:
        """Whether a second call would do what the first did."""
        return may_repeat(arguments) if tool.name == HTTP else tool.idempotent

    async def call(self, tool: str, arguments: dict[str, Json], *, timeout: float = 60.0) -> Json:
        """What the tool gives. `{{secret.NAME}}` in texts of the arguments means the secret; the rest is data.

        Raises StepFailed, and InputError for a text in which other references stand.
        """
        effect = _effect(tool, arguments)
        key = f"try-{secrets.token_hex(8)}"
        context = CallContext(self._account, "", "/try", 1, key, timeout)
        hide = self._world.vault.redactor
        try:
            performed = await self._world.performers[ToolCall](self._world.vault.reveal(effect), context)
            return hide.json(normalise(performed.value))
        except StepFailed as failure:
            raise without_secrets(failure, hide) from None


def _effect(tool: str, arguments: dict[str, Json]) -> ToolCall:
    try:
        tree = Value(arguments).tree
        places = tuple(SecretText(place, pieces) for place, pieces in tree.secrets({}))
        return ToolCall(tool, tree.render({}), secrets=places)
    except ExpressionError as wrong:
        hint = "outside a run only {{secret.NAME}} means anything; write \\{{ for the characters"
        raise InputError([Problem("error", "input", wrong.message, hint, "arguments")]) from None
