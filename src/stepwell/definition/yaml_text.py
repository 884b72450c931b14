"""
YAML 1.2, strictly, composed from the events of libyaml to nodes that know their places.

The law of the file: only plain JSON data results, whatever the text; nothing is constructed, and no alias makes the
result larger than `MOST_NODES`.

Resolution follows the core schema of YAML 1.2 (chapter 10.3), with fewer numbers: what JSON could not write back as it
was (leading zeros or plus, underscores, `0x`, `0o`, dates) stays text.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from stepwell.definition.limits import DEEPEST, LONGEST_NUMBER, MOST_NODES
from stepwell.definition.positions import Json, Node, Source, Span, Style
from stepwell.definition.suggest import described, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yaml._yaml import Mark as CMark
    from yaml.error import Mark
    from yaml.events import Event, NodeEvent

    from stepwell.definition.report import Report

    AnyMark: TypeAlias = Mark | CMark | None

_STYLES: dict[str | None, Style] = {
    None: "plain", "": "plain", "'": "single", '"': "double", "|": "literal", ">": "folded"
}  # fmt: skip
_WORDS: dict[str, Json] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_MERGED = "<<\0"
"""The key of what a merge key would have merged; no text can hold it."""
_NUMBER_START = frozenset("-.0123456789")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_BARE_TEMPLATE = re.compile(r"[-:,\[{]\s*\{\{")
_QUOTE_TEMPLATE = 'quote the template: "{{...}}"'
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


class _Open:
    """A list or mapping that is being filled."""

    __slots__ = ("anchor", "before", "height", "key", "node")

    def __init__(self, node: Node, anchor: str | None, before: int) -> None:
        self.node = node
        self.anchor = anchor
        self.before = before
        self.height = 0
        self.key: tuple[str, int, int] | None = None


class _Anchored:
    """What an alias stands for, with how much it adds."""

    __slots__ = ("height", "node", "size")

    def __init__(self, node: Node | None, size: int = 0, height: int = 0) -> None:
        self.node = node
        self.size = size
        self.height = height


def compose(text: str, report: Report) -> Node:
    """The one document of a YAML text. Raises TooWrong where reading must stop; adds other problems to the report."""
    if bad := _FORBIDDEN.search(text):
        place = Source(text).place(bad.start())
        code = f"U+{ord(bad[0]):04X}"
        raise report.stop(place, "yaml", f"the character {code} may not stand in YAML", _escape_hint(bad[0]))
    return _Composer(text, report).compose()


def _escape_hint(char: str) -> str:
    if 0xD800 <= ord(char) <= 0xDFFF:
        return "it is half of a character; remove it"
    return f'write it as an escape in double quotes: "\\u{ord(char):04X}"'


class _Composer:
    def __init__(self, text: str, report: Report) -> None:
        self.source = Source(text)
        self.report = report
        self.count = 0
        self.open: list[_Open] = []
        self.anchors: dict[str, _Anchored] = {}
        self.root: Node | None = None
        self.documents = 0

    def compose(self) -> Node:
        for event in self._events():
            match event:
                case ScalarEvent():
                    self._scalar(event)
                case MappingStartEvent():
                    self._start(event, {})
                case SequenceStartEvent():
                    self._start(event, [])
                case MappingEndEvent() | SequenceEndEvent():
                    self._end()
                case AliasEvent():
                    self._alias(event)
                case DocumentStartEvent():
                    self._document(event)
                case _:
                    pass
        if self.root is None:
            raise self.report.stop((1, 1), "empty", "the file is empty", "a workflow begins with  workflow: its-id")
        return self.root

    def _events(self) -> Iterator[Event]:
        try:
            yield from yaml.parse(self.source.text, Loader=yaml.CBaseLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            raise self._refused(place, error) from None
        except yaml.YAMLError as error:
            raise self.report.stop((1, 1), "yaml", str(error).split("\n", 1)[0]) from None

    def _refused(self, place: tuple[int, int], error: yaml.MarkedYAMLError) -> Exception:
        problem = error.problem or "this is not YAML"
        lines = self.source.text.split("\n")
        line = lines[place[0] - 1] if place[0] <= len(lines) else ""
        lead = line[: len(line) - len(line.lstrip())]
        if "\t" in lead or "'\\t'" in problem or line[place[1] - 1 : place[1]] == "\t":
            column = line.index("\t") + 1 if "\t" in line else place[1]
            message = "a tab where only spaces may stand"
            return self.report.stop((place[0], column), "yaml", message, "indent with spaces")
        if "maximum nesting" in problem:
            return self._too_deep(place)
        context = f" ({error.context})" if error.context else ""
        return self.report.stop(place, "yaml", f"{problem}{context}", _yaml_hint(problem, line))

    def _document(self, event: DocumentStartEvent) -> None:
        self.documents += 1
        place = _place(event.start_mark)
        if self.documents > 1:
            raise self.report.stop(place, "yaml", "a second document begins here", "one file holds one definition")
        version = event.version
        if version is not None and version != (1, 2):
            message = f"this file declares YAML {'.'.join(map(str, version))}"
            self.report.stop(place, "yaml", message, "definitions are YAML 1.2; remove the line")
        if event.tags:
            self.report.stop(place, "yaml", "tags are not used in definitions", "remove the %TAG line")

    def _counted(self, place: tuple[int, int], size: int = 1) -> None:
        self.count += size
        if self.count > MOST_NODES:
            message = f"the file has more than {MOST_NODES:,} values once its aliases are expanded"
            raise self.report.stop(place, "size", message, "split the workflow, or use fewer aliases")

    def _too_deep(self, place: tuple[int, int]) -> Exception:
        return self.report.stop(place, "depth", f"nested more than {DEEPEST} levels deep")

    def _start(self, event: MappingStartEvent | SequenceStartEvent, value: Json) -> None:
        place = _place(event.start_mark)
        if len(self.open) >= DEEPEST:
            raise self._too_deep(place)
        self._counted(place)
        node = Node(value, *place)
        self._untagged(event, place)
        if self._key_wanted():
            self.report.stop(place, "yaml", "a key is text, not a list or mapping", self._key_hint(event))
            self.open[-1].key = ("?", *place)
        elif event.anchor:
            self.anchors[event.anchor] = _Anchored(None)
        self._put(node)
        self.open.append(_Open(node, event.anchor, self.count - 1))

    def _key_hint(self, event: MappingStartEvent | SequenceStartEvent) -> str:
        at = _index(event.start_mark)
        return _QUOTE_TEMPLATE if self.source.text[max(at - 1, 0) : at + 1] == "{{" else "quote it"

    def _ends_template(self, event: ScalarEvent) -> bool:
        at = _index(event.start_mark)
        return self.source.text[max(at - 1, 0) : at + 1] == "}}"

    def _end(self) -> None:
        done = self.open.pop()
        if done.anchor:
            self.anchors[done.anchor] = _Anchored(done.node, self.count - done.before, done.height + 1)
        if self.open:
            self.open[-1].height = max(self.open[-1].height, done.height + 1)

    def _key_wanted(self) -> bool:
        return bool(self.open) and isinstance(self.open[-1].node.value, dict) and self.open[-1].key is None

    def _scalar(self, event: ScalarEvent) -> None:
        place = _place(event.start_mark)
        if event.tag is not None:
            self._untagged(event, place)
        if self._key_wanted():
            self._key(event, place)
            return
        self._counted(place)
        style = _STYLES[event.style]
        span = Span(self.source, _index(event.start_mark), _index(event.end_mark), style)
        value = self._resolved(event.value, place) if style == "plain" else event.value
        node = Node(value, *place, span=span)
        if event.anchor:
            self.anchors[event.anchor] = _Anchored(node, 1)
        self._put(node)

    def _key(self, event: ScalarEvent, place: tuple[int, int]) -> None:
        key = event.value
        plain = _STYLES[event.style] == "plain"
        if plain and key == "<<":
            self.report.stop(place, "yaml", "merge keys (<<) are not part of YAML 1.2", "write the keys out")
            key = _MERGED
        elif plain and key == "" and self._ends_template(event):
            pass  # told where the template begins
        elif plain and key in {"", "~"}:
            self.report.stop(place, "yaml", "this entry has no key", 'quote it if it is meant: ""')
        if event.anchor:
            self.report.stop(place, "yaml", "a key has no anchor", "put the anchor before the value")
        self.open[-1].key = (key, *place)

    def _resolved(self, text: str, place: tuple[int, int]) -> Json:
        if text in _WORDS:
            return _WORDS[text]
        if text[0] not in _NUMBER_START:
            if text[0] == "+" and _NOT_JSON.fullmatch(text):
                self._not_json(text, place)
            return text
        if _INTEGER.fullmatch(text):
            if len(text) > LONGEST_NUMBER:
                self.report.stop(place, "number", f"a number of {len(text)} digits", "quote it to keep it as text")
                return text
            return int(text)
        if _FLOAT.fullmatch(text):
            value = float(text)
            if math.isfinite(value):
                return value
            self._not_json(text, place)
        elif _NOT_JSON.fullmatch(text):
            self._not_json(text, place)
        return text

    def _not_json(self, text: str, place: tuple[int, int]) -> None:
        self.report.stop(place, "number", f"{shown(text)} is no number of JSON", "quote it to keep it as text")

    def _alias(self, event: AliasEvent) -> None:
        place = _place(event.start_mark)
        name = event.anchor or ""
        found = self.anchors.get(name)
        if found is None:
            raise self.report.stop(place, "yaml", f"there is no anchor &{name} before this", "")
        if found.node is None:
            raise self.report.stop(place, "yaml", f"*{name} stands inside what it stands for", "write it out")
        if self._key_wanted():
            self.report.stop(place, "yaml", "an alias cannot be a key", "write the key out")
            self.open[-1].key = (name, *place)
            return
        if len(self.open) + found.height > DEEPEST:
            raise self._too_deep(place)
        self._counted(place, found.size)
        self._put(found.node.again())
        if self.open:
            self.open[-1].height = max(self.open[-1].height, found.height)

    def _put(self, node: Node) -> None:
        if not self.open:
            self.root = node
            return
        holder = self.open[-1]
        parent = holder.node
        if holder.key is None:
            node.under(parent, len(parent.value))
            parent.value.append(node)
            return
        key, line, column = holder.key
        holder.key = None
        node.under(parent, key, line, column)
        if key == _MERGED:
            return
        if key in parent.value:
            first = parent.value[key]
            message = f"the key {shown(key)} is written twice; first at {described(first.key_place)}"
            self.report.at(node, "duplicate_key", message, "keep one of them", key=True)
        else:
            parent.value[key] = node

    def _untagged(self, event: NodeEvent, place: tuple[int, int]) -> None:
        tag = getattr(event, "tag", None)
        if tag is not None:
            self.report.stop(place, "yaml", f"tags are not used in definitions: {shown(tag)}", "remove the tag")


def _place(mark: AnyMark) -> tuple[int, int]:
    assert mark is not None, "libyaml marks every event"
    return mark.line + 1, mark.column + 1


def _index(mark: AnyMark) -> int:
    assert mark is not None, "libyaml marks every event"
    return mark.index


def _yaml_hint(problem: str, line: str) -> str:
    if _BARE_TEMPLATE.search(line):
        return _QUOTE_TEMPLATE
    if "mapping values are not allowed" in problem:
        return 'a text that contains ": " needs quotes'
    if "could not find expected ':'" in problem:
        return "a key is followed by a colon and a space"
    if "did not find expected" in problem:
        return "look at the indentation and the brackets just before"
    if "cannot start any token" in problem:
        return "quote a text that begins with this character"
    return ""
