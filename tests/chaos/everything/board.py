"""A process that speaks for several people: `board.py DATABASE FOLDER NAME`. What they say is in what they are shown.

Each of them is a process of its own as far as the database knows; two such processes speak for the same people, and so
come second now and then. It says `{"vote": wait, "name": person, "settled": whether it was}` once a vote is acknowledged,
and `{"second": wait, "first": who}` when another decision had come first.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

from stepwell.engine.engine import Engine, open_engine
from stepwell.engine.settings import Settings
from stepwell.errors import AlreadyDecided, Conflict, Forbidden
from stepwell.ports import Person, Wait

PEOPLE = [
    Person("ana", roles=("approver",), departments=("board",)),
    Person("ben", roles=("approver",), departments=("board",)),
    Person("cyd", departments=("board",)),
    Person("dora", roles=("operator",)),
]


async def decide(engine: Engine, wait: Wait, name: str) -> dict[str, Any]:
    """What became of a vote."""
    show, n = wait.request["show"], int("".join(filter(str.isdigit, wait.request["title"])))
    data = {"sum": n * 2} if wait.request["form"] else None
    comment = "x" * show.get("round", 0)
    try:
        after = await engine.decide(wait.id, show["say"], by=name, data=data, comment=comment, digest=wait.digest)
    except AlreadyDecided as second:
        return {"second": wait.id, "name": name, "first": second.detail["by"]}
    except (Forbidden, Conflict) as refused:
        return {"refused": type(refused).__name__, "wait_id": wait.id, "name": name}
    return {"vote": wait.id, "name": name, "settled": after.status == "decided"}


async def sit(database: str, folder: Path) -> None:
    async with open_engine(f"sqlite:///{database}", settings=Settings(folder)) as engine:
        print(json.dumps({"ready": True}), flush=True)
        while True:
            waits = [wait for wait in await engine.waits() if wait.request["show"]["say"] != "nothing"]
            random.shuffle(waits)
            for wait in waits[:20]:
                names = random.sample([person.name for person in PEOPLE], 2)  # at one moment
                for said in await asyncio.gather(*(decide(engine, wait, name) for name in names)):
                    print(json.dumps(said), flush=True)
            await asyncio.sleep(0.1)


def main(arguments: list[str]) -> None:
    database, folder, _ = arguments
    asyncio.run(sit(database, Path(folder)))


if __name__ == "__main__":
    main(sys.argv[1:])
