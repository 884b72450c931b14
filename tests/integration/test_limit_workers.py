"""Two `stepwell worker` processes share the limit on model calls through Redis; doctor says so."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.redis_server import RedisServer, redis_server

from stepwell.engine.engine import open_engine
from stepwell.engine.settings import Settings
from stepwell.testing.provider_server import ProviderServer, Received, Reply

WORKFLOW = """
workflow: w
steps:
- {id: gate, type: approval, title: "go?"}
- {id: ask, type: llm_call, prompt: hello, timeout: 60s, depends_on: [gate]}
"""
LIMIT, RUNS, TAKES = 2, 8, 1.0
LONG = 120.0


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server("--requirepass", "pass-word") as server:
        yield server


def project(folder: Path, provider: str, redis: RedisServer) -> dict[str, str]:
    """The files of a project; gives the environment of its processes."""
    (folder / "w.yaml").write_text(WORKFLOW)
    (folder / "stepwell.toml").write_text(
        f'[models.big]\nprovider = "openai"\nbase_url = "{provider}"\nmodel = "m"\napi_key = "env:BIG_KEY"\n'
        f'[limits]\nmodel_calls = {LIMIT}\nredis = "env:REDIS_URL"\n'
    )
    url = redis.url.replace("redis://", "redis://:pass-word@")
    return {**os.environ, "BIG_KEY": "sk-test", "REDIS_URL": url, "PYTHONUNBUFFERED": "1"}


async def said_by(folder: Path, environ: dict[str, str], *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "stepwell", *arguments, cwd=folder, env=environ, stdout=PIPE, stderr=PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), LONG)
    return (out + err).decode()


async def test_workers_share_the_limit_and_doctor_tells_of_it(tmp_path, redis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arrived: list[float] = []

    def answer(received: Received) -> Reply:
        arrived.append(time.monotonic())
        return Reply("hi", delay=TAKES)

    async with ProviderServer(answer, key="sk-test") as server:
        environ = project(tmp_path, server.base_url, redis)
        settings = Settings.load(tmp_path, environ)
        workers = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "stepwell", "worker", cwd=tmp_path, env=environ, stderr=PIPE
            )
            for _ in range(2)
        ]
        try:
            async with open_engine(settings=settings) as engine:
                loaded = engine.load(tmp_path / "w.yaml")
                runs = [await engine.start(loaded, {}) for _ in range(RUNS)]
                assert {(await run.wait()).status for run in runs} == {"pending_approval"}
                for wait in await engine.waits():
                    await engine.decide(wait.id, "approved")
                async with asyncio.timeout(LONG):
                    while {(await engine.run(run.run_id)).status for run in runs} != {"completed"}:
                        await asyncio.sleep(0.1)
                queued = [(await engine.tree(run.run_id)).steps[-1].meta.get("queued_ms", 0) for run in runs]
        finally:
            for worker in workers:
                worker.terminate()
            told = [(await worker.communicate())[1].decode() for worker in workers]
        assert len(arrived) == RUNS
        # On a machine so busy that Redis takes 200 ms, each worker may have counted for itself for a while.
        most = 2 * LIMIT if any("cannot be asked" in text for text in told) else LIMIT
        # A call lasts that long at least, so of any three in a row the third came after the first was over.
        assert all(later - first >= TAKES - 0.01 for first, later in zip(arrived, arrived[most:], strict=False))
        assert sum(wait > 500 for wait in queued) >= RUNS - 2 * most

        found = await said_by(tmp_path, environ, "doctor")
        assert "at most 2 model calls of an account in flight over all processes; 0 are now, 0 wait" in found
        redis.kill()
        found = await said_by(tmp_path, environ, "doctor")
        assert "at most 2 model calls of an account in flight in each process: Redis" in found
        assert "pass-word" not in found
