"""Migration: moving a parked run to another definition, checked before by planning what it would do there.

The law of the file: the check performs nothing; where anything that is recorded or waited for does not fit, nothing is
changed; else the run's definition and the entry that says so are written in one transaction, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.schemas import problems_of
from stepwell.definition.step import walk
from stepwell.engine.advance import facts
from stepwell.engine.foresight import Foresight, foresee
from stepwell.errors import Conflict, NotFound
from stepwell.interpreter.plan import Known
from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft, Entry, outcome_of
from stepwell.journal.places import Places
from stepwell.journal.told import owner
from stepwell.journal.view import called_in
from stepwell.ports import PARKED, Loaded, Repin, Run, Wait

if TYPE_CHECKING:
    from stepwell.definition.compile import StepPlan
    from stepwell.definition.workflow import Workflow
    from stepwell.engine.bundles import Bundles
    from stepwell.engine.parts import Parts
    from stepwell.interpreter.definition import Definition
    from stepwell.people.actor import Actor

Json: TypeAlias = Any

MIGRATED = "/~migrated"
"""Where the journal says that a run was given another definition; a second time in round 2, and so on."""


@dataclass(frozen=True, slots=True)
class Clash:
    """Something of a run that does not fit another definition: what is recorded, what is asked for now, what to do."""

    path: str
    message: str
    recorded: str = ""
    now: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Migration:
    """What moving a run to another definition means. `changes` are what is told and stands in nobody's way."""

    run: Run
    before: str
    after: str
    version: str
    conflicts: tuple[Clash, ...] = ()
    changes: tuple[Clash, ...] = ()
    wake: bool = False
    """Whether the run has something to do at once."""
    count: int = 0
    """How often the run was moved before."""
    done: bool = False

    @property
    def same(self) -> bool:
        """Whether the run has this definition already: what differs, if anything does, is cosmetic."""
        return self.before == self.after


class Migrations:
    """Planned and made for one account."""

    def __init__(self, parts: Parts, bundles: Bundles, now: Callable[[], float]) -> None:
        self._parts = parts
        self._store = parts.store
        self._bundles = bundles
        self._account = parts.account
        self._now = now

    async def plan(self, run_id: str, digest: str) -> Migration:
        """What moving a run to a stored definition would do. Raises NotFound, and Conflict if it is not parked."""
        loaded = await self._store.peek(self._account, run_id)
        run = loaded.run
        if run.status not in PARKED:
            hint = "; it ended" if run.ended else "; wait until it is parked"
            raise Conflict(f"run {run.id} is {run.status}, and only a parked run can be moved{hint}", run.status)
        new = await self._bundles.get(self._account, digest)
        count = sum(paths.bare(entry.path) == MIGRATED for entry in loaded.entries)
        workflow = new.plan.workflow
        found = Migration(run, run.definition, digest, workflow.version, count=count)
        if found.same and run.status != "stuck":
            return found
        if workflow.workflow != run.workflow:
            clash = Clash("", "the run is of another workflow", run.workflow, workflow.workflow, "name a version of it")
            return replace(found, conflicts=(clash,))
        return await self._checked(found, loaded, new)

    async def move(self, plan: Migration, actor: Actor) -> Run:
        """Make a plan without conflicts true. Raises Conflict if the run has gone on since."""
        now, run = self._now(), plan.run
        draft = Draft(paths.with_round(MIGRATED, plan.count + 1), "started", Body(started=now, active=run.active))
        draft.value({"from": plan.before, "to": plan.after, "version": plan.version, "by": actor.name, "at": now})
        entry = draft.entry(generation=run.generation, at=now)
        pin = Repin(plan.after, plan.version, run.epoch, plan.before, entry, plan.wake)
        noted = actor.did("run.migrate", run.id, {"from": plan.before, "to": plan.after, "version": plan.version})
        return await self._store.repin(self._account, run.id, pin, notes=[noted])

    async def _checked(self, found: Migration, loaded: Loaded, new: Definition) -> Migration:
        entries = loaded.entries
        called = called_in(entries)
        children = {path: await self._bundles.get(self._account, digest) for path, digest in called.items()}
        places = {path: child.plan.workflow for path, child in children.items()}
        after = await foresee(await self._known(loaded, new, called))
        before = await self._before(loaded, called)
        check = _Check(loaded, new, (before, after), Places(new.plan.workflow, places), self._fetch)
        clashes = tuple(check.clashes())
        changes = tuple(check.changes())
        busy = bool(after.plan.effects or after.plan.names or after.plan.outcome)
        opened = any(wait.path not in {one.path for one in loaded.waits} for wait in after.plan.waits)
        wake = busy or opened or loaded.run.status == "stuck"
        return replace(found, conflicts=clashes, changes=changes, wake=wake)

    async def _before(self, loaded: Loaded, called: dict[str, str]) -> Foresight | None:
        """What the run would do under the definition that it has; None if that is gone."""
        try:
            old = await self._bundles.get(self._account, loaded.run.definition)
        except NotFound:
            return None
        return await foresee(await self._known(loaded, old, called))

    async def _known(self, loaded: Loaded, definition: Definition, called: dict[str, str]) -> Known:
        run = loaded.run
        workflows: dict[str, Definition] = {}
        ahead = [*definition.workflows.values(), *called.values()]
        while ahead:
            if (digest := ahead.pop()) not in workflows:
                inner = workflows[digest] = await self._bundles.get(self._account, digest)
                ahead += inner.workflows.values()
        return Known(
            run_id=run.id,
            definition=definition,
            workflow_input=run.input,
            facts=facts(run),
            entries=loaded.entries,
            now=self._now(),
            active=run.active,
            generation=run.generation,
            messages={one.path: one.body for one in loaded.messages if one.kind == "decision"},
            open={wait.path: wait.opened for wait in loaded.waits},
            workflows=workflows,
            fetch=self._fetch,
            repeatable=self._repeatable,
        )

    def _fetch(self, digest: str) -> bytes:
        return self._store.blob_now(self._account, digest)

    def _repeatable(self, tool: str) -> bool:
        known = self._parts.tools.get(tool)
        return known is None or known.idempotent


class _Check:
    """What of a run does not fit a new definition, and what becomes different."""

    def __init__(
        self,
        loaded: Loaded,
        new: Definition,
        seen: tuple[Foresight | None, Foresight],
        places: Places,
        fetch: Callable[[str], bytes],
    ) -> None:
        before, after = seen
        self._run = loaded.run
        self._workflow: Workflow = new.plan.workflow
        self._new = new
        self._before = before
        self._after = after
        self._places = places
        self._fetch = fetch
        self._waits = [wait for wait in loaded.waits if wait.path not in {one.path for one in loaded.messages}]
        self._entries = [entry for entry in loaded.entries if paths.bare(entry.path) != MIGRATED]
        self._called = tuple(called_in(loaded.entries))
        self._steps = self._by_step()

    def clashes(self) -> Iterator[Clash]:
        yield from self._of_the_run()
        yield from self._of_branches()
        waiting = list(self._of_waits())
        yield from waiting
        told = {clash.path for clash in waiting}
        for drift in self._after.drifts:
            told.add(drift.path)
            yield Clash(
                drift.path,
                "what this step asked for is not what the new definition asks for",
                drift.recorded,
                drift.now,
                "leave its arguments as they were, or move the run once it has gone past what uses them",
            )
        for path in self._unreached():
            if path not in told:
                yield from self._lost(path)
        yield from self._of_exports()
        if self._after.broken:
            hint = "look at the steps that have begun: their kind and their branches stay as they are"
            yield Clash("", "the run cannot be gone on with", "", self._after.broken, hint)

    def changes(self) -> Iterator[Clash]:
        """What is told: it becomes different, and nothing that is recorded speaks against it."""
        asked = {wait.path: wait for wait in self._before.plan.waits} if self._before is not None else {}
        for wait in self._after.plan.waits:
            if wait.path in asked and asked[wait.path].request != wait.request:
                message = "what is waited for reads differently now; what is open stays as it was shown"
                yield Clash(wait.path, message)
        before = {one.path for one in self._before.plan.effects} if self._before is not None else set()
        for effect in self._after.plan.effects:
            if effect.path not in before:
                yield Clash(effect.path, "is done as soon as the run goes on")
        for path in self._unreached():
            if self._is_gone(path) and self._ended(path):
                yield Clash(path, "is no step any more; its record stays in the history and is not used")
        outcome = self._after.plan.outcome
        if outcome is not None and outcome.status == "completed":
            yield Clash("", "the run completes as soon as it goes on")

    # ── the run itself ──

    def _of_the_run(self) -> Iterator[Clash]:
        for problem in problems_of(self._workflow.input, self._run.input) if self._workflow.input else ():
            yield Clash("", f"the run's input does not fit: {problem}", hint="make the new field optional")
        limit = self._workflow.timeout
        if self._run.active >= limit:
            used = f"{self._run.active:g} s active"
            yield Clash("", "the run has used up its time", used, f"timeout {limit:g} s", "give it a longer timeout")
        outcome, before = self._after.plan.outcome, self._before.plan.outcome if self._before is not None else None
        if outcome is not None and outcome.status == "failed" and (before is None or before.status != "failed"):
            error = outcome.error or {}
            said = f"{error.get('kind')}: {error.get('message')}"
            yield Clash(str(error.get("path", "")), "the run fails as soon as it goes on", "", said, "mend the step")

    # ── steps that have begun ──

    def _by_step(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in self._entries:
            found.setdefault(owner(entry.path), []).append(entry)
        return found

    def _ended(self, path: str) -> bool:
        return any(one.path == path and one.kind in {"succeeded", "failed", "settled"} for one in self._steps[path])

    def _is_gone(self, path: str) -> bool:
        place = self._places.at(path)
        return place.is_step and not place.type

    def _of_branches(self) -> Iterator[Clash]:
        """Conditions that have chosen a branch, and parallels that have begun one, still have it."""
        for path in self._steps:
            begun = next((one for one in self._steps[path] if one.path == paths.start(path)), None)
            if begun is None or self._ended(path):
                continue
            value = outcome_of(begun, self._fetch).value
            taken = value.get("branch") if isinstance(value, dict) else None
            names = [block.name for block in self._places.at(path).shape.blocks]
            if isinstance(taken, str) and taken not in names:
                now = ", ".join(name for name in names if name) or self._places.at(path).type or "no such step"
                hint = "keep the branch until the run has left it"
                yield Clash(path, "the branch that was taken is not there any more", taken, now, hint)

    def _of_exports(self) -> Iterator[Clash]:
        """Settled containers kept the records of what was referred to then; more cannot be had."""
        plans = dict(_plans(self._new.plan.root.steps))
        for path, entries in self._steps.items():
            plan = plans.get(paths.bare(path).rpartition("/")[2])
            settled = next((one for one in entries if one.path == path and one.kind == "settled"), None)
            if plan is None or settled is None or any(paths.is_below(path, called) for called in self._called):
                continue
            outcome = outcome_of(settled, self._fetch)
            if outcome.status != "completed":
                continue
            inside = self._inside(path, outcome.value)
            for step in plan.exports:
                if step in inside and step not in (outcome.exports or {}):
                    message = f"a later step refers to {step} inside it, whose record was not kept when it settled"
                    yield Clash(path, message, hint=f"refer to the output of {plan.id}, or let the run end as it is")

    def _inside(self, path: str, value: Json) -> set[str]:
        """Ids of the steps inside a settled container that had a turn."""
        taken = value.get("branch") if isinstance(value, dict) else None
        place = self._places.at(path)
        blocks = [block for block in place.shape.blocks if not place.shape.chooses or block.name == taken]
        return {step.id for block in blocks for step in walk(block.steps)}

    # ── what is not come to ──

    def _unreached(self) -> list[str]:
        """Steps with a record that the old definition comes to and the new one does not, outermost ones."""
        live = set(self._steps) if self._before is None else self._steps.keys() & self._before.seen
        lost = sorted(path for path in live if path and path not in self._after.seen)
        return [path for path in lost if not any(paths.is_below(path, other) for other in lost)]

    def _lost(self, path: str) -> Iterator[Clash]:
        if self._is_gone(path):
            if not self._ended(path):
                yield Clash(path, "has begun and is no step any more", "begun", "removed", "keep it until it has ended")
            return
        ahead = [one.path for one in self._after.plan.effects] + [one.path for one in self._after.plan.waits]
        first = ", ".join(ahead[:3]) or "nothing"
        yield Clash(
            path,
            "is recorded, and the new definition does not come to it",
            "ended" if self._ended(path) else "begun",
            f"comes first: {first}",
            "put new steps after what has been done",
        )

    def _of_waits(self) -> Iterator[Clash]:
        wanted = {wait.path: wait for wait in self._after.plan.waits}
        for wait in self._waits:
            now = wanted.get(wait.path)
            if now is not None and now.kind == wait.kind:
                continue
            yield self._unwanted(wait, now.kind if now is not None else "")

    def _unwanted(self, wait: Wait, kind: str) -> Clash:
        path = owner(wait.path)
        if kind:
            return Clash(path, f"waits for {wait.kind} and would wait for {kind}", wait.kind, kind, "keep its kind")
        if self._is_gone(path):
            now, hint = "no such step", f"keep {path.rpartition('/')[2]} until it is decided"
        else:
            ahead = [one.path for one in self._after.plan.effects] + [one.path for one in self._after.plan.waits]
            now = f"comes first: {', '.join(ahead[:3])}" if ahead else "not asked for"
            hint = "put new steps after it, or decide it before"
        return Clash(path, f"waits ({wait.kind}), and the new definition does not ask for it now", wait.kind, now, hint)


def _plans(steps: Sequence[StepPlan]) -> Iterator[tuple[str, StepPlan]]:
    for plan in steps:
        yield plan.id, plan
        for block in plan.blocks.values():
            yield from _plans(block.steps)
