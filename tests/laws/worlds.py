"""A small machine for the laws: run a definition over a store that may crash at any append, and look at what is left."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from stepwell.definition.compile import compile_workflow
from stepwell.definition.workflow import Workflow
from stepwell.engine.advance import Pass
from stepwell.engine.events import Listeners
from stepwell.engine.performer import CallContext, Performed
from stepwell.engine.world import World
from stepwell.errors import StepFailed
from stepwell.interpreter.definition import Definition
from stepwell.interpreter.effect import ModelCall, ToolCall
from stepwell.journal.entry import LARGE, Entry, outcome_of
from stepwell.journal.path import round_number
from stepwell.kinds import discover
from stepwell.ports import FINAL, Ballot, Batch, Lease, Loaded, NewRun, Run, RunStore, Tool, Verdict, Wait
from stepwell.stores.memory import MemoryRunStore

Json = Any
ACCOUNT = "default"


class Performance(BaseException):
    """Something was performed where nothing may be."""


class Crash(BaseException):
    """The process dies here."""


def workflow_of(steps: list[Json], **parts: Json) -> Workflow:
    return Workflow.model_validate(
        {"workflow": "law", "steps": steps, **parts}, context={"kinds": discover(), "names": frozenset({"it", "one"})}
    )


@dataclass
class Script:
    """What tools do: `fails` gives by step id how many attempts fail first; `refuses` names ids of steps that fail for good."""

    fails: dict[str, int] = field(default_factory=dict)
    refuses: set[str] = field(default_factory=set)
    returns: dict[str, int] = field(default_factory=dict)
    """By step id: in how many rounds it fails for good, so that its block goes back."""
    breaks: dict[str, int] = field(default_factory=dict)
    """By step id: in how many rounds of whatever it lies in it fails for good, so that a container is tried again."""
    seed: int = 0
    """Latencies of 0 to 2 ms follow from it and the path; 0 is none."""
    calls: Counter[str] = field(default_factory=Counter)
    arguments: dict[str, Json] = field(default_factory=dict)

    async def perform(self, effect: Any, context: CallContext) -> Performed:
        name = f"{context.path}@{context.attempt}"
        self.calls[name] += 1
        given = effect.call if isinstance(effect, ToolCall) else effect.arguments()
        known = self.arguments.setdefault(context.path, given)
        assert known == given, f"{context.path} was called with other arguments"
        await asyncio.sleep(0.0007 * (crc32(f"{self.seed}{context.path}".encode()) % 4) if self.seed else 0)
        step = context.path.partition("/$")[0].rpartition("/")[2].partition("#")[0]
        if round_number(context.path) <= self.returns.get(step, 0):
            raise StepFailed("refused", "another round")
        if deepest_round(context.path) <= self.breaks.get(step, 0):
            raise StepFailed("overloaded", "another round of the container", retry_after=0.0005)
        if step in self.refuses:
            raise StepFailed("invalid_request", "no")
        if context.attempt <= self.fails.get(step, 0):
            raise StepFailed("server_error", "not yet")
        return Performed(turn_of(step, effect) if isinstance(effect, ModelCall) else answer_of(context.path, given))


def turn_of(step: str, effect: ModelCall) -> Json:
    """What a model says that uses tools in none to three turns, as its id has it, and then answers."""
    mark = crc32(step.encode())
    told = crc32(repr([turn["answers"] for turn in effect.turns]).encode())
    if len(effect.turns) >= mark % 4:
        return {"answer": {"text": f"after {len(effect.turns)} turns: {effect.prompt} {told}"}}
    names = [*effect.tools, "missing"]
    calls = [
        {"id": f"c{n}", "name": names[(mark + n) % len(names)], "arguments": {"n": n}} for n in range(mark % 3 + 1)
    ]
    return {"text": "hm", "calls": calls}


def deepest_round(path: str) -> int:
    """The highest round of any segment of a path."""
    return max(int(segment.partition("#")[2] or 1) for segment in path.split("/"))


def answer_of(path: str, arguments: Json) -> Json:
    """What a scripted tool gives back; `big` asks for more than an entry may hold."""
    padding = "x" * (LARGE + 1) if arguments.get("big") else ""
    return {"path": path, "args": {name: value for name, value in arguments.items() if name != "from"}, "pad": padding}


@dataclass(frozen=True)
class Children:
    """Sub-workflows in memory: the digest of one is its name."""

    plans: dict[str, Definition]

    async def get(self, account: str, digest: str) -> Definition:
        return self.plans[digest]

    async def resolve(self, account: str, name: str, file: str) -> str:
        if name not in self.plans:
            raise StepFailed("not_found", f"there is no workflow {name!r}")
        return name


@dataclass(frozen=True)
class Pinned:
    """A definition to be run, with the sub-workflows that it calls."""

    main: Definition
    children: Children


class NoTools:
    def get(self, name: str) -> Tool | None:
        return Tool(name, "", {"type": "object"}, name != "once")

    def names(self) -> list[str]:
        return []


class CrashingStore:
    """A store whose owner dies at its n-th write, before or after it is durable."""

    def __init__(self, inner: RunStore, *, at: int, durable: bool) -> None:
        self._inner = inner
        self._left = at
        self._durable = durable

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _dies(self) -> bool:
        self._left -= 1
        return self._left == 0

    def append(self, lease: Lease, batch: Batch) -> Any:
        if self._left <= 0:
            return self._never()
        if self._dies():
            return self._die(self._inner.append(lease, batch) if self._durable else None)
        return self._inner.append(lease, batch)

    async def _never(self) -> int:
        raise Crash

    async def _die(self, written: Any) -> int:
        if written is not None:
            await written
        raise Crash

    async def release(self, lease: Lease, batch: Batch, verdict: Verdict) -> bool:
        if self._left <= 0 or (self._dies() and not self._durable):
            raise Crash
        await self._inner.release(lease, batch, verdict)
        if self._left <= 0:
            raise Crash
        return True


async def start(store: RunStore, value: Json = None, run_id: str = "r1") -> None:
    await store.create(NewRun(run_id, ACCOUNT, "law", "", "d", value or {}, created=time.time()))


async def one_pass(store: RunStore, plan: Pinned, script: Script, *, outer: Any = None, run_id: str = "r1") -> bool:
    """One pass; False if there was nothing to claim."""
    leases = await store.claim(f"w{next(_uptime)}", 15.0, run_id=run_id)
    if not leases:
        return False
    world = World(
        outer or store, {ToolCall: script.perform, ModelCall: script.perform}, NoTools(), Listeners(), plan.children
    )
    current = Pass(leases[0], await store.load(leases[0]), plan.main, world)
    while not await current.run():
        current = Pass(leases[0], await store.load(leases[0]), plan.main, world)
    return True


async def decide_all(store: RunStore, run_id: str = "r1") -> int:
    """Answer every open approval and incident, with an answer that depends on its path alone."""
    waits = await store.waits(ACCOUNT, run_id=run_id, kind="approval")
    incidents = await store.waits(ACCOUNT, run_id=run_id, kind="incident")
    for wait in incidents:
        await store.decide(ACCOUNT, wait.id, Ballot(action_for(wait.path, wait.request["actions"])))
    for wait in waits:
        await store.decide(ACCOUNT, wait.id, Ballot({"decision": "approved", "by": "ana", "comment": wait.path}))
    return len(waits) + len(incidents)


def action_for(path: str, actions: Sequence[str]) -> Json:
    """What becomes of a step that failed: it is tried again once, if at all, then mended or left out."""
    offered = [one for one in ("provide", "skip", "fallback") if one in actions] or ["skip"]
    chosen = offered[crc32(path.encode()) % len(offered)]
    if path.endswith("/!1") and "#" not in path and crc32(path.encode()) % 3 == 0:
        chosen = "retry"
    said: Json = {"action": chosen, "by": "ana", "comment": path}
    return said | ({"output": {"provided": path}} if chosen == "provide" else {})


async def finish(store: RunStore, plan: Pinned, script: Script, run_id: str = "r1") -> Run:
    """Pass after pass, deciding whatever waits, until the run has ended."""
    for _ in range(200):
        run = await store.run(ACCOUNT, run_id)
        if run.status in FINAL or run.status == "stuck":
            return run
        await one_pass(store, plan, script, run_id=run_id)
        await decide_all(store, run_id)
    waits = [
        (wait.path, wait.kind, wait.status) for wait in await store.waits(ACCOUNT, run_id=run_id, pending_only=False)
    ]
    paths = [(entry.order, entry.path, entry.kind) for entry in await store.history(ACCOUNT, run_id)]
    raise AssertionError(f"the run does not end: {run.status}, waits {waits}, journal {paths}")


def plan_of(definition: Json) -> Pinned:
    """A drawn definition (`tests/laws/definitions.py`), compiled with its children."""
    children = {
        name: Definition(compile_workflow(workflow_of(child["steps"], **child["parts"]), name), {}, {})
        for name, child in definition["children"].items()
    }
    workflow = workflow_of(definition["steps"], **definition["parts"])
    named = {name: name for name in children}
    return Pinned(Definition(compile_workflow(workflow, "d"), {}, named), Children(children))


_uptime = itertools.count(0, 1000)
"""Each look at this clock is past every lease, as if the owner of any run had died long ago."""


def fresh() -> RunStore:
    """A store whose clock is a day ahead: whatever waits for a time is due at the next claim."""
    return MemoryRunStore(clock=lambda: time.time() + 86_400, uptime=lambda: float(next(_uptime)))


async def recorded(store: RunStore, run_id: str = "r1") -> dict[str, Any]:
    """Outcomes by path, of the whole journal."""
    entries = await store.history(ACCOUNT, run_id)
    assert len({(entry.path, entry.generation) for entry in entries}) == len(entries)
    return {entry.path: outcome_of(entry, lambda digest: store.blob_now(ACCOUNT, digest)) for entry in entries}


async def replay(store: RunStore, plan: Pinned, run_id: str = "r1") -> tuple[Verdict | None, list[Any]]:
    """The verdict of a pass over the whole journal in which nothing may be performed, and what it wanted to record."""
    run = await store.run(ACCOUNT, run_id)
    entries = [entry for entry in await store.history(ACCOUNT, run_id) if entry.path]
    return await replay_journal(run, entries, plan, lambda digest: store.blob_now(ACCOUNT, digest))


async def replay_journal(
    run: Run, entries: list[Entry], plan: Pinned, blob: Callable[[str], bytes], waits: Sequence[Wait] = ()
) -> tuple[Verdict | None, list[Any]]:
    """As `replay`, of a journal at hand."""

    async def perform(effect: Any, context: CallContext) -> Performed:
        raise Performance(context.path)

    class Closed:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} was called on replay")

        def blob_now(self, account: str, digest: str) -> bytes:
            return blob(digest)

    lease = Lease(run.id, ACCOUNT, 0, 0, "")
    world = World(Closed(), {ToolCall: perform, ModelCall: perform}, NoTools(), Listeners(), plan.children)  # type: ignore[arg-type]
    current = Pass(lease, Loaded(run, entries, (), waits), plan.main, world)
    try:
        verdict = await current._verdict()
    finally:
        current.runtime.close()
    return verdict, current.runtime.closing()
