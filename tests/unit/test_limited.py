"""The limit on calls of one model."""

from __future__ import annotations

import asyncio

from stepwell.adapters.models.limited import Limited
from stepwell.ports import ModelReply, ModelRequest


class Busy:
    def __init__(self) -> None:
        self.now = self.most = 0

    async def complete(self, request: ModelRequest) -> ModelReply:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.005)
        self.now -= 1
        return ModelReply(request.prompt, "busy")


async def test_no_more_calls_are_in_flight_than_the_limit_says():
    model = Busy()
    limited = Limited(model, 3)
    replies = await asyncio.gather(*[limited.complete(ModelRequest("busy", str(n))) for n in range(20)])
    assert [reply.text for reply in replies] == [str(n) for n in range(20)]
    assert model.most == 3


async def test_a_cancelled_call_gives_its_place_back():
    limited = Limited(Busy(), 1)
    first = asyncio.create_task(limited.complete(ModelRequest("busy", "a")))
    await asyncio.sleep(0)
    first.cancel()
    assert (await asyncio.wait_for(limited.complete(ModelRequest("busy", "b")), 1)).text == "b"
