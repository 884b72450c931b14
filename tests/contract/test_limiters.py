"""The limiters against their contract."""

from __future__ import annotations

import pytest

from stepwell.adapters.limits import LocalLimiter, NoLimiter
from stepwell.ports import LimitStanding
from stepwell.testing.limiter_contract import LIMIT, LimiterContract


class TestLocalLimiter(LimiterContract):
    @pytest.fixture
    def limited(self) -> LocalLimiter:
        return LocalLimiter(LIMIT)


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
