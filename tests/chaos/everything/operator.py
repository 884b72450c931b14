"""A process that settles incidents and tells of events: `operator.py DATABASE FOLDER NAME`.

What it does about an incident follows from what it is shown, but for a charge in doubt: there it looks whether the
charge was made. It says `{"incident": id, "action": word}` once that is acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stepwell.engine.engine import Engine, open_engine
from stepwell.engine.incidents import Action, Filter
from stepwell.engine.settings import Settings
from stepwell.errors import AlreadyDecided, Conflict, NotFound
from stepwell.journal.told import owner
from stepwell.ports import Wait
from tests.chaos.everything.fate import action_for

BY = "dora"


def ask(port: int, path: str) -> Any:
    """What the payment service says."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


async def action_of(wait: Wait) -> Action:
    """What is to be done about an incident."""
    request = wait.request
    if "undoes" in request:
        return Action("retry", comment="it was found")
    if request["error"]["kind"] == "in_doubt":
        key = f"{wait.run_id}{owner(wait.path)}"
        found = await asyncio.to_thread(ask, int(os.environ["CHAOS_PAYMENTS"]), f"/charges/{quote(key, safe='')}")
        return Action("provide", output={"charge": key}) if found["count"] else Action("retry")
    if request["step"] == "late":
        return Action("provide", output={"approved": True, "decision": "approved"})
    word = action_for(request["arguments"]["n"])
    match word:
        case "retry":
            return Action(word, edits={"fixed": True})
        case "provide":
            return Action(word, output={"value": -1})
    return Action(word, comment="as the number says")


async def settle(engine: Engine, wait: Wait) -> None:
    action = await action_of(wait)
    try:
        await engine.incidents.settle(wait.id, action, by=BY)
    except (AlreadyDecided, Conflict, NotFound) as late:
        print(json.dumps({"late": type(late).__name__}), flush=True)
    else:
        print(json.dumps({"incident": wait.id, "action": action.word}), flush=True)


async def tell_of_events(engine: Engine, runs: int) -> None:
    """Some come before the run that waits for them has begun. One that was told before changes nothing."""
    numbers = list(range(runs))
    random.shuffle(numbers)
    for n in numbers:
        await engine.send_event("paid", {"n": n}, event_id=f"paid-{n}")
        await asyncio.sleep(random.uniform(0, 0.2))


async def operate(database: str, folder: Path) -> None:
    async with open_engine(f"sqlite:///{database}", settings=Settings(folder)) as engine:
        print(json.dumps({"ready": True}), flush=True)
        telling = asyncio.create_task(tell_of_events(engine, int(os.environ["CHAOS_RUNS"])))
        while True:
            for wait, refused in await engine.incidents.settle_all(Filter(step="row"), Action("skip"), by=BY):
                if refused is None:
                    print(json.dumps({"incident": wait.id, "action": "skip"}), flush=True)
            for wait in await engine.incidents.open():
                if wait.request.get("step") != "row":
                    await settle(engine, wait)
            await asyncio.sleep(0.1)
            if telling.done():
                telling.result()


def main(arguments: list[str]) -> None:
    database, folder, _ = arguments
    asyncio.run(operate(database, Path(folder)))


if __name__ == "__main__":
    main(sys.argv[1:])
