"""Tools that models ask for: what goes to the provider, and what comes back as calls."""

from __future__ import annotations

import json

import pytest

from stepwell.adapters.models.conversation import ToolNames, arguments_of
from stepwell.adapters.models.embedded_text import EmbeddedText
from stepwell.adapters.models.openai_compatible import OpenAICompatible
from stepwell.adapters.models.tools_by_schema import answered_by_schema, asked_by_schema
from stepwell.errors import StepFailed
from stepwell.ports import ModelReply, ModelRequest, ToolAnswer, ToolOffer, ToolRequest, Turn
from stepwell.testing.provider_server import ProviderServer, Reply

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = ToolOffer("get_weather", "The weather in a city.", CITY)
CLOCK = ToolOffer("clock.now", "The time.", {})
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
BEFORE = Turn(
    "Let me see.",
    [ToolRequest("c1", "get_weather", {"city": "Lyon"}), ToolRequest("c2", "clock.now", "oops")],
    [
        ToolAnswer("c1", "get_weather", {"sky": "clear ☀"}, failed=False),
        ToolAnswer("c2", "clock.now", "no such hour", failed=True),
    ],
)


async def asked(reply: Reply, **request):
    async with ProviderServer([reply]) as server:
        model = OpenAICompatible("care", server.base_url, "some-model", api_key=server.key)
        try:
            return await model.complete(ModelRequest(**({"model": "", "prompt": "hi", "timeout": 5.0} | request))), (
                server.requests[0].json
            )
        finally:
            await model.aclose()


async def test_several_calls_come_with_ids_names_and_arguments():
    calls = [ToolRequest("c1", "get_weather", {"city": "Lyon"}), ToolRequest("c2", "clock_now", "")]
    reply, sent = await asked(Reply("Looking.", calls=calls), tools=[WEATHER, CLOCK])
    assert reply.calls == (ToolRequest("c1", "get_weather", {"city": "Lyon"}), ToolRequest("c2", "clock.now", {}))
    assert (reply.text, reply.finish_reason) == ("Looking.", "tool_call")
    offered = [tool["function"] for tool in sent["tools"]]
    assert [one["name"] for one in offered] == ["get_weather", "clock_now"]
    assert offered[0]["description"] == "The weather in a city."
    assert offered[0]["parameters"]["properties"] == CITY["properties"]


async def test_turns_go_back_as_calls_and_results_in_order():
    _, sent = await asked(Reply("Clear."), tools=[WEATHER, CLOCK], turns=[BEFORE], system="be brief")
    system, user, assistant, first, second = sent["messages"]
    assert (system["content"], user["content"], assistant["content"]) == ("be brief", "hi", "Let me see.")
    assert [(one["id"], one["function"]["name"]) for one in assistant["tool_calls"]] == [
        ("c1", "get_weather"),
        ("c2", "clock_now"),
    ]
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"city": "Lyon"}
    assert json.loads(assistant["tool_calls"][1]["function"]["arguments"]) == {"arguments": "oops"}
    assert (first["role"], first["tool_call_id"], json.loads(first["content"])) == ("tool", "c1", {"sky": "clear ☀"})
    assert second["tool_call_id"] == "c2"
    assert "no such hour" in second["content"]


async def test_tools_and_a_schema_go_together():
    reply, sent = await asked(Reply('{"a": 1}'), tools=[WEATHER], schema=SCHEMA)
    assert (reply.text, reply.calls) == ('{"a": 1}', ())
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
    assert len(sent["tools"]) == 1


async def test_a_call_of_what_was_not_offered_is_no_call():
    reply, _ = await asked(Reply(None, calls=[ToolRequest("c1", "x", {})]))
    assert (reply.calls, reply.text, reply.finish_reason) == ((), "", "tool_call")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "registry.ollama.ai/library/tiny does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (404, "No endpoints found that support tool use"),
    ],
)
async def test_a_server_that_takes_no_tools_is_told_so(status, said):
    with pytest.raises(StepFailed, match="may take no tools") as caught:
        await asked(Reply(said, status), tools=[WEATHER])
    assert (caught.value.kind, caught.value.retryable) == ("invalid_request", False)
    assert "without `tools`" in caught.value.detail["hint"]
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": 1', '{"a": 1'),
        ("[1]", "[1]"),
        ("NaN", "NaN"),
    ],
)
def test_arguments_are_an_object_or_the_text(given, meant):
    assert arguments_of(given) == meant


def test_names_are_safe_different_and_come_back():
    own = ["kb.search", "kb_search", "kb/search", "output", "审批", "", "x" * 80, "x" * 81]
    names = ToolNames(own)
    safe = [names.safe(name) for name in own]
    assert len(set(safe)) == len(own)
    assert all(name and len(name) <= 64 and name.isascii() and name != "output" for name in safe)
    assert [names.own(name) for name in safe] == own


TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "required": ["root"],
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
}


@pytest.mark.parametrize(
    ("text", "said", "calls"),
    [
        ('{"tool": "get_weather", "arguments": {"city": "Lyon"}}', "", {"city": "Lyon"}),
        ('{"answer": "sunny"}', "sunny", None),
        ('{"tool": "get_weather", "arguments": {}}', '{"tool": "get_weather", "arguments": {}}', None),
        ('{"tool": "unknown", "arguments": {}}', '{"tool": "unknown", "arguments": {}}', None),
        ("plain words", "plain words", None),
    ],
)
def test_a_choice_under_a_schema_is_a_call_or_an_answer(text, said, calls):
    request = ModelRequest("", "hi", tools=[WEATHER, ToolOffer("tree", "A tree.", TREE)], turns=[BEFORE])
    reply = answered_by_schema(ModelReply(text, "m"), request)
    assert reply.text == said
    assert [(call.id, call.arguments) for call in reply.calls] == ([("call_2", calls)] if calls is not None else [])
    put = asked_by_schema(request)
    assert (put.tools, put.turns) == ((), ())
    assert 'You called get_weather with {"city": "Lyon"}.\nIt gave: {"sky": "clear ☀"}' in put.prompt
    assert "It failed: no such hour" in put.prompt


def test_references_of_a_tools_schema_stand_where_it_stands():
    request = ModelRequest("", "hi", tools=[ToolOffer("tree", "A tree.", TREE)])
    text = '{"tool": "tree", "arguments": {"root": {"next": {"next": {}}}}}'
    assert answered_by_schema(ModelReply(text, "m"), request).calls[0].arguments == {"root": {"next": {"next": {}}}}


async def test_the_embedded_model_calls_tools_and_answers_by_schema():
    model = EmbeddedText()
    told: list[str] = []
    try:
        first = await model.complete(
            ModelRequest("", "What is the weather in Paris?", tools=[WEATHER], max_tokens=80, timeout=120)
        )
        assert first.cost_usd == 0
        (call,) = first.calls
        assert (call.id, call.name, set(call.arguments)) == ("call_1", "get_weather", {"city"})
        turn = Turn("", first.calls, [ToolAnswer(call.id, call.name, "18 degrees, clear", failed=False)])
        last = await model.complete(
            ModelRequest(
                "", "What is the weather in Paris?", turns=[turn], max_tokens=20, timeout=120, on_text=told.append
            )
        )
        assert last.text
        assert last.calls == ()
        assert "".join(told) == last.text
    finally:
        await model.aclose()
