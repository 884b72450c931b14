"""Models that are asked in turn: when, for how long, and what is said of those that did not answer."""

from __future__ import annotations

import json
import time

import pytest

from stepwell.adapters.models.anthropic_messages import Anthropic
from stepwell.adapters.models.openai_compatible import OpenAICompatible
from stepwell.engine.engine import open_engine
from stepwell.engine.model_performer import ModelPerformer
from stepwell.engine.performer import CallContext
from stepwell.engine.settings import Settings
from stepwell.engine.settings_models import ModelSettings
from stepwell.errors import StepFailed
from stepwell.interpreter.effect import ModelCall
from stepwell.testing.provider_server import ProviderServer, Reply

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


class Two:
    """An OpenAI-shaped model `big` and an Anthropic-shaped one `claude`, each behind a server of its own."""

    def __init__(self, big: list[Reply], claude: list[Reply]) -> None:
        self.big, self.claude = ProviderServer(big), ProviderServer(claude)

    async def __aenter__(self):
        for server in (self.big, self.claude):
            await server.__aenter__()
        self.models = {
            "big": OpenAICompatible("big", self.big.base_url, "big-1", api_key=self.big.key),
            "claude": Anthropic("claude", self.claude.root, "claude-sonnet-4-6", api_key=self.claude.key),
        }
        self.performer = ModelPerformer(self.models, "big", fallbacks={"big": ["claude"]})
        return self

    async def __aexit__(self, *error):
        for model in self.models.values():
            await model.aclose()
        for server in (self.big, self.claude):
            await server.__aexit__(*error)

    async def __call__(self, timeout: float = 20, **call):
        context = CallContext(account="a", run_id="r1", path="/l", attempt=1, key="r1/l", timeout=timeout)
        return await self.performer(ModelCall(prompt="hi", **call), context)

    @property
    def asked(self) -> tuple[int, int]:
        return len(self.big.requests), len(self.claude.requests)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply("slow down", 429), "rate_limit"),
        (Reply(status=429, body={"error": {"message": "no credit", "code": "insufficient_quota"}}), "rate_limit"),
        (Reply("busy", 529), "overloaded"),
        (Reply("oops", 500), "server_error"),
        (Reply(body="<html>"), "server_error"),
        (Reply(reset=True), "connection_error"),
        (Reply("no such model", 404), "not_found"),
        (Reply("who?", 401), "auth_error"),
    ],
)
async def test_another_model_answers_what_says_nothing_against_the_question(reply, kind):
    async with Two([reply], [Reply("from claude")]) as two:
        done = await two()
        assert done.value == {"text": "from claude"}
        assert done.meta["model"] == "claude-sonnet-4-6"
        (left,) = done.meta["fell_back"]
        assert (left["model"], left["kind"]) == ("big", kind)
        assert left["message"].startswith("model big: ")
        assert two.asked == (1, 1)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(refusal="no"), "refused"),
        (Reply("what?", 400), "invalid_request"),
        (Reply("no JSON at all"), "output_invalid"),
        (Reply('{"a": 1', finish_reason="length"), "truncated_output"),
    ],
)
async def test_an_answer_to_the_question_is_put_to_nobody_else(reply, kind):
    async with Two([reply], [Reply('{"a": 1}')]) as two:
        with pytest.raises(StepFailed) as caught:
            await two(schema=SCHEMA)
        assert caught.value.kind == kind
        assert two.asked[1] == 0


async def test_a_model_that_hangs_leaves_time_for_the_next():
    async with Two([Reply(hang=True)], [Reply("in time")]) as two:
        begun = time.monotonic()
        done = await two(timeout=4)
        assert done.value == {"text": "in time"}
        assert done.meta["fell_back"][0]["kind"] == "timeout"
        assert time.monotonic() - begun < 4


async def test_when_all_fail_the_last_failure_counts_and_the_others_are_told():
    async with Two([Reply("busy", 529)], [Reply("slow", 429, {"Retry-After": "7"})]) as two:
        with pytest.raises(StepFailed) as caught:
            await two()
        assert (caught.value.kind, caught.value.retry_after) == ("rate_limit", 7.0)
        assert [left["model"] for left in caught.value.detail["usage"]["fell_back"]] == ["big"]


async def test_a_stream_that_broke_off_counts_its_tokens_and_the_answer_is_whole():
    async with Two([Reply("x")], [Reply("Once upon a time", cut=4, then="drop")]) as two:
        told: list[str] = []
        context = CallContext("a", "r1", "/l", 1, "r1/l", 20, on_text=told.append)
        done = await two.performer(ModelCall(prompt="hi", model={"name": "claude", "fallback": ["big"]}), context)
        assert done.value == {"text": "x"}
        assert "".join(told) == "Once upon a time"[:16] + "x"
        assert done.meta["input_tokens"] == 20


async def test_the_repair_goes_to_the_model_that_answered():
    async with Two([Reply("busy", 529)], [Reply("no JSON"), Reply('{"a": 2}')]) as two:
        done = await two(schema=SCHEMA)
        assert done.value == {"a": 2}
        assert two.asked == (1, 2)
        keys = [request.headers["idempotency-key"] for request in two.claude.requests]
        assert keys == ["r1/l~claude", "r1/l.1~claude"]


async def test_a_steps_list_stands_instead_of_that_of_the_settings():
    async with Two([Reply("busy", 529)], [Reply("x")]) as two:
        with pytest.raises(StepFailed, match="overloaded"):
            await two(model={"name": "big", "fallback": []})
        done = await two(model={"provider": "claude", "fallback": ["big"]})
        assert "fell_back" not in done.meta


async def test_every_name_is_known_before_the_run():
    async with Two([Reply("x")], [Reply("x")]) as two:
        del two.performer
        performer = ModelPerformer({"big": two.models["big"], "keyless": OpenAICompatible("keyless", "", "m")}, "big")
        told = [
            [problem.message for problem in performer.problems_with(model)]
            for model in (
                {"name": "big", "fallback": ["keyless"]},
                {"nmae": "big"},
                {"fallback": "big"},
                {"provider": "nobody"},
                {"name": "big", "fallback": ["keyles"]},
                {"provider": "big", "name": "keyles"},
            )
        ]
        assert told == [
            ["model keyless has no key"],
            ["`model` says 'nmae', which means nothing"],
            ["`fallback` of `model` lists names of models"],
            ["there is no model 'nobody'; configured: big, keyless"],
            ["there is no model 'keyles'; configured: big, keyless"],
            [],
        ]
        (doubt,) = performer.problems_with("keyles")
        assert (doubt.severity, doubt.code, doubt.hint) == ("warning", "model_name", "did you mean 'keyless'?")
        assert "big is asked for it by this name" in doubt.message
        (warning,) = performer.problems_with({"name": "big", "fallback": ["keyless"]})
        assert warning.severity == "warning"
        with pytest.raises(StepFailed) as caught:
            await performer(ModelCall(prompt="x", model={"nmae": "big"}), CallContext("a", "r", "/l", 1, "k", 5))
        assert caught.value.kind == "validation_error"


async def test_a_fallback_that_cannot_be_asked_is_a_warning_before_the_run(tmp_path):
    models = {
        "embedded": ModelSettings("embedded", "embedded"),
        "keyless": ModelSettings("keyless", "openai", "", model="m"),
    }
    recipe = {"recipe": "r", "prompt": "x", "output_schema": SCHEMA, "model": {"fallback": []}}
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "r.yaml").write_text(json.dumps(recipe))
    steps = [
        {"id": "a", "type": "llm_call", "prompt": "x", "model": {"fallback": ["keyless"]}},
        {"id": "b", "type": "llm_call", "prompt": "x", "model": {"fallback": ["nobody"]}},
        {"id": "c", "type": "llm_call", "prompt": "x", "model": {"temprature": 1}},
        {"id": "d", "type": "recipe", "recipe": "r"},
    ]
    (tmp_path / "w.json").write_text(json.dumps({"workflow": "w", "steps": steps}))
    settings = Settings(root=tmp_path, models=models, default_model="embedded")
    async with open_engine(f"sqlite:///{tmp_path}/s.db", settings=settings) as engine:
        found = await engine.preflight(engine.load(tmp_path / "w.json"), {})
    assert [(one.severity, one.message) for one in found] == [
        ("warning", "step a: model keyless has no key"),
        ("error", "step b: there is no model 'nobody'; configured: embedded, keyless"),
        ("error", "step c: `model` says 'temprature', which means nothing"),
    ]
