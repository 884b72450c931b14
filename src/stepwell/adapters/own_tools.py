"""The tools that run in this process: those of a project's files, and those that are built in.

The law of the file: a name means one tool; what the sources know of a tool is theirs to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.errors import DefinitionError, Problem, StepFailed

if TYPE_CHECKING:
    from stepwell.ports import Tool, ToolCallContext, Tools

Json: TypeAlias = Any


class OwnTools:
    """Implements `ports.Tools` over several of them."""

    def __init__(self, *sources: Tools) -> None:
        """Raises DefinitionError where two sources have a tool of one name."""
        self._sources = sources
        self.keeps_time = all(getattr(source, "keeps_time", False) for source in sources)
        taken: set[str] = set()
        for source in sources:
            names = set(source.names())
            if twice := sorted(taken & names):
                message = f"there are two tools called {twice[0]!r}"
                hint = "give the function another name: @stepwell.tool(name=...)"
                raise DefinitionError([Problem("error", "tools", message, hint)])
            taken |= names

    def get(self, name: str) -> Tool | None:
        return next((tool for source in self._sources if (tool := source.get(name)) is not None), None)

    def names(self) -> list[str]:
        return sorted({name for source in self._sources for name in source.names()})

    async def call(self, name: str, arguments: dict[str, Json], context: ToolCallContext) -> Json:
        """Raises StepFailed: `not_found`, and what the source of the tool raises."""
        for source in self._sources:
            if source.get(name) is not None:
                return await source.call(name, arguments, context)
        raise StepFailed("not_found", f"there is no tool {name!r}", detail={"tools": self.names()[:50]})
