"""The log of tools: records that say for which run, step and attempt they were written.

The law of the file: nothing global is changed; what a record carries comes from the call that it was written in.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.ports import ToolCallContext

CALL: ContextVar[ToolCallContext | None] = ContextVar("stepwell_tool_call", default=None)
"""The call that a tool is serving; None outside tools."""


class ToolLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records carry `run`, `path` and `attempt`; they are "", "" and 0 outside a call of a tool."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        call = CALL.get()
        said = {"run": call.run_id, "path": call.path, "attempt": call.attempt} if call else _NOWHERE
        kwargs["extra"] = {**said, **(kwargs.get("extra") or {})}
        return msg, kwargs


_NOWHERE = {"run": "", "path": "", "attempt": 0}


def logger(name: str = "stepwell.tools") -> ToolLogger:
    """A logger for tools: `log = stepwell.logger(__name__)`."""
    return ToolLogger(logging.getLogger(name), {})
