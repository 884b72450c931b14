"""Purses: what is reserved before a request and settled after it, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import replace
from datetime import datetime

import pytest

from stepwell.adapters.models import bounds
from stepwell.adapters.models.price import FREE, Price
from stepwell.definition.budget import Budget
from stepwell.engine.asking import Asking
from stepwell.engine.budget_settings import NO_BUDGETS, BudgetSettings, PeriodBudget
from stepwell.engine.budget_words import ends_at
from stepwell.engine.performer import CallContext
from stepwell.engine.spending import Purse, Spender
from stepwell.errors import StepFailed
from stepwell.ports import EVERY_REQUEST, Limit, ModelReply, ModelRequest, ToolOffer
from stepwell.stores.memory import MemoryRunStore

ASK = ModelRequest("", "how much?", max_tokens=100, timeout=20)
DOLLAR_A_TOKEN = Price(1_000_000, 1_000_000)


class Model:
    """Answers as it is told: a reply, a failure, or what a function does with the request."""

    def __init__(self, does=None, name="gpt", price=FREE):
        self.does = does or ModelReply("42", name, "stop", 10, 5)
        self.model = name
        self.price = price
        self.asked = []

    async def complete(self, request):
        self.asked.append(request)
        does = self.does(request) if callable(self.does) else self.does
        if hasattr(does, "__await__"):
            does = await does
        if isinstance(does, BaseException):
            raise does
        return does


class World:
    def __init__(self, *limits, settings=NO_BUDGETS, now=1_800_000_000.0):
        self.store = MemoryRunStore(clock=lambda: self.now)
        self.now = now
        self.spender = Spender(self.store.spending, settings, lambda: self.now)
        self.context = CallContext("acme", "r1", "/a", 1, "r1/a", 20, workflow="w", epoch=1, limits=limits)
        self.others = {}

    def purse(self, **facts):
        return Purse(self.spender, replace(self.context, **facts), lambda name: (self.others[name], ""))

    async def ask(self, model, request=ASK, **facts):
        return await Asking(model, purse=self.purse(**facts)).ask(request)

    async def usage(self, by="run", which=EVERY_REQUEST):
        return await self.store.spending.usage("acme", by, which)

    async def standing(self, limit):
        return (await self.store.spending.standings("acme", [limit]))[0]


RUN = Limit("run", "r1", tokens=1_000)


async def test_without_a_budget_what_an_answer_took_is_counted():
    world = World()
    await world.ask(Model(price=Price(2, 8)))
    (used,) = await world.usage("model")
    assert (used.key, used.requests, used.input_tokens, used.output_tokens) == ("gpt", 1, 10, 5)
    assert used.nano_usd == 10 * 2_000 + 5 * 8_000
    with pytest.raises(StepFailed):
        await world.ask(Model(StepFailed("timeout", "too late")))
    refusal = StepFailed("refused", "no", detail={"usage": {"text": "", "model": "gpt", "input_tokens": 7}})
    with pytest.raises(StepFailed):
        await world.ask(Model(refusal))
    for kind in ("overloaded", "server_error"):
        with pytest.raises(StepFailed):
            await world.ask(Model(StepFailed(kind, "later")))
    (used,) = await world.usage()
    assert (used.requests, used.input_tokens, used.lost) == (3, 17 + bounds.input_tokens(ASK), 1)


async def test_without_a_budget_what_nobody_knows_is_never_nothing():
    for does in (ModelReply("42", "gpt"), StepFailed("overloaded", "later", detail={"partial": "4"})):
        world = World()
        with contextlib.suppress(StepFailed):
            await world.ask(Model(does, price=DOLLAR_A_TOKEN))
        (used,) = await world.usage()
        assert (used.output_tokens, used.nano_usd, used.lost) == (100, (bounds.input_tokens(ASK) + 100) * 10**9, 1)
    world = World()
    begun, never = asyncio.Event(), asyncio.Event()

    async def hang(_request):
        begun.set()
        await never.wait()

    task = asyncio.create_task(world.ask(Model(hang)))
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [(one.output_tokens, one.lost) for one in await world.usage()] == [(100, 1)]


@pytest.mark.parametrize(
    "tokens", [(-5_000, -5_000), (10, -1), (0, 0), (10, 0), (10**18, 5), (10**30, 10**30), (3.5, 2), (True, 1)],
)  # fmt: skip
async def test_tokens_that_cannot_be_are_not_believed(tokens):
    for limits in ((), (RUN,)):
        world = World(*limits)
        await world.ask(Model(ModelReply("42", "gpt", "stop", *tokens)))
        (used,) = await world.usage()
        assert (used.input_tokens, used.output_tokens, used.lost) == (bounds.input_tokens(ASK), 100, 1)


@pytest.mark.parametrize("dollars", [-3.0, float("nan"), float("inf"), 10**30])
async def test_money_that_cannot_be_is_counted_by_the_price(dollars):
    world = World(replace(RUN, nano_usd=10**15))
    await world.ask(Model(ModelReply("42", "gpt", "stop", 10, 5, dollars), price=DOLLAR_A_TOKEN))
    assert (await world.standing(RUN)).nano_usd == 15 * 10**9


async def test_a_request_is_bounded_when_a_budget_holds_and_settled_with_what_it_took():
    world = World(RUN)
    model = Model()
    await world.ask(model)
    assert model.asked[0].max_tokens == 100
    standing = await world.standing(RUN)
    assert (standing.tokens, standing.open_tokens) == (15, 0)


async def test_an_answer_that_nobody_bounded_is_bounded_and_cut_to_what_is_left():
    unbounded = replace(ASK, max_tokens=None)
    world = World(replace(RUN, tokens=100_000))
    model = Model()
    await world.ask(model, unbounded)
    assert model.asked[0].max_tokens == bounds.MAX_TOKENS
    world = World(RUN)
    asking = Asking(model, purse=world.purse())
    await asking.ask(unbounded)
    left = 1_000 - bounds.input_tokens(unbounded)
    assert model.asked[-1].max_tokens == left
    assert asking.usage.meta()["budget"] == {"max_tokens_cut_to": left}
    world = World(replace(RUN, tokens=bounds.input_tokens(unbounded) + 255))
    with pytest.raises(StepFailed, match="no room") as caught:
        await world.ask(model, unbounded)
    assert caught.value.kind == "budget_exceeded"
    assert len(model.asked) == 2, "nobody was asked"


async def test_money_cuts_an_answer_too():
    limit = Limit("run", "r1", nano_usd=bounds.nano_of(1_000.0))
    world, model = World(limit), Model(price=DOLLAR_A_TOKEN)
    await world.ask(model, replace(ASK, max_tokens=None))
    assert model.asked[0].max_tokens == 1_000 - bounds.input_tokens(ASK)
    assert (await world.standing(limit)).nano_usd == 15 * 10**9


async def test_what_an_author_bounded_is_not_cut_but_refused_with_what_helps():
    world = World(replace(RUN, tokens=bounds.input_tokens(ASK) + 99, on_exceed="suspend"))
    with pytest.raises(StepFailed) as caught:
        await world.ask(Model())
    failure = caught.value
    asked = bounds.input_tokens(ASK) + 100
    assert failure.suspends
    assert failure.final
    assert f"0 of {asked - 1} tokens are spent, and it may take up to {asked}" in failure.message
    assert failure.detail["hint"] == f"stepwell budget raise r1 --tokens {asked}"
    assert failure.detail["budget"]["scope"] == "run"


@pytest.mark.parametrize(
    ("failure", "tokens"),
    [
        (StepFailed("rate_limit", "later"), 0),
        (StepFailed("overloaded", "later"), 0),
        (StepFailed("auth_error", "who?"), 0),
        (StepFailed("connection_error", "refused", detail={"phase": "connect"}), 0),
        (StepFailed("server_error", "oops", detail={"status": 500}), "most"),
        (StepFailed("timeout", "too late"), "most"),
        (
            StepFailed("connection_error", "cut", detail={"usage": {"model": "m", "text": "", "input_tokens": 3}}),
            "most",
        ),
        (StepFailed("refused", "no", detail={"usage": {"model": "m", "text": "", "output_tokens": 3}}), 3),
        (
            StepFailed(
                "overloaded",
                "cut",
                detail={"partial": "The", "usage": {"model": "m", "text": "", "input_tokens": 3, "output_tokens": 1}},
            ),
            "most",
        ),
        (
            StepFailed(
                "server_error",
                "no JSON came",
                detail={"partial": "", "usage": {"model": "m", "text": "", "input_tokens": 3}},
            ),
            "most",
        ),
        (StepFailed("refused", "no", detail={"usage": {"model": "m", "text": "", "output_tokens": -3}}), "most"),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
async def test_a_failure_is_settled_with_what_is_known_of_it(failure, tokens):
    world = World(RUN)
    with pytest.raises(StepFailed):
        await world.ask(Model(failure))
    standing = await world.standing(RUN)
    assert standing.tokens == (bounds.input_tokens(ASK) + 100 if tokens == "most" else tokens)
    assert standing.open_tokens == 0


async def test_an_answer_without_usage_counts_with_the_most():
    world = World(RUN)
    await world.ask(Model(ModelReply("42", "gpt")))
    assert (await world.standing(RUN)).tokens == bounds.input_tokens(ASK) + 100
    assert [one.lost for one in await world.usage()] == [1]


async def test_a_cancelled_request_counts_with_the_most_and_a_cancelled_wait_with_nothing():
    world = World(RUN)
    begun = asyncio.Event()

    async def hang(_request):
        begun.set()
        await asyncio.Event().wait()

    first = asyncio.create_task(world.ask(Model(hang), replace(ASK, max_tokens=700)))
    await begun.wait()
    second = asyncio.create_task(world.ask(Model(), replace(ASK, max_tokens=700)))
    await asyncio.sleep(0.05)
    second.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    standing = await world.standing(RUN)
    assert (standing.tokens, standing.open_tokens) == (bounds.input_tokens(ASK) + 700, 0)
    assert world.spender.lines.first([("run", "r1", "", "")]) is None


async def test_who_does_not_fit_only_because_of_requests_in_flight_waits_for_them():
    world, order = World(RUN), []
    gate = asyncio.Event()

    async def slowly(request):
        order.append(request.prompt)
        await gate.wait()
        return ModelReply("ok", "gpt", "stop", 10, 5)

    async def one(name):
        asking = Asking(Model(slowly), purse=world.purse())
        await asking.ask(replace(ASK, prompt=name, max_tokens=600, timeout=20))
        return asking.usage.queued

    tasks = [asyncio.create_task(one(name)) for name in ("a", "b", "c")]
    await asyncio.sleep(0.2)
    assert order == ["a"]
    gate.set()
    queued = await asyncio.gather(*tasks)
    assert order == ["a", "b", "c"]
    assert queued[1] > 0
    assert (await world.standing(RUN)).tokens == 45


async def test_waiting_for_room_takes_nothing_of_the_timeout():
    world = World(RUN)

    async def slowly(_request):
        await asyncio.sleep(1.5)
        return ModelReply("ok", "gpt", "stop", 10, 5)

    asked = replace(ASK, max_tokens=600, timeout=3.5)
    replies = await asyncio.gather(*(world.ask(Model(slowly), asked) for _ in range(3)))
    assert [reply.text for reply in replies] == ["ok"] * 3


async def test_a_cheaper_model_is_asked_where_the_budget_says_so():
    limit = Limit("run", "r1", nano_usd=10**11, on_exceed={"model": "small"})
    world, dear = World(limit), Model(price=DOLLAR_A_TOKEN)
    small = world.others["small"] = Model(ModelReply("42", "mini", "stop", 10, 5), "mini", Price(1, 1))
    asking = Asking(dear, purse=world.purse())
    assert (await asking.ask(ASK)).model == "mini"
    assert not dear.asked
    assert small.asked[0].max_tokens == 100
    assert asking.usage.meta()["budget"] == {"instead_of": "gpt"}
    assert [one.key for one in await world.usage("model")] == ["mini"]
    small.price = DOLLAR_A_TOKEN
    with pytest.raises(StepFailed, match="cheaper model of the budget was tried"):
        await world.ask(dear)


async def test_money_is_not_spent_on_a_model_whose_price_nobody_knows():
    limit = Limit("run", "r1", nano_usd=10**12)
    world, model = World(limit), Model(price=None, name="home-grown")
    with pytest.raises(StepFailed, match="the price of home-grown is not known") as caught:
        await world.ask(model)
    assert "usd_per_million_input" in caught.value.detail["hint"]
    assert not model.asked
    await World(RUN).ask(model)
    assert model.asked


async def test_what_undoes_a_run_is_counted_and_not_bounded():
    world = World(replace(RUN, tokens=1))
    await world.ask(Model(), bounded=False)
    assert (await world.standing(RUN)).tokens == 15


async def test_budgets_of_workflow_and_account_begin_anew_with_their_period():
    account = PeriodBudget(Budget(tokens=bounds.input_tokens(ASK) + 110), "day")
    each = PeriodBudget(Budget(tokens=10_000), "month")
    world = World(settings=BudgetSettings(account, each, {"v": PeriodBudget(Budget(tokens=1))}))
    await world.ask(Model())
    with pytest.raises(StepFailed, match=r"the account's budget for 2027-01-15") as caught:
        await world.ask(Model())
    assert caught.value.detail["hint"].startswith("stepwell budget raise --account --tokens ")
    world.now += 86_400
    await world.ask(Model())
    with pytest.raises(StepFailed, match=r"the budget of the workflow v for 2027-01 ") as caught:
        await world.ask(Model(), workflow="v")
    assert caught.value.detail["hint"].startswith("stepwell budget raise --workflow v --tokens ")


@pytest.mark.parametrize(
    ("period", "end"),
    [("2026-03-14", "2026-03-15"), ("2026-02-28", "2026-03-01"), ("2026-03", "2026-04-01"), ("2026-12", "2027-01-01")],
)
def test_a_period_ends_at_midnight(period, end):
    assert ends_at(period) == datetime.fromisoformat(f"{end}T00:00:00+00:00").timestamp()


async def test_forty_branches_never_spend_more_than_the_budget_and_all_that_fits_is_made():
    chance = random.Random(11)
    limit = replace(RUN, tokens=20_000)
    world = World(limit)

    async def answer(request):
        await asyncio.sleep(chance.random() / 100)
        standing = await world.standing(limit)
        assert standing.tokens + standing.open_tokens <= 20_000
        if chance.random() < 0.1:
            raise StepFailed("timeout", "too late")
        took = chance.randint(0, bounds.input_tokens(request)), chance.randint(1, request.max_tokens)
        return ModelReply("ok", "gpt", "stop", *took)

    async def branch():
        with_room = True
        while with_room:
            try:
                await world.ask(Model(answer), replace(ASK, max_tokens=chance.randint(50, 900)))
            except StepFailed as failure:
                with_room = failure.kind != "budget_exceeded"

    await asyncio.gather(*(branch() for _ in range(40)))
    standing = await world.standing(limit)
    assert standing.open_tokens == 0
    assert 18_000 < standing.tokens <= 20_000


async def test_a_bound_covers_everything_that_is_sent():
    bare = bounds.input_tokens(ASK)
    assert bounds.input_tokens(replace(ASK, prompt="日本語")) >= 9
    tool = ToolOffer("find", "finds", {"type": "object"})
    for more in ({"system": "be kind"}, {"schema": {"type": "object"}}, {"tools": (tool,)}, {"prompt": "\ud800" * 9}):
        assert bounds.input_tokens(replace(ASK, **more)) > bare


def test_listed_prices_are_known_and_exact_and_others_are_not():
    class Known:
        model, base_url = "gpt-4o-mini", "https://api.openai.com/v1"

    assert bounds.nano_usd(Known(), "", 1_000_000, 1_000_000) == bounds.nano_of(0.15 + 0.6)
    assert bounds.nano_usd(Known(), "", 1, 0) == 150
    assert bounds.nano_usd(Known(), "home-grown", 1, 1) is None
    assert bounds.nano_usd(Model(), "", 10**9, 10**9) == 0
    assert bounds.nano_of(0.1) == 10**8


async def test_loading_a_library_is_no_time_of_a_request_and_reserves_nothing():
    """Forty branches of a process that has just begun would else spend a budget on requests that were never sent."""
    world = World(RUN)

    class Slow(Model):
        ready = False

        async def prepare(self):
            if not self.ready:
                assert (await world.standing(RUN)).open_tokens == 0
                await asyncio.sleep(0.4)
                self.ready = True

    model = Slow()
    reply = await world.ask(model, replace(ASK, timeout=0.3))
    assert (reply.text, (await world.standing(RUN)).tokens) == ("42", 15)
    assert await world.ask(model) == reply
