"""A process that approves whatever waits for somebody: `decider.py DATABASE FOLDER NAME`.

It says `{"wait": id, "by": name}` once its decision is acknowledged, and the name of the first when it came second.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path

from stepwell.engine.engine import Engine, open_engine
from stepwell.engine.settings import Settings
from stepwell.errors import AlreadyDecided, Conflict


async def decide(engine: Engine, wait: str, name: str) -> None:
    try:
        await engine.decide(wait, "approved", by=name)
        said = {"wait": wait, "by": name}
    except AlreadyDecided as second:
        said = {"wait": wait, "by": second.detail["by"]}
    except Conflict as gone:
        said = {"wait": wait, "gone": str(gone)}
    print(json.dumps(said), flush=True)


async def approve(database: str, folder: Path, name: str) -> None:
    async with open_engine(f"sqlite:///{database}", settings=Settings(folder)) as engine:
        print(json.dumps({"ready": True}), flush=True)
        while True:
            waits = [wait.id for wait in await engine.waits()]
            random.shuffle(waits)
            await asyncio.gather(*(decide(engine, wait, name) for wait in waits[:50]))
            await asyncio.sleep(0.1)


def main(arguments: list[str]) -> None:
    database, folder, name = arguments
    asyncio.run(approve(database, Path(folder), name))


if __name__ == "__main__":
    main(sys.argv[1:])
