"""The connection to Redis: what is sent and heard, and nothing about what it means.

The law of the file: the library repeats nothing and has no timeouts of its own; who calls cuts a call off, and after a
failure drops the connection, since an answer may still come on it. Neither the address's password nor any part of it
is in a message.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from redis.asyncio import Redis

Call: TypeAlias = "tuple[str, Sequence[str], Sequence[Any]]"
"""A script, its keys and its arguments."""
PORT = 6379


class RedisWire:
    """One Redis, by its URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        split = urlsplit(url)
        self._host, self._port = split.hostname or "", split.port or PORT
        passwords = [split.password or "", *parse_qs(split.query).get("password", [])]
        self._secrets = [part for part in (*passwords, *map(unquote, passwords)) if part]
        self.shown = f"{self._host}:{self._port}" if self._host else split.path
        """Where Redis is, for people."""
        self._client: Redis | None = None
        self._lookup: asyncio.Future[None] | None = None

    @staticmethod
    async def load() -> None:
        """Import the library, which takes a while, aside."""
        await asyncio.to_thread(importlib.import_module, "redis.asyncio")

    async def evaluate(self, calls: Sequence[Call]) -> list[Any]:
        """What scripts answer, sent together. Raises RedisError or OSError."""
        client = await self._connected()
        pipeline = client.pipeline(transaction=False)
        for script, keys, arguments in calls:
            pipeline.eval(script, len(keys), *keys, *arguments)
        answers = list(await pipeline.execute(raise_on_error=False))
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    async def ping(self) -> None:
        client = await self._connected()
        await client.ping()

    async def listen(self, channel: str, ready: Callable[[], None], heard: Callable[[str], None]) -> None:
        """Hear what is published on a channel until the connection breaks; `ready` is called once it is heard."""
        pubsub = (await self._connected()).pubsub()
        try:
            await pubsub.subscribe(channel)
            async for message in pubsub.listen():
                if message["type"] == "subscribe":
                    ready()
                elif message["type"] == "message":
                    heard(str(message["data"]))
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]

    async def drop(self) -> None:
        """Close the connections; the next call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # whatever a connection that is given up still says
                await client.aclose(close_connection_pool=True)

    def said(self, error: BaseException) -> str:
        """An error in a line, without the password."""
        words = " ".join(f"{type(error).__name__}: {error}".split())
        for secret in self._secrets:
            words = words.replace(secret, "***")
        return words[:300]

    async def _connected(self) -> Redis:
        if self._client is None:
            await self._found()
            from redis.asyncio import ConnectionPool, Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff

            pool = ConnectionPool.from_url(
                self._url,
                protocol=2,
                decode_responses=True,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=None,
                socket_connect_timeout=None,
                socket_keepalive=True,
            )
            self._client = Redis(connection_pool=pool)
        return self._client

    async def _found(self) -> None:
        """Look the host up, in a thread of its own: the event loop's are waited for when a process ends.

        While a lookup hangs, no second one begins.
        """
        if not self._host:
            return
        loop = asyncio.get_running_loop()
        if self._lookup is None or self._lookup.done():
            self._lookup = loop.create_future()
            threading.Thread(target=self._look_up, args=(loop, self._lookup), daemon=True).start()
        await asyncio.shield(self._lookup)

    def _look_up(self, loop: asyncio.AbstractEventLoop, found: asyncio.Future[None]) -> None:
        problem: Exception | None = None
        try:
            socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            problem = error

        def tell() -> None:
            if found.done():
                return
            if problem is None:
                found.set_result(None)
            else:
                found.set_exception(problem)
                found.exception()  # noted: whoever waited may be gone

        with suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(tell)
