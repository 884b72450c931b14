"""Providers that send what nobody asked for: odd counts of tokens, answers without end, failures in the middle."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from stepwell.adapters.models.anthropic_messages import Anthropic
from stepwell.adapters.models.bounds import input_tokens
from stepwell.adapters.models.openai_compatible import OpenAICompatible
from stepwell.engine.asking import Asking
from stepwell.engine.budget_settings import NO_BUDGETS
from stepwell.engine.performer import CallContext
from stepwell.engine.spending import Purse, Spender
from stepwell.errors import StepFailed
from stepwell.ports import Limit, ModelRequest, ToolOffer, ToolRequest
from stepwell.stores.memory import MemoryRunStore
from stepwell.testing.provider_server import ProviderServer, Reply

ASK = ModelRequest("", "how much?", max_tokens=1_000, timeout=60)
RUN = Limit("run", "r1", tokens=20_000)
MOST = (input_tokens(ASK), 1_000, 1)


def answer(usage):
    choice = {"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def streamed(usage):
    choice = {"index": 0, "delta": {"content": "fine"}, "finish_reason": "stop"}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(chunk | {'usage': usage})}\n\ndata: [DONE]\n\n"


async def took(model, request=ASK, *limits):
    """The reply or the failure, and what is counted for it."""
    store = MemoryRunStore()
    context = CallContext("acme", "r1", "/a", 1, "k", 60, workflow="w", epoch=1, limits=limits or (RUN,))
    purse = Purse(Spender(store.spending, NO_BUDGETS, time.time), context, lambda _: (model, ""))
    try:
        came = await Asking(model, purse=purse).ask(request)
    except StepFailed as failure:
        came = failure
    finally:
        await model.aclose()
    return came, [(one.input_tokens, one.output_tokens, one.lost) for one in await store.spending.usage("acme", "run")]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (None, MOST),
        ({}, MOST),
        ([1, 2], MOST),
        ("few", MOST),
        ({"prompt_tokens": None, "completion_tokens": None}, MOST),
        ({"prompt_tokens": -5000, "completion_tokens": -5000, "total_tokens": -10_000}, MOST),
        ({"prompt_tokens": 10**18, "completion_tokens": 5}, MOST),
        ({"prompt_tokens": 1e300, "completion_tokens": 5}, MOST),
        ({"prompt_tokens": 3.5, "completion_tokens": True}, MOST),
        ({"prompt_tokens": "many", "completion_tokens": "few"}, MOST),
        ({"prompt_tokens": 300, "completion_tokens": 0}, MOST),
        ({"prompt_tokens": "300", "completion_tokens": 200.0}, (300, 200, 0)),
        ({"prompt_tokens": 300, "completion_tokens": 200}, (300, 200, 0)),
        ({"prompt_tokens": 300, "completion_tokens": 200, "prompt_tokens_details": "x"}, (300, 200, 0)),
        ({"prompt_tokens": 300, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": -1}}, (300, 200, 0)),
        ({"prompt_tokens": 300, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": 9**9}}, (300, 200, 0)),
    ],
    ids=repr,
)  # fmt: skip
async def test_no_answer_is_lost_because_of_what_is_said_of_its_tokens(usage, counted):
    async with ProviderServer([Reply(body=answer(usage))]) as server:
        came, found = await took(OpenAICompatible("test", server.base_url, "m", api_key=server.key))
    assert (came.text, found) == ("fine", [counted])
    script = [Reply(body=streamed(usage), headers={"Content-Type": "text/event-stream"})]
    async with ProviderServer(script) as server:
        asked = ModelRequest("", "how much?", max_tokens=1_000, timeout=60, on_text=lambda _: None)
        came, found = await took(OpenAICompatible("test", server.base_url, "m", api_key=server.key), asked)
    assert (came.text, found) == ("fine", [counted])


@pytest.mark.parametrize("then", ["end", "drop", "reset", "garbage", "error"])
@pytest.mark.parametrize("calls", [(), (ToolRequest("c", "t", {"text": "word " * 100}),)], ids=["text", "call"])
@pytest.mark.parametrize("of", ["openai", "anthropic"])
async def test_a_stream_that_fails_after_it_has_begun_counts_with_the_most(then, calls, of):
    said = "" if calls else "word " * 100
    reply = Reply(said, calls=calls, input_tokens=300, output_tokens=500, cut=20, then=then)
    async with ProviderServer([reply]) as server:
        model = (
            OpenAICompatible("test", server.base_url, "m", api_key=server.key)
            if of == "openai"
            else Anthropic("test", server.root, "claude-sonnet-5", api_key=server.key)
        )
        tools = (ToolOffer("t", "", {}),) if calls else ()
        request = ModelRequest("", "how much?", max_tokens=1_000, timeout=60, tools=tools, on_text=lambda _: None)
        came, found = await took(model, request)
    assert isinstance(came, StepFailed)
    assert "partial" in came.detail
    assert found == [(input_tokens(request), 1_000, 1)]


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_an_answer_without_end_ends_before_it_fills_the_memory(kind):
    sent = 0

    async def pour(reader, writer):
        nonlocal sent
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(
                f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n".encode() + b'data: {"id":"'
            )
            while True:
                writer.write(b"a" * 1_000_000)
                await writer.drain()
                sent += 1
        except ConnectionError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(pour, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        model = OpenAICompatible("test", f"http://127.0.0.1:{port}/v1", "m", api_key="sk-0123456789")
        asked = ModelRequest("", "?", max_tokens=9, timeout=120, on_text=None if "json" in kind else lambda _: None)
        came, found = await took(model, asked)
    assert (came.kind, came.retryable) == ("output_too_large", False)
    assert sent < 200
    assert found[0][2] == 1
