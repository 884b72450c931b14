"""What a slot costs: acquire and release, with and without Redis, and two hundred calls that wait for ten slots.

Run: python -m bench.limits (starts a Redis of its own)
"""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from time import perf_counter, process_time
from typing import Any

from tests.redis_server import RedisServer, redis_server

from stepwell.adapters.limits import LocalLimiter, RedisLimiter, Terms
from stepwell.ports import Limiter

LIMIT = 10
WAITERS = 200


async def one_by_one(limiter: Limiter, number: int) -> list[float]:
    """Milliseconds of an acquire and its release, nobody else there; sorted."""
    found = []
    for _ in range(number):
        start = perf_counter()
        async with limiter.slot("a"):
            pass
        found.append(1000 * (perf_counter() - start))
    return sorted(found)


async def crowded(limiter: Limiter, seconds: float, total: int = 4000) -> dict[str, float]:
    """`total` calls of so many seconds by 200 tasks: calls a second, share of the possible, processor time each."""
    left = iter(range(total))

    async def some() -> None:
        for _ in left:
            async with limiter.slot("a"):
                await asyncio.sleep(seconds)

    wall, cpu = perf_counter(), process_time()
    await asyncio.gather(*[some() for _ in range(WAITERS)])
    wall, cpu = perf_counter() - wall, process_time() - cpu
    possible = LIMIT / seconds if seconds else float("nan")
    return {"calls_s": total / wall, "share": total / wall / possible, "cpu_ms_call": 1000 * cpu / total}


async def memory(limiter: Limiter) -> float:
    """Bytes of a call that waits, its task included."""
    gate = asyncio.Event()

    async def call() -> None:
        async with limiter.slot("a"):
            await gate.wait()

    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    calls = [asyncio.create_task(call()) for _ in range(2000)]
    await asyncio.sleep(1)
    found = (tracemalloc.get_traced_memory()[0] - before) / 2000
    tracemalloc.stop()
    gate.set()
    await asyncio.gather(*calls)
    return found


async def outage(limiter: RedisLimiter, redis: RedisServer) -> tuple[float, float]:
    """Milliseconds until a call has its slot when Redis has just begun to hang, and afterwards."""
    redis.stop()
    first = (await one_by_one(limiter, 1))[0]
    later = await one_by_one(limiter, 200)
    redis.go_on()
    return first, later[100]


def told(name: str, figures: dict[str, Any]) -> None:
    print(f"{name:28}" + "  ".join(f"{key} {value:.3g}" for key, value in figures.items()), flush=True)


async def measure(name: str, limiter: Limiter) -> None:
    await one_by_one(limiter, 100)
    alone = await one_by_one(limiter, 2000)
    told(f"{name}: alone", {"p50_ms": alone[1000], "p99_ms": alone[1980]})
    told(f"{name}: 200 wait, 0 s calls", await crowded(limiter, 0.0))
    told(f"{name}: 200 wait, 20 ms calls", await crowded(limiter, 0.02))
    told(f"{name}: memory", {"bytes_per_waiting_call": await memory(limiter)})


async def main() -> None:
    print(f"load {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
    await measure("local", LocalLimiter(LIMIT))
    with redis_server() as redis:
        limiter = RedisLimiter(redis.url, Terms(LIMIT))
        await measure("redis", limiter)
        first, later = await outage(limiter, redis)
        told("redis hangs", {"first_call_ms": first, "later_p50_ms": later})
        await limiter.aclose()


if __name__ == "__main__":
    asyncio.run(main())
