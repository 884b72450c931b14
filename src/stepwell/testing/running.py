"""Running a workflow to its end in virtual time, against a scripted world, on an engine that is whole.

The law of the file: nothing is left out for the sake of a test but the outside: definitions are checked, preflight
looks, effects are hashed and recorded, and a killed engine is followed by another one that reads what is durable.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from stepwell.adapters.python_tools import PythonTools
from stepwell.definition.load import LoadedWorkflow, load_text
from stepwell.definition.step import walk
from stepwell.engine.clock import Rhythm
from stepwell.engine.engine import ACCOUNT, Engine, RunHandle
from stepwell.engine.events import Listeners
from stepwell.engine.parts import Parts
from stepwell.engine.settings import Settings
from stepwell.engine.vault import SCRIPTED
from stepwell.engine.world import World
from stepwell.errors import Conflict
from stepwell.journal import path as paths
from stepwell.kinds import discover
from stepwell.library.recipes import FileRecipes
from stepwell.library.workflows import workflow_file
from stepwell.ports import FINAL
from stepwell.stores.memory import MemoryRunStore
from stepwell.testing.mortal_store import MortalStore
from stepwell.testing.result import Result
from stepwell.testing.scripted_people import ScriptedPeople
from stepwell.testing.scripted_world import AnyModels, AnyTools, Call, ScriptedWorld
from stepwell.testing.virtual_time import VirtualClock, run_in_virtual_time

Json: TypeAlias = Any
FOREVER = 1e9
_ENDED = frozenset({"succeeded", "failed", "settled"})
RHYTHM = Rhythm(ttl=FOREVER, renew=FOREVER, sweep=300.0)
LONGEST = 3650 * 86_400.0
"""Virtual seconds after which a run that has not ended is given up: ten years."""


class NotScripted(AssertionError):
    """Steps were performed that have no script; the message says how to write them."""


@dataclass(slots=True)
class Project:
    """A workflow with what it finds around it."""

    loaded: LoadedWorkflow
    settings: Settings
    _tools: PythonTools | None = None

    @property
    def tools(self) -> PythonTools:
        """The project's registered tools, none of which is called. Raises DefinitionError."""
        if self._tools is None:
            self._tools = PythonTools.from_files(self.settings.tools)
        return self._tools

    @classmethod
    def of(cls, workflow: LoadedWorkflow | Path | str | Mapping[str, Json]) -> Project:
        """From a file, YAML text (which has a line break), plain data or a loaded workflow. Raises DefinitionError."""
        if isinstance(workflow, LoadedWorkflow):
            loaded = workflow
        elif isinstance(workflow, Mapping):
            import yaml

            loaded = load_text(yaml.safe_dump(dict(workflow), sort_keys=False), file="", kinds=discover())
        elif isinstance(workflow, str) and "\n" in workflow:
            loaded = load_text(workflow, file="", kinds=discover())
        else:
            file = Path(workflow)
            settings = Settings.load(file.resolve().parent, os.environ)
            parts = _parts(MemoryRunStore(), ScriptedWorld(), VirtualClock(), settings)
            return cls(parts.load(file), settings)
        folder = Path(loaded.file).resolve().parent if loaded.file else Path.cwd()
        return cls(loaded, Settings.load(folder, os.environ))


def everything(project: Project) -> list[LoadedWorkflow]:
    """The workflow and all that it calls for certain."""
    parts = _parts(MemoryRunStore(), ScriptedWorld(), VirtualClock(), project.settings)
    return [project.loaded, *parts.called_by(project.loaded)]


def _parts(store: Any, world: ScriptedWorld, clock: VirtualClock, settings: Settings) -> Parts:
    tools = AnyTools(world)
    return Parts(
        store=store,
        world=World(store, world.performers(), tools, Listeners(), clock=clock, vault=SCRIPTED),
        vault=SCRIPTED,
        tools=tools,
        knowledge=world.knowledge,
        recipes_beside=lambda path: FileRecipes(path, settings.recipes),
        workflow_file=lambda name, beside: workflow_file(name, beside, settings.workflows),
        models=AnyModels(),
        retrieves=False,
        rhythm=RHYTHM,
    )


def run_to_end(
    workflow: LoadedWorkflow | Path | str | Mapping[str, Json] | Project,
    value: Json = None,
    world: ScriptedWorld | Mapping[str, Json] | None = None,
    *,
    clock: VirtualClock | None = None,
    crash_after: int = 0,
    requester: str = "",
) -> Result:
    """Run a workflow until it has ended, or waits for what no script brings.

    `world` may be the scripts alone. `crash_after` kills the engine after that many writes to the journal; another one
    goes on. Raises DefinitionError, InputError, and NotScripted for steps that were performed without a script.
    """
    project = workflow if isinstance(workflow, Project) else Project.of(workflow)
    its = world if isinstance(world, ScriptedWorld) else ScriptedWorld(world or {})
    time = clock or VirtualClock()
    stage = _Stage(project, its, time, crash_after)
    result = run_in_virtual_time(stage.play(value, requester), time)
    if its.unscripted and its.strict:
        written = "\n".join(f"  {how}" for how in dict.fromkeys(its.unscripted.values()))
        raise NotScripted(f"these steps ran and have no script:\n{written}\n\n{result}")
    return result


@dataclass(slots=True)
class _Stage:
    """One run on one store, on as many engines as it takes."""

    project: Project
    world: ScriptedWorld
    clock: VirtualClock
    crash_after: int
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _boots: float = 0.0

    async def play(self, value: Json, requester: str) -> Result:
        began = self.clock.monotonic()
        self.world.clock = self.clock.now
        inner = MemoryRunStore(clock=self.clock.now, uptime=lambda: self.clock.uptime() + self._boots)
        people = ScriptedPeople(self.world, self._news.set)
        store = MortalStore(inner, people.opened, dies_after=self.crash_after)
        bystanders = asyncio.all_tasks()
        run_id, appends, known = "", 0, 0
        finished: set[str] = set()
        while True:
            engine = self._engine(store)
            people.use(engine)
            await engine.open()
            try:
                run_id = await self._live(engine, store, people, value, requester, run_id)
                appends += store.appends
                result = await self._result(engine, people, run_id)
                repeated = [call for call in self.world.calls[known:] if {call.path, _attempt(call)} & finished]
                passed = self.clock.monotonic() - began
                return replace(result, appends=appends, repeated=repeated, virtual_seconds=passed)
            except asyncio.CancelledError:
                if not store.dead.is_set():
                    raise
                run_id = run_id or (await inner.runs(ACCOUNT))[0].id
                finished = {entry.path for entry in await inner.history(ACCOUNT, run_id) if entry.kind in _ENDED}
                known = len(self.world.calls)
            finally:
                await _end(asyncio.all_tasks() - bystanders)
            appends += store.appends
            self._boots += 3 * FOREVER
            store = MortalStore(inner, people.opened)

    def _engine(self, store: MortalStore) -> Engine:
        self.world.ended = store.dead.is_set
        parts = _parts(store, self.world, self.clock, self.project.settings)
        self.world.steps = {step.id: step for one in everything(self.project) for step in walk(_blocks(one))}
        return Engine(parts, self.project.settings, serves=False)

    async def _live(
        self, engine: Engine, store: MortalStore, people: ScriptedPeople, value: Json, requester: str, run_id: str
    ) -> str:
        """Carry the run on until it has ended, or nothing is going to happen. Raises CancelledError at a crash."""
        if run_id:
            handle: RunHandle = (
                await engine.resume(run_id) if await _open(engine, run_id) else RunHandle(engine, run_id)
            )
        else:
            if people_known := self.world.known_people():
                await engine.people.add(people_known)
            handle = await engine.start(self.project.loaded, value, requester=requester)
        while True:
            self._news.clear()
            await _first(handle.wait(), store.dead.wait())
            if store.dead.is_set():
                raise asyncio.CancelledError
            run = await engine.run(handle.run_id)
            if run.status in FINAL or run.status == "stuck":
                return handle.run_id
            for wait in await store.waits(ACCOUNT, run_id=handle.run_id):
                people.opened(wait)
            if not await self._something_happens(store, people):
                return handle.run_id
            with suppress(Conflict):  # an act has ended it meanwhile
                handle = await engine.resume(handle.run_id)

    async def _something_happens(self, store: MortalStore, people: ScriptedPeople) -> bool:
        """Wait for an act, or for the next instant that is due; False if there is neither."""
        while True:
            if self._news.is_set():
                return True
            due = await store.next_due()
            left = min(due - self.clock.now() if due else LONGEST, self.clock.next_jump())
            if left >= LONGEST and not people.busy:
                return self._news.is_set()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, left)):
                    await self._news.wait()
            if due and due <= self.clock.now():
                return True

    async def _result(self, engine: Engine, people: ScriptedPeople, run_id: str) -> Result:
        waits = await engine._store.waits(ACCOUNT, run_id=run_id, pending_only=False)  # noqa: SLF001 -- of all kinds
        return Result(
            run=await engine.run(run_id),
            tree=await engine.tree(run_id),
            calls=self.world.calls,
            approvals=[wait for wait in waits if wait.kind == "approval"],
            notifications=await engine.notifications(run_id),
            refused=people.refused,
            waits=[wait for wait in waits if wait.status == "pending"],
        )


def _blocks(loaded: LoadedWorkflow) -> tuple[Any, ...]:
    failing = loaded.workflow.on_failure
    return (*loaded.workflow.steps, *(failing.steps if failing else ()))


def _attempt(call: Call) -> str:
    return paths.attempt(call.path, call.attempt)


async def _open(engine: Engine, run_id: str) -> bool:
    return (await engine.run(run_id)).status not in FINAL


async def _first(*works: Any) -> None:
    """Return when one of these is done; raises what it raised. The others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    """Cut everything off, as the end of a process does."""
    tasks = {task for task in tasks if task is not asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
