"""What is shown while a run goes on: a live tree on a terminal, plain lines elsewhere, JSON lines for programs.

The law of the file: a screen only shows; whatever it does, the run does not notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import click

from stepwell.cli.lines import Line, error_text, mark_of, painted, spent_texts, step_lines
from stepwell.cli.progress import Node, Progress, by_text, doing_text, reason_text, turn_text
from stepwell.cli.text import duration, json_text, pad, visible
from stepwell.journal.view import instant

if TYPE_CHECKING:
    from rich.live import Live

    from stepwell.engine.events import Event

Json: TypeAlias = Any

_BEAT = 0.125
"""Seconds between two pictures of the live tree."""


class Screen(Protocol):
    """Shows one run; `wants_text` says whether what models say is shown as it comes."""

    wants_text: bool

    def begin(self, run_id: str, title: str) -> None: ...

    def event(self, event: Event) -> None: ...

    def say(self, text: str) -> None: ...

    async def end(self) -> None: ...


class JsonScreen:
    """One JSON object a line; the first and the last carry `run`.

    What tools print meanwhile goes to the error stream, so that the output stays JSON.
    """

    def __init__(self, progress: Progress, *, wants_text: bool = False) -> None:
        self.wants_text = wants_text
        self._progress = progress
        self._out = sys.stdout
        self._elsewhere = contextlib.redirect_stdout(sys.stderr)
        self._began = False

    def begin(self, run_id: str, title: str) -> None:
        self._elsewhere.__enter__()
        self._began = True
        self.emit({"run": run_id, "event": "run_started", "workflow": title, "path": "", "at": instant(time.time())})

    def event(self, event: Event) -> None:
        name = event.name
        if event.path and name.startswith("step_"):
            name = name.replace("step", self._progress.kind_of(event.path), 1)
        data = {key: instant(value) if key == "retry_at" else value for key, value in event.data.items()}
        self.emit({"run": event.run_id, "event": name, "path": event.path, "at": instant(event.at), **data})

    def say(self, text: str) -> None:
        click.echo(text, err=True)

    def emit(self, value: Mapping[str, Json]) -> None:
        """Print one line."""
        click.echo(json_text(value), file=self._out)

    async def end(self) -> None:
        if self._began:
            self._began = False
            self._elsewhere.__exit__(None, None, None)


class PlainScreen:
    """One line for everything that happens, for logs and pipes."""

    wants_text = False

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def begin(self, run_id: str, title: str) -> None:
        click.echo(f"{visible(title)}: run {run_id}")

    def event(self, event: Event) -> None:
        when = datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S")
        if event.name == "run_undoing":
            steps = ", ".join(path[1:] for path in event.data.get("steps", ())) or "nothing"
            click.echo(f"{when}  undoing    {visible(steps)}")
        if not event.path or self._progress.kind_of(event.path) != "step":
            return
        if event.name in {"turn_taken", "tool_called"}:
            if event.name == "turn_taken" or event.data.get("error"):
                turn, _, said = turn_text(event.name, event.data).partition(": ")
                click.echo(f"{when}  {pad(turn, 9)}  {visible(event.path[1:])}  {visible(said)}")
            return
        word = _WORDS.get(event.name) or event.name.removeprefix("step_")
        if event.name == "step_started" and int(event.data.get("attempt") or 1) > 1:
            word = f"attempt {event.data['attempt']}"
        facts = "  ".join(_told(event.data, event.at))
        click.echo(f"{when}  {pad(visible(word), 9)}  {visible(event.path[1:])}  {facts}".rstrip())

    def say(self, text: str) -> None:
        click.echo(text)

    async def end(self) -> None:
        return


_WORDS = {"step_recovering": "failed", "step_compensated": "undone"}


def _told(data: Mapping[str, Json], at: float) -> list[str]:
    facts = []
    if data.get("duration_ms"):
        facts.append(duration(data["duration_ms"] / 1000))
    if data.get("attempts", 0) > 1:
        facts.append(f"attempt {data['attempts']}")
    if data.get("retry_at"):
        facts.append(f"again in {duration(data['retry_at'] - at)}")
    by = by_text(data.get("meta"))
    if data.get("error"):
        facts += [visible(by), f"after {error_text(data['error'])}"] if by else [error_text(data["error"])]
    facts += [text for text, _ in spent_texts(data.get("meta") or {})]
    if data.get("strategy"):
        facts.append(doing_text(data["strategy"]))
    if data.get("title"):
        facts.append(visible(data["title"]))
    if data.get("reason"):
        facts.append(visible(reason_text(data["reason"])))
    return [fact for fact in facts if fact]


class LiveScreen:
    """A tree that moves in place, drawn on the event loop's own beat."""

    wants_text = True

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._live: Live | None = None
        self._beat: asyncio.Task[None] | None = None

    def begin(self, run_id: str, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        click.echo(f"{click.style(visible(title), bold=True)}  run {run_id}")
        self._live = Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="ellipsis")
        self._live.start()
        self._beat = asyncio.create_task(self._draw_on())

    def event(self, event: Event) -> None:
        self._progress.event(event.name, event.path, event.at, event.data)

    def say(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, markup=False)

    async def end(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beat
            self._beat = None
        if self._live is not None:
            self._live.vertical_overflow = "visible"
            self._draw()
            self._live.stop()
            self._live = None

    async def _draw_on(self) -> None:
        while True:
            self._draw()
            await asyncio.sleep(_BEAT)

    def _draw(self) -> None:
        from rich.text import Text

        if self._live is None:
            return
        console = self._live.console
        lines = step_lines(self._progress, time.time())
        room = max(console.size.height - 3, 5)
        hidden = 0
        if self._live.vertical_overflow != "visible" and len(lines) > room:
            lines, hidden = _most_wanted(lines, room)
        body = Text("\n", no_wrap=True, overflow="ellipsis").join(_rich(line) for line in lines)
        if hidden:
            body.append(f"\n… {hidden} lines more", style="dim")
        body.no_wrap = True
        self._live.update(body, refresh=True)


def _most_wanted(lines: list[Line], room: int) -> tuple[list[Line], int]:
    """The lines that fit, those of steps still open first, in their order."""
    calm = {mark_of(status)[0] for status in ("completed", "skipped", "pending")}
    ranked = sorted(range(len(lines)), key=lambda at: (lines[at][0][0] in calm, -at))
    kept = sorted(ranked[: room - 1])
    return [lines[at] for at in kept], len(lines) - len(kept)


def _rich(line: Line) -> Any:
    from rich.text import Text

    return Text.assemble(*((text, style) for text, style in line), overflow="ellipsis", no_wrap=True)


def still(progress: Progress, *, columns: int = 0) -> str:
    """The tree as text, for a run that is not being followed."""
    return "\n".join(painted(line, columns=columns) for line in step_lines(progress, time.time()))


def screen_for(progress: Progress, *, as_json: bool, tokens: bool = False) -> Screen:
    """The screen that fits where the output goes; `tokens` is for programs."""
    if as_json:
        return JsonScreen(progress, wants_text=tokens)
    return LiveScreen(progress) if sys.stdout.isatty() else PlainScreen(progress)


__all__ = ["JsonScreen", "LiveScreen", "Node", "PlainScreen", "Screen", "screen_for", "still"]
