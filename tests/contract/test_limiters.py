"""The limiters against their contract."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.redis_server import redis_server

from stepwell.adapters.limits import LocalLimiter, NoLimiter, RedisLimiter, Terms
from stepwell.ports import LimitStanding
from stepwell.testing.limiter_contract import LIMIT, LimiterContract


class TestLocalLimiter(LimiterContract):
    @pytest.fixture
    def limited(self) -> LocalLimiter:
        return LocalLimiter(LIMIT)


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """A URL: of `STEPWELL_TEST_REDIS`, else of a server started for these tests."""
    if given := os.environ.get("STEPWELL_TEST_REDIS"):
        yield given
        return
    with redis_server() as server:
        yield server.url


class TestRedisLimiter(LimiterContract):
    @pytest.fixture
    async def limited(self, redis: str) -> AsyncIterator[RedisLimiter]:
        limiter = RedisLimiter(redis, Terms(LIMIT, cut=10.0))  # a busy machine is no outage
        yield limiter
        assert limiter.degraded == ""
        await limiter.aclose()


async def test_no_limit_is_none():
    limiter = NoLimiter()
    async with limiter.slot("a"), limiter.slot("a"):
        assert await limiter.standing("a") == LimitStanding(0, "process", 0, 0)


async def test_a_limit_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least 1, this is 0"):
        LocalLimiter(0)


async def test_accounts_that_nobody_uses_are_forgotten():
    limiter = LocalLimiter(2)
    for number in range(100):
        async with limiter.slot(f"account {number}"):
            assert len(limiter._lanes) == 1
    assert not limiter._lanes
