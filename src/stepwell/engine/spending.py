"""Spending: each request to a model is reserved before it is made and settled after it, whatever became of it.

The law of the file: while a budget holds, no request is made that could take more than is left; what nobody knows
counts with the most that it can have been; a request is settled once.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from stepwell.adapters.limits.queueing import granted
from stepwell.adapters.models import bounds
from stepwell.engine.budget_words import exceeded, unpriced
from stepwell.engine.lines import Lines
from stepwell.errors import StepFailed
from stepwell.ports import Limit, ModelReply, ModelRequest, Reservation, Spent, Standing
from stepwell.stores.spending_rules import lets_in

if TYPE_CHECKING:
    from stepwell.engine.budget_settings import BudgetSettings
    from stepwell.engine.performer import CallContext
    from stepwell.ports import LanguageModel, Spending

Json: TypeAlias = Any
Complete: TypeAlias = "Callable[[LanguageModel, ModelRequest], Awaitable[ModelReply]]"

SHORTEST = 256
"""Tokens below which an answer that nobody bounded is not cut to fit what is left."""
OVERDUE = 300.0
"""Seconds past its timeout after which nobody believes that a request is still in flight, besides waiting for slots."""
NOTHING = Spent(nano_usd=0)
"""Of a request that surely generated nothing."""
MOST_TOKENS = 1_000_000_000
"""Tokens of one request above which nobody is believed."""
MOST_DOLLARS = 1_000_000
"""The same of money."""
_UNPAID = frozenset({"rate_limit", "overloaded", "auth_error", "not_found", "invalid_request"})
"""Kinds of failures with which a provider refuses before it generates anything."""
_BROKEN = frozenset({"timeout", "connection_error"})
"""Kinds of failures after which more may have been generated than was told."""

log = logging.getLogger("stepwell.spending")


class Spender:
    """What the models of one project may spend."""

    def __init__(self, spending: Spending, budgets: BudgetSettings, now: Callable[[], float]) -> None:
        self.spending = spending
        self.budgets = budgets
        self.now = now
        self.lines = Lines()

    def limits(self, context: CallContext, at: float) -> tuple[Limit, ...]:
        """All that bounds a call made at an instant; nothing where the run is being undone."""
        if not context.bounded:
            return ()
        return (*context.limits, *self.budgets.limits(context.workflow, at))


@dataclass(slots=True)
class _Wish:
    """A request as it may be made."""

    model: LanguageModel
    request: ModelRequest
    cuttable: bool = False
    """Whether nobody said how long the answer may be."""
    replaced: bool = False


@dataclass(slots=True)
class Purse:
    """Pays for the requests of one call. `choose` finds the model that a budget names instead."""

    spender: Spender
    context: CallContext
    choose: Callable[[str], tuple[LanguageModel, str]]
    facts: dict[str, Json] = field(default_factory=dict)
    """For people: that another model was asked, or the answer cut, because of a budget."""

    async def pay(self, model: LanguageModel, request: ModelRequest, complete: Complete) -> ModelReply:
        """Make a request when there is room for it. Raises StepFailed: budget_exceeded, and what `complete` raises."""
        if not self.spender.limits(self.context, self.spender.now()):
            return await self._unlimited(model, request, complete)
        wish = _Wish(model, request, request.max_tokens is None)
        if wish.cuttable:
            wish.request = replace(request, max_tokens=bounds.answer_tokens(model))
        asked = await self._waited(wish)
        try:
            reply = await complete(wish.model, wish.request)
        except StepFailed as failure:
            await self._settle(asked, await self._took(wish, failure))
            raise
        except BaseException:  # cancelled, or the engine's own trouble: handed over at once, awaited by nobody
            self._hand_over(asked, Spent(lost=True))
            raise
        await self._settle(asked, await self._spent(wish, reply))
        return reply

    # ── without a budget ──

    async def _unlimited(self, model: LanguageModel, request: ModelRequest, complete: Complete) -> ModelReply:
        wish = _Wish(model, request)
        try:
            reply = await complete(model, request)
        except StepFailed as failure:
            spent = await self._took(wish, failure)
            if not spent.lost or failure.kind in _BROKEN or _has_begun(failure) or _told(failure) is not None:
                await self._record(wish, spent)  # else the provider failed by itself, and no limit is at stake
            raise
        except BaseException:  # handed over at once, awaited by nobody
            recorded = asyncio.ensure_future(self._record(wish, Spent(lost=True)))
            recorded.add_done_callback(self._handed_over)
            raise
        await self._record(wish, await self._spent(wish, reply))
        return reply

    async def _record(self, wish: _Wish, spent: Spent) -> None:
        asked = self._reservation(wish)
        if spent.lost:
            most = bounds.answer_tokens(wish.model) if wish.request.max_tokens is None else wish.request.max_tokens
            cost = await self._priced(wish.model, wish.request.model, asked.input_tokens, most)
            asked = replace(asked, output_tokens=most, nano_usd=cost)
        elif spent == NOTHING:
            return
        await self.spender.spending.record(self.context.account, asked, spent)

    # ── reserving ──

    async def _waited(self, wish: _Wish) -> Reservation:
        """Wait for room, as time in a queue."""
        admitted = asyncio.ensure_future(self._admitted(wish))
        try:
            await granted(admitted)
        except asyncio.CancelledError:  # it may have been admitted in the same moment
            if admitted.done() and not admitted.cancelled() and admitted.exception() is None:
                self._hand_over(admitted.result(), NOTHING)
            raise
        return admitted.result()

    async def _admitted(self, wish: _Wish) -> Reservation:
        """Reserve what the wish takes at most, changed to what a budget wants instead if it must be."""
        places = [_place(limit) for limit in self.spender.limits(self.context, self.spender.now())]
        line = self.spender.lines.first(places)
        if line is None:
            found = await self._try(wish)
            if isinstance(found, Reservation):
                return found
            line = _place(found.limit)
        async with self.spender.lines.ahead(line):
            while not isinstance(found := await self._try(wish), Reservation):
                await self.spender.lines.change()
            return found

    async def _try(self, wish: _Wish) -> Reservation | Standing:
        """Reserve, or say which limit is full only because of requests in flight. Raises StepFailed for others."""
        while True:
            asked = replace(self._reservation(wish), nano_usd=await self._most(wish))
            limits = self.spender.limits(self.context, asked.at)
            full = await self._reserve(asked, limits)
            if full is None:
                return asked
            if full.limit.nano_usd is not None and asked.nano_usd is None:
                raise unpriced(full.limit, asked.model)
            if lets_in(replace(full, open_tokens=0, open_nano_usd=0), asked):
                return full
            if not (self._cheaper(wish, full) or await self._cut(wish, limits, full)):
                raise exceeded(full, asked, replaced=wish.replaced)

    async def _reserve(self, asked: Reservation, limits: tuple[Limit, ...]) -> Standing | None:
        try:
            return await self.spender.spending.reserve(self.context.account, asked, limits)
        except asyncio.CancelledError:  # it may have been handed over
            self._hand_over(asked, NOTHING)
            raise

    def _reservation(self, wish: _Wish) -> Reservation:
        context, request, now = self.context, wish.request, self.spender.now()
        return Reservation(
            id=secrets.token_hex(12),
            run_id=context.run_id,
            workflow=context.workflow,
            path=context.path,
            attempt=context.attempt,
            model=request.model or bounds.name_of(wish.model),
            epoch=context.epoch,
            input_tokens=bounds.input_tokens(request),
            output_tokens=request.max_tokens or 0,
            at=now,
            until=now + request.timeout + OVERDUE,
        )

    def _cheaper(self, wish: _Wish, full: Standing) -> bool:
        """Turn to the model that the budget names instead, once."""
        name = full.limit.on_exceed.get("model") if isinstance(full.limit.on_exceed, dict) else None
        if wish.replaced or not name:
            return False
        wish.replaced = True
        before = self._reservation(wish).model
        wish.model, own_name = self.choose(name)
        cut = bounds.answer_tokens(wish.model) if wish.cuttable else wish.request.max_tokens
        wish.request = replace(wish.request, model=own_name, max_tokens=cut)
        self.facts["instead_of"] = before
        return True

    async def _cut(self, wish: _Wish, limits: tuple[Limit, ...], full: Standing) -> bool:
        """Make an answer that nobody bounded as short as fits what is left, if that is worth asking."""
        most = wish.request.max_tokens or 0
        if not wish.cuttable or most <= SHORTEST:
            return False
        going_in = bounds.input_tokens(wish.request)
        for one in (full, *await self.spender.spending.standings(self.context.account, limits)):
            if one.limit.tokens is not None:
                most = min(most, one.limit.tokens - one.tokens - going_in)
            if one.limit.nano_usd is not None:
                most = await self._affordable(wish, one.limit.nano_usd - one.nano_usd, most)
        if not SHORTEST <= most < (wish.request.max_tokens or 0):
            return False
        wish.request = replace(wish.request, max_tokens=most)
        self.facts["max_tokens_cut_to"] = most
        return True

    async def _affordable(self, wish: _Wish, left: int, most: int) -> int:
        """The longest answer, up to `most`, that costs no more than is left; 0 if there is none."""
        low, high = 0, max(0, most)
        while low < high:
            middle = (low + high + 1) // 2
            cost = await self._most(replace(wish, request=replace(wish.request, max_tokens=middle)))
            if cost is not None and cost <= left:
                low = middle
            else:
                high = middle - 1
        return low

    # ── settling ──

    async def _settle(self, asked: Reservation, spent: Spent) -> None:
        settled = self.spender.spending.settle(self.context.account, asked.id, spent)
        self.spender.lines.settled()
        await settled
        self.spender.lines.settled()

    def _hand_over(self, asked: Reservation, spent: Spent) -> None:
        settled = asyncio.ensure_future(self.spender.spending.settle(self.context.account, asked.id, spent))
        settled.add_done_callback(self._handed_over)

    def _handed_over(self, settled: asyncio.Future[Any]) -> None:
        self.spender.lines.settled()
        if not settled.cancelled() and (problem := settled.exception()) is not None:
            log.warning("what a request took could not be settled, the most is counted: %s", problem)

    # ── what it takes ──

    async def _most(self, wish: _Wish) -> int | None:
        request = wish.request
        most = (request.model, bounds.input_tokens(request), request.max_tokens or 0)
        return await self._priced(wish.model, *most)

    async def _priced(self, model: LanguageModel, name: str, going_in: int, coming_out: int) -> int | None:
        if bounds.has_price(model):
            return bounds.nano_usd(model, name, going_in, coming_out)
        return await asyncio.to_thread(bounds.nano_usd, model, name, going_in, coming_out)

    async def _spent(self, wish: _Wish, reply: ModelReply) -> Spent:
        if not _is_told(reply):
            return Spent(lost=True)
        cost = bounds.nano_of(reply.cost_usd) if _is_amount(reply.cost_usd) else None
        if cost is None and bounds.has_price(wish.model):
            cost = await self._priced(wish.model, wish.request.model, reply.input_tokens, reply.output_tokens)
        return Spent(reply.input_tokens, reply.output_tokens, cost)

    async def _took(self, wish: _Wish, failure: StepFailed) -> Spent:
        """What a failed request took: what it says, nothing if it surely was not generated, else nobody knows."""
        if _has_begun(failure):
            return Spent(lost=True)
        if failure.kind in _UNPAID or _never_sent(failure):
            return NOTHING
        told = _told(failure)
        if told is None or failure.kind in _BROKEN:
            return Spent(lost=True)
        return await self._spent(wish, told)


def _has_begun(failure: StepFailed) -> bool:
    """Whether an answer had begun and did not come to its end: more may have been generated than was told."""
    return isinstance(failure.detail, dict) and "partial" in failure.detail


def _told(failure: StepFailed) -> ModelReply | None:
    """What a failed request took as far as it was told."""
    usage = failure.detail.get("usage") if isinstance(failure.detail, dict) else None
    if not isinstance(usage, dict):
        return None
    return ModelReply(
        "", "", "stop", usage.get("input_tokens", 0), usage.get("output_tokens", 0), usage.get("cost_usd")
    )


def _is_told(reply: ModelReply) -> bool:
    """Whether the tokens that a provider tells of can be those of the answer: there is no text of no tokens."""
    tokens = (reply.input_tokens, reply.output_tokens)
    if not all(type(number) is int and 0 <= number <= MOST_TOKENS for number in tokens):
        return False
    return any(tokens) and (reply.output_tokens > 0 or not (reply.text or reply.calls))


def _is_amount(dollars: float | None) -> TypeGuard[float]:
    return isinstance(dollars, int | float) and 0 <= dollars <= MOST_DOLLARS


def _never_sent(failure: StepFailed) -> bool:
    detail = failure.detail if isinstance(failure.detail, dict) else {}
    return detail.get("sent") is False or detail.get("phase") == "connect"


def _place(limit: Limit) -> tuple[str, str, str, str]:
    return limit.scope, limit.subject, limit.below, limit.period
