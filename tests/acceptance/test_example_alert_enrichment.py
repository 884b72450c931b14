"""Alert enrichment: a model with tools and sources in a loop, against a server with a provider's interface."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.acceptance.example_runs import EXAMPLES, call, run, steps

from stepwell.ports import ToolRequest
from stepwell.testing.provider_server import ProviderServer, Received, Reply

FOLDER = EXAMPLES / "alert-enrichment"
KNOWN = {"A-1": ("mail-2", "T1110"), "A-2": ("files-1", "T1486"), "A-3": ("dns-1", "T1048")}


def analyst(request: Received) -> Reply:
    """Looks the host up, isolates where files are encrypted, and names the technique that the sources have."""
    said = str(request.json["messages"])
    alert = next(name for name in KNOWN if f"Alert {name} on" in said)
    host, technique = KNOWN[alert]
    done = sum(message["role"] == "tool" for message in request.json["messages"])
    calls = [ToolRequest("c1", "look_up_host", {"host": host})]
    if technique == "T1486":
        calls.append(ToolRequest("c2", "isolate_host", {"host": host, "reason": "files are being encrypted"}))
    if done < len(calls):
        return Reply("I look", calls=[calls[done]], input_tokens=300)
    assert technique in said, "the page of the technique is among the sources"
    return Reply(json.dumps({"technique": technique, "severity": "high", "reasons": "as the page says"}))


@pytest.fixture
def provider(monkeypatch):
    """Names the analyst as the project's model."""

    def name(server: ProviderServer) -> None:
        monkeypatch.setenv("STEPWELL_DEFAULT_MODEL", "analyst")
        monkeypatch.setenv("STEPWELL_MODELS_ANALYST_PROVIDER", "openai")
        monkeypatch.setenv("STEPWELL_MODELS_ANALYST_BASE_URL", server.base_url)
        monkeypatch.setenv("STEPWELL_MODELS_ANALYST_API_KEY", server.key)
        monkeypatch.setenv("STEPWELL_MODELS_ANALYST_MODEL", "some-model")

    return name


async def test_each_alert_is_looked_into_with_tools_and_pages_and_its_ticket_written_once(folder, provider):
    async with ProviderServer(analyst) as server:
        provider(server)
        pages = ("run", str(FOLDER / "ingest.yaml"), "--input", str(FOLDER / "pages.json"), "--json")
        for _ in range(2):
            last = json.loads((await asyncio.to_thread(call, *pages)).splitlines()[-1])
            assert last["output"] == {"documents": 4}
        last = await asyncio.to_thread(run, "alert-enrichment")
    assert last["output"] == {"techniques": ["T1110", "T1486", "T1048"], "failed": 0}
    log = (folder / "outside-world" / "alert-enrichment.log").read_text("utf-8").splitlines()
    assert sorted(line.partition(":")[0] for line in log) == [
        "isolated files-1", "ticket A-1", "ticket A-2", "ticket A-3",
    ]  # fmt: skip
    assert "1/analyse/$t2.0" in next(line for line in log if line.startswith("isolated"))
    analysed = steps(last["run"])["/each/1/analyse"]
    assert [[one["tool"] for one in turn["calls"]] for turn in analysed["turns"]] == [
        ["look_up_host"], ["isolate_host"], [],
    ]  # fmt: skip
    assert analysed["turns"][0]["meta"]["input_tokens"] == 300


def test_without_the_pages_nothing_begins(folder):
    text = call("validate", str(FOLDER / "workflow.yaml"))
    assert "error" not in text
    run("alert-enrichment", code=2)
    assert not (folder / "outside-world").exists()
