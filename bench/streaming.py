"""What a request to a provider costs whole and streamed, each provider's interface, server in a process of its own.

    python bench/streaming.py [REQUESTS]

The law of the file: a piece has eight characters, which is about what providers send; the figure to compare is the
processor time of this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from statistics import median

from stepwell.adapters.models.anthropic_messages import Anthropic
from stepwell.adapters.models.openai_compatible import OpenAICompatible
from stepwell.adapters.models.provider import ProviderModel
from stepwell.ports import ModelRequest

_KEY = "sk-bench"
_SERVER = f"""
import asyncio, sys
from stepwell.testing.provider_server import ProviderServer, Reply
async def main():
    async with ProviderServer([Reply("word " * 200)], key={_KEY!r}) as server:
        print(server.root, flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _measured(model: ProviderModel, count: int, *, streams: bool) -> dict[str, float | int]:
    pieces: list[str] = []
    request = ModelRequest("", "hi", max_tokens=500, timeout=60, on_text=pieces.append if streams else None)
    for _ in range(5):
        await model.complete(request)
    pieces.clear()
    waits, begun = [], _cpu()
    for _ in range(count):
        asked = time.perf_counter()
        await model.complete(request)
        waits.append(time.perf_counter() - asked)
    used = _cpu() - begun
    return {
        "p50_ms": round(1000 * median(waits), 1),
        "cpu_ms": round(1000 * used / count, 1),
        "pieces": len(pieces) // count,
    }


async def main(count: int) -> None:
    server = subprocess.Popen(  # noqa: ASYNC220 -- before anything is measured
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdin is not None
    root = server.stdout.readline().strip()
    models: dict[str, ProviderModel] = {
        "openai": OpenAICompatible("bench", f"{root}/v1", "m", api_key=_KEY),
        "anthropic": Anthropic("bench", root, "claude-sonnet-4-6", api_key=_KEY),
    }
    for name, model in models.items():
        for streams in (False, True):
            figures = await _measured(model, count, streams=streams)
            print(json.dumps({"interface": name, "streamed": streams, **figures, "load": os.getloadavg()}))
        await model.aclose()
    server.stdin.close()
    server.wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
