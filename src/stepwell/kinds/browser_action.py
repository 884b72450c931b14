"""Call a tool of a browser MCP server (understood and checked; not performed by this version)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

from stepwell.definition.fields import Value
from stepwell.definition.step import Location
from stepwell.interpreter.kind import Action


class BrowserAction(Action):
    """Calls a tool of a browser MCP server; the output is the tool's result."""

    extra_roots: ClassVar[Mapping[str, tuple[str, ...]]] = {"arguments": ("secret",)}

    type: Literal["browser_action"]
    server: str
    tool: str
    arguments: dict[str, Value] = {}
    idempotent: bool | None = None

    def unperformed(self) -> Iterable[tuple[Location, str]]:
        yield ("type",), "browser actions"
