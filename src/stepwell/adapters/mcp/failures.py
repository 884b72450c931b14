"""What can go wrong with a call over MCP, as errors with the one thing that matters said: whether it may have happened.

The law of the file: an error that says `sent: false` is raised only where the server surely got no request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.errors import SHOWN, kind_of_status, redacted
from stepwell.errors import StepFailed

if TYPE_CHECKING:
    from stepwell.adapters.mcp.server import McpServer

Json: TypeAlias = Any

NEVER_SENT: dict[str, Json] = {"sent": False}
CONTAINED = "stepwell"
"""Under this key an error answer that `http.py` made up says what happened to the request."""


class McpError(Exception):
    """A call failed; `detail` is kept with the step's error."""

    kind = "tool_error"
    detail: Json = None
    retryable: bool | None = None
    retry_after: float | None = None


class McpConnectError(McpError):
    """There is no connection; nothing was sent."""

    kind = "connection_error"
    detail = NEVER_SENT


class McpPoolBusy(McpError):
    """No connection, or no place on it, came free in time; nothing was sent."""

    kind = "overloaded"
    detail = NEVER_SENT


class McpConnectionLost(McpError):
    """The connection ended while the call was under way: it may have been executed."""

    kind = "connection_error"


class McpCallTimeout(McpError):
    """No answer in time: the call may have been executed, or still be."""

    kind = "timeout"


class McpRefused(McpError):
    """The server answered that it does not do this."""

    def __init__(self, message: str, kind: str, *, detail: Json = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after


def step_failure(error: McpError, server: McpServer, tool: str) -> StepFailed:
    """The failure of a step that called `tool`."""
    message = redacted(f"{server.name}.{tool}: {error}", server.secrets)
    return StepFailed(error.kind, message[: 4 * SHOWN], error.retryable, error.retry_after, error.detail)


def of_protocol(code: int, message: str, data: Json) -> McpError:
    """What an error answer of the protocol means."""
    said = " ".join(message.split())[: 2 * SHOWN]
    contained = data.get(CONTAINED) if isinstance(data, dict) else None
    if isinstance(contained, dict):
        return _of_transport(said, contained)
    if code == -32000:  # the library's own, when the connection ended; a server may use it for what it likes
        return McpConnectionLost(f"the connection ended before the answer came ({said})")
    if code == -32601:
        return McpRefused(f"the server does not know this: {said}", "not_found")
    if code == -32602:
        return McpRefused(f"the server refuses the arguments: {said}", "validation_error")
    return McpRefused(f"the server answered with error {code}: {said}", "tool_error")


def _of_transport(said: str, contained: dict[str, Json]) -> McpError:
    """What happened to a request over HTTP that got no answer of the protocol."""
    if contained.get("sent") is False:
        return McpConnectError(said)
    status = contained.get("answered")
    if not isinstance(status, int):
        return McpConnectionLost(said)
    return McpRefused(said, kind_of_status(status), detail={"status": status}, retry_after=contained.get("retry_after"))
