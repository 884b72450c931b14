"""What every store of spending must do, as tests: derive a class from `SpendingContract` and give it `opened`.

The law of the file: only the port is used, so that any store can be held against it. Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import UTC, datetime

from stepwell.ports import AuditRecord, Limit, Reservation, Spent, Usage, UsageFilter
from stepwell.testing.store_builders import ACCOUNT, OpenedStore

DAY, MONTH = "2027-01-15", "2027-01"
RUN = Limit("run", "r1", tokens=100, nano_usd=1_000)


def asked(name: str, tokens: int = 10, nano_usd: int | None = 100, **facts: object) -> Reservation:
    """A request of the run r1 of the workflow w, half of its tokens going in."""
    made = Reservation(
        name, "r1", "w", "/ask", 1, "m", 1, tokens // 2, tokens - tokens // 2, nano_usd, 0.0, float("inf")
    )
    return replace(made, **facts)  # type: ignore[arg-type]


class SpendingContract:
    async def test_what_is_open_counts_with_the_most_until_it_is_settled(self, opened: OpenedStore) -> None:
        spending = opened.store.spending
        assert await spending.reserve(ACCOUNT, asked("a", 60), [RUN]) is None
        refused = await spending.reserve(ACCOUNT, asked("b", 41), [RUN])
        assert refused is not None
        assert (refused.tokens, refused.open_tokens, refused.limit) == (0, 60, RUN)
        assert await spending.settle(ACCOUNT, "a", Spent(5, 15, 30))
        (standing,) = await spending.standings(ACCOUNT, [RUN])
        assert (standing.tokens, standing.nano_usd, standing.open_tokens, standing.open_nano_usd) == (20, 30, 0, 0)
        assert await spending.reserve(ACCOUNT, asked("b", 80), [RUN]) is None

    async def test_money_is_bounded_like_tokens_and_without_a_price_nothing_fits(self, opened: OpenedStore) -> None:
        spending, money = opened.store.spending, replace(RUN, tokens=None)
        assert await spending.reserve(ACCOUNT, asked("a", 9_999, 600), [money]) is None
        refused = await spending.reserve(ACCOUNT, asked("b", 1, 401), [money])
        assert refused is not None
        assert refused.open_nano_usd == 600
        assert await spending.reserve(ACCOUNT, asked("c", 1, None), [money]) is not None
        assert await spending.reserve(ACCOUNT, asked("d", 1, 400), [money]) is None

    async def test_a_request_is_settled_once(self, opened: OpenedStore) -> None:
        spending = opened.store.spending
        await spending.reserve(ACCOUNT, asked("a"), [RUN])
        assert await spending.settle(ACCOUNT, "a", Spent(1, 2, 3))
        assert not await spending.settle(ACCOUNT, "a", Spent(7, 7, 7))
        assert not await spending.settle(ACCOUNT, "a", Spent(lost=True))
        assert not await spending.settle(ACCOUNT, "unknown", Spent(1, 1, 1))
        (standing,) = await spending.standings(ACCOUNT, [RUN])
        assert (standing.tokens, standing.nano_usd) == (3, 3)

    async def test_what_is_lost_counts_with_the_most_until_somebody_knows_better(self, opened: OpenedStore) -> None:
        spending = opened.store.spending
        await spending.reserve(ACCOUNT, asked("a", 40, 400), [RUN])
        assert await spending.settle(ACCOUNT, "a", Spent(lost=True))
        assert not await spending.settle(ACCOUNT, "a", Spent(lost=True))
        (standing,) = await spending.standings(ACCOUNT, [RUN])
        assert (standing.tokens, standing.nano_usd, standing.open_tokens) == (40, 400, 0)
        assert [one.lost for one in await spending.usage(ACCOUNT, "run")] == [1]
        assert await spending.settle(ACCOUNT, "a", Spent(3, 4, 5))
        (standing,) = await spending.standings(ACCOUNT, [RUN])
        assert (standing.tokens, standing.nano_usd) == (7, 5)
        assert [one.lost for one in await spending.usage(ACCOUNT, "run")] == [0]

    async def test_an_earlier_epoch_of_the_run_is_lost_and_no_other(self, opened: OpenedStore) -> None:
        spending = opened.store.spending
        account = Limit("account", tokens=10_000)
        for one in (asked("a"), asked("b", epoch=2), asked("c", run_id="r2")):
            assert await spending.reserve(ACCOUNT, one, [account]) is None
        assert await spending.reserve(ACCOUNT, asked("d", epoch=2), [account]) is None
        (standing,) = await spending.standings(ACCOUNT, [account])
        assert (standing.tokens, standing.open_tokens) == (10, 30)

    async def test_what_is_past_its_time_is_lost_whosever_it_is(self, opened: OpenedStore) -> None:
        spending, account = opened.store.spending, Limit("account", tokens=20)
        late = opened.clock() + 60
        assert await spending.reserve(ACCOUNT, asked("a", 20, run_id="r0", until=late), [account]) is None
        refused = await spending.reserve(ACCOUNT, asked("b", 1), [account])
        assert refused is not None
        assert refused.open_tokens == 20
        opened.clock.now += 61
        refused = await spending.reserve(ACCOUNT, asked("b", 1), [account])
        assert refused is not None
        assert (refused.tokens, refused.open_tokens) == (20, 0)

    async def test_each_scope_counts_its_own(self, opened: OpenedStore) -> None:
        spending = opened.store.spending
        at = datetime(2027, 1, 15, 12, tzinfo=UTC).timestamp()
        rows = [
            asked("a", at=at),
            asked("b", at=at + 86_400),
            asked("c", at=at, run_id="r2"),
            asked("d", at=at, run_id="r2", workflow="v"),
            asked("e", at=at + 40 * 86_400),
            asked("f", at=at, path="/call/ask"),
            asked("g", at=at, path="/callous/ask"),
        ]
        for row in rows:
            await spending.reserve(ACCOUNT, row, [])
            await spending.settle(ACCOUNT, row.id, Spent(1, 0, 1))
        limits = [
            Limit("run", "r1"),
            Limit("run", "r1", below="/call"),
            Limit("workflow", "w", period=DAY),
            Limit("workflow", "w", period=MONTH),
            Limit("workflow", "v", period=MONTH),
            Limit("account", period=DAY),
            Limit("account", period=MONTH),
            Limit("account"),
            Limit("run", "r"),
        ]
        found = [standing.tokens for standing in await spending.standings(ACCOUNT, limits)]
        assert found == [5, 1, 4, 5, 1, 5, 6, 7, 0]
        assert [standing.tokens for standing in await spending.standings("other", limits)] == [0] * len(limits)

    async def test_open_requests_count_in_the_same_scopes(self, opened: OpenedStore) -> None:
        spending = opened.store.spending
        at = datetime(2027, 1, 31, 23, 59, tzinfo=UTC).timestamp()
        await spending.reserve(ACCOUNT, asked("a", 3, at=at, path="/call/ask"), [])
        await spending.reserve(ACCOUNT, asked("b", 5, at=at + 120, run_id="r2"), [])
        limits = [
            Limit("run", "r1", below="/call"),
            Limit("run", "r1", below="/cal"),
            Limit("workflow", "w", period="2027-01"),
            Limit("account", period="2027-02-01"),
            Limit("account"),
        ]
        assert [one.open_tokens for one in await spending.standings(ACCOUNT, limits)] == [3, 0, 3, 5, 8]

    async def test_a_limit_is_raised_and_never_lowered(self, opened: OpenedStore) -> None:
        spending = opened.store.spending
        note = AuditRecord("ana", "budget.raise", "r1")
        more = Limit("run", "r1", tokens=200)
        assert await spending.raise_to(ACCOUNT, more, notes=[note]) == more
        both = await spending.raise_to(ACCOUNT, Limit("run", "r1", tokens=150, nano_usd=5_000))
        assert (both.tokens, both.nano_usd) == (200, 5_000)
        (standing,) = await spending.standings(ACCOUNT, [RUN])
        assert (standing.limit.tokens, standing.limit.nano_usd) == (200, 5_000)
        assert await spending.reserve(ACCOUNT, asked("a", 200), [RUN]) is None
        for other in (Limit("run", "r2", tokens=1), replace(RUN, below="/call"), Limit("account", tokens=1)):
            (standing,) = await spending.standings(ACCOUNT, [other])
            assert standing.limit == other
        (standing,) = await spending.standings(ACCOUNT, [Limit("run", "r1")])
        assert standing.limit == Limit("run", "r1"), "what is not limited does not become limited"
        assert [one.action for one in await opened.store.people.audit(ACCOUNT, object="r1")] == ["budget.raise"]

    async def test_a_request_without_a_reservation_is_counted_once(self, opened: OpenedStore) -> None:
        spending = opened.store.spending
        for _ in range(2):
            await spending.record(ACCOUNT, asked("a", model="gpt"), Spent(7, 8, None))
        (standing,) = await spending.standings(ACCOUNT, [RUN])
        assert (standing.tokens, standing.nano_usd) == (15, 0)
        assert await spending.usage(ACCOUNT, "model") == [Usage("gpt", 1, 7, 8, 0, unpriced=15)]

    async def test_a_lost_request_without_a_reservation_counts_with_what_was_asked(self, opened: OpenedStore) -> None:
        spending = opened.store.spending
        await spending.record(ACCOUNT, asked("a", model="gpt"), Spent(lost=True))
        (used,) = await spending.usage(ACCOUNT, "model")
        most = asked("a")
        assert (used.input_tokens, used.output_tokens, used.lost) == (most.input_tokens, most.output_tokens, 1)
        (standing,) = await spending.standings(ACCOUNT, [RUN])
        assert (standing.tokens, standing.open_tokens) == (most.input_tokens + most.output_tokens, 0)

    async def test_usage_by_what_requests_have_in_common(self, opened: OpenedStore) -> None:
        spending = opened.store.spending
        at = datetime(2027, 1, 15, 12, tzinfo=UTC).timestamp()
        await spending.record(ACCOUNT, asked("a", at=at), Spent(1, 2, 3))
        await spending.record(ACCOUNT, asked("b", at=at, attempt=2), Spent(1, 2, 3))
        await spending.record(ACCOUNT, asked("c", at=at + 86_400, run_id="r2", model="n"), Spent(10, 20, 30))
        await spending.record(ACCOUNT, asked("d", at=at, workflow="v", path="/b", run_id="r3"), Spent(5, 5, 5))
        await spending.reserve(ACCOUNT, asked("open", at=at), [])
        await spending.record("other", asked("e", at=at), Spent(1, 1, 1))
        assert await spending.usage(ACCOUNT, "day") == [
            Usage(DAY, 3, 7, 9, 11),
            Usage("2027-01-16", 1, 10, 20, 30),
        ]
        assert [one.key for one in await spending.usage(ACCOUNT, "model")] == ["m", "n"]
        assert [one.key for one in await spending.usage(ACCOUNT, "workflow")] == ["v", "w"]
        assert [one.key for one in await spending.usage(ACCOUNT, "run", UsageFilter(("r1", "r3")))] == ["r1", "r3"]
        assert await spending.usage(ACCOUNT, "step", UsageFilter(("r1",))) == [Usage("/ask", 2, 2, 4, 6)]
        for turn in (1, 2):
            row = asked(f"t{turn}", at=at, path=f"/agent#2/$t{turn}", run_id="r4")
            await spending.record(ACCOUNT, row, Spent(1, 1, 1))
        assert await spending.usage(ACCOUNT, "step", UsageFilter(("r4",))) == [Usage("/agent#2", 2, 2, 2, 2)]
        attempts = await spending.usage(ACCOUNT, "attempt", UsageFilter(("r1",)))
        assert [one.key for one in attempts] == ["/ask/@1", "/ask/@2"]
        assert [one.key for one in await spending.usage(ACCOUNT, "run", UsageFilter(workflow="v"))] == ["r3"]
        late = UsageFilter(since=at + 1, before=at + 86_401)
        assert [one.key for one in await spending.usage(ACCOUNT, "run", late)] == ["r2"]
        assert await spending.usage(ACCOUNT, "run", UsageFilter(before=at)) == []

    async def test_many_at_once_never_spend_more_than_the_limit(self, opened: OpenedStore) -> None:
        spending, chance = opened.store.spending, random.Random(7)  # noqa: S311 -- the same every time
        limits = [RUN, Limit("account", period=MONTH, tokens=90)]

        async def call(number: int) -> None:
            most = chance.randint(1, 40)
            while (full := await spending.reserve(ACCOUNT, asked(f"c{number}", most, at=0.0), limits)) is not None:
                if not full.open_tokens:
                    return
                await asyncio.sleep(0)
            await asyncio.sleep(chance.random() / 1000)
            took = chance.randint(0, most)
            await spending.settle(ACCOUNT, f"c{number}", Spent(took, 0, took, lost=chance.random() < 0.2))

        await asyncio.gather(*(call(number) for number in range(40)))
        (standing,) = await spending.standings(ACCOUNT, [RUN])
        assert 0 < standing.tokens <= 100
        assert standing.open_tokens == 0
