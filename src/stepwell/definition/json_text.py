"""JSON (RFC 8259), strictly, scanned without recursion to nodes that know their places."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from stepwell.definition.limits import DEEPEST, LONGEST_NUMBER, MOST_NODES
from stepwell.definition.positions import Json, Node, Source, Span
from stepwell.definition.suggest import described, shown

if TYPE_CHECKING:
    from stepwell.definition.report import Report, TooWrong

_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"([^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*)"', re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[-+A-Za-z0-9_.]+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|(.))", re.DOTALL)
_SIMPLE = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None}
_SURROGATE = re.compile("[\ud800-\udfff]")


def compose(text: str, report: Report) -> Node:
    """The value of a JSON text. Raises TooWrong where reading must stop; adds other problems to the report."""
    return _Scanner(text, report).compose()


class _Scanner:
    def __init__(self, text: str, report: Report) -> None:
        self.source = Source(text)
        self.text = text
        self.report = report
        self.index = 0
        self.count = 0
        self.open: list[Node] = []
        self.key: tuple[str, int] | None = None
        self.root: Node | None = None

    def compose(self) -> Node:
        self._value()
        while self.open:
            holder = self.open[-1].value
            closing = "}" if isinstance(holder, dict) else "]"
            char = self._space()
            if char == closing:
                self.index += 1
                self.open.pop()
                continue
            if holder:
                self._comma(char, closing)
            if closing == "}":
                self._read_key()
            self._value()
        self._space()
        if self.index < len(self.text):
            raise self._wrong("more text after the end of the JSON value", "one file holds one definition")
        if self.root is None:
            raise self._wrong("the file is empty")
        return self.root

    def _wrong(self, message: str, hint: str = "", index: int = -1, code: str = "json") -> TooWrong:
        return self.report.stop(self.source.place(self.index if index < 0 else index), code, message, hint)

    def _space(self) -> str:
        match = _SPACE.match(self.text, self.index)
        self.index = match.end() if match else self.index
        return self.text[self.index : self.index + 1]

    def _comma(self, char: str, closing: str) -> None:
        if char != ",":
            what = f"a comma or {closing} is missing before this" if char else f"{closing} is missing at the end"
            raise self._wrong(what)
        comma = self.index
        self.index += 1
        if self._space() == closing:
            raise self._wrong(f"a comma before {closing}", "JSON has no trailing comma; remove it", comma)

    def _read_key(self) -> None:
        char = self._space()
        start = self.index
        if char != '"':
            hint = "keys are in double quotes; a file that begins with { is read as JSON"
            raise self._wrong("a key in double quotes is missing here", hint)
        self.key = (self._string(), start)
        if self._space() != ":":
            raise self._wrong("a colon is missing after the key")
        self.index += 1

    def _value(self) -> None:
        char = self._space()
        start = self.index
        self.count += 1
        if self.count > MOST_NODES:
            raise self._wrong(f"the file has more than {MOST_NODES:,} values", "split the workflow", code="size")
        if char in {"{", "["}:
            if len(self.open) >= DEEPEST:
                raise self._wrong(f"nested more than {DEEPEST} levels deep", code="depth")
            self.index += 1
            node = Node({} if char == "{" else [], *self.source.place(start))
            self._put(node)
            self.open.append(node)
            return
        value = self._string() if char == '"' else self._literal(char)
        self._put(Node(value, *self.source.place(start), span=Span(self.source, start, self.index, "json")))

    def _put(self, node: Node) -> None:
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        if self.key is None:
            node.under(parent, len(parent.value))
            parent.value.append(node)
            return
        (key, index), self.key = self.key, None
        node.under(parent, key, *self.source.place(index))
        if key in parent.value:
            first = parent.value[key]
            message = f"the key {shown(key)} is written twice; first at {described(first.key_place)}"
            self.report.at(node, "duplicate_key", message, "keep one of them", key=True)
        else:
            parent.value[key] = node

    def _string(self) -> str:
        start = self.index
        match = _STRING.match(self.text, start)
        if match is None:
            raise self._broken_string(start)
        self.index = match.end()
        text = match[1]
        if "\\" in text:
            text = _ESCAPE.sub(lambda escape: self._escaped(escape, start), text)
        if _SURROGATE.search(text):
            message = "half of a character (a lone surrogate) in this text"
            raise self._wrong(message, "remove it, or write the pair", start)
        return text

    def _escaped(self, escape: re.Match[str], start: int) -> str:
        high, low, simple = escape.groups()
        if simple is not None:
            if simple not in _SIMPLE:
                place = start + 1 + escape.start()
                raise self._wrong(f"\\{simple} is no escape of JSON", 'a backslash is written "\\\\"', place)
            return _SIMPLE[simple]
        code = int(high, 16)
        if low is None:
            return chr(code)
        if 0xD800 <= code < 0xDC00:
            return chr(0x10000 + ((code & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
        return chr(code) + chr(int(low, 16))

    def _broken_string(self, start: int) -> TooWrong:
        control = re.compile(r'[\x00-\x1f"]').search(self.text, start + 1)
        if control and control[0] != '"':
            hint = "write a line break as \\n, or close the text before it"
            return self._wrong("a control character or line break inside a text", hint, control.start())
        return self._wrong("this text is not closed", "add the closing double quote", start)

    def _literal(self, char: str) -> Json:
        start = self.index
        match = _WORD.match(self.text, start)
        word = match[0] if match else ""
        if word in _WORDS:
            self.index += len(word)
            return _WORDS[word]
        number = _NUMBER.fullmatch(word)
        if number and len(word) <= LONGEST_NUMBER:
            self.index += len(word)
            if number[1] is None and number[2] is None:
                return int(word)
            if math.isfinite(value := float(word)):
                return value
        if not char:
            raise self._wrong("the text ends where a value should be")
        raise self._no_value(word or char, start)

    def _no_value(self, word: str, start: int) -> TooWrong:
        if word.lstrip("+-") in {"NaN", "Infinity"} or _NUMBER.fullmatch(word):
            return self._wrong(f"{shown(word)} is no number of JSON", "quote it to keep it as text", start, "number")
        if word.lower() in {"true", "false", "null", "none"}:
            return self._wrong(f"{shown(word)} is not JSON", "write true, false or null", start)
        if word in {"/", "#"}:
            return self._wrong("JSON has no comments", "use YAML for a file with comments", start)
        if word in {",", "]", "}"}:
            return self._wrong(f"a value is missing before {word}", "", start)
        return self._wrong(f"{shown(word)} is not a JSON value", "text is in double quotes", start)
