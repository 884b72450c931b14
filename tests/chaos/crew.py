"""Processes of several roles on one database file: started, fed, killed and replaced."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.chaos.ledger import Death
from tests.chaos.member import Member

PROJECT = Path(__file__).parent / "project"
_PID = re.compile(rb'"pid": (\d+)')
_IDLE = 5.0


@dataclass(slots=True)
class Seat:
    """A place in the crew and who has it."""

    member: Member
    listening: asyncio.Task[None] | None = None
    asked: set[str] = field(default_factory=set)
    """Starts that it was told and has not acknowledged."""


class Crew:
    """Keeps so many processes of each role alive, and every start asked for until it is acknowledged.

    `roles` is how many there are of each; "worker" is one of them. `workflow` is a file of the folder `project`.
    """

    def __init__(
        self,
        database: Path,
        environ: Mapping[str, str],
        *,
        roles: Mapping[str, int],
        project: Path = PROJECT,
        workflow: str = "chaos.yaml",
    ) -> None:
        self.database = database
        self.started: dict[str, str] = {}
        """Run ids by the name of the start, as acknowledged."""
        self.contradicted: list[str] = []
        """Acknowledgements that say something else than an earlier one."""
        self.decided: dict[str, str] = {}
        """Who decided, by wait, as acknowledged."""
        self.deaths: dict[int, Death] = {}
        self._environ = dict(environ)
        self._sizes = dict(roles)
        self._project = project
        self._workflow = workflow
        self.told: list[dict[str, Any]] = []
        """Whatever else the processes said, each with its role."""
        self._seats: list[Seat] = []
        self._wanted: dict[str, dict[str, Any]] = {}
        self._log = database.with_suffix(".log")
        self._number = 0
        self._ledger = Path(environ["CHAOS_LEDGER"])
        self._read = 0
        self._called: set[int] = set()

    async def __aenter__(self) -> Self:
        for role, size in self._sizes.items():
            for _ in range(size):
                await self._hire(role)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let the workers end in an orderly way, and end the others."""
        for seat in self._seats:
            if seat.member.role == "worker":
                seat.member.end()
                await seat.member.dead(30)
            await self._leave(seat)

    @property
    def log(self) -> str:
        """What all processes said on their standard error."""
        return self._log.read_text("utf-8", errors="replace")

    async def start(self, wanted: Mapping[str, dict[str, Any]]) -> None:
        """Have runs started, each by some worker, and again by another one if that dies before it has said so."""
        self._wanted.update(wanted)
        await self._hand_out()

    async def kill(self, chance: random.Random, most: int) -> None:
        """Send SIGKILL to one process and replace it.

        It is a worker that has made calls, or any after `_IDLE` seconds without one; one time in ten a worker that may
        be at its very beginning, one time in ten one of another role, and one time in ten all workers at once, if
        `most` allows.
        """
        workers, idle = self._of("worker"), time.monotonic() + _IDLE
        while not (at_work := [seat for seat in workers if seat.member.pid in self._callers()]):
            if time.monotonic() > idle:
                at_work = workers
                break
            await asyncio.sleep(0.02)
        victims = [chance.choice(at_work)]
        match chance.randrange(10):
            case 0 if others := [seat for seat in self._seats if seat.member.role != "worker"]:
                victims = [chance.choice(others)]
            case 1:
                victims = [chance.choice(workers)]
            case 2 if most >= len(workers):
                victims = workers
        for victim in victims:
            sent = time.time()
            await victim.member.kill()
            self.deaths[victim.member.pid] = Death(sent, time.time())
        for victim in victims:
            await self._leave(victim)
            self._seats.remove(victim)
        for victim in victims:
            await self._hire(victim.member.role)
        await self._hand_out()

    def _callers(self) -> set[int]:
        """The processes that have told the ledger of a call."""
        if self._ledger.exists():
            with self._ledger.open("rb") as file:
                file.seek(self._read)
                text, end, _ = file.read().rpartition(b"\n")
            self._read += len(text + end)
            self._called.update(int(pid) for pid in _PID.findall(text))
        return self._called

    def _of(self, role: str) -> list[Seat]:
        return [seat for seat in self._seats if seat.member.role == role]

    async def _hire(self, role: str) -> None:
        self._number += 1
        arguments = [str(self.database), str(self._project)] + [f"{role}{self._number}"] * (role != "worker")
        seat = Seat(await Member.hire(role, arguments, self._environ, self._log))
        seat.listening = asyncio.create_task(self._listen(seat))
        self._seats.append(seat)

    async def _leave(self, seat: Seat) -> None:
        await seat.member.kill()
        if seat.listening is not None:
            await seat.listening  # its last words count
        await seat.member.bury()

    async def _listen(self, seat: Seat) -> None:
        while (said := await seat.member.hear()) is not None:
            self._hear(seat, said)

    def _hear(self, seat: Seat, said: dict[str, Any]) -> None:
        if "started" in said:
            seat.asked.discard(said["started"])
            if self.started.setdefault(said["started"], said["run"]) != said["run"]:
                self.contradicted.append(
                    f"start {said['started']}: {self.started[said['started']]}, then {said['run']}"
                )
        elif "by" in said and self.decided.setdefault(said["wait"], said["by"]) != said["by"]:
            self.contradicted.append(f"wait {said['wait']}: {self.decided[said['wait']]}, then {said['by']}")
        self.told.append(said | {"role": seat.member.role})

    async def _hand_out(self) -> None:
        workers = self._of("worker")
        asked = {name for seat in workers for name in seat.asked}
        for index, name in enumerate(name for name in self._wanted if name not in self.started and name not in asked):
            seat = workers[index % len(workers)]
            seat.asked.add(name)
            seat.member.tell(start=name, workflow=self._workflow, input=self._wanted[name])
