"""Worker and decider processes on one database file: started, fed, killed and replaced."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.chaos.ledger import Death
from tests.chaos.member import Member

PROJECT = Path(__file__).parent / "project"


@dataclass(slots=True)
class Seat:
    """A place in the crew and who has it."""

    member: Member
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
        self._seats: list[Seat] = []
        self._wanted: dict[str, dict[str, Any]] = {}
        self._log = database.with_suffix(".log")
        self._number = 0

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

        One time in ten it is a decider, and one time in ten every worker at once, if `most` allows.
        """
        deciders = [seat for seat in self._seats if seat.member.role == "decider"]
        workers = [seat for seat in self._seats if seat.member.role == "worker"]
        victims = [chance.choice(workers)]
        match chance.randrange(10):
            case 0 if deciders:
                victims = [chance.choice(deciders)]
            case 1 if most >= len(workers):
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

    async def _hire(self, role: str) -> None:
        self._number += 1
        arguments = [str(self.database), str(PROJECT)] + [f"{role}{self._number}"] * (role == "decider")
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

    async def _hand_out(self) -> None:
        workers = [seat for seat in self._seats if seat.member.role == "worker"]
        asked = {name for seat in workers for name in seat.asked}
        for index, name in enumerate(name for name in self._wanted if name not in self.started and name not in asked):
            seat = workers[index % len(workers)]
            seat.asked.add(name)
            seat.member.tell(start=name, workflow="chaos.yaml", input=self._wanted[name])
