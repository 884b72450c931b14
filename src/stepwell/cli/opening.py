"""Opening the engine for a command, and finding runs and approvals by the beginning or end of their ids."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import click

from stepwell.cli.exits import FAILED, USAGE, Refusal
from stepwell.cli.guard import guard_output
from stepwell.cli.program import program
from stepwell.cli.text import visible

if TYPE_CHECKING:
    from stepwell.engine.engine import Engine
    from stepwell.engine.settings import Settings
    from stepwell.ports import Run, Wait
    from stepwell.testing.mocking import Mocks

T = TypeVar("T")


class _Named(Protocol):
    @property
    def id(self) -> str: ...


N = TypeVar("N", bound=_Named)

SHORTEST = 4
"""Characters that a shortened id must have."""
RECENT = 1000
"""Runs among which a shortened id is looked for."""


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work on an event loop of its own."""
    import asyncio

    return asyncio.run(work)


def settings_at(start: Path | None = None) -> Settings:
    """The settings that count for a file or folder. Raises DefinitionError for a wrong stepwell.toml."""
    from stepwell.engine.settings import Settings

    return Settings.load(start or Path.cwd(), os.environ)


class NoDatabase(Refusal):
    """What a command only reads is not there."""

    def __init__(self, file: Path) -> None:
        message = f"there is no database at {file} yet"
        super().__init__(
            message, hint=f"`{program()} run FILE` makes one, or name another with --database", kind="not_found"
        )


def tell_no_database(none: NoDatabase, *, as_json: bool) -> None:
    """A list of what is in no database is empty; why is said beside it."""
    if as_json:
        click.echo("[]")
    click.echo(f"{visible(none)}; {none.hint}", err=as_json)


def database_file(database: str, settings: Settings) -> Path:
    """The file in which runs are kept."""
    return Path((_absolute(database) or settings.database).removeprefix("sqlite:///"))


@contextlib.asynccontextmanager
async def opened(
    database: str = "",
    *,
    start: Path | None = None,
    tools: Sequence[Path | str] = (),
    missing: Literal["refuse", "make", "aside"] = "refuse",
    mocks: Mocks | None = None,
) -> AsyncIterator[Engine]:
    """The engine on the database that the option, the environment or the settings name.

    Where there is no such database: NoDatabase is raised, or it is made, or an empty one is used that nobody keeps.
    Runs that were started with scripts are answered from them, those that are started now from those of `mocks`.
    """
    from stepwell.engine.engine import open_engine

    settings = settings_at(start)
    guard_output(settings)
    url = _absolute(database)
    async with contextlib.AsyncExitStack() as stack:
        if missing != "make" and not (file := database_file(database, settings)).exists():
            if missing == "refuse":
                raise NoDatabase(file)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stepwell-"))
            url = f"sqlite:///{folder}/empty.db"
        from stepwell.testing.mocking import Mocks

        scripted = mocks or Mocks()
        opening = open_engine(url, settings=settings, tools=tools, on_busy=tell_busy, over=scripted.over)
        with contextlib.redirect_stdout(sys.stderr):  # what a tools file prints when it is loaded is no answer of ours
            engine = await opening.__aenter__()
        stack.push_async_exit(opening)
        scripted.use(engine)
        yield engine


def _absolute(database: str) -> str:
    from stepwell.engine.settings import absolute_database

    try:
        return absolute_database(database, Path.cwd()) if database else ""
    except ValueError as error:
        raise Refusal(f"--database: {error}") from None


def database_tail(database: str, settings: Settings) -> str:
    """What has to follow a command that is suggested, for it to find this database from this folder."""
    used = _absolute(database) or settings.database
    here = settings_at().database
    return "" if used == here else f" --database {shlex.quote(database or used)}"


def tell_busy(line: str) -> None:
    click.echo(visible(line), err=True)


async def find_run(engine: Engine, text: str) -> Run:
    """The run with this id, or the one recent run whose id begins or ends so. Raises Refusal."""
    from stepwell.errors import NotFound

    try:
        return await engine.run(text)
    except NotFound:
        recent = await engine.runs(limit=RECENT) if len(text) >= SHORTEST else []
        return _only(text, recent, "run", lambda run: f"{run.id} ({run.workflow}, {run.status})", code=USAGE)


async def find_wait(engine: Engine, text: str) -> Wait:
    """The approval with this id, or the only one whose id begins or ends so. Raises Refusal."""
    from stepwell.errors import NotFound

    try:
        return await engine.wait(text)
    except NotFound:
        known = await engine.waits(pending_only=False) if len(text) >= SHORTEST else []
        return _only(text, known, "approval", lambda wait: f"{wait.id} ({wait.path})", code=FAILED)


async def find_incident(engine: Engine, text: str) -> Wait:
    """The incident with this id, or the only one whose id begins or ends so. Raises Refusal."""
    from stepwell.errors import NotFound

    try:
        wait = await engine.wait(text)
    except NotFound:
        known = await engine.incidents.open(settled=True) if len(text) >= SHORTEST else []
        return _only(text, known, "incident", lambda one: f"{one.id} ({one.path})", code=FAILED)
    if wait.kind == "incident":
        return wait
    hint = f"`{program()} {'approvals' if wait.kind == 'approval' else 'incidents'} list` shows what there is"
    raise Refusal(f"{text} is no incident: it is an {wait.kind}", hint=hint, code=FAILED, kind="not_found")


def _only(text: str, known: Sequence[N], word: str, shown: Callable[[N], str], *, code: int) -> N:
    found = [one for one in known if one.id.startswith(text) or one.id.endswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(shown(one) for one in found[:5])
        raise Refusal(f"{len(found)} {word}s have ids like {text}: {names}", hint="give more of the id", code=code)
    lists = f"{program()} {word}s list" + ("" if word == "run" else " --all")
    short = f"a shortened id has at least {SHORTEST} characters; " if len(text) < SHORTEST else ""
    raise Refusal(
        f"there is no {word} {text}", hint=f"{short}`{lists}` shows what there is", code=code, kind="not_found"
    )
