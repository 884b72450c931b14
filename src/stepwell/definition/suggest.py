"""Words for problems: how values are shown, and what was probably meant."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHARS = 40
_CANDIDATES = 2000
_SYNONYMS = {
    "args": "arguments", "params": "arguments", "parameters": "arguments", "if": "when", "deps": "depends_on",
    "needs": "depends_on", "depends": "depends_on", "after": "depends_on", "foreach": "over", "for_each": "over",
    "items": "over", "in": "over", "retries": "retry", "inputs": "arguments", "input": "inputs",
    "output": "output_schema",
    "schema": "output_schema", "body": "steps", "do": "steps", "max_rounds": "max_iterations", "delay": "for",
    "duration": "for", "seconds": "for", "text": "content", "instructions": "system", "message": "prompt",
    "llm": "llm_call",
    "prompt": "llm_call", "tool": "tool_call", "function": "tool_call", "if_else": "condition", "switch": "condition",
    "foreach_loop": "loop", "for": "loop", "while": "loop", "sleep": "wait", "human": "approval", "assign": "set",
    "id": "workflow", "stop": "end", "vars": "values",
}  # fmt: skip


def shown(value: Any) -> str:
    """A value for a message: at most 40 characters, quoted if it is text."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _CHARS else f"{text[: _CHARS - 1]}…"


def described(place: tuple[int, int]) -> str:
    """A line and column for a message."""
    return f"line {place[0]}, column {place[1]}"


def noun(value: Any) -> str:
    """What kind of JSON value it is, for a sentence."""
    match value:
        case None:
            return "null"
        case bool():
            return f"the boolean {'true' if value else 'false'}"
        case int() | float():
            return f"the number {shown(value)}"
        case str():
            return f"the text {shown(value)}"
        case list() | tuple():
            return "a list"
        case _:
            return "an object"


def close(name: str, candidates: Iterable[str]) -> str:
    """The candidate that was probably meant, or ""."""
    from difflib import get_close_matches

    known = [word for word in islice(candidates, _CANDIDATES) if len(word) <= 64]
    lowered = {word.lower(): word for word in reversed(known)}
    if name.lower() in lowered:
        return lowered[name.lower()]
    found = get_close_matches(name[:64].lower(), lowered, 1, 0.6)
    if found:
        return lowered[found[0]]
    synonym = _SYNONYMS.get(name.lower(), "")
    return synonym if synonym in known else ""


def did_you_mean(name: str, candidates: Iterable[str], noun_of_all: str = "") -> str:
    """A hint: what was probably meant, else (with `noun_of_all`) what there is."""
    known = list(candidates)
    if word := close(name, known):
        return f"did you mean '{word}'?"
    return listing(noun_of_all, known) if noun_of_all else ""


def listing(noun_of_all: str, names: Iterable[str]) -> str:
    """A hint that lists up to twenty names."""
    some = list(islice(names, 21))
    if not some:
        return ""
    return f"{noun_of_all}: {', '.join(some[:20])}{', …' if len(some) > 20 else ''}"
