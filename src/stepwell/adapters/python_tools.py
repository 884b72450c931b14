"""Python functions as tools: found in files, called with checked arguments, cut off on time.

The law of the file: whatever a tool does (raises anything, swallows its cancellation, blocks its thread, ends the
process by SystemExit), its call ends on time with a result or a StepFailed. A thread cannot be stopped: it is left
behind, and the failure says so.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from stepwell.adapters import cut_off
from stepwell.adapters.cut_off import Driven, ends_by
from stepwell.adapters.threads import Threads
from stepwell.adapters.tool_files import Declared, load_tool_file
from stepwell.adapters.tool_signature import Signature, read_signature, summary
from stepwell.errors import DefinitionError, Problem, StepFailed
from stepwell.ports import Tool, ToolCallContext
from stepwell.tool import declaration
from stepwell.tool_log import CALL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

Json: TypeAlias = Any
GRACE = 0.1
"""Seconds that a cancelled async tool gets to end before it is left behind."""
_MESSAGE = 2000
_TRACE = 2000
_OWN = {__file__, cut_off.__file__}


@dataclass(frozen=True, slots=True)
class _Registered:
    tool: Tool
    function: Callable[..., Any]
    signature: Signature
    place: str


class PythonTools:
    """The tools of one project. Implements `ports.Tools`, except that `call` gives the result as the tool gave it."""

    keeps_time = True

    def __init__(self, functions: Iterable[Declared] = ()) -> None:
        """Raises DefinitionError with everything that is wrong: names given twice, hints that cannot be read."""
        self._tools: dict[str, _Registered] = {}
        self._threads = Threads("stepwell-tool")
        problems: list[Problem] = []
        for declared in functions:
            try:
                self._register(declared)
            except DefinitionError as error:
                problems += error.problems
        if problems:
            raise DefinitionError(problems)

    @classmethod
    def from_files(cls, paths: Iterable[Path | str]) -> Self:
        """The marked functions of these files. Raises DefinitionError with the problems of all files."""
        found: list[Declared] = []
        problems: list[Problem] = []
        for path in dict.fromkeys(Path(path) for path in paths):
            try:
                found += load_tool_file(path)
            except DefinitionError as error:
                problems += error.problems
        try:
            tools = cls(found)
        except DefinitionError as error:
            problems += error.problems
        if problems:
            raise DefinitionError(problems)
        return tools

    @classmethod
    def of(cls, *functions: Callable[..., Any]) -> Self:
        """Functions marked with `@stepwell.tool`, given directly. Raises DefinitionError; TypeError if one is not."""
        found = []
        for function in functions:
            mark = declaration(function)
            if mark is None:
                raise TypeError(f"{function!r} is not marked with @stepwell.tool")
            found.append(Declared(mark, function))
        return cls(found)

    def _register(self, declared: Declared) -> None:
        name = declared.declaration.name
        place = f"{declared.file}:{declared.line}" if declared.file else ""
        there = self._tools.get(name)
        if there is not None:
            said = f" ({there.place})" if there.place else ""
            raise DefinitionError([_wrong(declared, f"the tool {name!r} is declared twice{said}", "give one name=")])
        try:
            signature = read_signature(name, declared.function)
        except Exception as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            problem = _wrong(
                declared, f"the arguments of {name!r} cannot be described: {reason}", "mend its type hints"
            )
            raise DefinitionError([problem]) from error
        described = declared.declaration.description or summary(inspect.getdoc(declared.function) or "")
        tool = Tool(name, described, signature.schema, declared.declaration.idempotent)
        self._tools[name] = _Registered(tool, declared.function, signature, place)

    def get(self, name: str) -> Tool | None:
        registered = self._tools.get(name)
        return registered.tool if registered else None

    def names(self) -> list[str]:
        return sorted(self._tools)

    async def call(self, name: str, arguments: dict[str, Json], context: ToolCallContext) -> Any:
        """Call a tool with its own copy of `arguments`; `context.timeout` in seconds, 0 for none.

        Returns what the tool gave, as it gave it; whoever records it normalises it. Raises StepFailed: `not_found`,
        `validation_error`, `timeout`, `connection_error`, `tool_error`, or what the tool raised as StepFailed.
        """
        registered = self._tools.get(name)
        if registered is None:
            raise StepFailed("not_found", f"there is no tool {name!r}", detail={"tools": self.names()[:50]})
        positional, keywords = registered.signature.bind(arguments, context.key)
        serving = CALL.set(context)
        try:
            return await self._called(registered, positional, keywords, context)
        finally:
            CALL.reset(serving)

    async def _called(
        self, registered: _Registered, positional: list[Any], keywords: dict[str, Any], context: ToolCallContext
    ) -> Any:
        name = registered.tool.name
        loop = asyncio.get_running_loop()
        deadline = loop.time() + context.timeout if context.timeout > 0 else None
        function = registered.function
        if inspect.iscoroutinefunction(function):
            return await _awaited(name, lambda: function(*positional, **keywords), deadline)
        result = await self._threaded(name, lambda: function(*positional, **keywords), deadline)
        if inspect.isawaitable(result):
            return await _awaited(name, lambda: result, deadline)
        return result

    async def _threaded(self, name: str, run: Callable[[], Any], deadline: float | None) -> Any:
        context = copy_context()
        future = self._threads.submit(lambda: context.run(_outcome, run))
        if not await ends_by(future, deadline):
            future.cancel()
            raise _too_late(name, "thread")
        return _result(name, future.result())


async def _awaited(name: str, start: Callable[[], Awaitable[Any]], deadline: float | None) -> Any:
    driven = Driven(start)
    task = asyncio.get_running_loop().create_task(_async_outcome(driven), name=f"stepwell tool {name}")
    try:
        ended = await ends_by(task, deadline)
    except asyncio.CancelledError:
        await _stop(task, driven)
        raise
    if not ended:
        raise _too_late(name, "" if await _stop(task, driven) else "task")
    return _result(name, task.result())


async def _stop(task: asyncio.Task[_Outcome], driven: Driven) -> bool:
    """Cancel the task, by force after the grace; whether it obeyed."""
    task.cancel()
    obeyed = await ends_by(task, task.get_loop().time() + GRACE)
    if not obeyed:
        driven.stubborn = True
        task.cancel()
    return obeyed


_Outcome: TypeAlias = tuple[Any, BaseException | None]
"""What a tool gave, or what it raised: kept from being raised where it would end a loop or a thread."""


def _outcome(run: Callable[[], Any]) -> _Outcome:
    try:
        return run(), None
    except BaseException as error:  # noqa: BLE001 -- the law of the file
        return None, error


async def _async_outcome(driven: Driven) -> _Outcome:
    try:
        return await driven, None
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return None, error
    except BaseException as error:  # noqa: BLE001 -- the law of the file
        return None, error


def _too_late(name: str, abandoned: str) -> StepFailed:
    said = {
        "": "",
        "thread": "; its thread cannot be stopped and was left behind",
        "task": "; it ignored its cancellation and was left behind",
    }[abandoned]
    detail = {"abandoned": abandoned} if abandoned else None
    return StepFailed("timeout", f"{name} did not end in time{said}", detail=detail)


def _result(name: str, outcome: _Outcome) -> Any:
    value, error = outcome
    if error is None:
        return value
    if isinstance(error, StepFailed):
        raise error
    kind = "tool_error"
    if isinstance(error, TimeoutError):
        kind = "timeout"
    elif isinstance(error, ConnectionError):
        kind = "connection_error"
    raise StepFailed(kind, f"{name}: {_said(error)}", detail=_trace(error)) from error


def _said(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 -- an exception that cannot say what it is still has a type
        text = ""
    name = type(error).__name__
    return f"{name}: {text[:_MESSAGE]}" if text else name


def _trace(error: BaseException) -> dict[str, Json]:
    """The tool's own lines of the traceback, innermost last, at most 2 KB."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in _OWN]
    lines = [f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames]
    return {"exception": type(error).__name__, "trace": "\n".join(lines)[-_TRACE:]}


def _wrong(declared: Declared, message: str, hint: str) -> Problem:
    return Problem("error", "tools", message, hint, declared.file, declared.line, 1 if declared.line else 0)
