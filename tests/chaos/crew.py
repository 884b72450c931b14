"""Worker and decider processes on one database file: started, fed, killed and replaced."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

from tests.chaos.ledger import Death
from tests.chaos.roles import play

PROJECT = Path(__file__).parent / "project"


_FORKS = multiprocessing.get_context("forkserver")
"""Its server has imported everything once, so that a process that is replaced is at work a moment later."""
_FORKS.set_forkserver_preload(["tests.chaos.roles"])


@dataclass(slots=True)
class Member:
    """A process of the crew, and the socket that stands for its standard input and output."""

    role: str
    process: BaseProcess
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    listening: asyncio.Task[None] | None = None
    asked: set[str] = field(default_factory=set)
    """Starts that it was told and has not acknowledged."""


class Crew:
    """Keeps `workers` workers and `deciders` deciders alive, and every start asked for until it is acknowledged."""

    def __init__(self, database: Path, environ: Mapping[str, str], *, workers: int, deciders: int) -> None:
        self.database = database
        self.started: dict[str, str] = {}
        """Run ids by the name of the start, as acknowledged."""
        self.contradicted: list[str] = []
        """Acknowledgements that say something else than an earlier one."""
        self.decided: dict[str, str] = {}
        """Who decided, by wait, as acknowledged."""
        self.deaths: dict[int, Death] = {}
        self._environ = dict(environ)
        self._sizes = {"worker": workers, "decider": deciders}
        self._members: list[Member] = []
        self._wanted: dict[str, dict[str, Any]] = {}
        self._log_file = database.with_suffix(".log")
        self._number = 0

    async def __aenter__(self) -> Self:
        for role, size in self._sizes.items():
            for _ in range(size):
                await self._hire(role)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let the workers end in an orderly way, and end the others."""
        for member in self._members:
            if member.role == "decider":
                member.process.kill()
            else:
                member.writer.write_eof()
        for member in self._members:
            await asyncio.to_thread(member.process.join, 30)
            member.process.kill()
            await self._bury(member)

    @property
    def log(self) -> str:
        """What all processes said on their standard error."""
        return self._log_file.read_text("utf-8", errors="replace")

    async def start(self, wanted: Mapping[str, dict[str, Any]]) -> None:
        """Have runs started, each by some worker, and again by another one if that dies before it has said so."""
        self._wanted.update(wanted)
        await self._hand_out()

    async def kill(self, chance: random.Random) -> None:
        """Send SIGKILL to one process, one time in ten to a decider, and replace it."""
        role = "decider" if self._sizes["decider"] and chance.random() < 0.1 else "worker"
        victim = chance.choice([member for member in self._members if member.role == role])
        sent, pid = time.time(), victim.process.pid
        victim.process.kill()
        await asyncio.to_thread(victim.process.join)
        assert pid is not None
        self.deaths[pid] = Death(sent, time.time())
        await self._bury(victim)
        self._members.remove(victim)
        await self._hire(role)
        await self._hand_out()

    async def _hire(self, role: str) -> None:
        self._number += 1
        arguments = [str(self.database), str(PROJECT)] + [f"{role}{self._number}"] * (role == "decider")
        ours, theirs = socket.socketpair()
        process = _FORKS.Process(target=play, args=(role, arguments, self._environ, theirs, str(self._log_file)))
        await asyncio.to_thread(process.start)
        theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        member = Member(role, process, reader, writer)
        member.listening = asyncio.create_task(self._listen(member))
        self._members.append(member)

    async def _bury(self, member: Member) -> None:
        """Hear the last words of a process that is dead, and give back what belonged to it."""
        if member.listening is not None:
            await member.listening
        member.writer.close()
        with suppress(ConnectionError):
            await member.writer.wait_closed()
        await asyncio.to_thread(member.process.join)
        member.process.close()

    async def _listen(self, member: Member) -> None:
        with suppress(ConnectionError):
            while (line := await member.reader.readline()).endswith(b"\n"):  # what a kill cut off was not said
                self._hear(member, json.loads(line))

    def _hear(self, member: Member, said: dict[str, Any]) -> None:
        if "started" in said:
            member.asked.discard(said["started"])
            if self.started.setdefault(said["started"], said["run"]) != said["run"]:
                self.contradicted.append(f"start {said['started']}: {self.started[said['started']]}, then {said['run']}")
        elif "by" in said and self.decided.setdefault(said["wait"], said["by"]) != said["by"]:
            self.contradicted.append(f"wait {said['wait']}: {self.decided[said['wait']]}, then {said['by']}")

    async def _hand_out(self) -> None:
        workers = [member for member in self._members if member.role == "worker"]
        asked = {name for member in workers for name in member.asked}
        for index, name in enumerate(name for name in self._wanted if name not in self.started and name not in asked):
            member = workers[index % len(workers)]
            member.asked.add(name)
            line = {"start": name, "workflow": "chaos.yaml", "input": self._wanted[name]}
            member.writer.write(f"{json.dumps(line)}\n".encode())
