"""Lines that show steps: what each is, how it stands, how long it took, what it waits for.

A line is a list of (text, style) pieces, so that the same line goes to a plain terminal and to the live tree; every
text in it has been made visible.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from stepwell.cli.progress import Node, Progress, by_text
from stepwell.cli.text import cut, duration, pad, visible, width

if TYPE_CHECKING:
    from stepwell.ports import Run

Json: TypeAlias = Any
Line: TypeAlias = list[tuple[str, str]]

_LOOKS = {
    "pending": ("·", ".", "dim"),
    "running": ("▸", ">", "blue"),
    "retrying": ("↻", "r", "yellow"),
    "completed": ("✓", "+", "green"),
    "failed": ("✗", "x", "red"),
    "skipped": ("–", "-", "dim"),
    "cancelled": ("⊘", "/", "yellow"),
    "compensated": ("↶", "u", "yellow"),
    "pending_approval": ("●", "?", "magenta"),
    "waiting": ("◷", "z", "cyan"),
    "suspended": ("!", "!", "red"),
}
_WORDS = {"pending_approval": "waits for a person", "waiting": "waits", "suspended": "wants an operator"}
_HEARD = 60
"""Characters of what a model is saying that are shown."""
_LONGEST_LABEL = 44


def mark_of(status: str) -> tuple[str, str]:
    """The sign of a status and its style; plain ASCII where the terminal has nothing else."""
    fine, plain, style = _LOOKS.get(status, ("▸", ">", ""))
    stream = sys.stdout if getattr(sys.stdout, "encoding", None) else sys.__stdout__  # the live tree stands before it
    encoding = (getattr(stream, "encoding", "") or "").lower()
    return (fine if encoding.startswith("utf") else plain), style


def step_lines(progress: Progress, now: float) -> list[Line]:
    """One line for each step, iteration and branch that is to be shown."""
    shown = [(depth, node) for depth, node in progress.walk() if _is_shown(node)]
    labels = [width("  " * depth + visible(node.label)) for depth, node in shown]
    room = min(max(labels, default=0), _LONGEST_LABEL)
    kinds = max((len(node.type) for _, node in shown), default=0)
    return [_line(node, depth, (room, kinds), now) for depth, node in shown]


def _is_shown(node: Node) -> bool:
    return node.is_step or node.is_open or bool(node.inside)


def _line(node: Node, depth: int, widths: tuple[int, int], now: float) -> Line:
    sign, style = mark_of(node.status)
    room, kinds = widths
    label = pad(cut("  " * depth + visible(node.label), room), room)
    line: Line = [(sign, style), (f" {label}", "" if node.is_open or node.status == "completed" else style)]
    line.append((f"  {pad(visible(node.type), kinds)}", "dim"))
    for text, look in _facts(node, now):
        line.append((f"  {text}", look))
    return line


def _facts(node: Node, now: float) -> Iterator[tuple[str, str]]:
    style = mark_of(node.status)[1]
    if node.parts is not None and node.type == "loop":
        yield f"{node.done}/{node.parts}" if node.done else f"{node.parts} items", ""
    elif node.done:
        yield f"{node.done} done", ""
    if node.status in _WORDS:
        yield _WORDS[node.status] + (f": {visible(node.note)}" if node.note else ""), style
        if node.retry_at:
            yield f"for {duration(max(0.0, node.retry_at - now))} more", style
        return
    if node.started and node.status != "skipped" and (node.status in {"running", "retrying"} or node.ended):
        yield duration((node.ended or now) - node.started), "dim"
    if node.status == "retrying":
        yield f"attempt {node.attempts + 1} in {duration(max(0.0, node.retry_at - now))}", style
    elif node.attempts > 1:
        yield f"attempt {node.attempts}" if node.is_open else f"{node.attempts} attempts", "yellow"
    if node.said and node.is_open:
        yield _last_words(node.said), "italic dim"
    yield from _ended(node, style)
    if node.note:
        yield visible(node.note), "dim"
    if node.meta:
        yield from spent_texts(node.meta)


def _last_words(said: str) -> str:
    """The end of what a model is saying, in one line."""
    line = visible(" ".join(said.split()))
    return line if len(line) <= _HEARD else f"… {line[-_HEARD:]}"


def _ended(node: Node, style: str) -> Iterator[tuple[str, str]]:
    """What went wrong, and what mended it."""
    if node.status == "completed" and node.error:
        if by := by_text(node.meta):
            yield visible(by), "yellow"
        yield f"after {error_text(node.error)}", "dim"
    elif node.error and node.status != "skipped":
        yield error_text(node.error), style or "red"
    elif node.status == "compensated":
        yield "undone", style


def spent_texts(meta: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """The tokens that were taken and what they cost, each with its style."""
    tokens = (meta.get("input_tokens") or 0) + (meta.get("output_tokens") or 0)
    if tokens:
        yield f"{tokens} tokens", "dim"
        yield money_text(meta), "dim"
    if meta.get("finish_reason") == "length":
        yield "cut at the limit of tokens", "yellow"
    if fell := meta.get("fell_back"):
        yield f"not {', '.join(visible(one['model']) for one in fell)}: {visible(fell[0]['kind'])}", "yellow"


def dollars(cost: float) -> str:
    """An amount with the digits that it needs: a step often costs less than a hundredth of a cent."""
    if not cost:
        return "$0"
    if cost < 0.01:
        return f"${cost:.6f}".rstrip("0") if cost >= 0.000001 else "<$0.000001"
    return f"${cost:.4f}"


def money_text(meta: Mapping[str, Json]) -> str:
    """What tokens cost, as far as it is known."""
    cost, unknown = meta.get("cost_usd"), meta.get("tokens_without_price")
    if cost is None:
        return "price unknown"
    return dollars(cost) + (f" and {unknown} tokens of unknown price" if unknown else "")


def error_text(error: Mapping[str, Json]) -> str:
    """An error as one visible line."""
    return f"{visible(error.get('kind', 'error'))}: {visible(error.get('message', ''))}"


def ended_why(run: Run) -> str:
    """Why a run ended as it did, beside its status; "" where the status says it all."""
    if not run.error:
        return ""
    if run.status == "cancelled" and run.error.get("kind") == "cancelled":
        message = str(run.error.get("message", ""))
        return "" if message == "the run was cancelled" else visible(message)
    return error_text(run.error)


def painted(line: Line, *, columns: int = 0) -> str:
    """A line for a plain terminal, cut to `columns` (0: never)."""
    pieces, used = [], 0
    for text, style in line:
        shown = cut(text, columns - used) if columns else text
        used += width(shown)
        pieces.append(_paint(shown, style))
    return "".join(pieces).rstrip()


def _paint(text: str, style: str) -> str:
    if not style:
        return text
    return click.style(text, dim=True) if style == "dim" else click.style(text, fg=style)


def paint_all(lines: Iterable[Line], *, columns: int = 0) -> str:
    return "\n".join(painted(line, columns=columns) for line in lines)
