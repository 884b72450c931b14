"""Cases C109 and C110: JSON in the answers of models, through the performer and a real HTTP provider."""

from __future__ import annotations

import pytest

from stepwell.adapters.models.openai_compatible import OpenAICompatible
from stepwell.engine.model_performer import ModelPerformer
from stepwell.engine.performer import CallContext
from stepwell.errors import StepFailed
from stepwell.interpreter.effect import ModelCall
from stepwell.ports import ToolRequest
from stepwell.testing.provider_server import ProviderServer, Reply

CALL = CallContext(account="local", run_id="r1", path="/l", attempt=1, key="r1/l", timeout=10)
INTEGER_A = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
ITEMS = {"type": "object", "properties": {"items": {"type": "array"}}}


async def performed(replies, schema):
    async with ProviderServer(replies) as server:
        model = OpenAICompatible("provider", server.base_url, "some-model", api_key=server.key)
        try:
            done = await ModelPerformer({"provider": model}, "provider")(ModelCall(prompt="?", schema=schema), CALL)
            return done, server.requests
        finally:
            await model.aclose()


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('{"a":1} \nReferences: [1]', {"a": 1}),
        ('Result: {"a":1}. Note {x}.', {"a": 1}),
        ('[1] {"a":1}', {"a": 1}),
        ('{not json} {"a":1}', {"a": 1}),
        ('{"a":1} or rather {"a":2}', {"a": 2}),
        ('As in [2], {"a":"one"} is wrong: {"a":1} (see {3})', {"a": 1}),
    ],
)
async def test_c109_brackets_in_the_prose_around_the_json_do_no_harm(answer, value):
    done, requests = await performed([Reply(answer)], INTEGER_A)
    assert done.value == value
    assert len(requests) == 1
    assert done.meta["repairs"] == 0


async def test_c109_a_list_where_an_object_is_wanted_is_output_invalid_after_one_repair():
    with pytest.raises(StepFailed) as caught:
        await performed([Reply('[{"a":1}]')], INTEGER_A)
    assert caught.value.kind == "output_invalid"
    assert caught.value.detail["answer"] == '[{"a":1}]'
    assert caught.value.detail["usage"]["repairs"] == 1


CUT = '{"items":[{"a":1},{"a":'


async def test_c110_an_answer_cut_by_max_tokens_is_truncated_output_with_its_finish_reason():
    with pytest.raises(StepFailed) as caught:
        await performed([Reply(CUT, finish_reason="length")], ITEMS)
    assert caught.value.kind == "truncated_output"
    assert caught.value.detail["finish_reason"] == "length"
    assert caught.value.detail["answer"] == CUT


@pytest.mark.parametrize(
    "reply",
    [
        Reply(CUT),
        Reply(""),
        Reply("I am sorry, I cannot help with that."),
        Reply(None, calls=[ToolRequest("call_1", "search", {})]),
    ],
    ids=["cut without saying so", "empty", "refusal in words", "a tool call instead"],
)
async def test_c110_no_answer_is_never_taken_for_null_or_for_a_part(reply):
    with pytest.raises(StepFailed) as caught:
        await performed([reply], ITEMS)
    assert caught.value.kind == "output_invalid"
    assert caught.value.detail["finish_reason"] in {"stop", "tool_call"}


async def test_c110_a_refusal_said_by_the_provider_is_refused():
    with pytest.raises(StepFailed) as caught:
        await performed([Reply(refusal="I will not do that.")], ITEMS)
    assert caught.value.kind == "refused"
    assert not caught.value.retryable


async def test_c110_the_tokens_of_answer_and_repair_are_summed():
    first = Reply("nothing useful", input_tokens=100, output_tokens=7)
    second = Reply('{"items": []}', input_tokens=130, output_tokens=5)
    done, requests = await performed([first, second], ITEMS)
    assert done.value == {"items": []}
    assert done.meta["input_tokens"] == 230
    assert done.meta["output_tokens"] == 12
    assert done.meta["repairs"] == 1
    repair = requests[1].json["messages"][-1]["content"]
    assert "nothing useful" in repair
    assert "the answer holds no JSON" in repair
    assert requests[0].headers["idempotency-key"] == "r1/l"
    assert requests[1].headers["idempotency-key"] == "r1/l.1"


async def test_c110_the_tokens_of_failed_attempts_are_kept_with_the_failure():
    with pytest.raises(StepFailed) as caught:
        await performed([Reply("no", input_tokens=10, output_tokens=1)], ITEMS)
    assert caught.value.detail["usage"]["input_tokens"] == 20
    assert caught.value.detail["usage"]["output_tokens"] == 2
