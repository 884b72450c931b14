"""Waiting for a slot is time in a queue: no timeout of a call runs meanwhile, and it is told."""

from __future__ import annotations

import asyncio

import pytest

from stepwell.adapters.limits import LocalLimiter
from stepwell.adapters.models.limited import Limited
from stepwell.engine.asking import Asking
from stepwell.engine.flight import LAST_WORD
from stepwell.errors import StepFailed
from stepwell.ports import ModelReply, ModelRequest


class Slow:
    """A model that takes its time, and says what its prompt was."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = self.most = 0

    async def complete(self, request: ModelRequest) -> ModelReply:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.now -= 1
        return ModelReply(request.prompt, "slow")


async def held(limiter: LocalLimiter, seconds: float) -> None:
    async with limiter.slot("a"):
        await asyncio.sleep(seconds)


async def test_the_timeout_of_a_request_runs_once_it_has_its_slot():
    limiter = LocalLimiter(1)
    holder = asyncio.create_task(held(limiter, 1.0))
    await asyncio.sleep(0)
    asking = Asking(Slow(0.01), lambda: limiter.slot("a"))
    assert (await asking.ask(ModelRequest("", "x", timeout=0.3))).text == "x"
    assert asking.usage.meta()["queued_ms"] >= 900
    await holder


async def test_the_slot_of_one_model_is_waited_for_in_the_same_way():
    model = Limited(Slow(1.0), 1)
    first, second = Asking(model), Asking(model)
    request = ModelRequest("", "x", timeout=1.5)
    await asyncio.gather(first.ask(request), second.ask(request))
    assert model._model.most == 1
    assert "queued_ms" not in first.usage.meta()
    assert second.usage.meta()["queued_ms"] >= 900


async def test_a_model_that_does_not_keep_its_timeout_is_cut_and_gives_its_slot_back():
    limiter = LocalLimiter(1)
    asking = Asking(Slow(60), lambda: limiter.slot("a"))
    with pytest.raises(StepFailed, match=r"no result within 0\.05 s") as caught:
        await asking.ask(ModelRequest("", "x", timeout=0.05))
    assert caught.value.kind == "timeout"
    assert (await limiter.standing("a")).holding == 0


async def test_a_timeout_still_runs_after_a_wait_for_a_slot():
    limiter = LocalLimiter(1)
    holder = asyncio.create_task(held(limiter, 0.6))
    await asyncio.sleep(0)
    asking = Asking(Slow(60), lambda: limiter.slot("a"))
    begun = asyncio.get_running_loop().time()
    with pytest.raises(StepFailed, match=r"no result within 0\.1 s"):
        await asking.ask(ModelRequest("", "x", timeout=0.1))
    assert asyncio.get_running_loop().time() - begun >= 0.6 + 0.1 + LAST_WORD - 0.01
    await holder


async def test_what_is_left_for_a_second_question_does_not_shrink_while_the_first_waited():
    limiter = LocalLimiter(1)
    holder = asyncio.create_task(held(limiter, 0.8))
    await asyncio.sleep(0)
    asked: list[ModelRequest] = []

    class Wrong:
        async def complete(self, request: ModelRequest) -> ModelReply:
            asked.append(request)
            return ModelReply("no JSON" if len(asked) == 1 else '{"n": 1}', "wrong")

    asking = Asking(Wrong(), lambda: limiter.slot("a"))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert await asking.structured(ModelRequest("", "x", schema=schema, timeout=0.7)) == {"n": 1}
    assert asked[1].timeout > 0
    await holder


async def test_a_cancel_while_waiting_leaves_nothing_behind():
    limiter = LocalLimiter(1)
    holder = asyncio.create_task(held(limiter, 0.3))
    await asyncio.sleep(0)
    asking = Asking(Slow(0), lambda: limiter.slot("a"))
    task = asyncio.create_task(asking.ask(ModelRequest("", "x", timeout=0.1)))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await limiter.standing("a")).waiting == 0
    await holder
    assert (await limiter.standing("a")).holding == 0
