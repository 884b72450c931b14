"""What every adapter of a provider must do, as tests: derive a class from `ModelContract` and say what `make` makes.

The law of the file: only the port is used, over real HTTP, against a server that fails in every way that providers do.
Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import asyncio
import json
import time
from email.utils import formatdate
from typing import Any, TypeAlias

import pytest

from stepwell.adapters.models.provider import ProviderModel
from stepwell.errors import StepFailed
from stepwell.ports import ModelReply, ModelRequest, ToolAnswer, ToolOffer, ToolRequest, Turn
from stepwell.testing.provider_reply import Reply
from stepwell.testing.provider_server import ProviderServer, Script

Json: TypeAlias = Any

KEY = "sk-secret/key+0123456789"
SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
WEATHER = ToolOffer(
    "weather.get",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False},
)
LYON = ToolRequest("c1", "weather.get", {"city": "Lyon"})
LONG = "It was the best of times, it was the worst of times, it was the age of wisdom. 审批步骤 ☀"

STATUSES = [
    (Reply("slow down", 429), "rate_limit", True),
    (Reply("busy", 529), "overloaded", True),
    (Reply("oops", 500), "server_error", True),
    (Reply(status=502, body="<html>bad gateway</html>"), "server_error", True),
    (Reply("later", 503), "server_error", True),
    (Reply("late", 408), "timeout", True),
    (Reply("no such model", 404), "not_found", False),
    (Reply("not for you", 403), "auth_error", False),
    (Reply("what?", 400), "invalid_request", False),
    (Reply("too big", 413), "invalid_request", False),
]
BROKEN_STREAMS = [
    ("end", {"connection_error"}),
    ("drop", {"connection_error"}),
    ("reset", {"connection_error"}),
    ("garbage", {"connection_error", "server_error"}),
    ("error", {"overloaded", "server_error"}),
]
NOT_THE_API = ["<html>hello</html>", "", '"text"', "[]", "{}", '{"choices": []}', '{"content": null}', "null"]


def _request(given: dict[str, Any]) -> ModelRequest:
    return ModelRequest(**(dict[str, Any](model="", prompt="hi", timeout=5.0) | given))


def _told(told: list[str] | None = None, *, streams: bool = True) -> dict[str, Any]:
    """What asks for a stream."""
    return {"on_text": ([] if told is None else told).append} if streams else {}


class ModelContract:
    quota: Reply
    """How this provider says that the account's credit is used up."""
    too_long: Reply
    """How it says that the prompt is too long."""
    stops: int = 8
    """Stages of a streamed answer at which it can break off; all of them come before the reason why it ends."""

    def make(self, server: ProviderServer, key: str = KEY) -> ProviderModel:
        raise NotImplementedError

    async def ask(self, script: Script, **request: Any) -> tuple[ModelReply, ProviderServer]:
        async with ProviderServer(script, key=KEY) as server:
            model = self.make(server)
            try:
                return await model.complete(_request(request)), server
            finally:
                await model.aclose()

    async def fail(self, script: Script, *, key: str = KEY, **request: Any) -> tuple[StepFailed, ProviderServer]:
        async with ProviderServer(script, key=KEY) as server:
            model = self.make(server, key)
            try:
                with pytest.raises(StepFailed) as caught:
                    await model.complete(_request(request))
            finally:
                await model.aclose()
        return caught.value, server

    # ── answers ──

    @pytest.mark.parametrize("streams", [False, True])
    async def test_an_answer_comes_with_its_tokens(self, *, streams: bool) -> None:
        told: list[str] = []
        answer = Reply(LONG, input_tokens=30, output_tokens=9, cached_tokens=12)
        asked = _told(told, streams=streams)
        reply, server = await self.ask([answer], system="be brief", temperature=0.5, max_tokens=99, **asked)
        assert (reply.text, reply.finish_reason, reply.calls) == (LONG, "stop", ())
        assert (reply.input_tokens, reply.output_tokens, reply.cached_tokens) == (30, 9, 12)
        (request,) = server.requests
        assert (request.json["temperature"], request.json["max_tokens"]) == (0.5, 99)
        assert "be brief" in json.dumps(request.json)
        assert request.streams is streams
        assert "".join(told) == (LONG if streams else "")
        assert len(told) > 5 or not streams

    @pytest.mark.parametrize("streams", [False, True])
    async def test_a_schema_is_asked_for_by_the_providers_own_means(self, *, streams: bool) -> None:
        told: list[str] = []
        asked = _told(told, streams=streams)
        reply, server = await self.ask([Reply('{"a": 1}')], schema=SCHEMA, **asked)
        assert json.loads(reply.text) == {"a": 1}
        sent = json.dumps(server.requests[0].json)
        assert '"json_schema"' in sent
        assert "Answer with one JSON" not in sent
        assert "".join(told) == ('{"a": 1}' if streams else "")

    async def test_a_cut_answer_says_so(self) -> None:
        for told in ({}, _told()):
            reply, _ = await self.ask([Reply("once upon", finish_reason="length")], **told)
            assert (reply.text, reply.finish_reason) == ("once upon", "length")

    @pytest.mark.parametrize("streams", [False, True])
    async def test_a_refusal_is_refused_with_its_words_and_tokens(self, *, streams: bool) -> None:
        asked = _told(streams=streams)
        failure, _ = await self.fail([Reply(refusal="I will not do that.")], **asked)
        assert (failure.kind, failure.retryable) == ("refused", False)
        assert failure.detail["answer"] == "I will not do that."
        assert failure.detail["usage"]["input_tokens"] == 10

    async def test_an_empty_answer_is_one(self) -> None:
        for content in ("", None):
            reply, _ = await self.ask([Reply(content)])
            assert (reply.text, reply.finish_reason) == ("", "stop")

    async def test_a_request_may_name_another_model_of_the_provider(self) -> None:
        _, server = await self.ask([Reply("x")], model="bigger")
        assert server.requests[0].json["model"] == "bigger"

    # ── tools ──

    @pytest.mark.parametrize("streams", [False, True])
    async def test_calls_come_whole_and_turns_go_back(self, *, streams: bool) -> None:
        told: list[str] = []
        asked = _told(told, streams=streams)
        calls = [ToolRequest("c2", "weather_get", {"city": "Nîmes"}), ToolRequest("c3", "weather_get", {"city": "Ys"})]
        failed = ToolAnswer("c1", "weather.get", "no such city", failed=True)
        turn = Turn("Let me see.", [LYON], [failed])
        reply, server = await self.ask([Reply("Again.", calls=calls)], tools=[WEATHER], turns=[turn], **asked)
        assert [(call.id, call.name, call.arguments["city"]) for call in reply.calls] == [
            ("c2", "weather.get", "Nîmes"),
            ("c3", "weather.get", "Ys"),
        ]
        assert (reply.text, reply.finish_reason) == ("Again.", "tool_call")
        assert "".join(told) == ("Again." if streams else "")
        sent = json.dumps(server.requests[0].json)
        assert '"weather_get"' in sent
        assert "no such city" in sent
        assert "Let me see." in sent

    # ── failures ──

    @pytest.mark.parametrize("streams", [False, True])
    async def test_a_status_has_its_kind_and_is_tried_once(self, *, streams: bool) -> None:
        asked = _told(streams=streams)
        for reply, kind, retryable in STATUSES:
            failure, server = await self.fail([reply], **asked)
            assert (failure.kind, failure.retryable, failure.detail["status"]) == (kind, retryable, reply.status)
            assert len(server.requests) == 1
            assert failure.message.startswith("model care: HTTP")

    async def test_quota_and_length_are_not_tried_again(self) -> None:
        failure, _ = await self.fail([self.quota])
        assert (failure.kind, failure.retryable) == ("rate_limit", False)
        failure, _ = await self.fail([self.too_long])
        assert (failure.kind, failure.retryable) == ("invalid_request", False)
        assert "longer than the model's context" in failure.message

    async def test_retry_after_is_kept_when_it_makes_sense(self) -> None:
        for header, seconds in (("7", 7.0), ("0", None), ("-3", None), ("soon", None), ("", None)):
            failure, _ = await self.fail([Reply("slow", 429, {"Retry-After": header})])
            assert failure.retry_after == seconds
        failure, _ = await self.fail([Reply("slow", 503, {"Retry-After": formatdate(time.time() + 30, usegmt=True)})])
        assert 15 < (failure.retry_after or 0) <= 30

    async def test_a_refused_key_is_never_repeated(self) -> None:
        failure, _ = await self.fail([Reply("x")], key="sk-wrong/key+987654")
        assert failure.kind == "auth_error"
        assert "sk-wrong" not in json.dumps(failure.record())
        assert "[redacted]" in failure.message

    @pytest.mark.parametrize("streams", [False, True])
    async def test_a_server_that_hangs_is_a_timeout(self, *, streams: bool) -> None:
        asked = _told(streams=streams)
        failure, server = await self.fail([Reply(hang=True)], timeout=0.4, **asked)
        assert failure.kind == "timeout"
        assert len(server.requests) == 1

    async def test_broken_connections_are_connection_errors(self) -> None:
        for reply in (Reply(reset=True), Reply("hello", truncate=30)):
            failure, server = await self.fail([reply], max_tokens=50)
            assert (failure.kind, failure.retryable, failure.detail["phase"]) == ("connection_error", True, "read")
            assert len(server.requests) == 1

    async def test_a_refused_connection_was_never_sent(self) -> None:
        server = ProviderServer([], key=KEY)
        server.root = "http://127.0.0.1:9"
        model = self.make(server)
        with pytest.raises(StepFailed) as caught:
            await model.complete(ModelRequest("", "hi"))
        await model.aclose()
        assert (caught.value.kind, caught.value.detail["phase"]) == ("connection_error", "connect")

    async def test_what_is_not_the_api_is_a_failure_and_never_an_answer(self) -> None:
        for body in NOT_THE_API:
            for told in ({}, _told()):
                failure, _ = await self.fail([Reply(body=body)], **told)
                assert failure.kind in {"server_error", "connection_error"}, body

    # ── streams ──

    @pytest.mark.parametrize(("then", "kinds"), BROKEN_STREAMS)
    async def test_a_stream_that_breaks_off_is_a_failure_at_every_stage(self, then: Any, kinds: set[str]) -> None:
        for stage in range(self.stops):
            told: list[str] = []
            reply = Reply(LONG[:30], cut=stage, then=then)
            failure, server = await self.fail([reply], on_text=told.append)
            assert failure.kind in (kinds if told else kinds | {"server_error"}), (stage, failure)
            assert failure.retryable
            assert (failure.detail or {}).get("partial", "") == "".join(told)
            assert len(server.requests) == 1

    async def test_a_stream_that_stops_coming_is_a_timeout_with_what_came(self) -> None:
        failure, _ = await self.fail([Reply(LONG, cut=5, then="hang")], timeout=0.8, **_told())
        assert failure.kind == "timeout"
        assert LONG.startswith(failure.detail["partial"])
        assert failure.detail["partial"]

    async def test_a_cancelled_stream_closes_the_connection(self) -> None:
        begun = asyncio.Event()
        async with ProviderServer([Reply(LONG * 50, pause=0.02), Reply("next")], key=KEY) as server:
            model = self.make(server)
            asked = ModelRequest("", "hi", timeout=30, on_text=lambda _: begun.set())
            task = asyncio.create_task(model.complete(asked))
            await asyncio.wait_for(begun.wait(), 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(500):
                if server.dropped:
                    break
                await asyncio.sleep(0.01)
            assert server.dropped == 1
            assert server.sent < 200
            assert (await model.complete(ModelRequest("", "hi"))).text == "next"
            await model.aclose()
