"""What stands in the way of the calls of tools that MCP servers offer.

The law of the file: it calls no tool; servers are asked what they offer, those of one workflow all at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from stepwell.definition.schemas import problems_with_foreign
from stepwell.definition.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepwell.definition.fields import Value
    from stepwell.definition.step import Step
    from stepwell.ports import Tool

Json: TypeAlias = Any
Told: TypeAlias = tuple[str, str, str]
"""Where in the step, what, and what helps."""


class ToolServers(Protocol):
    """What preflight asks of MCP servers."""

    @property
    def servers(self) -> list[str]:
        """Their names."""

    def server_of(self, name: str) -> str:
        """The server that a tool's name names; "" if none."""

    def get(self, name: str) -> Tool | None: ...

    def names(self) -> list[str]: ...

    async def reach(self, servers: Iterable[str]) -> dict[str, str]:
        """Ask servers for their tools; says why of those that do not answer."""


def servers_wanted(steps: Iterable[Step], servers: ToolServers) -> set[str]:
    """The servers whose tools steps call."""
    return {name for step in steps for tool in tools_of(step) if (name := servers.server_of(tool))}


def tools_of(step: Step) -> list[str]:
    """The tools that a step calls or offers to a model, by their whole names."""
    if step.type == "browser_action":
        return [f"{getattr(step, 'server', '')}.{getattr(step, 'tool', '')}"]
    tool = getattr(step, "tool", None)
    return [tool] if step.type == "tool_call" and isinstance(tool, str) else list(getattr(step, "tools", ()) or ())


UNASKED = "server_unasked"
"""The code of the note that a check could not be made, because no connection was to be made."""


def tool_problems(step: Step, servers: ToolServers, unreachable: dict[str, str] | None) -> Iterator[Told]:
    """What is wrong with the tools of a step that are those of servers; `unreachable` is None if none was asked."""
    browser = step.type == "browser_action"
    where = "tools" if getattr(step, "tools", None) else "tool"
    for name in tools_of(step):
        server = servers.server_of(name)
        if not server:
            if browser:
                wanted = str(getattr(step, "server", ""))
                hint = did_you_mean(wanted, servers.servers) or f"write [mcp.{wanted}] into stepwell.toml"
                yield "server", f"there is no MCP server {wanted!r}", hint
            continue
        if unreachable is None:
            what = name.partition(".")[2]
            yield UNASKED, f"whether the MCP server {server!r} offers {what!r} is looked at when a run starts", (
                "`stepwell tools list` asks it now")  # fmt: skip
            continue
        if server in unreachable:
            yield "server" if browser else where, f"the MCP server {server!r} cannot be asked: {unreachable[server]}", (
                f"see [mcp.{server}] in stepwell.toml; `stepwell tools list` asks it again")  # fmt: skip
            continue
        tool = servers.get(name)
        if tool is None:
            offered = [one.partition(".")[2] for one in servers.names() if servers.server_of(one) == server]
            hint = did_you_mean(name.partition(".")[2], offered) or f"it offers {', '.join(offered[:20]) or 'none'}"
            yield where, f"the MCP server {server!r} offers no tool {name.partition('.')[2]!r}", hint
        elif where == "tool":
            yield from _arguments(name, tool.parameters, getattr(step, "arguments", {}))


def _arguments(name: str, schema: dict[str, Json], given: dict[str, Value]) -> Iterator[Told]:
    """Arguments that are missing, unknown, or constant and unfit; what a text gives at run time cannot be checked."""
    properties = schema.get("properties")
    declared: dict[str, Json] = properties if isinstance(properties, dict) else {}
    for wanted in schema.get("required") or ():
        if wanted not in given:
            yield "arguments", f"{name} needs the argument {wanted!r}", f"add arguments: {{{wanted}: ...}}"
    for argument, value in given.items():
        described = declared.get(argument)
        if described is None:
            if schema.get("additionalProperties") is False:
                yield "arguments", f"{name} has no argument {argument!r}", did_you_mean(argument, sorted(declared))
        elif isinstance(described, dict) and "$ref" not in str(described) and value.tree.is_constant:
            for problem in problems_with_foreign(described, value.source):
                said = problem.partition(": ")[2] or problem
                yield "arguments", f"the argument {argument!r} of {name} does not fit: {said}", ""
