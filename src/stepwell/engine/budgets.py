"""Budgets and usage: what was spent, what may be, and letting more be spent.

The law of the file: a raise is stored with who made it before anything goes on because of it, and the same raise again
goes on with whatever still waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.engine.budget_words import dollars, named
from stepwell.engine.incidents import ACCOUNT, Action, Filter
from stepwell.engine.run_budgets import limit_of
from stepwell.errors import AlreadyDecided, Gone, InputError, NotFound, Problem, StepwellError
from stepwell.journal.view import called_in
from stepwell.people.actor import local_operator
from stepwell.ports import EVERY_REQUEST, NANO, Limit, Reservation, Usage, UsageFilter, UsageKey
from stepwell.stores.spending_rules import lets_in

if TYPE_CHECKING:
    from stepwell.engine.budget_settings import BudgetSettings
    from stepwell.engine.bundles import Bundles
    from stepwell.engine.incidents import Incidents
    from stepwell.engine.people import People, Who
    from stepwell.ports import Run, RunStore, Standing, Wait

Json: TypeAlias = Any
KIND = "budget_exceeded"

log = logging.getLogger("stepwell.budgets")


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose budget is meant: a run's (below a path, a sub-workflow's in it), a workflow's, or the account's."""

    run_id: str = ""
    below: str = ""
    workflow: str = ""


@dataclass(frozen=True, slots=True)
class Raised:
    """A budget as it stands after a raise, and the incidents that waited for it: gone on with, and still short."""

    standing: Standing
    continued: Sequence[Wait] = field(default=())
    short: Sequence[Wait] = field(default=())


class Budgets:
    """Hangs on an engine as `engine.budgets`."""

    def __init__(
        self,
        store: RunStore,
        bundles: Bundles,
        incidents: Incidents,
        people: People,
        settings: BudgetSettings,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._bundles = bundles
        self._incidents = incidents
        self._people = people
        self._settings = settings
        self._now = now
        self._account = ACCOUNT
        self._looking: set[asyncio.Task[None]] = set()

    # ── reading ──

    async def usage(self, by: UsageKey = "workflow", which: UsageFilter = EVERY_REQUEST) -> list[Usage]:
        """What requests to models took, by what they have in common."""
        return await self._store.spending.usage(self._account, by, which)

    async def filled(self, runs: Sequence[Run]) -> list[Run]:
        """Runs with what their requests took, counted up to now: also by passes that a crash ended."""
        ids = [run.id for run in runs]
        if not ids:
            return []
        used = {one.key: one for one in await self.usage("run", UsageFilter(ids))}
        return [replace(run, usage=_usage_of(run, used[run.id])) if run.id in used else run for run in runs]

    async def standings(self, scope: Scope) -> list[Standing]:
        """How the budgets of a scope stand; those of a run with its workflow's and the account's. Raises NotFound."""
        now = self._now()
        if scope.run_id:
            run = await self._store.run(self._account, scope.run_id)
            limits = [*await self._of_run(run), *self._settings.limits(run.workflow, now)]
        elif scope.workflow:
            limits = [one for one in self._settings.limits(scope.workflow, now) if one.scope == "workflow"]
        else:
            limits = [one for one in self._settings.limits("", now) if one.scope == "account"]
        return await self._store.spending.standings(self._account, limits)

    async def _of_run(self, run: Run) -> list[Limit]:
        """The budget of a run, and those of the sub-workflows that it has entered."""
        entries = await self._store.history(run.account, run.id)
        found = []
        for path, digest in [("", run.definition), *called_in(entries).items()]:
            try:
                budget = (await self._bundles.get(run.account, digest)).plan.workflow.budget
            except NotFound:
                continue
            if budget is not None:
                found.append(limit_of(budget, run.id, path))
        return found

    # ── raising ──

    async def raise_to(
        self, scope: Scope, *, tokens: int | None = None, nano_usd: int | None = None, by: Who = ""
    ) -> Raised:
        """Let so much be spent in a scope, all that is spent already included, and go on with what waited for it.

        A raise of a workflow's or the account's budget is for its present period. Raises NotFound, Forbidden, and
        InputError for less than holds now, and for what has no budget.
        """
        actor = await self._people.actor(by)
        before = await self._meant(scope)
        wanted = replace(before.limit, tokens=tokens, nano_usd=nano_usd)
        detail: dict[str, Json] = {"scope": wanted.scope, "path": wanted.below, "period": wanted.period}
        detail |= {"tokens": tokens, "usd": None if nano_usd is None else dollars(nano_usd)}
        note = actor.did("budget.raise", wanted.subject, {name: value for name, value in detail.items() if value})
        await self._people.demand(actor, "operator", "admin", to="raise a budget", about=note)
        _check(before, tokens, nano_usd)
        account = self._account
        await self._store.spending.raise_to(account, wanted, notes=[note])
        (standing,) = await self._store.spending.standings(account, [before.limit])
        continued, short = [], []
        for wait in await self._incidents.open(Filter(wanted.subject if wanted.scope == "run" else "", kind=KIND)):
            if not _is_for(wait, wanted):
                continue
            if not _fits(wait, standing):
                short.append(wait)
            elif await self._go_on(wait, f"{named(wanted)} was raised", actor):
                continued.append(wait)
        return Raised(standing, continued, short)

    async def _meant(self, scope: Scope) -> Standing:
        wanted = "run" if scope.run_id else "workflow" if scope.workflow else "account"
        for standing in await self.standings(scope):
            if standing.limit.scope == wanted and standing.limit.below == scope.below:
                return standing
        if scope.below:
            message = f"no workflow with a budget was called at {scope.below} of run {scope.run_id}"
        elif scope.run_id:
            message = f"the workflow of run {scope.run_id} declares no budget"
        else:
            whose = f"the workflow {scope.workflow}" if scope.workflow else "the account"
            message = f"the settings declare no budget of {whose}"
        raise InputError([Problem("error", "budget", message, "what has no budget is not limited")])

    async def _go_on(self, wait: Wait, because: str, actor: Any) -> bool:
        try:
            await self._incidents.settle(wait.id, Action("retry", comment=because), by=actor)
        except (AlreadyDecided, Gone):  # somebody else settled it
            return False
        return True

    # ── incidents that open after their budget was raised ──

    def opened(self, wait: Wait) -> None:
        """Told of every wait that a pass opens: the budget may have been raised since the request was refused."""
        if wait.kind == "incident" and wait.request["error"]["kind"] == KIND:
            task = asyncio.create_task(self._look_again(wait))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

    async def _look_again(self, wait: Wait) -> None:
        limit = _limit_in(wait)
        if limit is None:
            return
        try:
            (standing,) = await self._store.spending.standings(wait.account, [limit])
            if standing.limit != limit and _fits(wait, standing):
                await self._go_on(wait, f"{named(limit)} was raised", local_operator(channel="engine"))
        except StepwellError as problem:  # the incident stands, and the same raise again goes on with it
            log.warning("incident %s was not looked at again: %s", wait.id, problem)


def _usage_of(run: Run, used: Usage) -> dict[str, Json]:
    """What the requests of a run took, with what only the run itself knows of it."""
    return {name: value for name, value in run.usage.items() if name == "cached_tokens"} | as_json(used)


def as_json(used: Usage) -> dict[str, Json]:
    """Usage as programs see it; money is exact to a billionth of a dollar."""
    facts: dict[str, Json] = {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens}
    if not used.unpriced or used.nano_usd:
        facts["cost_usd"] = used.nano_usd / NANO
    facts["requests"] = used.requests
    doubts = {"lost_requests": used.lost, "tokens_without_price": used.unpriced}
    return facts | {name: number for name, number in doubts.items() if number}


def _check(before: Standing, tokens: int | None, nano_usd: int | None) -> None:
    """Raises InputError for a raise that would be none."""
    limit, problems = before.limit, []
    if tokens is None and nano_usd is None:
        problems.append(Problem("error", "budget", "it is not said to what", "give --tokens or --usd"))
    for given, holds, word, shown in (
        (tokens, limit.tokens, "tokens", str),
        (nano_usd, limit.nano_usd, "dollars", dollars),
    ):
        if given is None:
            continue
        if holds is None:
            problems.append(Problem("error", "budget", f"{named(limit)} does not limit {word}", "leave it out"))
        elif given < holds:
            said = f"{named(limit)} is {shown(holds)} already, which is more than {shown(given)}"
            problems.append(Problem("error", "budget", said, "a budget is raised to a higher total"))
    if problems:
        raise InputError(problems)


def _limit_in(wait: Wait) -> Limit | None:
    """The limit that an incident tells of."""
    detail = wait.request["error"].get("detail")
    facts = detail.get("budget") if isinstance(detail, dict) else None
    if not isinstance(facts, dict):
        return None
    usd = facts.get("limit_usd")
    return Limit(
        facts["scope"],
        facts["subject"],
        facts.get("path", ""),
        facts.get("period", ""),
        facts.get("limit_tokens"),
        None if usd is None else round(usd * NANO),
    )


def _is_for(wait: Wait, raised: Limit) -> bool:
    """Whether an incident waits for this budget, in whatever period it was refused."""
    limit = _limit_in(wait)
    return limit is not None and (limit.scope, limit.subject, limit.below) == (
        raised.scope,
        raised.subject,
        raised.below,
    )


def _fits(wait: Wait, standing: Standing) -> bool:
    """Whether there is room now for what an incident's request asked for."""
    facts = wait.request["error"]["detail"]["budget"]
    usd = facts.get("asked_usd")
    asked = Reservation(
        "", "", "", "", 0, "", 0, facts.get("asked_tokens") or 0, 0, 0 if usd is None else round(usd * NANO)
    )
    return lets_in(replace(standing, open_tokens=0, open_nano_usd=0), asked)
