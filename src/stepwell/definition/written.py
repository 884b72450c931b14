"""
A definition as it is written: which characters of the file each key and each value takes, comments among them.

The law of the file: it describes a text that has been composed without problems, and judges nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from stepwell.definition.positions import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yaml.events import Event

Shape: TypeAlias = Literal["scalar", "map", "list", "alias"]
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\],:"]+', re.DOTALL)
_COMMENT = re.compile(r"(?:^|(?<=[ \t\r\n]))#[^\r\n]*", re.MULTILINE)


@dataclass(slots=True, eq=False)
class Written:
    """A value: its characters are `text[start:end]`, with its anchor, without a comment behind it."""

    shape: Shape
    start: int
    end: int
    flow: bool = True
    """Whether it is written with brackets, and so may stand on one line; false for lists and maps by indentation."""
    anchor: str = ""
    style: str = ""
    entries: list[Entry] = field(default_factory=list)
    items: list[Written] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Entry:
    """A key and its value."""

    start: int
    key_end: int
    value: Written
    flow: bool = False
    """Whether the mapping that it belongs to is written in brackets."""

    @property
    def end(self) -> int:
        return max(self.value.end, self.key_end)


class Layout:
    """The whole text with its values, and what stands between them."""

    def __init__(self, text: str, *, is_json: bool) -> None:
        self.text = text
        self.is_json = is_json
        self.source = Source(text)
        self._scalars: list[tuple[int, int]] = []
        events = self._json_events() if is_json else self._yaml_events()
        self.root = self._built(events)
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.comments = [] if is_json else self._find_comments()

    def _built(self, events: Iterator[Written | tuple[Literal["end"], int]]) -> Written:
        opened: list[tuple[Written, list[tuple[int, int]]]] = []
        root: Written | None = None
        for event in events:
            if isinstance(event, tuple):
                done, _ = opened.pop()
                last = [*(entry.end for entry in done.entries[-1:]), *(item.end for item in done.items[-1:])]
                done.end = event[1] if done.flow else max([done.end, *last])
                continue
            if event.shape == "scalar":
                self._scalars.append((event.start, event.end))
            if not opened:
                root = event
            else:
                holder, key = opened[-1]
                if holder.shape == "list":
                    holder.items.append(event)
                elif not key:
                    key.append((event.start, event.end))
                    continue
                else:
                    holder.entries.append(Entry(*key.pop(), event, holder.flow))
            if event.shape in {"map", "list"}:
                opened.append((event, []))
        assert root is not None, "the text was composed before"
        return root

    def _yaml_events(self) -> Iterator[Written | tuple[Literal["end"], int]]:
        for event in yaml.parse(self.text, Loader=yaml.CBaseLoader):
            start, end = _marks(event)
            anchor = getattr(event, "anchor", None) or ""
            match event:
                case MappingStartEvent():
                    yield Written("map", start, start, bool(event.flow_style), anchor)
                case SequenceStartEvent():
                    yield Written("list", start, start, bool(event.flow_style), anchor)
                case MappingEndEvent() | SequenceEndEvent():
                    yield "end", end
                case AliasEvent():
                    yield Written("alias", start, end)
                case ScalarEvent():
                    style = event.style or ""
                    if style in {"|", ">"}:
                        end = start + len(self.text[start:end].rstrip())
                    yield Written("scalar", start, end, style not in {"|", ">"}, anchor, style)
                case _:
                    pass

    def _json_events(self) -> Iterator[Written | tuple[Literal["end"], int]]:
        for token in _JSON_TOKEN.finditer(self.text):
            match token[0]:
                case "{":
                    yield Written("map", token.start(), token.end())
                case "[":
                    yield Written("list", token.start(), token.end())
                case "}" | "]":
                    yield "end", token.end()
                case _:
                    yield Written("scalar", token.start(), token.end(), style='"')

    def _find_comments(self) -> list[tuple[int, int]]:
        """Start and end of every comment, those behind the head of a block text included."""
        found: list[tuple[int, int]] = []
        at = 0
        for start, end in [*sorted(self._scalars), (len(self.text), len(self.text))]:
            found += [match.span() for match in _COMMENT.finditer(self.text, at, max(at, start))]
            if self.text[start : start + 1] in {"|", ">"} or self.text[start : start + 1] == "&":
                head = self.line_end(start)
                found += [match.span() for match in _COMMENT.finditer(self.text, start, min(head, end))]
            at = end
        return found

    def line_start(self, index: int) -> int:
        return self.text.rfind("\n", 0, index) + 1

    def line_end(self, index: int) -> int:
        """The index of the line break that ends the line of a character, or of the end of the text."""
        found = self.text.find("\n", index)
        found = len(self.text) if found < 0 else found
        return found - 1 if found > index and self.text[found - 1] == "\r" else found

    def next_line(self, index: int) -> int:
        """The start of the line after that of a character."""
        found = self.text.find("\n", index)
        return len(self.text) if found < 0 else found + 1

    def column(self, index: int) -> int:
        """Characters before this one on its line."""
        return index - self.line_start(index)

    def begins_line(self, index: int) -> bool:
        """Whether only spaces stand before a character on its line."""
        return not self.text[self.line_start(index) : index].strip(" ")

    def comments_between(self, start: int, end: int) -> list[tuple[int, int]]:
        """Start and end of the comments that begin between two characters."""
        found = self.comments
        return found[bisect_left(found, (start, 0)) : bisect_left(found, (end, 0))]

    def comments_in(self, start: int, end: int) -> list[str]:
        """Those comments as texts."""
        return [self.text[first:stop] for first, stop in self.comments_between(start, end)]


def _marks(event: Event) -> tuple[int, int]:
    first, last = event.start_mark, event.end_mark
    assert first is not None, "libyaml marks every event"
    assert last is not None, "libyaml marks every event"
    return first.index, last.index
