"""One process of a test: forked in a moment, spoken with in lines of JSON, killed, stopped or let end."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

from tests.chaos.roles import play

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.chaos.roles"])
"""The server imports everything once, so that a process that is replaced is at work a moment later."""


@dataclass(slots=True)
class Member:
    """A process, and the socket that stands for its standard input and output."""

    role: str
    process: BaseProcess
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    pid: int

    @classmethod
    async def hire(cls, role: str, arguments: Sequence[str], environ: Mapping[str, str], log: Path) -> Self:
        """Start a process that plays a role; its standard error is added to `log`."""
        ours, theirs = socket.socketpair()
        process = _FORKS.Process(target=play, args=(role, list(arguments), dict(environ), theirs, str(log)))
        await asyncio.to_thread(process.start)
        theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(role, process, reader, writer, process.pid or 0)

    def tell(self, **line: Any) -> None:
        """Send a line; it may be lost if the process is dead."""
        self.writer.write(f"{json.dumps(line)}\n".encode())

    async def hear(self) -> dict[str, Any] | None:
        """The next line, or None once the process is dead. What a kill cut off was not said."""
        with suppress(ConnectionError):
            line = await self.reader.readline()
            if line.endswith(b"\n"):
                said: dict[str, Any] = json.loads(line)
                return said
        return None

    async def kill(self) -> None:
        """Send SIGKILL; returns when the process is dead."""
        self.process.kill()
        await asyncio.to_thread(self.process.join)

    async def dead(self, seconds: float) -> bool:
        """Whether the process ends by itself within this time."""
        await asyncio.to_thread(self.process.join, seconds)
        return self.process.exitcode is not None

    def stop(self) -> None:
        """Send SIGSTOP: the process lives and does nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Send SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """Say that nothing more will be said: a worker ends in an orderly way."""
        with suppress(OSError):
            self.writer.write_eof()

    async def bury(self) -> None:
        """Give back what belonged to a process; one that still lives is killed."""
        await self.kill()
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()
        self.process.close()
