"""A process that carries on the runs of a database, and starts runs it is told to: `worker.py DATABASE FOLDER [JSON]`.

Lines of JSON come in, `{"start": name, "workflow": file, "input": {...}}`, and go out: `{"ready": pid}`,
`{"started": name, "run": id}` once the start is acknowledged. The end of the input ends it. The third argument gives
`rhythm` (the lease's times), `tools` (files) and `frozen` (the instant at which the wall clock stands still).
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import stepwell.engine.engine as engine_module
from stepwell.engine.engine import Engine, open_engine
from stepwell.engine.settings import Settings
from stepwell.engine.worker import Rhythm, Worker


def say(**said: Any) -> None:
    print(json.dumps(said), flush=True)


def lines_of_stdin() -> asyncio.Queue[dict[str, Any] | None]:
    """What comes in, read in a thread, so that the loop never waits for it."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[dict[str, Any] | None]()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(queue.put_nowait, json.loads(line))
        loop.call_soon_threadsafe(queue.put_nowait, None)

    Thread(target=read, daemon=True).start()
    return queue


async def start(engine: Engine, folder: Path, told: dict[str, Any]) -> None:
    loaded = engine.load(folder / told["workflow"])
    handle = await engine.start(loaded, told["input"], idempotency_key=told["start"])
    say(started=told["start"], run=handle.run_id)


async def serve(database: str, folder: Path, options: dict[str, Any]) -> None:
    queue = lines_of_stdin()
    tools = [folder / name for name in options.get("tools", ["tools.py"])]
    starting: set[asyncio.Task[None]] = set()
    async with open_engine(f"sqlite:///{database}", settings=Settings(folder), tools=tools, serves=True) as engine:
        say(ready=True)
        while (told := await queue.get()) is not None:
            starting.add(asyncio.create_task(start(engine, folder, told)))
        await asyncio.gather(*starting)


def main(arguments: list[str]) -> None:
    database, folder = arguments[0], Path(arguments[1])
    options = json.loads(arguments[2]) if len(arguments) > 2 else {}
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(process)d %(name)s %(message)s")
    if "rhythm" in options:
        worker = partial(Worker, rhythm=Rhythm(**options["rhythm"]))
        engine_module.Worker = worker  # type: ignore[assignment, misc]  # nobody but tests needs other times
    if "frozen" in options:
        time.time = lambda: options["frozen"]
    asyncio.run(serve(database, folder, options))


if __name__ == "__main__":
    main(sys.argv[1:])
