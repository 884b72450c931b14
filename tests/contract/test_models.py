"""The adapters of providers against their contract, and what only one of them does."""

from __future__ import annotations

import json

from stepwell.adapters.models.anthropic_messages import ANTHROPIC, Anthropic
from stepwell.adapters.models.openai_compatible import OpenAICompatible
from stepwell.adapters.models.price import Price
from stepwell.ports import ModelRequest, ToolRequest
from stepwell.testing.model_contract import KEY, SCHEMA, WEATHER, ModelContract
from stepwell.testing.provider_server import ProviderServer, Reply


def _said(message: str, **more: str) -> dict:
    return {"error": {"message": message, **more}}


class TestOpenAICompatible(ModelContract):
    quota = Reply(status=429, body=_said("no credit", code="insufficient_quota"))
    too_long = Reply(status=400, body=_said("too long", code="context_length_exceeded"))
    stops = 6

    def make(self, server, key=KEY):
        return OpenAICompatible("care", server.base_url, "some-model", api_key=key)

    async def test_a_server_that_cannot_stream_is_asked_without_from_then_on(self):
        def script(request):
            if request.streams:
                return Reply(status=400, body=_said("Unrecognized request argument: stream_options"))
            return Reply("whole")

        told: list[str] = []
        async with ProviderServer(script, key=KEY) as server:
            model = self.make(server)
            for _ in range(2):
                assert (await model.complete(ModelRequest("", "hi", on_text=told.append))).text == "whole"
            await model.aclose()
        assert [request.streams for request in server.requests] == [True, False, False]
        assert told == []


class TestAnthropic(ModelContract):
    quota = Reply("Your credit balance is too low to access the API", 400)
    too_long = Reply("prompt is too long: 300000 tokens > 200000 maximum", 400)
    stops = 7

    def make(self, server, key=KEY):
        return Anthropic("care", server.root, "claude-sonnet-4-6", api_key=key)

    async def ask_older(self, *replies, **request):
        async with ProviderServer(list(replies), key=KEY) as server:
            model = Anthropic("care", server.root, "claude-3-5-haiku-latest", api_key=KEY)
            reply = await model.complete(ModelRequest("", "hi", **request))
            await model.aclose()
        return reply, [request.json for request in server.requests]

    async def test_a_model_without_schemas_gives_its_answer_as_a_tool(self):
        told: list[str] = []
        for asked in ({}, {"on_text": told.append}):
            answer = Reply(None, calls=[ToolRequest("t1", "output", {"a": 1})])
            reply, (sent,) = await self.ask_older(answer, schema=SCHEMA, **asked)
            assert (json.loads(reply.text), reply.calls, reply.finish_reason) == ({"a": 1}, (), "stop")
            assert sent["tool_choice"]["type"] == "any"
            assert sent["tools"][0]["input_schema"] == SCHEMA
        assert json.loads("".join(told)) == {"a": 1}

    async def test_what_is_no_object_is_wrapped_for_the_tool_and_comes_back_plain(self):
        schema = {"type": "array", "items": {"type": "integer"}}
        answer = Reply(None, calls=[ToolRequest("t1", "output", {"output": [1, 2]})])
        reply, (sent,) = await self.ask_older(answer, schema=schema)
        assert json.loads(reply.text) == [1, 2]
        assert sent["tools"][0]["input_schema"]["properties"] == {"output": schema}

    async def test_tools_may_be_called_before_the_answer_is_given(self):
        answer = Reply(None, calls=[ToolRequest("t1", "weather_get", {"city": "Lyon"})])
        reply, (sent,) = await self.ask_older(answer, schema=SCHEMA, tools=[WEATHER])
        assert [call.name for call in reply.calls] == ["weather.get"]
        assert [tool["name"] for tool in sent["tools"]] == ["weather_get", "output"]
        assert sent["tool_choice"]["type"] == "any"

    async def test_a_refused_schema_is_asked_for_as_a_tool_from_then_on(self):
        def script(request):
            if "output_config" in request.json:
                return Reply("output_config.format.schema: this form is not known", 400)
            return Reply(None, calls=[ToolRequest("t1", "output", {"a": 1})])

        async with ProviderServer(script, key=KEY) as server:
            model = self.make(server)
            for _ in range(2):
                assert json.loads((await model.complete(ModelRequest("", "hi", schema=SCHEMA))).text) == {"a": 1}
            await model.aclose()
        assert ["output_config" in request.json for request in server.requests] == [True, False, False]

    async def test_what_the_library_streams_by_itself_is_never_taken_for_whole(self):
        for stage in range(self.stops):
            failure, server = await self.fail([Reply("It was the best of times", cut=stage)])
            assert failure.kind in {"connection_error", "server_error"}
            assert server.requests[0].streams

    def test_the_key_is_needed_only_for_anthropic_itself(self):
        assert "ANTHROPIC_API_KEY" in Anthropic("care", "", "claude-sonnet-5").available()[0].hint
        assert Anthropic("care", "http://127.0.0.1:9/v1", "m").available() == []
        assert Anthropic("care", f"{ANTHROPIC}/v1", "m", api_key="k").base_url == ANTHROPIC

    async def test_the_settings_price_counts_and_the_librarys_is_known(self):
        answer = Reply("x", input_tokens=1_000_000, output_tokens=100_000, cached_tokens=400_000)
        for price, cost in ((None, None), (Price(2, 10), 3.0), (Price(2, 10, 0.2), 2.28)):
            async with ProviderServer([answer], key=KEY) as server:
                model = Anthropic("care", server.root, "claude-sonnet-4-6", api_key=KEY, price=price)
                reply = await model.complete(ModelRequest("", "hi"))
                await model.aclose()
            assert reply.cost_usd is not None
            if cost is not None:
                assert abs(reply.cost_usd - cost) < 1e-9
            assert reply.cached_tokens == 400_000
