"""What an MCP server is to Stepwell: how it is reached, and what may be said of it.

The law of the file: a command's environment and a request's headers are secrets; nothing here prints them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LARGEST = 8 * 1024 * 1024
"""Bytes of one message of a server; a longer one ends the connection."""
PORT = "{port}"
"""Stands in `args` and `url` of a server that is started here and spoken to over HTTP."""


@dataclass(frozen=True, slots=True, repr=False)
class McpServer:
    """One server of the settings.

    With `command` alone it is started here and spoken to over its standard input and output; with `url` alone it runs
    elsewhere; with both it is started here once, on a free port, and each session is one over HTTP. `timeout` is in
    seconds and bounds a call that says nothing itself; `max_inflight` counts calls at once on one connection.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    timeout: float = 60.0
    max_inflight: int = 16
    secrets: tuple[str, ...] = ()
    """What no message may repeat, of env, headers and url."""
    missing: str = ""
    """Why a secret of it is not there; "" if all are."""

    def key(self) -> str:
        """Equal for servers that are reached alike; tells nothing of the secrets."""
        parts = (self.command, self.args, dict(self.env), self.url, dict(self.headers), str(self.folder or ""))
        return blake2b(msgspec.json.encode(parts, order="sorted"), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"
