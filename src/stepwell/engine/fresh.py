"""What a fresh run gets: its id, and its lane by its workflow's concurrency key."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.errors import InputError, Problem
from stepwell.expressions import ExpressionError
from stepwell.journal.entry import encode

if TYPE_CHECKING:
    from stepwell.definition.workflow import Workflow

Json: TypeAlias = Any


def lane_of(workflow: Workflow, value: Json) -> dict[str, Any]:
    """The lane of a run by its workflow's concurrency key. Raises InputError if the key cannot be worked out."""
    limits = workflow.concurrency
    if limits is None:
        return {}
    try:
        key = limits.key.compiled.render({"workflow_input": value})
    except ExpressionError as error:
        message = f"the concurrency key cannot be worked out: {error.message}"
        raise InputError([Problem("error", "concurrency", message, error.hint or "", "input")]) from None
    text = key if isinstance(key, str) else encode(key).decode()
    return {"lane": f"{workflow.workflow}\0{text}", "lane_limit": limits.limit, "on_limit": limits.on_limit}


def new_id(now: float) -> str:
    """A run's id: 12 hex digits of milliseconds and 10 of chance. It grows with time; nobody chooses it."""
    return f"{int(now * 1000):012x}{secrets.token_hex(5)}"
