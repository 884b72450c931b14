"""How fast the SQLite run store is: `python -m bench.stores` prints one JSON object a line.

Times are wall-clock on this machine; the file lies in the folder of `--folder` (default: a temporary one).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from stepwell.journal.entry import Entry
from stepwell.ports import Batch, Lease, NewRun, SentEvent, Verdict, Wait
from stepwell.stores.sqlite import SqliteRunStore

BODY = b'{"status":"completed","value":{"text":"' + b"x" * 600 + b'"},"started":1.5,"ended":2.5,"attempts":1}'


def say(name: str, **numbers: object) -> None:
    print(json.dumps({"bench": name, **numbers}), flush=True)


async def leased(store: SqliteRunStore, names: Sequence[str]) -> list[Lease]:
    await asyncio.gather(*(store.create(NewRun(name, "a", "wf", "1", "d", {})) for name in names))
    return await store.claim("bench", 600, limit=len(names))


async def appenders(store: SqliteRunStore, width: int, seconds: float) -> None:
    """`width` runs append one row after the other, each after the last is durable."""
    leases = await leased(store, [f"w{width}-{number}-{time.time_ns()}" for number in range(width)])
    end = time.perf_counter() + seconds
    took: list[float] = []

    async def one(lease: Lease) -> None:
        number = 0
        while (began := time.perf_counter()) < end:
            number += 1
            await store.append(lease, Batch([Entry(f"/loop/{number}/step", "succeeded", BODY, digest="0" * 32)]))
            took.append(time.perf_counter() - began)

    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one(lease) for lease in leases))
    elapsed = time.perf_counter() - began
    took.sort()
    say(
        "append",
        runs=width,
        rows_per_s=round(len(took) / elapsed),
        p50_ms=round(1000 * took[len(took) // 2], 2),
        p99_ms=round(1000 * took[int(len(took) * 0.99)], 2),
        cpu_us_per_row=round(1e6 * (time.process_time() - used) / len(took), 1),
    )
    for lease in leases:
        await store.release(lease, Batch(), Verdict("completed"))


async def timed(name: str, calls: int, act: object, **numbers: object) -> None:
    took = []
    for _ in range(calls):
        began = time.perf_counter()
        result = await act()  # type: ignore[operator] -- a coroutine function
        took.append(time.perf_counter() - began)
    say(name, ms=round(1000 * statistics.median(took), 2), result=len(result), **numbers)


async def loads(store: SqliteRunStore, iterations: int) -> None:
    """Loading a loop of `iterations` times 3 steps: nothing settled, every iteration settled, all of it settled."""
    [lease] = await leased(store, [f"load-{iterations}"])
    entries = [Entry(f"/loop/{i}/s{s}", "succeeded", BODY) for i in range(iterations) for s in range(3)]
    for first in range(0, len(entries), 5000):
        await store.append(lease, Batch(entries[first : first + 5000]))

    async def load() -> Sequence[Entry]:
        return (await store.load(lease)).entries

    await timed("load, all open", 3, load, iterations=iterations)
    await store.append(lease, Batch([Entry(f"/loop/{i}", "settled", BODY) for i in range(iterations)]))
    await timed("load, iterations settled", 3, load, iterations=iterations)
    await store.append(lease, Batch([Entry("/loop", "settled", BODY)]))
    await timed("load, loop settled", 5, load, iterations=iterations)
    await store.release(lease, Batch(), Verdict("completed"))


async def parked(path: Path, number: int) -> None:
    """Many runs parked at an approval: what one costs, and what opening, claiming and resuming cost beside them."""
    store = SqliteRunStore.open(path)
    began = time.perf_counter()
    for first in range(0, number, 1000):
        leases = await leased(store, [f"run-{first + offset:08}-0123456789" for offset in range(1000)])
        await asyncio.gather(*(park(store, lease) for lease in leases))
    say("park", runs=number, runs_per_s=round(number / (time.perf_counter() - began)))
    await store.close()
    say("parked size", bytes_per_run=round(path.stat().st_size / number))  # noqa: ASYNC240 -- nothing else runs here
    began = time.perf_counter()
    store = SqliteRunStore.open(path)
    claimed = await store.claim("bench", 600, limit=10)
    say("open and claim beside parked runs", ms=round(1000 * (time.perf_counter() - began), 2), result=len(claimed))

    async def claim() -> Sequence[Lease]:
        return await store.claim("bench", 600, limit=10)

    async def resume() -> Sequence[Entry]:
        await store.decide("a", waits.pop(), {"decision": "approve"})
        [lease] = await store.claim("bench", 600)
        loaded = await store.load(lease)
        await store.append(lease, Batch([Entry("/g/?", "succeeded", b"{}")], consume=[loaded.messages[0].order]))
        await store.release(lease, Batch(), Verdict("completed"))
        return loaded.entries

    waits = [wait.id for wait in await store.waits("a", limit=200)]
    await timed("claim beside parked runs", 20, claim, runs=number)
    await timed("decide, claim, load, append, release", 100, resume, runs=number)
    await timed("list 50 runs", 20, lambda: store.runs("a"), runs=number)
    await timed("list 50 parked runs", 5, lambda: store.runs("a", statuses=["pending_approval"]), runs=number)
    await timed("list 50 waits", 20, lambda: store.waits("a", limit=50), runs=number)
    await store.close()


async def lane(store: SqliteRunStore, number: int) -> None:
    """Many runs that wait in a lane of one place, and many waits for one event."""

    async def created(prefix: str, **fields: object) -> list[None]:
        news = [NewRun(f"{prefix}{each}", "a", "wf", "1", "d", {}, **fields) for each in range(number)]
        await asyncio.gather(*(store.create(new) for new in news))
        return [None] * number

    await timed("create runs without lane", 1, lambda: created("free"))
    free = await store.claim("bench", 600, limit=number)
    await timed("create runs in a lane", 1, lambda: created("lane", lane="x", lane_limit=1))
    [held] = await store.claim("bench", 600, limit=10)

    async def claim() -> Sequence[Lease]:
        return await store.claim("bench", 600, limit=10)

    async def step() -> Sequence[Lease]:
        nonlocal held
        await store.release(held, Batch(), Verdict("completed"))
        [held] = await store.claim("bench", 600, limit=10)
        return [held]

    async def send() -> list[int]:
        return [await store.send_event("a", SentEvent(f"e{time.time_ns()}", "paid"))]

    async def due() -> list[float]:
        return [await store.next_due()]

    await timed("claim beside a full lane", 50, claim, waiting=number)
    await timed("end a run of a lane and claim the next", 50, step, waiting=number)
    await timed("send an event that nobody waits for", 50, send)
    await store.append(free[0], Batch((), [Wait(f"e{n}", f"/w{n}", "event", {}, topic="paid") for n in range(number)]))
    await timed("send an event to many waits", 3, send, waits=number)
    await timed("when the next is due", 50, due)


async def park(store: SqliteRunStore, lease: Lease) -> None:
    wait = Wait("a" + lease.run_id, "/g", "approval", {"title": "Pay?"}, digest="0" * 32)
    await store.append(lease, Batch([Entry("/g/~start", "started", b'{"started":1796037616.67}')], open=[wait]))
    await store.release(lease, Batch(), Verdict("pending_approval"))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--parked", type=int, default=100_000)
    parser.add_argument("--waiting", type=int, default=5000)
    parser.add_argument("--iterations", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for durability in ("full", "normal"):
            store = SqliteRunStore.open(Path(folder) / f"{durability}.db", durability=durability)
            say("durability", is_=durability)
            for width in (1, 50, 500):
                await appenders(store, width, given.seconds)
            if durability == "full":
                await loads(store, given.iterations)
                await lane(store, given.waiting)
            await store.close()
        if given.parked:
            await parked(Path(folder) / "parked.db", given.parked)


if __name__ == "__main__":
    asyncio.run(main())
