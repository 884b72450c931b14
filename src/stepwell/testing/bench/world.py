"""The world of a workload: a whole engine on a real store, tools that do nothing, and somebody who listens.

The law of the file: nothing is switched off for the sake of a figure: definitions are loaded and checked, arguments
rendered and validated, effects hashed, results made plain and durable, and every event of every run is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias

from stepwell.adapters.python_tools import PythonTools
from stepwell.definition.load import LoadedWorkflow, load_text
from stepwell.engine.engine import Engine, RunHandle
from stepwell.engine.events import Listeners
from stepwell.engine.parts import Parts
from stepwell.engine.performer import CallContext, Performed, Performer
from stepwell.engine.settings import Settings
from stepwell.engine.tool_performer import ToolPerformer
from stepwell.engine.world import World
from stepwell.interpreter.effect import Effect, ToolCall
from stepwell.kinds import discover
from stepwell.ports import Run, RunStore
from stepwell.stores.knowledge_memory import MemoryKnowledge
from stepwell.stores.memory import MemoryRunStore
from stepwell.stores.sqlite import SqliteRunStore
from stepwell.tool import tool

Json: TypeAlias = Any
Tool: TypeAlias = Callable[..., Awaitable[Json]]
StoreName: TypeAlias = Literal["sqlite", "memory"]
PerformerName: TypeAlias = Literal["tools", "bare"]


@tool
async def work(number: int, text: str = "") -> dict[str, Json]:
    """Do nothing and say so."""
    return {"number": number + 1, "text": text}


@dataclass(frozen=True, slots=True)
class Setup:
    """How a workload is run. `performer` "bare" leaves out the registry of Python tools and its checks of arguments."""

    folder: Path
    store: StoreName = "sqlite"
    durability: Literal["full", "normal"] = "full"
    performer: PerformerName = "tools"

    @property
    def database(self) -> Path:
        """The database file; the store `memory` has none."""
        return self.folder / "bench.db"

    def about(self) -> dict[str, Json]:
        """What the printed object says of it."""
        durability = self.durability if self.store == "sqlite" else None
        return {"store": self.store, "durability": durability, "performer": self.performer}


async def _answer(effect: Effect, context: CallContext) -> Performed:
    """What the tool does, without the tool."""
    del context
    call = effect.arguments()
    return Performed({"number": call.get("number", 0) + 1, "text": call.get("text", "")})


@asynccontextmanager
async def bench_engine(setup: Setup, *, serves: bool = False, tools: Sequence[Tool] = (work,)) -> AsyncIterator[Engine]:
    """An engine on the store of `setup`, opened and closed. Raises Unavailable."""
    store: RunStore
    if setup.store == "sqlite":
        store = SqliteRunStore.open(setup.database, durability=setup.durability)
    else:
        store = MemoryRunStore()
    registered = PythonTools.of(*tools)
    performer: Performer = ToolPerformer(registered) if setup.performer == "tools" else _answer
    world = World(store, {ToolCall: performer}, registered, Listeners())
    engine = Engine(Parts(store, world, registered, MemoryKnowledge()), Settings(root=setup.folder), serves=serves)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


def loaded(text: str) -> LoadedWorkflow:
    """A workflow, checked as every workflow is. Raises DefinitionError."""
    return load_text(text, file="bench.yaml", kinds=discover())


@dataclass(slots=True)
class Watched:
    """A run, and what its events told: how many there were, and when each step had ended and was durable (UTC)."""

    run: Run
    events: int
    ends: list[tuple[str, float]]

    def between(self, within: str = "") -> list[float]:
        """Seconds from the end of one step to the end of the next, of the steps whose paths contain `within`."""
        times = [at for path, at in self.ends if within in path]
        return [after - before for before, after in pairwise(times)]


async def watched(handle: RunHandle) -> Watched:
    """The run once it has ended or parked, with all of its events. Raises TimeoutError if they stay out."""
    listening = asyncio.create_task(_listen(handle))
    run = await handle.wait()
    events, ends = await asyncio.wait_for(listening, 10)
    return Watched(run, events, ends)


async def _listen(handle: RunHandle) -> tuple[int, list[tuple[str, float]]]:
    events, ends = 0, []
    async for event in handle.events():
        events += 1
        if event.name == "step_completed":
            ends.append((event.path, event.at))
    return events, ends


def completed(run: Run) -> Run:
    """The run itself. Raises RuntimeError if it has not completed: its figures would mean nothing."""
    if run.status != "completed":
        raise RuntimeError(f"run {run.id} is {run.status}: {run.error}")
    return run
