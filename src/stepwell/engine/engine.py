"""The engine: what one can do with workflows and runs.

The law of the file: it has no logic of its own about steps; it stores, wakes and asks, and every answer comes from the
store or the journal.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.engine.ancestry import deeper
from stepwell.engine.budget_settings import NO_BUDGETS
from stepwell.engine.budgets import Budgets
from stepwell.engine.bundles import Bundles
from stepwell.engine.deciding import Deciding
from stepwell.engine.documents import Documents
from stepwell.engine.events import Event, Listeners
from stepwell.engine.fresh import lane_of, new_id
from stepwell.engine.incidents import Incidents
from stepwell.engine.model_list import ModelList
from stepwell.engine.people import People, Who
from stepwell.engine.preflight import Preflight
from stepwell.engine.recipes import Recipes
from stepwell.engine.reruns import Reruns
from stepwell.engine.trial import ToolTrial
from stepwell.engine.versions import Versions
from stepwell.engine.worker import Worker
from stepwell.errors import Conflict, InputError, NotFound, Problem, StepFailed
from stepwell.interpreter.normalise import normalise
from stepwell.journal.view import RunTree, build, called_in
from stepwell.people.actor import OPERATOR, Actor
from stepwell.ports import FINAL, Message, NewRun, Run, RunStore, SentEvent, Wait

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.engine.parts import Parts
    from stepwell.engine.settings import Settings
    from stepwell.engine.world import World
    from stepwell.journal.entry import Entry
    from stepwell.ports import KnowledgeStore, Outgoing, Tools

Json: TypeAlias = Any

ACCOUNT = "default"


@dataclass(slots=True)
class RunHandle:
    """A run that this engine was asked to carry on."""

    engine: Engine
    run_id: str

    async def wait(self, until_final: bool = False) -> Run:  # noqa: FBT001, FBT002 -- documented signature
        """Return when the run has ended or parked (`until_final`: only when it has ended)."""
        return await self.engine.settled(self.run_id, until_final=until_final)

    def events(self, *, text: bool = False) -> AsyncIterator[Event]:
        """What happens from the first look on, until the run ends or parks; `text`: what models say too."""
        return self.engine.events(self.run_id, text=text)

    async def park(self) -> None:
        """Take the run off this process; it stays resumable."""
        await self.engine.park(self.run_id)


class Engine:
    """Workflows and runs of one database. Made by `open_engine`."""

    def __init__(self, parts: Parts, settings: Settings, *, serves: bool) -> None:
        self.settings = settings
        self.tools: Tools = parts.tools
        self.knowledge: KnowledgeStore = parts.knowledge
        self.limiter = parts.limiter
        self._parts = parts
        self._serves = serves
        self._store: RunStore = parts.store
        self._listeners: Listeners = parts.world.listeners
        self._bundles = Bundles(parts)
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        world = replace(parts.world, definitions=self._bundles, opened=self._opened)
        self._worker = Worker(name, world, serves=serves, rhythm=parts.rhythm)
        self._worker.use(self._world_of)
        self._world = world
        self._now = world.clock.now
        self._hide = world.vault.redactor.json
        self._preflight = Preflight(parts)
        self.people = People(parts.store.people, ACCOUNT)
        self.documents = Documents(parts.knowledge, self.people, ACCOUNT)
        self.approvals = Deciding(parts.store, ACCOUNT, self._now)
        self.incidents = Incidents(
            parts.store, self.people, self._now, lambda run: self._world_of(run).tools, world.vault
        )
        self.budgets = Budgets(
            parts.store, self._bundles, self.incidents, self.people, getattr(settings, "budgets", NO_BUDGETS), self._now
        )
        self.reruns = Reruns(parts.store, self._bundles, self.people, self._now, world.vault)
        self.trial = ToolTrial(world, ACCOUNT)
        self.models = ModelList(settings, parts.models, ACCOUNT)
        self.versions = Versions(parts, self._bundles, self._preflight, self.people, self._now)
        self.recipes = Recipes(parts, self.people, self._now, settings.root)

    def _world_of(self, run: Run) -> World:
        found = self._parts.world_of(run.project)
        return self._world if found is None else replace(found, definitions=self._bundles, opened=self._opened)

    def _opened(self, wait: Wait) -> None:
        self.budgets.opened(wait)

    async def open(self) -> None:
        await self._worker.open()
        if self._serves:
            self.knowledge.wake()  # vectors that another process left

    async def close(self) -> None:
        await self._worker.close()
        await self._parts.close()

    # ── definitions ──

    def load(self, path: Path | str) -> LoadedWorkflow:
        """A workflow from a file, checked. Raises DefinitionError with every problem."""
        return self._parts.load(Path(path))

    async def ask_servers(self) -> list[Problem]:
        """Let every MCP server of the settings say what it offers, for `tools` to know; warns of those that do not."""
        servers = self._parts.servers
        unreachable = await servers.reach(servers.servers) if servers is not None else {}
        hint = "see its section in stepwell.toml"
        return [Problem("warning", "server", f"the MCP server {name!r} cannot be asked: {why}", hint)
                for name, why in unreachable.items()]  # fmt: skip

    async def preflight(self, loaded: LoadedWorkflow, value: Json, *, connects: bool = True) -> list[Problem]:
        """Everything that stands in the way of a run with this input, and warnings; nothing is executed.

        Without `connects` no connection is made, and what cannot be checked so is noted.
        """
        try:
            return (await self._preflight.check(loaded, _plain(value), connects=connects))[1]
        except InputError as wrong:
            return wrong.problems

    # ── runs ──

    async def start(
        self, loaded: LoadedWorkflow, value: Json, *, idempotency_key: str = "", requester: Who = ""
    ) -> RunHandle:
        """Start a run; it is durable on return and carried on here.

        Raises InputError, Conflict, Forbidden for a requester whom nobody knows, and StepFailed (depth_exceeded)
        inside a tool whose run is too deep already.
        """
        asks = await self.people.requester(requester)
        chain = deeper(loaded.workflow.workflow)
        filled, problems = await self._preflight.check(loaded, _plain(value), requester=asks.name)
        if any(problem.severity == "error" for problem in problems):
            raise InputError(problems)
        digest = await self._bundles.store(ACCOUNT, loaded)
        new = NewRun(
            id=new_id(self._now()),
            account=ACCOUNT,
            workflow=loaded.workflow.workflow,
            version=loaded.workflow.version,
            definition=digest,
            input=filled,
            requester=asks.name,
            project={
                "file": loaded.file,
                "tools": [str(file) for file in self._parts.tool_files],
                "root": str(self.settings.root),
                "chain": chain,
                **await self._preflight.retrieval.pins(loaded),
                **self._parts.remembers,
            },
            idempotency_key=idempotency_key,
            created=self._now(),
            **lane_of(loaded.workflow, filled),
        )
        note = asks.did("run.start", new.id, {"workflow": new.workflow, "version": new.version})
        run, _ = await self._store.create(new, notes=[note])
        await self._worker.adopt(run.id)
        return RunHandle(self, run.id)

    async def resume(self, run_id: str) -> RunHandle:
        """Carry a run on here. Raises NotFound, and Conflict if it has ended or a living process owns it."""
        run = await self._store.run(ACCOUNT, run_id)
        if run.status in FINAL:
            raise Conflict(f"run {run.id} has ended: it is {run.status}", run.status)
        if await self._worker.adopt(run.id) is None:
            raise Conflict(f"run {run.id} is carried on by another process", run.owner)
        return RunHandle(self, run.id)

    async def settled(self, run_id: str, *, until_final: bool = False) -> Run:
        """The run once it has ended or parked here. Raises what stopped the work on it (Unavailable)."""
        with self._worker.watching(run_id):
            if self._worker.task(run_id) is None:  # what made it due may have been told before anybody watched it
                run = await self._store.run(ACCOUNT, run_id)
                if until_final or _queues(run):
                    await self._worker.adopt(run_id, due_only=True)
            while True:
                if (task := self._worker.task(run_id)) is not None:
                    await asyncio.shield(task)
                run = await self._store.run(ACCOUNT, run_id)
                if self._worker.task(run_id) is None and (run.status in FINAL or not (until_final or _queues(run))):
                    return (await self.budgets.filled([run]))[0]
                await asyncio.sleep(0.05)

    def events(self, run_id: str, *, text: bool = False) -> AsyncIterator[Event]:
        """What happens to a run here from the first look on, until it ends or parks.

        With `text`, the answers of models that are asked from then on are streamed, and told by events `model_text`.
        """
        return self._listeners.events(run_id, text=text)

    async def park(self, run_id: str) -> None:
        """Take a run off this process; it stays resumable."""
        await self._worker.park([run_id])

    async def run(self, run_id: str) -> Run:
        """One run. Raises NotFound."""
        return (await self.budgets.filled([await self._store.run(ACCOUNT, run_id)]))[0]

    async def runs(
        self, *, statuses: Sequence[str] = (), workflow: str = "", limit: int = 50, before: str = ""
    ) -> list[Run]:
        """Runs, newest first."""
        found = await self._store.runs(ACCOUNT, statuses=statuses, workflow=workflow, limit=limit, before=before)
        return await self.budgets.filled(found)

    async def history(self, run_id: str) -> list[Entry]:
        """The whole journal of a run."""
        return await self._store.history(ACCOUNT, run_id)

    async def tree(self, run_id: str) -> RunTree:
        """The run told as a list of steps. Raises NotFound."""
        run = await self.run(run_id)
        entries = await self._store.history(ACCOUNT, run_id)
        waits = await self._store.waits(ACCOUNT, run_id=run_id, pending_only=False)
        try:
            workflow = (await self._bundles.get(ACCOUNT, run.definition)).plan.workflow
        except NotFound:
            workflow = None
        children = {}
        if workflow is not None:
            for path, digest in called_in(entries).items():
                children[path] = (await self._bundles.get(ACCOUNT, digest)).plan.workflow
        return build(
            run, workflow, entries, waits, lambda digest: self._store.blob_now(ACCOUNT, digest), children=children
        )

    async def cancel(self, run_id: str, reason: str = "", by: Who = "") -> Run:
        """Cancel a run. It is acknowledged when it is stored; a run that nobody carries on is ended here.

        Raises NotFound, Conflict if the run has ended, and Forbidden for who neither asked for it nor operates.
        """
        actor = await self.people.actor(by)
        note = actor.did("run.cancel", run_id, {"reason": reason} if reason else None)
        if actor.name != (await self._store.run(ACCOUNT, run_id)).requester:
            await self.people.demand(actor, "operator", "admin", to="cancel the run of another", about=note)
        message = Message(run_id, "cancel", body={"reason": reason, "by": actor.name}, at=self._now())
        await self._store.post(ACCOUNT, message, notes=[note])
        task = await self._worker.adopt(run_id)
        if task is not None:
            await asyncio.shield(task)
        return await self._store.run(ACCOUNT, run_id)

    # ── waits ──

    async def waits(self, *, run_id: str = "", pending_only: bool = True) -> list[Wait]:
        """Open approvals (and other waits of people), oldest first."""
        return await self._store.waits(ACCOUNT, run_id=run_id, kind="approval", pending_only=pending_only)

    async def wait(self, wait_id: str) -> Wait:
        """One wait. Raises NotFound."""
        return await self._store.wait(ACCOUNT, wait_id)

    async def decide(
        self,
        wait_id: str,
        decision: str,
        *,
        comment: str = "",
        data: Json = None,
        by: str | Actor = OPERATOR,
        digest: str = "",
    ) -> Wait:
        """Decide an approval; the wait is still pending where more decisions are wanted. `digest` is of what was shown.

        Raises NotFound, Forbidden, AlreadyDecided, Gone, Conflict (stale) and InputError (form).
        """
        said = self._hide(normalise({"decision": decision, "comment": comment, "data": data}))
        return await self.approvals.decide(wait_id, said, by, digest)

    async def send_event(self, name: str, data: Json = None, *, event_id: str = "") -> int:
        """Tell that something happened; returns how many waiting runs were told. It is kept for 24 hours.

        The same `event_id` again changes nothing and tells nobody. Raises InputError for a name or data that no event
        can have.
        """
        if not name or len(name) > 200:
            raise InputError([Problem("error", "event", "an event has a name of 1 to 200 characters")])
        event = SentEvent(event_id or f"e{secrets.token_hex(8)}", name, self._hide(normalise(data)), self._now())
        return await self._store.send_event(ACCOUNT, event)

    async def served(self) -> bool:
        """Whether a living process carries on any run of this database."""
        return await self._store.served()

    async def notifications(self, run_id: str = "") -> list[Outgoing]:
        """Stored notifications, newest first."""
        return await self._store.outgoing(ACCOUNT, run_id=run_id)

    async def doctor(self) -> list[Problem]:
        """What is configured, what works, and what is missing, each with a fix."""
        return await self._preflight.doctor()


def _plain(value: Json) -> Json:
    """The input as plain JSON. Raises InputError for what JSON does not know."""
    try:
        return normalise(value)
    except StepFailed as refused:
        message = refused.message.replace("the result", "the input", 1)
        hint = "give a reference to what is large" if refused.kind == "output_too_large" else "give plain JSON"
        raise InputError([Problem("error", "input", message, hint, "input")]) from None


def _queues(run: Run) -> bool:
    """Whether the run has not begun because its lane is full."""
    return run.status == "queued" and bool(run.lane) and not run.started


@asynccontextmanager
async def open_engine(
    database: str = "",
    *,
    settings: Settings | None = None,
    tools: Iterable[Path | str] = (),
    serves: bool = False,
    on_busy: Any = None,
    over: Callable[[Parts], Parts] = lambda parts: parts,
) -> AsyncIterator[Engine]:
    """The engine of a database (default: the settings' own). `serves` carries on every run of it that is due.

    `over` may put something else in the place of parts.
    """
    from stepwell.engine.assemble import assemble
    from stepwell.engine.settings import Settings as Loaded

    found = settings if settings is not None else Loaded.load(Path.cwd(), os.environ)
    parts = await assemble(database or found.database, found, [Path(tool) for tool in tools], on_busy)
    engine = Engine(over(parts), found, serves=serves)
    try:
        await engine.open()
        yield engine
    finally:
        await engine.close()


__all__ = ["ACCOUNT", "OPERATOR", "Engine", "RunHandle", "open_engine"]
