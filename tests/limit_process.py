"""A process that makes calls under the limit: `python -m tests.limit_process URL GAUGE LIMIT LEASE HOLDERS CALLS`.

HOLDERS calls are begun that never end; then CALLS short ones are made by five tasks. While a call holds a slot, it
keeps a connection to the port GAUGE, so that who counts those sees also what a kill ends. It says "holding" once all
holders hold, "done" when the short ones are over.
"""

from __future__ import annotations

import asyncio
import sys

from stepwell.adapters.limits import RedisLimiter, Terms


async def call(limiter: RedisLimiter, gauge: int, seconds: float, held: asyncio.Semaphore | None = None) -> None:
    async with limiter.slot("a"):
        reader, writer = await asyncio.open_connection("127.0.0.1", gauge)
        if held is not None:
            held.release()
        await asyncio.sleep(seconds)
        writer.write_eof()
        await reader.read()  # it is counted out
        writer.close()


async def work(url: str, gauge: int, terms: Terms, holders: int, calls: int) -> None:
    limiter = RedisLimiter(url, terms)
    held = asyncio.Semaphore(0)
    holding = [asyncio.create_task(call(limiter, gauge, 3600, held)) for _ in range(holders)]
    for _ in holding:
        await held.acquire()
    print("holding", flush=True)
    left = iter(range(calls))

    async def some() -> None:
        for _ in left:
            await call(limiter, gauge, 0.01)

    await asyncio.gather(*[some() for _ in range(5)])
    print("done", flush=True)
    if holders:
        await asyncio.sleep(3600)
    await limiter.aclose()


if __name__ == "__main__":
    url, *numbers = sys.argv[1:]
    gauge, limit, lease, holders, calls = (float(number) for number in numbers)
    terms = Terms(int(limit), lease=lease, cut=2.0, probe=0.2)
    asyncio.run(work(url, int(gauge), terms, int(holders), int(calls)))
