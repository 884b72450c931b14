"""A stage for one case: a workflow, worker processes on one database, an engine that carries nothing on, a ledger."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml

from stepwell.engine.engine import Engine, open_engine
from stepwell.engine.settings import Settings
from stepwell.journal.entry import Entry
from stepwell.ports import FINAL, Run, Wait
from tests.chaos.crew import PROJECT
from tests.chaos.ledger import Call, read_ledger
from tests.chaos.member import Member

Json = Any
T = TypeVar("T")
QUICK = {"ttl": 1.5, "renew": 0.3, "sweep": 0.2}
"""A rhythm at which a lease is lost within two seconds."""


class Stage:
    """Use as an async context manager: whatever still runs then is killed."""

    def __init__(self, folder: Path, steps: Json, **parts: Json) -> None:
        self.folder = folder
        self.database = folder / "runs.db"
        self.log = folder / "log"
        for file in ("cases.py", "telling.py"):
            shutil.copy(PROJECT / file, folder / file)
        self.add_workflow("w", steps, **parts)
        self._ledger = folder / "ledger"
        self._ledger.touch()
        self._members: list[Member] = []
        self._opened = open_engine(f"sqlite:///{self.database}", settings=Settings(folder))
        self.engine: Engine

    def add_workflow(self, name: str, steps: Json, **parts: Json) -> None:
        text = yaml.safe_dump({"workflow": name, "steps": steps, **parts}, sort_keys=False)
        (self.folder / f"{name}.yaml").write_text(text, "utf-8")

    async def __aenter__(self) -> Self:
        self.engine = await self._opened.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self._members:
            await member.bury()
        await self._opened.__aexit__(None, None, None)

    def server(self) -> AbstractAsyncContextManager[Engine]:
        """An engine of the test's own process that serves the database."""
        tools = [self.folder / "cases.py"]
        return open_engine(f"sqlite:///{self.database}", settings=Settings(self.folder), tools=tools, serves=True)

    async def worker(self, **options: Json) -> Member:
        """Another process that serves the database, with the options of `worker.py`; it is ready on return."""
        arguments = [str(self.database), str(self.folder), json.dumps({"tools": ["cases.py"], **options})]
        member = await Member.hire("worker", arguments, {"CHAOS_LEDGER": str(self._ledger)}, self.log)
        self._members.append(member)
        assert await member.hear() == {"ready": True}, self.said
        return member

    async def start(self, member: Member, value: Json = None, name: str = "one") -> str:
        """Have a process start the workflow; the run's id. The process may be dead before it says so: then it is found."""
        member.tell(start=name, workflow="w.yaml", input=value or {})
        said = await member.hear()
        if said is not None:
            return str(said["run"])
        [run] = [run for run in await self.engine.runs() if run.idempotency_key == name]
        return run.id

    @property
    def said(self) -> str:
        """What the processes said on their standard error."""
        return self.log.read_text("utf-8") if self.log.exists() else ""

    def calls(self, path: str) -> list[Call]:
        """The calls of a step, by all processes."""
        return [call for key, made in read_ledger(self._ledger).items() if key.endswith(path) for call in made]

    def told(self, path: str) -> list[Json]:
        """What the tool `note` was given at a path."""
        lines = [json.loads(line) for line in self._ledger.read_text("utf-8").splitlines() if line]
        return [line["said"] for line in lines if line["word"] == "call" and line["key"].endswith(path)]

    async def ended(self, run_id: str, seconds: float = 20.0) -> Run:
        """The run once it has ended, or waits for an operator."""

        async def final() -> Run | None:
            run = await self.engine.run(run_id)
            return run if run.status in {*FINAL, "suspended"} else None

        return await self.until(final, seconds)

    async def final(self, run_id: str, seconds: float = 20.0) -> Run:
        """The run once it has ended."""

        async def final() -> Run | None:
            run = await self.engine.run(run_id)
            return run if run.status in FINAL else None

        return await self.until(final, seconds)

    async def waiting(self, run_id: str, path: str, seconds: float = 20.0) -> Wait:
        """The open approval at a path."""

        async def open_wait() -> Wait | None:
            return next((wait for wait in await self.engine.waits(run_id=run_id) if wait.path == path), None)

        return await self.until(open_wait, seconds)

    async def called(self, path: str, number: int = 1, seconds: float = 20.0) -> list[Call]:
        """The calls of a step once there are so many."""

        async def enough() -> list[Call] | None:
            made = self.calls(path)
            return made if len(made) >= number else None

        return await self.until(enough, seconds)

    async def until(self, look: Callable[[], Awaitable[T | None]], seconds: float) -> T:
        """What `look` finds, looked for every 20 ms."""
        deadline = time.monotonic() + seconds
        while (found := await look()) is None:
            assert time.monotonic() < deadline, self.said
            await asyncio.sleep(0.02)
        return found

    async def entries(self, run_id: str) -> dict[str, Entry]:
        """The journal by path."""
        return {entry.path: entry for entry in await self.engine.history(run_id)}


def tool(id_: str, name: str = "note", **more: Json) -> Json:
    """A step that calls a tool of `cases.py`; `note` gets the step's id."""
    arguments = more.pop("arguments", {"said": id_} if name == "note" else {})
    return {"id": id_, "type": "tool_call", "tool": name, "arguments": arguments, **more}
