"""What models say while they say it: told to who wants it, as it comes, and recorded nowhere."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

from stepwell.adapters.redaction import Redactor
from stepwell.engine.engine import open_engine
from stepwell.engine.events import TEXT, Event
from stepwell.engine.secret import Secret
from stepwell.engine.settings import Settings
from stepwell.engine.settings_models import ModelSettings
from stepwell.engine.telling import Telling
from stepwell.ports import ToolRequest
from stepwell.testing.provider_server import ProviderServer, Reply

LONG = "It was the best of times, it was the worst of times, it was the age of wisdom."


def settings(folder: Path, server: ProviderServer, **more) -> Settings:
    model = ModelSettings("m", "openai", server.base_url, Secret(server.key, ""), "some-model", **more)
    return Settings(root=folder, models={"m": model}, default_model="m")


async def carried(folder: Path, server: ProviderServer, *steps: dict, text: bool = True, **more):
    """The run, its events and its journal."""
    (folder / "w.json").write_text(json.dumps({"workflow": "w", "steps": steps}))
    url = f"sqlite:///{folder}/s.db"
    async with open_engine(url, settings=settings(folder, server, **more)) as engine:
        handle = await engine.start(engine.load(folder / "w.json"), {})
        told: list[Event] = []

        async def read():
            async for event in handle.events(text=text):
                told.append(event)

        reading = asyncio.create_task(read())
        run = await handle.wait()
        await asyncio.wait_for(reading, 10)
        return run, told, await engine.history(run.id)


def said(told: list[Event]) -> list[dict]:
    return [dict(event.data) for event in told if event.name == TEXT]


async def test_text_is_told_as_it_comes_before_the_step_ends_and_is_not_recorded(tmp_path):
    async with ProviderServer([Reply(LONG, pause=0.02)]) as server:
        run, told, journal = await carried(tmp_path, server, {"id": "a", "type": "llm_call", "prompt": "go"})
        assert run.output == {"text": LONG}
        pieces = said(told)
        assert "".join(piece["text"] for piece in pieces) == LONG
        assert len(pieces) > 2
        assert {(piece["attempt"], piece["answer"]) for piece in pieces} == {(1, 1)}
        names = [event.name for event in told]
        assert names.index("step_started") < names.index(TEXT)
        assert names[-1] == "step_completed"
        assert {event.path for event in told if event.name == TEXT} == {"/a"}
        assert "the age of wisdom" not in json.dumps([str(entry) for entry in journal if entry.path != "/a"])
        assert not [entry for entry in journal if TEXT in entry.kind]


async def test_without_a_listener_that_wants_it_nothing_is_streamed(tmp_path):
    async with ProviderServer([Reply(LONG)]) as server:
        run, told, _ = await carried(tmp_path, server, {"id": "a", "type": "llm_call", "prompt": "go"}, text=False)
        assert run.output == {"text": LONG}
        assert said(told) == []
        assert [request.streams for request in server.requests] == [False]


async def test_another_attempt_says_that_it_is_one(tmp_path):
    async with ProviderServer([Reply(LONG, cut=5, then="drop"), Reply("Whole.")]) as server:
        step = {"id": "a", "type": "llm_call", "prompt": "go", "retry": {"max_attempts": 2, "initial_delay": 0.01}}
        run, told, journal = await carried(tmp_path, server, step)
        assert run.output == {"text": "Whole."}
        first = "".join(piece["text"] for piece in said(told) if piece["attempt"] == 1)
        assert first
        assert LONG.startswith(first)
        assert "".join(piece["text"] for piece in said(told) if piece["attempt"] == 2) == "Whole."
        failed = next(entry for entry in journal if entry.kind == "failed")
        assert first in str(failed)


async def test_turns_are_told_under_their_step(tmp_path):
    (tmp_path / "tools.py").write_text(
        "import stepwell\n@stepwell.tool\ndef city(name: str) -> str:\n    '''A city.'''\n    return name.upper()\n"
    )
    replies = [Reply("Looking.", calls=[ToolRequest("c1", "city", {"name": "lyon"})]), Reply("It is LYON.")]
    step = {"id": "a", "type": "llm_call", "prompt": "go", "tools": ["city"]}
    async with ProviderServer(replies) as server:
        (tmp_path / "w.json").write_text(json.dumps({"workflow": "w", "steps": [step]}))
        url = f"sqlite:///{tmp_path}/s.db"
        tools = [tmp_path / "tools.py"]
        async with open_engine(url, settings=settings(tmp_path, server), tools=tools) as engine:
            handle = await engine.start(engine.load(tmp_path / "w.json"), {})
            reading = asyncio.create_task(_all(handle))
            run = await handle.wait()
            told = await asyncio.wait_for(reading, 10)
        assert run.output == {"text": "It is LYON."}, (run.status, run.error)
        assert [(piece["turn"], piece["text"]) for piece in said(told)] == [(1, "Looking."), (2, "It is LYON.")]
        assert {event.path for event in told if event.name == TEXT} == {"/a"}


async def _all(handle) -> list[Event]:
    return [event async for event in handle.events(text=True)]


async def test_pieces_are_joined_and_none_is_told_after_the_end():
    told: list[dict] = []
    telling = Telling(lambda _name, _path, data: told.append(data), "/a", 3)
    telling.begin()
    for _ in range(1000):
        telling("x")
    assert told == []
    await asyncio.sleep(0.2)
    assert told == [{"attempt": 3, "answer": 1, "text": "x" * 1000}]
    telling("y")
    telling.begin()
    telling("z")
    telling.close()
    telling("late")
    await asyncio.sleep(0.1)
    assert told[1:] == [{"attempt": 3, "answer": 1, "text": "y"}, {"attempt": 3, "answer": 2, "text": "z"}]


def _project(folder: Path, server: ProviderServer) -> dict[str, str]:
    (folder / "stepwell.toml").write_text(
        f'[models.m]\nprovider = "openai"\nbase_url = "{server.base_url}"\napi_key = "env:M_KEY"\nmodel = "some-model"\n'
    )
    step = {"id": "a", "type": "llm_call", "prompt": "go"}
    (folder / "w.json").write_text(json.dumps({"workflow": "w", "steps": [step]}))
    return {**os.environ, "M_KEY": server.key, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}


async def _run(*words: str, folder: Path, environ: dict[str, str]) -> tuple[int, str]:
    command = [sys.executable, "-m", "stepwell", "run", "w.json", *words]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def test_json_lines_carry_the_text_only_with_tokens(tmp_path):
    async with ProviderServer([Reply(LONG, pause=0.01)]) as server:
        environ = _project(tmp_path, server)
        code, plain = await _run("--json", folder=tmp_path, environ=environ)
        assert code == 0
        assert TEXT not in plain
        assert not server.requests[0].streams
        code, lines = await _run("--json", "--tokens", folder=tmp_path, environ=environ)
        assert code == 0
        events = [json.loads(line) for line in lines.splitlines()]
        assert "".join(event["text"] for event in events if event["event"] == TEXT) == LONG
        code, refused = await _run("--tokens", folder=tmp_path, environ=environ)
        assert code == 2
        assert "--tokens belongs to --json" in refused


async def test_a_terminal_shows_the_last_words(tmp_path):
    async with ProviderServer([Reply(LONG, pause=0.08)]) as server:
        environ = _project(tmp_path, server)
        ours, theirs = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "stepwell", "run", "w.json", cwd=tmp_path, env=environ, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        shown = await asyncio.to_thread(_read, ours)
        assert await process.wait() == 0
        assert "It was the best" in shown.split("completed", maxsplit=1)[0]


def _read(terminal: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # how the end of a terminal is told
            break
        if not part:
            break
        parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode("utf-8", "replace")


async def test_streamed_text_holds_no_secret_wherever_its_parts_are_cut() -> None:
    told: list[Any] = []
    hide = Redactor({"KEY": "CANARY-9f3"})
    telling = Telling(lambda _name, _path, data: told.append((data["answer"], data["text"])), "/a", 1, hide)
    telling.begin()
    for piece in ("say CAN", "ARY", "-9f3 and CAN"):
        telling(piece)
        telling.flush()
    telling.begin()
    telling("CANARY-9f")
    telling.close()
    first = "".join(text for answer, text in told if answer == 1)
    assert first == "say [secret KEY] and CAN"
    assert "".join(text for answer, text in told if answer == 2) == "CANARY-9f"
