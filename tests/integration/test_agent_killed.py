"""An agent step in a real process with a real provider's interface, killed between and in its calls."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from stepwell.ports import ToolRequest
from stepwell.testing.provider_server import ProviderServer, Received, Reply

Json = Any
CALLS = 4
TOOLS = '''
import os, time
from pathlib import Path
import stepwell

HERE = Path(__file__).parent

@stepwell.tool
def note(n: int, *, key: stepwell.IdempotencyKey) -> dict:
    """Write a number down."""
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(f"{n} {key}\\n")
    while (HERE / f"hold{n}").exists():
        time.sleep(0.02)
    return {"noted": n}

@stepwell.tool(idempotent=False)
def pay(n: int, *, key: stepwell.IdempotencyKey) -> dict:
    """Pay a number."""
    return note(n, key=key)
'''
WORKFLOW = """
workflow: agent
steps:
  - {id: before, type: set, values: {what: four numbers}}
  - id: answer
    type: llm_call
    prompt: "write {{step.before.what}} down"
    tools: [note, pay]
"""


def says(request: Received) -> Reply:
    """One call after the other, then the answer."""
    done = sum(message["role"] == "tool" for message in request.json["messages"])
    if done == CALLS:
        return Reply("all noted")
    tool = "pay" if "pay" in request.json["model"] else "note"
    return Reply(f"number {done + 1}", calls=[ToolRequest(f"c{done}", tool, {"n": done + 1})])


def project(folder: Path, server: ProviderServer, model: str) -> None:
    (folder / "tools.py").write_text(TOOLS)
    (folder / "w.yaml").write_text(WORKFLOW)
    (folder / "stepwell.toml").write_text(
        f'[project]\ntools = ["tools.py"]\ndefault_model = "m"\n[models.m]\nprovider = "openai"\n'
        f'base_url = "{server.base_url}"\napi_key = "env:KEY"\nmodel = "{model}"\n'
    )


async def stepwell(folder: Path, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "stepwell", *arguments, cwd=folder, env=os.environ | {"KEY": "sk-test-0123456789abcdef"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def said(process: asyncio.subprocess.Process) -> str:
    out, err = await process.communicate()
    return out.decode() + err.decode()


def ledger(folder: Path) -> list[list[str]]:
    found = folder / "ledger"
    return [line.split() for line in found.read_text().splitlines()] if found.exists() else []


async def killed_in_call(folder: Path, number: int) -> str:
    """The id of a run whose process was killed while it made the call of this number."""
    (folder / f"hold{number}").touch()
    process = await stepwell(folder, "run", "w.yaml", "--json")
    while [str(number)] not in [line[:1] for line in ledger(folder)]:
        assert process.returncode is None, await said(process)
        await asyncio.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    (folder / f"hold{number}").unlink()
    listed = json.loads(await said(await stepwell(folder, "runs", "list", "--json")))
    return str(listed[0]["id"])


@pytest.mark.parametrize("number", [1, 3, CALLS])
async def test_killed_in_call_k_the_calls_before_it_happen_once(tmp_path: Path, number: int) -> None:
    async with ProviderServer(says) as server:
        project(tmp_path, server, "some-model")
        run_id = await killed_in_call(tmp_path, number)
        turns = len(server.requests)
        process = await stepwell(tmp_path, "runs", "resume", run_id)
        told = await said(process)
        assert process.returncode == 0, told
        assert "all noted" in told
    numbers = [line[0] for line in ledger(tmp_path)]
    expected = [str(n) for n in range(1, CALLS + 1)]
    expected.insert(number, str(number))  # the call in flight is made again, with the same key
    assert numbers == expected
    assert len({key for _, key in ledger(tmp_path)}) == CALLS
    assert len(server.requests) == CALLS + 1
    assert turns == number


async def test_killed_in_a_call_that_may_not_be_repeated_a_person_is_asked(tmp_path: Path) -> None:
    async with ProviderServer(says) as server:
        project(tmp_path, server, "pay-model")
        run_id = await killed_in_call(tmp_path, 2)
        process = await stepwell(tmp_path, "runs", "resume", run_id)
        told = await said(process)
        assert process.returncode == 4, told
        assert [line[0] for line in ledger(tmp_path)] == ["1", "2"]
        (incident,) = json.loads(await said(await stepwell(tmp_path, "incidents", "list", "--json")))
        assert (incident["kind"], incident["path"]) == ("in_doubt", "/answer")
        shown = await said(await stepwell(tmp_path, "incidents", "show", incident["id"]))
        assert f"its key: {run_id}/answer/$t2.0" in shown
        assert ledger(tmp_path)[1][1] == f"{run_id}/answer/$t2.0"
        process = await stepwell(tmp_path, "incidents", "retry", incident["id"])
        told = await said(process)
        assert process.returncode == 0, told
        shown = await said(await stepwell(tmp_path, "runs", "show", run_id, "--step", "answer"))
    assert [line[0] for line in ledger(tmp_path)] == ["1", "2", "2", "3", "4"]
    assert "turn 2  completed  number 2" in shown
    assert 'arguments: {"n": 2}' in shown
    assert "all noted" in shown
