"""A process that carries on the runs of a database, and starts runs it is told to: `worker.py DATABASE FOLDER [JSON]`.

Lines of JSON come in, `{"start": name, "workflow": file, "input": {...}}`, and go out: `{"ready": pid}`,
`{"started": name, "run": id}` once the start is acknowledged. The end of the input ends it. The third argument may give
`rhythm` (the lease's times), `tools` (files), and when it is to die: `die_at` (paths) or `die_at_write` (a number).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import stepwell.engine.engine as engine_module
from stepwell.engine.clock import Rhythm
from stepwell.engine.engine import Engine, open_engine
from stepwell.engine.settings import Settings
from stepwell.engine.worker import Worker
from stepwell.ports import Batch, Lease, Verdict
from stepwell.stores.sqlite import SqliteRunStore
from tests.chaos.faults import FAULTS


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


def die_on_time(options: dict[str, Any]) -> None:
    """Have SIGKILL come right after (or, `die_before`, right before) what is written at a path, or with a number."""
    append, release = SqliteRunStore.append, SqliteRunStore.release
    paths, number, written = options.get("die_at", ()), options.get("die_at_write", 0), count(1)

    def comes(batch: Batch) -> bool:
        now = next(written) == number or any(entry.path in paths for entry in batch.entries)
        if now and options.get("die_before"):
            os.kill(os.getpid(), signal.SIGKILL)
        return now

    async def die_after(written: Awaitable[Any]) -> Any:
        await written
        os.kill(os.getpid(), signal.SIGKILL)

    def dying_append(self: SqliteRunStore, lease: Lease, batch: Batch) -> Awaitable[int]:
        now, order = comes(batch), append(self, lease, batch)
        return asyncio.ensure_future(die_after(order)) if now else order

    async def dying_release(self: SqliteRunStore, lease: Lease, batch: Batch, verdict: Verdict) -> bool:
        now, released = comes(batch), release(self, lease, batch, verdict)
        return await (die_after(released) if now else released)

    for name, changed in (("append", dying_append), ("release", dying_release)):
        setattr(SqliteRunStore, name, changed)


def main(arguments: list[str]) -> None:
    database, folder = arguments[0], Path(arguments[1])
    options = json.loads(arguments[2]) if len(arguments) > 2 else {}
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(process)d %(name)s %(message)s")
    if "rhythm" in options:
        rhythm = {"rhythm": Rhythm(**options["rhythm"])}
        vars(engine_module)["Worker"] = lambda name, world, **given: Worker(name, world, **given | rhythm)
    if fault := os.environ.get("CHAOS_FAULT"):
        FAULTS[fault]()
    if "die_at" in options or "die_at_write" in options:
        die_on_time(options)
    asyncio.run(serve(database, folder, options))


if __name__ == "__main__":
    main(sys.argv[1:])
