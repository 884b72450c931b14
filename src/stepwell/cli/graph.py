"""`stepwell graph`: a picture of a workflow, as a tree in the terminal, for mermaid, or as SVG."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepwell.cli import exits, options
from stepwell.cli.command import Command
from stepwell.cli.text import cut, pad, visible, width

if TYPE_CHECKING:
    from stepwell.definition.drawing import Drawn, Part, Picture
    from stepwell.definition.workflow import Workflow

_BY_SUFFIX = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".md": "markdown", ".txt": "terminal"}
_MARKS = {"loop": "⟳ ", "approval": "● ", "wait": "◷ ", "end": "■ "}
_PLAIN = {"├": "|", "└": "`", "─": "-", "│": "|", "⟳": "*", "●": "?", "◷": "z", "■": "#", "←": "<-", "…": "..."}
_LONGEST = 48
"""Columns of the tree beyond which what follows is not aligned."""


@click.command(
    cls=Command,
    example="stepwell graph workflow.yaml\nstepwell graph workflow.yaml --output workflow.svg\n"
    "stepwell graph workflow.yaml --format mermaid > workflow.mmd",
)
@click.argument("file", type=options.FILE)
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "mermaid", "svg"]),
    help="Default: what the name given with --output says, else terminal.",
)
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it there instead."
)
def graph(*, file: Path, form: str | None, output: Path | None) -> None:
    """Draw a workflow: its steps, containers around what is inside them, branches with their conditions."""
    from stepwell.definition.drawing import TooLarge, mermaid, picture_of, svg

    form = form or _form_of(output)
    picture = picture_of(_workflow(file))
    columns = _columns() if output is None else 0
    try:
        match form:
            case "svg":
                text = svg(picture)
            case "mermaid":
                text = mermaid(picture)
            case "markdown":
                text = f"```mermaid\n{mermaid(picture).rstrip()}\n```\n"
            case _:
                text = tree(picture, columns)
    except TooLarge as error:
        raise exits.Refusal(
            str(error), hint="--format terminal and --format mermaid draw it", code=exits.FAILED
        ) from None
    if output is not None:
        output.write_text(text, "utf-8")
        click.echo(f"{visible(output)}: written")
    else:
        click.echo(text if form != "terminal" else _encodable(text), nl=False)


def _form_of(output: Path | None) -> str:
    """The format that a file's ending says. Raises Refusal for an ending that says none."""
    if output is None:
        return "terminal"
    if output.suffix.lower() not in _BY_SUFFIX:
        hint = f"end it with {', '.join(_BY_SUFFIX)}, or say --format terminal, mermaid or svg"
        raise exits.Refusal(f"{output}: its ending does not say how to draw", hint=hint)
    return _BY_SUFFIX[output.suffix.lower()]


def _workflow(file: Path) -> Workflow:
    from stepwell.definition.canonical_text import understood
    from stepwell.kinds import discover

    return understood(file, kinds=discover())


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def _encodable(text: str) -> str:
    """The text as the terminal can show it."""
    if (sys.stdout.encoding or "utf-8").lower().startswith("utf"):
        return text
    return "".join(_PLAIN.get(character, character) for character in text)


def tree(picture: Picture, columns: int = 0) -> str:
    """The picture as a tree of box characters, one line for each step; cut to `columns` (0: never)."""
    rows = [*_rows(picture.steps, "")]
    for part in picture.others:
        rows += [("", ""), (f"{visible(part.label)}:", ""), *_rows(part, "")]
    room = min(max((width(left) for left, right in rows if right), default=0), _LONGEST)
    head = visible(picture.title) + (f"  ({picture.id})" if picture.title != picture.id else "")
    lines = [head, *(f"{pad(left, room)}  {right}".rstrip() if right else left for left, right in rows)]
    return "".join(f"{cut(line, columns) if columns else line}\n" for line in lines)


def _rows(part: Part, indent: str, *, ends: bool = True) -> Iterator[tuple[str, str]]:
    """Lines of the tree: what stands in it, and what is said of it; unless it `ends`, more follows on its level."""
    for at, step in enumerate(part.steps):
        last = ends and at == len(part.steps) - 1
        yield f"{indent}{'└─' if last else '├─'} {visible(step.name or step.id)}", _told(step)
        yield from _inside(step, indent + ("   " if last else "│  "))


def _inside(step: Drawn, indent: str) -> Iterator[tuple[str, str]]:
    parts = (*step.parts, *step.recovery)
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        if not part.label and len(step.parts) == 1:
            yield from _rows(part, indent, ends=last)
            continue
        empty = "" if part.steps else " (nothing)"
        yield f"{indent}{'└─' if last else '├─'} {visible(part.label)}{empty}" + (":" if part.steps else ""), ""
        yield from _rows(part, indent + ("   " if last else "│  "))


def _told(step: Drawn) -> str:
    facts = [f"{_MARKS.get(step.type, '')}{step.type}" + (f" {visible(step.detail)}" if step.detail else "")]
    if step.name and step.name != step.id:
        facts.append(f"({step.id})")
    if step.after:
        facts.append(f"← {', '.join(step.after)}")
    if step.condition:
        facts.append(f"if {visible(step.condition)}")
    if step.back:
        facts.append(f"may go back to {', '.join(step.back)}")
    if step.aside:
        facts.append(f"kept for {step.aside}")
    return "  ".join(facts)
