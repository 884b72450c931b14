"""`stepwell budget` and `stepwell usage`, over a database on disk and a provider in this process."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
import yaml
from click.testing import CliRunner

from stepwell.cli.app import stepwell
from stepwell.testing.provider_server import ProviderServer, Reply

STEPS = [
    {"id": name, "type": "llm_call", "prompt": f"{name}?", "max_tokens": 1_000, "name": name.upper()} for name in "abc"
]


@pytest.fixture
def provider():
    """A provider on a loop of its own, since commands of the command line have theirs."""
    loop, ready, server = (
        asyncio.new_event_loop(),
        threading.Event(),
        ProviderServer([Reply("fine", output_tokens=490)]),
    )
    done = asyncio.Event()

    async def serve():
        async with server:
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    yield server
    loop.call_soon_threadsafe(done.set)
    thread.join()
    loop.close()


@pytest.fixture
def suspended(tmp_path, monkeypatch, provider):
    """A run that waits because its budget is spent."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEY", provider.key)
    prices = "usd_per_million_input = 1\nusd_per_million_output = 2"
    model = f'provider = "openai"\nbase_url = "{provider.base_url}"\nmodel = "gpt"\napi_key = "env:KEY"\n{prices}'
    (tmp_path / "stepwell.toml").write_text(f"[models.care]\n{model}\n[budget.account]\nusd = 1\n", "utf-8")
    budget = {"tokens": 2_000, "usd": 0.5, "on_exceed": "suspend"}
    workflow = {"workflow": "w", "steps": STEPS, "budget": budget}
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(workflow), "utf-8")
    out = call("run", "w.yaml", "--json", code=4)
    return json.loads(out.splitlines()[-1])["run"]


def call(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(stepwell, arguments)
    assert done.exit_code == code, done.output
    return done.output


def test_what_is_spent_is_shown_and_added_up(suspended):
    shown = call("usage", "--by", "step")
    assert [line.split() for line in shown.splitlines()] == [
        ["STEP", "REQUESTS", "TOKENS", "IN", "TOKENS", "OUT", "MONEY"],
        ["/a", "1", "10", "490", "$0.00099"],
        ["/b", "1", "10", "490", "$0.00099"],
        ["total", "2", "20", "980", "$0.00198"],
    ]
    (found,) = json.loads(call("usage", "--by", "model", "--since", "1h", "--run", suspended[-8:], "--json"))
    assert found == {"model": "gpt", "input_tokens": 20, "output_tokens": 980, "cost_usd": 0.00198, "requests": 2}
    assert call("usage", "--before", "2020-01-01") == "no model was asked in that\n"
    assert "no instant" in call("usage", "--since", "soon", code=2)


def test_a_budget_is_shown_and_raised_and_the_run_goes_on(suspended):
    shown = call("budget", "show", suspended)
    assert "2000 tokens" in shown
    assert "$0.50" in shown
    assert "the account's budget for 20" in shown
    assert f"stepwell budget raise {suspended} --tokens " in call("explain", suspended)
    short = call("budget", "raise", suspended, "--usd", "0.75")
    assert f"run {suspended} still waits" in short
    assert "raised" in short
    raised = call("budget", "raise", suspended, "--tokens", "9000", "--as", "ana")
    assert "is 9000 tokens, 1000 tokens are spent" in raised
    run = json.loads(call("runs", "show", suspended, "--json"))
    assert run["status"] == "completed"
    assert run["usage"] == {"input_tokens": 30, "output_tokens": 1470, "cost_usd": 0.00297, "requests": 3}
    (note,) = [one for one in json.loads(call("audit", "--json", "--by", "ana")) if one["action"] == "budget.raise"]
    assert note["detail"] == {"scope": "run", "tokens": 9000}


def test_only_raising_carries_nothing_on(suspended):
    told = call("budget", "raise", suspended, "--tokens", "9000", "--no-resume")
    assert f"run {suspended}: go on with: stepwell runs resume {suspended}" in told
    assert json.loads(call("runs", "show", suspended, "--json"))["status"] == "suspended"
    assert json.loads(call("runs", "resume", suspended, "--json").splitlines()[-1])["status"] == "completed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show"], "it is not said whose budget is meant"),
        (["raise", "RUN", "--account", "--tokens", "5"], "it is not said whose budget is meant"),
        (["raise", "--account", "--path", "/a", "--usd", "5"], "--path is a place in a run"),
        (["raise", "RUN"], "it is not said to what"),
        (["raise", "RUN", "--usd", "much"], "no amount of dollars"),
        (["raise", "RUN", "--usd", "0.1"], "is $0.50 already"),
        (["raise", "RUN", "--tokens", "1"], "is 2000 already"),
        (["raise", "--account", "--tokens", "5"], "does not limit tokens"),
        (["raise", "--workflow", "w", "--tokens", "5"], "declare no budget of the workflow w"),
        (["raise", "RUN", "--path", "/a", "--tokens", "5"], "no workflow with a budget was called at /a"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_reason(suspended, arguments, said):
    words = [suspended if word == "RUN" else word for word in arguments]
    assert said in call("budget", *words, code=2)
