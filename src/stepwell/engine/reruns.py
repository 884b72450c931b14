"""Redrive and rerun: going back in a run, planned first and done only as planned.

The law of the file: nothing is done that its plan did not say, and a plan holds only for the run as it was looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.engine.fresh import lane_of, new_id
from stepwell.engine.vault import NO_VAULT, Vault
from stepwell.errors import Conflict, InputError, NotFound, Problem
from stepwell.interpreter.kind import Action
from stepwell.interpreter.rerun import Return, Site, current, from_path, joined, sites, unfinished
from stepwell.journal import path as paths
from stepwell.journal.entry import Body, Draft, encode, without_undo
from stepwell.journal.fold import Fold
from stepwell.journal.told import owner
from stepwell.journal.view import called_in
from stepwell.ports import NewRun, Reopening, Run

if TYPE_CHECKING:
    from stepwell.engine.bundles import Bundles
    from stepwell.engine.people import People, Who
    from stepwell.interpreter.definition import Definition
    from stepwell.journal.entry import Entry
    from stepwell.ports import AuditRecord, RunStore

Json: TypeAlias = Any
ACCOUNT = "default"
_UNDONE = frozenset({"compensated", "cancelled"})
_INTENT = re.compile(r"/@\d+/~start$")
_REWOUND = "/~rewound"
_SPENT = ("input_tokens", "output_tokens", "cost_usd")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asks for: to redrive (no `path`), or to rerun from the step at `path`.

    `edits` are arguments of that step; `new_run` leaves the run as it is and makes another.
    """

    path: str = ""
    edits: dict[str, Json] | None = None
    new_run: bool = False


@dataclass(frozen=True, slots=True)
class RerunPlan:
    """What would be done; `hash` is to be confirmed. Costs are what the same steps took before."""

    run: Run
    wish: Wish
    executes: tuple[dict[str, Json], ...]
    reuses: tuple[str, ...]
    repeats: tuple[dict[str, Json], ...]
    """Calls that may not be repeated and were made before: they would be made again."""
    approvals: tuple[dict[str, Json], ...]
    """Decisions of people that are used again; with edits, what they decided on was another."""
    cost: dict[str, Json]
    hash: str
    back: Return = field(repr=False, default_factory=Return)
    entries: tuple[Entry, ...] = field(repr=False, default=())

    @property
    def action(self) -> str:
        return "rerun" if self.wish.path else "redrive"

    def as_json(self) -> dict[str, Json]:
        return {
            "action": self.action,
            "run": self.run.id,
            "status": self.run.status,
            "from": self.wish.path or None,
            "new_run": self.wish.new_run,
            "executes": list(self.executes),
            "reuses": list(self.reuses),
            "repeats": list(self.repeats),
            "approvals": list(self.approvals),
            "cost": self.cost,
            "hash": self.hash,
        }


class Reruns:
    """Going back in the runs of one database."""

    def __init__(
        self, store: RunStore, bundles: Bundles, people: People, now: Callable[[], float], vault: Vault = NO_VAULT
    ) -> None:
        self._store = store
        self._people = people
        self._bundles = bundles
        self._now = now
        self._vault = vault

    async def plan(self, run_id: str, wish: Wish = Wish()) -> RerunPlan:
        """What would be executed, what used again, what repeated. Raises NotFound, Conflict, InputError."""
        self._vault.refuse(wish.edits, "the edits")
        run = await self._store.run(ACCOUNT, run_id)
        entries = await self._store.history(ACCOUNT, run_id)
        fold = Fold(entries, lambda digest: self._store.blob_now(ACCOUNT, digest))
        _refuse(run, wish, fold)
        definition = await self._bundles.get(ACCOUNT, run.definition)
        workflows = {digest: await self._bundles.get(ACCOUNT, digest) for digest in set(called_in(entries).values())}
        back = _back(run, wish, fold, definition, workflows)
        types = _types([definition, *workflows.values()])
        executes = tuple(one | {"type": types.get(_id(one["path"]))} for one in _executes(back, fold, entries))
        if not executes:
            raise Conflict(f"run {run.id} has nothing that could be done again", {"status": run.status})
        covered = [entry for entry in entries if back.covers(entry.path, fold)]
        body: dict[str, Json] = {
            "executes": executes,
            "reuses": tuple(sorted(_reuses(back, fold))),
            "repeats": tuple(_repeats(covered, fold)),
            "approvals": tuple(_approvals(back, fold, types)),
            "cost": _cost(covered, fold),
        }
        mark = encode([run.id, run.epoch, run.generation, wish.path, wish.edits, wish.new_run, body])
        return RerunPlan(
            run, wish, **body, hash=blake2b(mark, digest_size=6).hexdigest(), back=back, entries=tuple(entries)
        )

    async def carry_out(self, plan: RerunPlan, confirm: str, *, by: Who = "") -> Run:
        """Do as planned; returns the run, due to be carried on.

        Raises Conflict if `confirm` is not the plan's hash or the run has gone on since, Forbidden.
        """
        if confirm != plan.hash:
            hint = f"this plan's hash is {plan.hash}"
            raise Conflict(f"{confirm!r} confirms another plan: {hint}", {"hash": plan.hash})
        actor = await self._people.actor(by)
        said: dict[str, Json] = {"from": plan.wish.path or None, "hash": plan.hash}
        said |= {"edits": plan.wish.edits} if plan.wish.edits else {}
        said |= {"new_run": True} if plan.wish.new_run else {}
        note = actor.did(f"run.{plan.action}", plan.run.id, said)
        await self._people.demand(actor, "operator", "admin", to=f"{plan.action} a run", about=note)
        return await (self._fork(plan, note) if plan.wish.new_run else self._go_back(plan, note))

    async def _go_back(self, plan: RerunPlan, note: AuditRecord) -> Run:
        run, back = plan.run, plan.back
        fold = Fold(plan.entries, lambda digest: self._store.blob_now(ACCOUNT, digest))
        waits = await self._store.waits(ACCOUNT, run_id=run.id)
        withdraw = [wait.path for wait in waits if back.covers(wait.path, fold)]
        said = {"stale": back.stale, "reopen": back.reopen, "drop": back.drop}
        entry = self._entry(plan, said, note.by, run.generation + 1)
        reason = f"{note.by} made the run go back"
        return await self._store.reopen(ACCOUNT, run.id, Reopening(run.epoch, entry, withdraw, reason), notes=[note])

    async def _fork(self, plan: RerunPlan, note: AuditRecord) -> Run:
        """Another run that begins with what this one has, but for what is to be done again."""
        run, back = plan.run, plan.back
        fold = Fold(plan.entries, lambda digest: self._store.blob_now(ACCOUNT, digest))
        newest = {entry.path: entry for entry in sorted(plan.entries, key=lambda entry: entry.order)}
        kept = [
            without_undo(entry)  # what the old run did is the old run's to undo
            for path, entry in newest.items()
            if entry.kind != "rewound" and path in fold.outcomes and path and not back.covers(path, fold)
        ]
        kept += [entry for entry in plan.entries if entry.kind == "rewound"]  # each counts: they make the rounds
        here = plan.executes[0]["path"] if plan.wish.path else ""
        said = {"stale": [], "drop": [here] if here else [], "forked_from": run.id}
        kept.sort(key=lambda entry: entry.order)
        workflow = (await self._bundles.get(ACCOUNT, run.definition)).plan.workflow
        new = NewRun(
            id=new_id(self._now()),
            account=ACCOUNT,
            workflow=run.workflow,
            version=run.version,
            definition=run.definition,
            input=run.input,
            requester=run.requester or note.by,  # whoever asked first does not become one who may approve it
            project=run.project,
            created=self._now(),
            seed=_apart([*kept, self._entry(plan, said, note.by, 0)]),
            **lane_of(workflow, run.input),
        )
        return (await self._store.create(new, notes=[note]))[0]

    def _entry(self, plan: RerunPlan, said: dict[str, Json], by: str, generation: int) -> Entry:
        edits = {}
        if plan.wish.edits is not None:
            place = plan.executes[0]["path"] if plan.wish.new_run else paths.bare(plan.executes[0]["path"])
            edits = {place: plan.wish.edits}
        draft = Draft(_REWOUND, "rewound", Body(started=self._now()))
        draft.value({**said, "edits": edits, "by": by, "action": plan.action, "from": plan.wish.path})
        return draft.entry(generation=generation, at=self._now())


def _apart(seed: list[Entry]) -> list[Entry]:
    """The same with a path of its own for each time that people made it go back: a new run has one generation."""
    places = (f"{_REWOUND}#{number}" for number in count())
    return [replace(one, path=next(places)) if paths.bare(one.path) == _REWOUND else one for one in seed]


def _refuse(run: Run, wish: Wish, fold: Fold) -> None:
    """Raises Conflict for a run that cannot go back, InputError for a wish that makes no sense."""
    if run.status in _UNDONE or fold.outcomes.get(paths.start(paths.UNDO)) is not None:
        raise Conflict(f"run {run.id} is {run.status}: what it did is not used again; start a new run",
                       {"status": run.status})  # fmt: skip
    if wish.path:
        if "/~" in wish.path or "/@" in wish.path or "/!" in wish.path or not wish.path.startswith("/"):
            hint = "give it as `runs show` prints it, such as /draft or /items/2/check"
            raise InputError([Problem("error", "path", f"{wish.path} is not the path of a step", hint)])
    elif wish.edits or wish.new_run:
        hint = "say from where: --from PATH"
        raise InputError([Problem("error", "path", "edits and a new run belong to a rerun", hint)])
    elif run.status not in {"failed", "timed_out"}:
        raise Conflict(f"run {run.id} is {run.status}; a redrive goes on with one that failed", {"status": run.status})


def _back(run: Run, wish: Wish, fold: Fold, definition: Definition, workflows: Mapping[str, Definition]) -> Return:
    if not wish.path:
        return unfinished(fold)
    way = sites(wish.path, definition, fold, workflows)
    if wish.edits is not None and not isinstance(way[-1].step.step, Action):
        raise InputError([Problem("error", "edits", f"{wish.path} has no arguments to edit", "leave them out")])
    _refuse_unreached(way, fold)
    back = from_path(way, fold)
    return joined(back, unfinished(fold), fold) if run.status in {"failed", "timed_out"} else back


def _refuse_unreached(way: list[Site], fold: Fold) -> None:
    """Raises NotFound for a step in something that has never begun: the run comes to it by itself."""
    for site in way[:-1]:
        if not fold.has_begun(site.path):
            raise NotFound(f"the run has not reached {site.path}, so there is nothing in it to do again")


def _executes(back: Return, fold: Fold, entries: list[Entry]) -> list[dict[str, Json]]:
    """The steps that would be executed, as far as that is known, each with why."""
    found = []
    for number, bare in enumerate(back.stale):
        path = current(fold, bare)
        why = "asked for" if number == 0 else "comes after" if fold.has_begun(path) else "was not reached"
        found.append({"path": path, "because": why})
    for path in back.drop:
        if owner(path) == path and path.rpartition("/")[2] != paths.AFTER_FAILURE:
            outcome = fold.outcomes.get(path)
            failed = outcome is not None and outcome.error is not None and outcome.status == "failed"
            kind = outcome.error["kind"] if failed and outcome is not None and outcome.error else ""
            found.append({"path": path, "because": f"failed: {kind}" if failed else "was not reached"})
    turns: dict[str, int] = {}
    for place in back.drop:
        step, mark, part = place.partition("/$t")
        if mark:
            turns[step] = min(turns.get(step, 1_000), int(part.partition(".")[0]))
    found += [{"path": step, "because": f"goes on at turn {turn}"} for step, turn in turns.items()]
    cut = {entry.path for entry in entries if entry.kind == "cancelled" and entry.path not in fold.outcomes}
    found += [{"path": path, "because": "was cut off"} for path in sorted(cut) if not back.covers(path, fold)]
    return found


def _reuses(back: Return, fold: Fold) -> list[str]:
    return [
        path
        for path, outcome in fold.outcomes.items()
        if path and outcome.status == "completed" and owner(path) == path and not back.covers(path, fold)
    ]


def _types(definitions: Iterable[Definition]) -> dict[str, str]:
    """The types of all steps by id; the run's own count before those of its sub-workflows."""
    found: dict[str, str] = {}
    for definition in definitions:
        found = {step: plan.step.type for step, plan in definition.plan.steps.items()} | found
    return found


def _id(path: str) -> str:
    return paths.bare(path).rpartition("/")[2]


def _approvals(back: Return, fold: Fold, types: Mapping[str, str]) -> Iterator[dict[str, Json]]:
    """What people decided that is not asked again."""
    for path in sorted(_reuses(back, fold)):
        value = fold.outcomes[path].value if types.get(_id(path)) == "approval" else None
        if isinstance(value, dict):
            yield {"path": path, "decision": value.get("decision"), "by": value.get("by")}


def _repeats(covered: list[Entry], fold: Fold) -> list[dict[str, Json]]:
    """Calls that may not be repeated: their intent is in the journal."""
    found: dict[str, dict[str, Json]] = {}
    for entry in covered:
        if _INTENT.search(entry.path) and entry.path in fold.outcomes:
            path = owner(entry.path)
            outcome = fold.outcomes.get(path)
            error = outcome.error["kind"] if outcome is not None and outcome.error else None
            found[path] = {"path": path, "status": outcome.status if outcome else "in_doubt", "error": error}
    return list(found.values())


def _cost(covered: list[Entry], fold: Fold) -> dict[str, Json]:
    total: dict[str, Json] = {}
    for path in {entry.path for entry in covered}:
        outcome = fold.outcomes.get(path)
        meta = (outcome.meta if outcome is not None else None) or {}
        for name in _SPENT:
            if meta.get(name):
                total[name] = total.get(name, 0) + meta[name]
    return total
