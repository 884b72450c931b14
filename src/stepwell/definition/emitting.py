"""Pieces of a definition's text made anew, and texts with edits applied."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepwell.definition.positions import Json, Node

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Words that a reader of YAML 1.1 takes for something else are quoted too."""
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Edit:
    """Other characters for `text[start:end]`."""

    start: int
    end: int
    text: str


def applied(text: str, start: int, end: int, edits: Iterable[Edit]) -> str:
    """`text[start:end]` with the edits inside it. Raises ValueError if two of them touch the same characters."""
    parts: list[str] = []
    at = start
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start < at or edit.end > end:
            raise ValueError("two changes of the same characters")
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:end]])


def shifted(text: str, columns: int, *, first: bool = False) -> str:
    """The lines of a text moved to the right or left; the first only if asked for. Empty lines stay empty."""
    lines = text.split("\n")
    return "\n".join(
        line if (at == 0 and not first) or not line.strip("\r") else _moved(line, columns)
        for at, line in enumerate(lines)
    )


def _moved(line: str, columns: int) -> str:
    if columns >= 0:
        return " " * columns + line
    spaces = len(line) - len(line.lstrip(" "))
    return line[min(spaces, -columns) :]


def shape_of(value: Json) -> Literal["scalar", "map", "list"]:
    """How a value is written."""
    return "map" if isinstance(value, dict) else "list" if isinstance(value, list) else "scalar"


def key_text(word: str, style: str = "") -> str:
    """A key, quoted as the one was that it replaces (`style`: its first character)."""
    if style == "'" and "'" not in word:
        return f"'{word}'"
    return word if style != '"' and _KEY.fullmatch(word) else _quoted(word)


def value_text(node: Node, style: str = "", *, is_json: bool) -> str:
    """A value on one line; `style` are the quotes that a text has if it can."""
    value = node.value
    if isinstance(value, dict):
        quote = '"' if is_json else ""
        parts = [f"{key_text(key, quote)}: {value_text(inner, is_json=is_json)}" for key, inner in value.items()]
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list):
        return f"[{', '.join(value_text(inner, is_json=is_json) for inner in value)}]"
    if not isinstance(value, str):
        return _kept(node) or json.dumps(value)
    if is_json:
        return json.dumps(value, ensure_ascii=False)
    return _text(value, style)


def _kept(node: Node) -> str:
    """A number as it was written."""
    span = node.span
    return span.written if span is not None and re.fullmatch(r"[-0-9.eE+]+", span.written) else ""


def _text(value: str, style: str) -> str:
    if style not in {"'", '"'} and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if (style == "'" or '"' in value or "\\" in value) and value.isprintable() and not _ESCAPED.search(value):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    return _quoted(value)


def _quoted(value: str) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
