"""Ends the wait for a call on time, whether or not the call ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator


async def ends_by(future: asyncio.Future[Any], deadline: float | None) -> bool:
    """Whether `future` ends by `deadline` (the loop's clock; None: wait for ever). It is never cancelled here."""
    if future.done():
        return True
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = None if deadline is None else loop.call_at(deadline, wake)
    future.add_done_callback(wake)
    try:
        await waiter
    finally:
        future.remove_done_callback(wake)
        if timer is not None:
            timer.cancel()
    return future.done()


class Driven:
    """An awaitable driven from outside: once `stubborn` is set, the next cancellation closes it instead of asking it.

    A task that swallows `CancelledError` would otherwise keep its loop from closing for ever.
    """

    __slots__ = ("_start", "stubborn")

    def __init__(self, start: Callable[[], Awaitable[Any]]) -> None:
        self._start = start
        self.stubborn = False

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._start().__await__()
        error: BaseException | None = None
        while True:
            try:
                waited_for = next(inner) if error is None else inner.throw(error)
            except StopIteration as end:
                return end.value
            error = None
            try:
                yield waited_for
            except asyncio.CancelledError as cancelled:
                if self.stubborn:
                    with suppress(RuntimeError):  # it ignores even its closing: it is left as it is
                        inner.close()
                    raise
                error = cancelled
            except GeneratorExit:
                inner.close()
                raise
