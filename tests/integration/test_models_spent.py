"""What models took: per attempt, step and run, failed ones included; and `stepwell models`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.adapters.models.price import Price
from stepwell.engine.engine import open_engine
from stepwell.engine.secret import Secret
from stepwell.engine.settings import Settings
from stepwell.engine.settings_models import ModelSettings
from stepwell.errors import NotFound, StepFailed
from stepwell.testing.provider_server import ProviderServer, Reply

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
STEP = {"id": "a", "type": "llm_call", "prompt": "go", "output_schema": SCHEMA, "on_error": {"strategy": "continue"}}


def settings(folder: Path, server: ProviderServer, *, priced: bool = True, **more) -> Settings:
    prices = {"usd_per_million_input": 1000.0, "usd_per_million_output": 2000.0} if priced else {}
    key = Secret(server.key, "")
    models = {
        "m": ModelSettings("m", "openai", server.base_url, key, "some-model", **prices, **more),
        "other": ModelSettings("other", "openai", server.base_url, key, "other-model"),
    }
    return Settings(root=folder, models=models, default_model="m")


async def shown(folder: Path, replies: list[Reply], step: dict, **more) -> dict:
    (folder / "w.json").write_text(json.dumps({"workflow": "w", "steps": [step]}))
    async with ProviderServer(replies) as server:
        url = f"sqlite:///{folder}/s.db"
        async with open_engine(url, settings=settings(folder, server, **more)) as engine:
            run = await (await engine.start(engine.load(folder / "w.json"), {})).wait()
            return (await engine.tree(run.id)).as_json()


async def test_failed_attempts_are_in_the_sums_and_each_says_what_it_took(tmp_path):
    replies = [
        Reply("no JSON", input_tokens=10, output_tokens=1),
        Reply("again none", input_tokens=20, output_tokens=2),
        Reply('{"a": 1}', input_tokens=40, output_tokens=4, cached_tokens=8),
    ]
    step = STEP | {"retry": {"max_attempts": 2, "initial_delay": 0.01, "on": ["output_invalid"]}}
    run = await shown(tmp_path, replies, step)
    (told,) = run["steps"]
    first, second = told["attempt_log"]
    assert (first["status"], second["status"]) == ("failed", "completed")
    assert first["usage"] == {
        "model": "some-model",
        "input_tokens": 30,
        "output_tokens": 3,
        "cost_usd": pytest.approx(0.036),
    }
    assert second["usage"]["cached_tokens"] == 8
    assert second["usage"]["cost_usd"] == pytest.approx(0.048)
    assert run["usage"] == {
        "input_tokens": 70,
        "output_tokens": 7,
        "cached_tokens": 8,
        "cost_usd": pytest.approx(0.084),
        "requests": 3,
    }


async def test_a_price_that_nobody_knows_is_unknown_and_never_nothing(tmp_path):
    run = await shown(tmp_path, [Reply('{"a": 1}')], STEP, priced=False)
    assert run["steps"][0]["attempt_log"][0]["usage"]["cost_usd"] is None
    assert run["usage"] == {"input_tokens": 10, "output_tokens": 5, "tokens_without_price": 15, "requests": 1}


async def test_of_a_fallback_the_priced_part_is_summed_and_the_rest_is_told(tmp_path):
    def script(request):
        if request.json["model"] == "some-model":
            return Reply("busy", 529)
        return Reply('{"a": 1}')

    run = await shown(tmp_path, script, STEP, fallback=("other",))
    usage = run["steps"][0]["attempt_log"][0]["usage"]
    assert usage["fell_back"][0]["model"] == "m"
    assert run["usage"] == {"input_tokens": 10, "output_tokens": 5, "tokens_without_price": 15, "requests": 1}


async def test_the_list_says_what_is_known_of_prices_and_what_is_missing(tmp_path):
    async with ProviderServer([Reply("Hello!")]) as server:
        said = settings(tmp_path, server)
        known = ModelSettings("claude", "anthropic", "", Secret("k", ""), "claude-sonnet-4-6")
        keyless = ModelSettings("keyless", "openai", "", model="gpt-5-mini")
        more = {**said.models, "claude": known, "keyless": keyless}
        more["embedded"] = ModelSettings("embedded", "embedded")
        url = f"sqlite:///{tmp_path}/s.db"
        async with open_engine(url, settings=Settings(root=tmp_path, models=more, default_model="m")) as engine:
            found = {one.name: one for one in await engine.models.all()}
            assert found["m"].price == Price(1000.0, 2000.0)
            assert (found["m"].price_of, found["m"].is_default) == ("settings", True)
            assert (found["other"].price, found["other"].price_of) == (None, "unknown")
            assert found["claude"].price_of == "price list"
            assert 0 < found["claude"].price.input < found["claude"].price.output
            assert (found["embedded"].price, found["embedded"].price_of) == (Price(0, 0), "this machine")
            assert "no key" in found["keyless"].problems[0].message
            told: list[str] = []
            trial = await engine.models.try_out("m", "hi", on_text=told.append, max_tokens=5)
            assert (trial.text, "".join(told), trial.meta["input_tokens"]) == ("Hello!", "Hello!", 10)
            assert server.requests[0].json["max_tokens"] == 5
            with pytest.raises(NotFound, match="configured: claude"):
                await engine.models.try_out("nobody", "hi")
            with pytest.raises(StepFailed, match="no key"):
                await engine.models.try_out("keyless", "hi")


async def stepwell(*words: str, folder: Path, server: ProviderServer) -> tuple[int, str, str]:
    text = '[models.m]\nprovider = "openai"\nbase_url = "{url}"\napi_key = "env:M_KEY"\nmodel = "some-model"\n'
    (folder / "stepwell.toml").write_text(text.format(url=server.base_url))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "stepwell", *words, cwd=folder, env={**os.environ, "M_KEY": server.key},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, errors = await process.communicate()
    return process.returncode or 0, out.decode(), errors.decode()


async def test_models_are_listed_and_tried_on_the_command_line(tmp_path):
    async with ProviderServer([Reply("one\ntwo \x1b[31mred"), Reply("slow", 429)]) as server:
        code, out, _ = await stepwell("models", "list", folder=tmp_path, server=server)
        assert code == 0
        assert "* m" in out
        assert "price unknown" in out
        assert server.requests == []
        code, out, errors = await stepwell("models", "try", "m", "hi", folder=tmp_path, server=server)
        assert code == 0
        assert out.startswith("one\ntwo ")
        assert "\x1b[31m" not in out
        assert "10 tokens in, 5 out  price unknown" in errors
        assert server.requests[0].streams
        code, _, errors = await stepwell("models", "try", "m", "hi", folder=tmp_path, server=server)
        assert code == 1
        assert "too many requests" in errors
        code, _, errors = await stepwell("models", "try", "x", "hi", folder=tmp_path, server=server)
        assert code == 2
        assert "there is no model 'x'" in errors
        code, out, _ = await stepwell("models", "list", "--json", folder=tmp_path, server=server)
        assert [one["usd_per_million_input"] for one in json.loads(out) if one["name"] == "m"] == [None]
