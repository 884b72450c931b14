"""Writes the golden journals of this version: `python -m tests.replay.record`; those of released versions are kept."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stepwell.journal.entry import Entry
from stepwell.ports import FINAL, RunStore
from stepwell.stores.memory import MemoryRunStore
from tests.laws.definitions import INPUT
from tests.laws.test_laws import script_of
from tests.laws.worlds import ACCOUNT, decide_all, one_pass, plan_of, start
from tests.replay.workflows import WORKFLOWS

Json = Any
CENTURY = 36_600 * 86_400.0
"""Seconds by which the store's clock is ahead: what waits for a time is due at the next claim, and not on replay."""
JOURNALS = Path(__file__).parent / "journals"


def as_json(entry: Entry) -> Json:
    return {
        "path": entry.path,
        "kind": entry.kind,
        "digest": entry.digest,
        "order": entry.order,
        "body": entry.body.decode(),
    }


async def state(store: RunStore) -> Json:
    """The run as it is now: its verdict and its journal."""
    run = await store.run(ACCOUNT, "r1")
    entries = [entry for entry in await store.history(ACCOUNT, "r1") if entry.path]
    return {
        "run": {
            "status": run.status,
            "output": run.output,
            "error": run.error,
            "created": run.created,
            "active": run.active,
        },
        "entries": [as_json(entry) for entry in entries],
        "waits": [
            {"id": wait.id, "path": wait.path, "kind": wait.kind, "opened": wait.opened, "deadline": wait.deadline}
            for wait in await store.waits(ACCOUNT, run_id="r1")
        ],
    }


async def journal(definition: Json) -> Json:
    """The definition, the journal of its run where it first parks, and at its end."""
    boot = itertools.count(0.0, 1000.0)
    store = MemoryRunStore(clock=lambda: time.time() + CENTURY, uptime=lambda: next(boot))
    pinned, script = plan_of(definition), script_of(definition)
    await start(store, INPUT)
    await one_pass(store, pinned, script)
    parked = await state(store)
    while (await store.run(ACCOUNT, "r1")).status not in FINAL:
        await decide_all(store)
        await one_pass(store, pinned, script)
    finished = await state(store)
    blobs = {digest: text.decode() for (_, digest), text in store._blobs.items()}
    return {"definition": definition, "input": INPUT, "parked": parked, "finished": finished, "blobs": blobs}


def main() -> None:
    folder = JOURNALS / ".".join(version("stepwell").split(".")[:2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, definition in WORKFLOWS.items():
        text = json.dumps(asyncio.run(journal(definition)), ensure_ascii=False, indent=1)
        (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
