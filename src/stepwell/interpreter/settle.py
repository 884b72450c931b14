"""Running parts at once and settling them all: the one place that makes tasks and combines how they ended.

The law of the file: nobody is cancelled because a sibling failed; all are awaited, then the worst is raised:
bugs and aborts > what undoes the run > failures and ends (the one recorded first) > rewinds > withdrawals > pauses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from stepwell.errors import StepFailed
from stepwell.interpreter.interruption import Ended, Interruption, Pause, Rewind, Withdrawn

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope

T = TypeVar("T")
REPLAY = 0.01
"""Seconds after which it is looked again whether a part that is being replayed has come to anything new."""


def worst(problems: list[BaseException]) -> BaseException:
    """The one of several ways in which parts were left that counts for the whole."""
    return min(problems, key=_severity)


def _severity(problem: BaseException) -> tuple[int, int]:
    if isinstance(problem, Ended) and problem.undoes:
        return 2, 0
    if isinstance(problem, StepFailed | Ended):
        return 2, problem.order
    if isinstance(problem, Rewind):
        return 3, 0
    if isinstance(problem, Withdrawn):
        return 4, 0
    if isinstance(problem, Pause):
        return 5, 0
    return (1, 0) if isinstance(problem, Interruption) else (0, 0)


class Crew:
    """Tasks that belong together. A task that can run holds a token of the runtime; so does whoever waits for none."""

    __slots__ = ("_decided", "_done", "_live", "_problems", "_runtime", "_scope", "_tasks")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._runtime = scope.runtime
        self._tasks: set[asyncio.Task[None]] = set()
        self._live = 0
        self._decided = False
        self._problems: list[BaseException] = []
        self._done: asyncio.Future[None] | None = None

    @property
    def failing(self) -> bool:
        """Whether a part has failed or ended the run: nothing fresh may start.

        One whose wait was withdrawn did neither: the others go on to their end or their next wait.
        """
        return any(not isinstance(problem, Pause | Withdrawn) for problem in self._problems)

    def spawn(self, part: Coroutine[Any, Any, object]) -> None:
        """Start a part at once."""
        self._runtime.enter()
        self._live += 1
        begun: list[bool] = []
        task = asyncio.get_running_loop().create_task(self._run(part, begun))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not begun:  # it was cancelled before it could run
                part.close()
                self._gone()

        task.add_done_callback(ended)

    async def _run(self, part: Coroutine[Any, Any, object], begun: list[bool]) -> None:
        begun.append(True)
        try:
            await part
        except (StepFailed, Ended) as problem:
            self._problems.append(problem)
            try:
                await self._scope.withdraw(
                    "a sibling has failed" if isinstance(problem, StepFailed) else "the run ends"
                )
            except BaseException as worse:  # noqa: BLE001 -- collected, and raised by settled()
                self._problems.append(worse)
        except asyncio.CancelledError as problem:
            if not self._decided:
                self._problems.append(problem)
        except BaseException as problem:  # noqa: BLE001 -- collected, and raised by settled()
            self._problems.append(problem)
        finally:
            self._gone()

    def _gone(self) -> None:
        """One part less: its token goes to whoever awaits the crew, if it was the last."""
        self._live -= 1
        if self._live == 0 and self._done is not None:
            if not self._done.done():
                self._done.set_result(None)
        else:
            self._runtime.leave()

    def cut(self) -> None:
        """Cancel every part but the one that asks: a race is decided."""
        asking = asyncio.current_task()
        self._decided = True
        for task in self._tasks:
            if task is not asking:
                task.cancel()

    async def settled(self) -> None:
        """Return when every part has ended; raises the worst way in which one did."""
        if self._live:
            self._done = asyncio.get_running_loop().create_future()
            self._runtime.leave()
            try:
                await self._done
            except asyncio.CancelledError:
                await self._cancel()
                raise
        if self._problems:
            raise worst(self._problems)

    async def _cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def within(scope: Scope, part: Coroutine[Any, Any, T], limit: float) -> T | None:
    """The part's result, or None if it was cut off after `limit` seconds; waits for people do not count: they park."""
    crew = Crew(scope)
    loop = asyncio.get_running_loop()
    results: list[T] = []
    timers: list[asyncio.TimerHandle] = []
    late = False

    async def run() -> None:
        results.append(await part)

    def cut() -> None:
        nonlocal late
        if not scope.runtime.is_live(scope.path):  # what is only being replayed has had its time already
            timers.append(loop.call_later(REPLAY, cut))
            return
        late = True
        crew.cut()

    timers.append(loop.call_later(max(0.0, limit), cut))
    crew.spawn(run())
    try:
        await crew.settled()
    finally:
        timers[-1].cancel()
    if late and not results:
        await scope.withdraw("its container has timed out")
        return None
    return results[0]


async def settle_pool(
    scope: Scope,
    part: Callable[[int], Awaitable[T]],
    count: int,
    width: int,
    *,
    begun: Callable[[int], bool],
    may_start: Callable[[], bool] = lambda: True,
) -> list[T | None]:
    """Run parts 0 to count-1, at most `width` at once, starting in order; None stands for parts that did not start.

    Once `may_start` is false or a part has failed, only parts that had begun in an earlier pass are taken up again.
    """
    results: list[T | None] = [None] * count
    indexes: Iterator[int] = iter(range(count))
    if min(width, count) <= 1:
        for index in indexes:
            if may_start() or begun(index):
                results[index] = await part(index)
        return results
    crew = Crew(scope)

    async def lane() -> None:
        for index in indexes:
            if (may_start() and not crew.failing) or begun(index):
                results[index] = await part(index)

    for _ in range(min(width, count)):
        crew.spawn(lane())
    await crew.settled()
    return results
