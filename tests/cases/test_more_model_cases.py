"""Neighbours of the cases of llm_json, recursion and cancellation: what models and their gateways say badly.

Whole runs against a real HTTP server; each fault was reported of another engine or of a gateway in front of models.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cases.test_llm_json_cases import INTEGER_A, performed
from tests.cases.test_more_text_cases import with_model

import stepwell.adapters.models.lenient_chat  # noqa: F401 -- seconds that no timeout of a test should pay
from stepwell.adapters.models.answer import parse_answer
from stepwell.adapters.models.openai_compatible import OpenAICompatible
from stepwell.engine.engine import Engine, open_engine
from stepwell.engine.events import TEXT
from stepwell.errors import StepFailed
from stepwell.ports import ModelRequest, ToolRequest
from stepwell.testing.provider_server import ProviderServer, Received, Reply

Json = Any
ASK = {"id": "ask", "type": "llm_call", "prompt": "?"}
QUICK = {"max_attempts": 3, "initial_delay": "10ms"}
SSE = {"Content-Type": "text/event-stream"}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
TOOLS = """
import stepwell

@stepwell.tool
def look(q: str) -> dict:
    with open(__file__ + ".log", "a") as file:
        file.write(q + "\\n")
    return {"found": "about " + q}

@stepwell.tool
def flood(q: str) -> str:
    return q * 6_000_000
"""


def body(content: str | None = "half an ans", finish: str | None = "stop", calls: Json = None, **more: Json) -> Json:
    """A whole answer as an OpenAI-compatible server writes it."""
    message: Json = {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": USAGE,
        **more,
    }


def chunk(content: str | None = None, finish: str | None = None, **more: Json) -> Json:
    choices = [{"index": 0, "delta": {} if content is None else {"content": content}, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}


def stream(*chunks: Json, end: str = "\n\n", before: str = "") -> Reply:
    lines = [f"data: {json.dumps(one, ensure_ascii=False)}{end}" for one in chunks]
    return Reply(body=before + "".join(lines) + f"data: [DONE]{end}", headers=SSE)


async def asked(*replies: Reply, streams: bool = False) -> Json:
    """The reply of an adapter to one request, and what was told of it."""
    told: list[str] = []
    async with ProviderServer(list(replies)) as server:
        model = OpenAICompatible("care", server.base_url, "m", api_key=server.key)
        try:
            reply = await model.complete(ModelRequest("m", "?", timeout=20, on_text=told.append if streams else None))
            return reply, told
        finally:
            await model.aclose()


@asynccontextmanager
async def project(folder: Path, server: ProviderServer) -> AsyncIterator[Engine]:
    (folder / "tools.py").write_text(TOOLS)
    settings = with_model(folder, server)
    async with open_engine(f"sqlite:///{folder}/s.db", settings=settings, tools=[folder / "tools.py"]) as engine:
        yield engine


async def ran(folder: Path, script: Any, steps: list[Json], value: Json = None, **parts: Json) -> Json:
    """The run, its steps by path, and what the server was asked."""
    (folder / "w.json").write_text(json.dumps({"workflow": "w", "steps": steps, **parts}))
    async with ProviderServer(script) as server, project(folder, server) as engine:
        run = await (await engine.start(engine.load(folder / "w.json"), value or {})).wait()
        tree = (await engine.tree(run.id)).as_json()
        return run, {step["path"]: step for step in tree["steps"]}, server.requests


def looked(folder: Path) -> list[str]:
    return (folder / "tools.py.log").read_text().splitlines()


# ── answers ──


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('<think>Perhaps {"a": 7}?</think>\n{"a": 1}', 1),
        ('Perhaps {"a": 7}?\n</think>\n\n{"a": 1}', 1),
        ('```\n{"a": 1}\n```', 1),
        ('```json\n{"a": 7}\n```\nNo, rather:\n```json\n{"a": 1}\n```', 1),
        ('<|channel|>analysis<|message|>{"a": 7}<|end|><|channel|>final<|message|>{"a": 1}', 1),
        ('{"type":"object","properties":{"a":{"type":"integer"}}}\n{"a": 1}', 1),
        ('```json\n{"a": 1', None),
        ("{'a': 1}", None),
        ('{"a": True}', None),
        ('{"a": 1e999}', None),
    ],
)
async def test_an_answer_around_the_json_is_understood_or_refused_and_never_half_taken(answer, value):
    if value is None:
        with pytest.raises(StepFailed) as caught:
            await performed([Reply(answer)], INTEGER_A)
        assert (caught.value.kind, caught.value.detail["answer"]) == ("output_invalid", answer)
    else:
        done, requests = await performed([Reply(answer)], INTEGER_A)
        assert (done.value, len(requests)) == ({"a": value}, 1)


async def test_a_schema_that_is_given_back_is_no_answer_and_is_put_right():
    lax = {"type": "object", "properties": {"a": {"type": "integer"}}}
    done, requests = await performed([Reply(json.dumps(lax)), Reply('{"a": 1}')], lax)
    assert (done.value, len(requests)) == ({"a": 1}, 2)
    assert "the schema itself" in requests[1].json["messages"][-1]["content"]
    with pytest.raises(StepFailed, match="the schema itself"):
        await performed([Reply(f"Here you are:\n{json.dumps(lax)}")], lax)


def test_empty_brackets_in_the_prose_are_an_answer_only_where_there_is_no_other():
    lax = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert parse_answer('{"a": 5}. I left {} out.', lax) == {"a": 5}
    assert parse_answer('["x"]\n- [ ] to be checked\n- [] done', {"type": "array"}) == ["x"]
    assert parse_answer("Nothing: {}", lax) == {}
    assert parse_answer("[]", {"type": "array"}) == []


async def test_what_was_thought_beside_the_answer_is_no_part_of_it(tmp_path):
    thought = body('{"a": 1}')
    thought["choices"][0]["message"]["reasoning_content"] = '{"a": 7}'
    run, _, _ = await ran(tmp_path, [Reply(body=thought)], [ASK | {"output_schema": INTEGER_A}])
    assert run.output == {"a": 1}


async def test_hostile_characters_in_an_answer_are_kept_as_the_journal_keeps_them(tmp_path):
    said = '{"t": "nul \\u0000, lone \\ud800, bom \\ufeff", "k\\u0000": 1}'
    run, steps, _ = await ran(tmp_path, [Reply(said)], [ASK | {"output_schema": {"type": "object"}}])
    assert run.status == "completed", run.error
    assert run.output == steps["/ask"]["output"] == {"t": "nul \x00, lone \ufffd, bom \ufeff", "k\x00": 1}


async def test_hostile_characters_in_what_a_model_calls_and_says_break_no_conversation(tmp_path):
    function = {"name": "look", "arguments": '{"q": "a\\ud800b\\u0000"}'}
    call = [{"id": "c\ud800", "type": "function", "function": function}]
    replies = [Reply(body=body("I \ud800 say", "tool_calls", call)), Reply("done \ud800 \x00")]
    run, steps, requests = await ran(tmp_path, replies, [ASK | {"tools": ["look"]}])
    assert run.status == "completed", run.error
    assert run.output == {"text": "done \ufffd \x00"}
    assert looked(tmp_path) == ["a\ufffdb\x00"]
    assert steps["/ask"]["turns"][0]["calls"][0]["output"] == {"found": "about a\ufffdb\x00"}
    assert len(requests) == 2


async def test_an_answer_of_six_megabytes_fails_its_step_and_is_not_asked_for_again(tmp_path):
    steps = [ASK | {"retry": QUICK, "on_error": "continue"}, {"id": "after", "type": "set", "values": {"x": 1}}]
    run, told, requests = await ran(tmp_path, [Reply("x" * 6_000_000)], steps)
    assert run.status == "completed"
    assert told["/ask"]["error"]["kind"] == "output_too_large"
    assert len(requests) == 1


# ── gateways ──


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"code": 429, "message": "Rate limit exceeded: free-models-per-min"}, "rate_limit", True),
        ({"code": "rate_limit_exceeded", "message": "slow down"}, "rate_limit", True),
        ({"code": 502, "message": "Provider returned error"}, "server_error", True),
        ({"type": "overloaded_error", "message": "at capacity"}, "overloaded", True),
        ({"code": "401", "message": "No auth credentials found"}, "auth_error", False),
        ({"code": 400, "message": "the prompt is too odd"}, "invalid_request", False),
        ({"message": "Worker broke"}, "server_error", True),
        ("Worker broke", "server_error", True),
    ],
)
async def test_an_error_in_the_body_of_a_200_has_its_kind_and_its_words(error, kind, retryable):
    for said in (
        {"error": error},
        {**body(), "choices": None, "error": error},
        {**body(), "choices": [], "error": error},
    ):
        with pytest.raises(StepFailed) as caught:
            await asked(Reply(body=said))
        assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
        assert (error if isinstance(error, str) else error["message"]) in caught.value.message


async def test_an_error_in_a_choice_or_a_chunk_is_a_failure_and_not_a_short_answer():
    broken = body()
    broken["choices"][0] |= {"finish_reason": "error", "error": {"code": 502, "message": "gone away"}}
    late = chunk("", "error", error={"code": 429, "message": "gone away"})
    for reply, kind in (
        (Reply(body=broken), "server_error"),
        (stream(chunk("half"), late), "rate_limit"),
        (stream(late), "rate_limit"),
        (stream({**chunk(), "choices": [], "error": {"code": 429, "message": "gone away"}}), "rate_limit"),
    ):
        with pytest.raises(StepFailed, match="gone away") as caught:
            await asked(reply, streams=reply.headers == SSE)
        assert (caught.value.kind, caught.value.retryable) == (kind, True)


@pytest.mark.parametrize("streams", [False, True])
async def test_an_answer_that_ends_in_an_error_is_none_and_its_tokens_count(streams):
    last = {**chunk(), "choices": [], "usage": USAGE}
    reply = (
        stream(chunk("half an "), chunk("ans"), chunk(finish="error"), last)
        if streams
        else Reply(body=body(finish="error"))
    )
    with pytest.raises(StepFailed, match="ended in an error") as caught:
        await asked(reply, streams=streams)
    assert caught.value.detail["answer"] == "half an ans"
    assert (caught.value.detail["usage"]["input_tokens"], caught.value.detail["usage"]["output_tokens"]) == (7, 3)


async def test_a_run_goes_on_after_a_gateways_error_and_every_token_is_summed(tmp_path):
    replies = [
        Reply(body={"error": {"code": 429, "message": "slow down"}}),
        Reply(body=body(finish="error")),
        Reply(body=body("done")),
    ]
    run, steps, requests = await ran(tmp_path, replies, [ASK | {"retry": QUICK}])
    assert (run.output, len(requests)) == ({"text": "done"}, 3)
    assert [one["error"]["kind"] for one in steps["/ask"]["attempt_log"][:2]] == ["rate_limit", "server_error"]
    assert (run.usage["input_tokens"], run.usage["output_tokens"]) == (14, 6)


async def test_usage_that_is_told_in_every_chunk_is_counted_once():
    so_far = [{"prompt_tokens": 7, "completion_tokens": number, "total_tokens": 7 + number} for number in (1, 2, 3)]
    chunks = [chunk("a", usage=so_far[0]), chunk("b", usage=so_far[1]), chunk(finish="stop", usage=so_far[2])]
    reply, _ = await asked(stream(*chunks, {**chunk(), "choices": [], "usage": USAGE}), streams=True)
    assert (reply.text, reply.input_tokens, reply.output_tokens) == ("ab", 7, 3)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None},
        {"prompt_tokens": 7},
        {},
        None,
        {"prompt_tokens": -7, "completion_tokens": 3, "total_tokens": -4},
        {"prompt_tokens": 10**30, "completion_tokens": 0, "total_tokens": 10**30},
    ],
    ids=["nulls", "a part", "empty", "none", "negative", "absurd"],
)
async def test_an_answer_is_not_lost_because_its_usage_makes_no_sense(usage, streams):
    said = stream(chunk("whole"), chunk(finish="stop"), {**chunk(), "choices": [], "usage": usage})
    reply, _ = await asked(said if streams else Reply(body=body("whole") | {"usage": usage}), streams=streams)
    assert (reply.text, reply.input_tokens, reply.output_tokens) == ("whole", 0, 0)


async def test_a_budget_counts_the_most_for_an_answer_whose_usage_nobody_told(tmp_path):
    step = ASK | {"max_tokens": 1000}
    steps = [step, step | {"id": "second"}, step | {"id": "third"}]
    nobody = Reply(body=body("fine") | {"usage": {"prompt_tokens": None}})
    run, told, requests = await ran(tmp_path, [nobody], steps, budget={"tokens": 2_500})
    assert (run.error["kind"], len(requests)) == ("budget_exceeded", 2)
    assert [told[f"/{name}"]["status"] for name in ("ask", "second", "third")] == ["completed", "completed", "failed"]


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n"])
async def test_comments_line_ends_and_separators_in_a_stream_change_no_text(end):
    said = stream(
        chunk("审批 é"), chunk("\u2028l\x85\u00a0"), chunk(finish="stop"), end=end, before=f": PROCESSING{end}" * 2
    )
    reply, told = await asked(said, streams=True)
    assert reply.text == "".join(told) == "审批 é\u2028l\x85\u00a0"


# ── tools of a model ──


def calling(*ids: Json, of: str = "look") -> Json:
    function = {"name": of}
    return [
        {"type": "function", "function": function | {"arguments": json.dumps({"q": f"q{number}"})}}
        | ({} if name is ... else {"id": name})
        for number, name in enumerate(ids)
    ]


def told_ids(request: Received) -> list[str]:
    return [call["id"] for message in request.json["messages"] for call in message.get("tool_calls", ())]


@pytest.mark.parametrize(
    "name", ["same", "look", "", None, ...], ids=["one id", "the tool's name", "empty", "null", "absent"]
)
async def test_ids_of_calls_that_tell_nothing_apart_mix_no_results_up(tmp_path, name):
    """A model that gives every call one id, in every turn; a server that refuses a history in which an id comes twice."""

    def script(request: Received) -> Reply:
        ids, answers = told_ids(request), [one for one in request.json["messages"] if one["role"] == "tool"]
        if len(set(ids)) < len(ids) or [one["tool_call_id"] for one in answers] != ids or not all(ids):
            return Reply("tool_use ids must be unique", 400)
        if len(ids) == 4:
            return Reply(" ".join(json.loads(one["content"])["found"] for one in answers))
        return Reply(body=body(None, "tool_calls", calling(name, name)))

    run, steps, _ = await ran(tmp_path, script, [ASK | {"tools": ["look"]}])
    assert run.status == "completed", run.error
    assert run.output == {"text": "about q0 about q1 about q0 about q1"}
    assert sorted(looked(tmp_path)) == ["q0", "q0", "q1", "q1"]
    assert [[call["output"]["found"] for call in turn["calls"]] for turn in steps["/ask"]["turns"]] == [
        ["about q0", "about q1"], ["about q0", "about q1"], [],
    ]  # fmt: skip


async def test_a_model_that_never_stops_calling_fails_its_step_once_and_keeps_what_was_done(tmp_path):
    step = ASK | {"tools": ["look"], "max_turns": 3, "retry": QUICK, "on_error": "continue"}
    after = {"id": "after", "type": "set", "values": {"kind": "{{steps.ask.error.kind}}"}}
    run, steps, requests = await ran(tmp_path, [Reply(body=body(None, "tool_calls", calling("c")))], [step, after])
    assert (run.output, len(requests)) == ({"kind": "max_turns_reached"}, 3)
    assert steps["/ask"]["status"] == "failed"
    assert len(steps["/ask"]["turns"]) == 3
    assert looked(tmp_path) == ["q0", "q0"]


async def test_a_result_that_is_too_large_for_the_journal_is_told_to_the_model_and_tried_once(tmp_path):
    replies = [Reply(body=body(None, "tool_calls", calling("c", of="flood"))), Reply("I could not read it")]
    run, steps, requests = await ran(tmp_path, replies, [ASK | {"tools": ["flood"], "retry": QUICK}])
    assert run.output == {"text": "I could not read it"}
    (call,) = steps["/ask"]["turns"][0]["calls"]
    assert (call["status"], call["error"]["kind"]) == ("failed", "output_too_large")
    assert "output_too_large: the result is more than" in requests[1].json["messages"][-1]["content"]


async def test_an_agent_in_a_loop_is_asked_about_each_item_and_not_about_the_first_alone(tmp_path):
    def script(request: Received) -> Reply:
        word = request.json["messages"][0]["content"].split()[-1]
        if request.json["messages"][-1]["role"] == "tool":
            return Reply(json.loads(request.json["messages"][-1]["content"])["found"])
        return Reply(calls=[ToolRequest("c", "look", {"q": word})])

    agent = {"id": "a", "type": "llm_call", "prompt": "Tell of {{loop_item}}", "tools": ["look"]}
    loop = {"id": "L", "type": "loop", "over": "workflow_input.words", "concurrency": 4, "steps": [agent]}
    words = [f"w{number}" for number in range(12)]
    run, _, _ = await ran(tmp_path, script, [loop], {"words": words})
    assert run.output == [{"text": f"about {word}"} for word in words]


# ── stopping ──


async def test_c059_a_model_that_drips_cannot_hold_up_its_step_and_is_stopped(tmp_path):
    """Something comes all the time, so that no silence ever ends the request: the step's timeout does."""
    (tmp_path / "w.json").write_text(
        json.dumps({"workflow": "w", "steps": [ASK | {"timeout": "2s", "retry": {"max_attempts": 1}}]})
    )
    async with ProviderServer([Reply("x" * 4000, pause=0.05)]) as server, project(tmp_path, server) as engine:
        handle = await engine.start(engine.load(tmp_path / "w.json"), {})

        async def read() -> str:
            return "".join([str(event.data["text"]) async for event in handle.events(text=True) if event.name == TEXT])

        async with asyncio.timeout(60):  # the answer takes 25 s, and its start a few where the library is imported
            said, run = await asyncio.gather(read(), handle.wait())
            while not server.dropped:
                await asyncio.sleep(0.02)
        (step,) = (await engine.tree(run.id)).as_json()["steps"]
        assert (run.status, step["error"]["kind"], len(server.requests)) == ("failed", "timeout", 1)
        assert server.sent < 250  # of 500
        assert set(said) <= {"x"}


async def test_a_cancelled_run_stops_the_generation_and_asks_nothing_more(tmp_path):
    (tmp_path / "w.json").write_text(json.dumps({"workflow": "w", "steps": [ASK, ASK | {"id": "second"}]}))
    async with ProviderServer([Reply("word " * 4000, pause=0.02)]) as server, project(tmp_path, server) as engine:
        handle = await engine.start(engine.load(tmp_path / "w.json"), {})

        async def first_words() -> None:
            async for event in handle.events(text=True):
                if event.name == TEXT:
                    return

        async with asyncio.timeout(60):
            await first_words()
            await engine.cancel(handle.run_id, "enough")
            assert (await handle.wait()).status == "cancelled"
            while not server.dropped:
                await asyncio.sleep(0.02)
        sent = server.sent
        await asyncio.sleep(0.2)
        assert (len(server.requests), server.sent) == (1, sent)
        assert sent < 2_500  # of the pieces that it would have taken
