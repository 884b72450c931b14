"""Performs tool calls."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from stepwell.engine.ancestry import CHAIN
from stepwell.engine.performer import CallContext, Performed
from stepwell.errors import StepFailed
from stepwell.interpreter.effect import Effect, ToolCall
from stepwell.interpreter.normalise import clean_text, normalise
from stepwell.ports import ToolCallContext, Tools

Json: TypeAlias = Any


class ToolPerformer:
    """Calls the registered tool. Its result is made plain where it is recorded; what a failure carries, here."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self.keeps_time = bool(getattr(tools, "keeps_time", False))
        """Whether a call surely ends within its timeout, so that nobody else needs to watch the clock."""

    async def __call__(self, effect: Effect, context: CallContext) -> Performed:
        """Raises StepFailed. A failure's parts that JSON cannot hold are replaced, so that it can be recorded."""
        if not isinstance(effect, ToolCall):
            raise TypeError(f"a tool call is wanted, this is {type(effect).__name__}")
        call = ToolCallContext(
            context.run_id, context.path, context.attempt, context.key, context.timeout, CHAIN.get(), effect.own_session
        )
        try:
            return Performed(await self._tools.call(effect.tool, effect.call, call))
        except StepFailed as failure:
            raise recordable(failure) from failure


def recordable(failure: StepFailed) -> StepFailed:
    """The same failure, made of plain JSON alone: tools may have put anything into it."""
    kind = clean_text(failure.kind) if isinstance(failure.kind, str) and failure.kind else "tool_error"
    message = clean_text(str(failure.message))
    hint = failure.retry_after
    usable = isinstance(hint, int | float) and not isinstance(hint, bool) and math.isfinite(hint)
    try:
        detail = normalise(failure.detail, limit=65_536)
    except StepFailed as refused:
        detail = {"left_out": refused.message}
    made = StepFailed(kind, message, False if failure.final else None, hint if usable else None, detail)
    made.retryable = bool(failure.retryable)
    return made
