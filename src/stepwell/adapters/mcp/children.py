"""Child processes of MCP servers: each the head of a process group, its words bounded, its end certain.

The law of the file: a group is gone when `end` returns, whatever its members do with the requests to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import TYPE_CHECKING

from stepwell.adapters.mcp.failures import McpConnectError
from stepwell.adapters.mcp.server import LARGEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepwell.adapters.mcp.server import McpServer

QUIET = 2.0
"""Seconds that a server gets to end by itself once its input has ended."""
WARDED = 7.0
"""The same where it is a script's to end it."""
GENTLE = 1.0
"""Seconds that a process group gets after it was told to end."""
TAIL = 8192
"""Bytes of what a server wrote last that are kept."""
INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ", "DISPLAY",
             "SYSTEMROOT", "TEMP", "APPDATA", "LOCALAPPDATA", "PATHEXT", "USERPROFILE")  # fmt: skip
"""What a server sees of the engine's environment; what else it needs is in its settings."""


_WARDEN = Path(__file__).with_name("warden.py")
_GROUPS = hasattr(os, "killpg")


class Tail:
    """The last words of a process."""

    def __init__(self) -> None:
        self._kept = bytearray()

    async def listen(self, stream: asyncio.StreamReader) -> None:
        """Read to the end, and keep the end of it."""
        while chunk := await stream.read(65_536):
            self._kept += chunk
            del self._kept[:-TAIL]

    def __str__(self) -> str:
        lines = self._kept.decode("utf-8", "replace").strip().splitlines()
        return " | ".join(line.strip() for line in lines[-3:] if line.strip())[-500:]


class Child:
    """A server's process, with what it wrote to its standard error."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.said = Tail()
        assert process.stderr is not None
        self._listening = [asyncio.create_task(self.said.listen(process.stderr), name="stepwell mcp stderr")]
        self._quiet = QUIET
        self._alive = 0
        """The end of a pipe that the script which started the server waits for, with the end of this process."""
        self._ended: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, server: McpServer, args: Sequence[str], *, speaks: bool) -> Child:
        """Start a server that `speaks` over its input and output, or one that does not. Raises McpConnectError.

        A script starts it and ends it with the engine: a server need not notice, or mind, that its input ends.
        """
        watched, alive = os.pipe() if _GROUPS and speaks else (0, 0)
        guarded = () if speaks and not _GROUPS else (sys.executable, "-I", "-S", str(_WARDEN), str(watched))
        command = [*guarded, server.command, *args]
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(server.env)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=environment,
                cwd=server.folder,
                start_new_session=True,
                pass_fds=(watched,) if watched else (),
                limit=LARGEST if speaks else 65_536,
            )
        except BaseException as error:
            if alive:
                os.close(alive)
            if not isinstance(error, OSError | ValueError):
                raise
            reason = getattr(error, "strerror", None) or str(error)
            raise McpConnectError(f"its command {server.command!r} cannot be started: {reason}") from None
        finally:
            if watched:
                os.close(watched)
        child = cls(process)
        child._alive = alive
        if not speaks:
            child._quiet = WARDED
            assert process.stdout is not None
            child._listening.append(asyncio.create_task(child.said.listen(process.stdout), name="stepwell mcp stdout"))
        return child

    def ending(self) -> str:
        """How the process ended and what it said last, as a sentence."""
        code = self.process.returncode
        if code == 127 and str(self.said).startswith(
            "its command "
        ):  # said by the script, of a program that is not there
            return str(self.said)
        how = "its process ended" if code is None else f"its process ended (exit code {code})"
        return f"{how}: {self.said}" if str(self.said) else how

    async def end(self, *, at_once: bool = False) -> None:
        """End the whole group; `at_once` without asking first. Idempotent, and goes on if its caller is cancelled."""
        if self._ended is None:
            self._ended = asyncio.create_task(self._end(at_once=at_once), name="stepwell mcp end")
        await asyncio.shield(self._ended)

    async def _end(self, *, at_once: bool) -> None:
        process = self.process
        if process.stdin is not None:
            process.stdin.close()
        if not at_once and not await self.gone(self._quiet):
            self._signal(signal.SIGTERM)
            await self.gone(GENTLE)
        self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        await self.gone(GENTLE)
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        if self._alive:
            os.close(self._alive)
        transport = getattr(process, "_transport", None)  # nothing public closes the pipes of a process that is gone
        if transport is not None:
            transport.close()

    async def gone(self, within: float) -> bool:
        """Whether the process has ended; by its exit, not by the end of pipes that a grandchild may hold."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        while self.process.returncode is None and loop.time() < until:  # noqa: ASYNC110 -- an exit raises no event
            await asyncio.sleep(0.01)
        return self.process.returncode is not None

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, number)  # the group's number is that of its head, also when that is gone
            else:
                self.process.kill()
