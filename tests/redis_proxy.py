"""What stands between a client and Redis, and misbehaves as it is told."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class RedisProxy:
    """Passes everything on, unless `mute` (nothing is answered), `delay` (seconds) or `says` (instead of Redis)."""

    def __init__(self, port: int) -> None:
        self.mute = False
        self.delay = 0.0
        self.says = b""
        self._redis = port
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        ends = [writer]
        with contextlib.suppress(OSError, asyncio.CancelledError):
            from_redis, to_redis = await asyncio.open_connection("127.0.0.1", self._redis)
            ends.append(to_redis)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(reader, to_redis, writer))
                both.create_task(self._carry(from_redis, writer, None))
        for end in ends:
            end.close()

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, back: asyncio.StreamWriter | None
    ) -> None:
        """`back` is given for what goes to Redis: where an answer in its place goes."""
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if self.mute:
                    continue
                if back is not None and self.says:
                    back.write(self.says)
                    continue
                if back is None and self.delay:
                    await asyncio.sleep(self.delay)
                target.write(data)
                await target.drain()
        target.close()
