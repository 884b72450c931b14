"""
Cuts an expression into tokens, alone or from inside a template up to its own `}}`.

The lexer is contextual in two places: after a dot a word is a field name (keywords included) and digits are an index;
directly after `step.` and `steps.` a name may contain hyphens.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from .errors import Fault
from .limits import BRACKET_DEPTH, NUMBER_CHARS, SOURCE_CHARS

Token: TypeAlias = tuple[str, Any, int]
"""(kind, value, offset); the kind of a punctuation mark or word operator is its canonical spelling, the others are
name, word (a field), tick (a field in backticks), idx (an index after a dot), lit (a literal), end."""

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
      (?P<raw>r"[^"]*"|r'[^']*')
    | (?P<name>[^\W\d]\w*)
    | (?P<op>&&|\|\||[=!<>]=|\?\?|\?\.|[-+*/%<>!?:,.()\[\]|])
    | (?P<num>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    | (?P<str>"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')
    | (?P<brace>[{}])
    )""",
    re.VERBOSE | re.DOTALL,
)
_SEGMENT = re.compile(r"[ \t\r\n]*(?:(?P<word>[^\W\d]\w*)|(?P<idx>[0-9]+)|(?P<tick>`[^`]*`))")
_STEP_ID = re.compile(r"(?P<word>\w+(?:-\w+)*)|(?P<tick>`[^`]*`)")
_BLANK = re.compile(r"[ \t\r\n]*")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_WORDS: dict[str, Token] = {
    "and": ("&&", "and", 0),
    "or": ("||", "or", 0),
    "not": ("not", "not", 0),
    "in": ("in", "in", 0),
    "true": ("lit", True, 0),
    "false": ("lit", False, 0),
    "null": ("lit", None, 0),
    "True": ("lit", True, 0),
    "False": ("lit", False, 0),
    "None": ("lit", None, 0),
}
_MEANT = {"=": "comparison is '=='", "&": "and is '&&'", "~": "", ";": "", "#": "there are no comments"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_STEP_ROOTS = ("step", "steps")


def tokenize(text: str, start: int = 0, *, live: bool = False) -> tuple[list[Token], int]:
    """
    The tokens of `text` from `start` to its end, or (`live`) to the `}}` that closes the reference.

    Returns them with an end token, and the offset after what was read. Raises Fault (syntax, limit).
    """
    try:
        return _Lexer(text, start, live=live).run()
    except Fault as fault:
        if live and fault.code == "syntax" and text.find("}}", start) < 0:
            raise _unclosed(text, start) from None
        raise


class _Lexer:
    __slots__ = ("limit", "live", "open", "pos", "start", "text", "tokens")

    def __init__(self, text: str, start: int, *, live: bool) -> None:
        self.text = text
        self.start = start
        self.pos = start
        self.live = live
        self.limit = min(len(text), start + SOURCE_CHARS + 2)
        self.open: list[str] = []
        self.tokens: list[Token] = []

    def run(self) -> tuple[list[Token], int]:
        text, limit, tokens, match = self.text, self.limit, self.tokens, _TOKEN.match
        pos = self.start
        while (found := match(text, pos, limit)) is not None:
            group = found.lastgroup
            value = found[group]  # type: ignore[index]  # every alternative of the pattern is named
            pos = found.end()
            at = pos - len(value)
            if group == "name":
                word = _WORDS.get(value)
                tokens.append(("name", value, at) if word is None else (word[0], word[1], at))
            elif group == "op":
                tokens.append((value, value, at))
                if value == "." or value == "?.":  # noqa: PLR1714  # two comparisons are faster than a tuple here
                    pos = self._segment(pos)
                elif value in "()[]":
                    self._bracket(value, at)
            elif group == "brace":
                if value == "}" and not self.open:
                    return self._close(at)
                tokens.append((value, value, at))
                self._bracket(value, at)
            else:
                tokens.append(("lit", _literal(group, value, at), at))
        return self._finish(pos)

    def _bracket(self, mark: str, at: int) -> None:
        closing = _CLOSING.get(mark)
        if closing is not None:
            self.open.append(closing)
            if len(self.open) > BRACKET_DEPTH:
                raise Fault("limit", f"brackets are nested deeper than {BRACKET_DEPTH}", at)
        elif not self.open:
            raise Fault("syntax", f"unexpected '{mark}'", at)
        elif (expected := self.open.pop()) != mark:
            raise Fault("syntax", f"missing '{expected}'", at)

    def _segment(self, pos: int) -> int:
        tokens = self.tokens
        is_step = (
            len(tokens) >= 2
            and tokens[-2][0] == "name"
            and tokens[-2][1] in _STEP_ROOTS
            and tokens[-2][2] + len(tokens[-2][1]) + len(tokens[-1][1]) == pos
        )
        found = (_STEP_ID.match(self.text, pos, self.limit) if is_step else None) or _SEGMENT.match(
            self.text, pos, self.limit
        )
        if found is None:
            return pos
        group = found.lastgroup
        value = found[group]  # type: ignore[index]  # every alternative of the pattern is named
        at = found.end() - len(value)
        if group == "tick":
            tokens.append(("tick", value[1:-1], at))
        elif group == "idx":
            if len(value) > NUMBER_CHARS:
                raise Fault("syntax", f"a number of more than {NUMBER_CHARS} digits", at)
            tokens.append(("idx", int(value), at))
        else:
            tokens.append(("word", value, at))
        return found.end()

    def _close(self, at: int) -> tuple[list[Token], int]:
        if not self.live or not self.text.startswith("}}", at):
            raise Fault("syntax", "unexpected '}'", at)
        if at - self.start > SOURCE_CHARS:
            raise _too_long(at)
        self.tokens.append(("end", "}}", at))
        return self.tokens, at + 2

    def _finish(self, pos: int) -> tuple[list[Token], int]:
        text = self.text
        blank = _BLANK.match(text, pos, self.limit)
        pos = blank.end() if blank else pos
        if pos - self.start > SOURCE_CHARS:
            raise _too_long(pos)
        if pos < len(text):
            raise _unexpected(text, pos)
        if self.live:
            raise _unclosed(text, self.start)
        self.tokens.append(("end", "", pos))
        return self.tokens, pos


def _too_long(at: int) -> Fault:
    return Fault("limit", f"the expression is longer than {SOURCE_CHARS} characters", at)


def _unclosed(text: str, start: int) -> Fault:
    end = text.find("\n", start)
    return Fault("syntax", "missing '}}'", len(text) if end < 0 else end, "close the reference or escape it as \\{{")


def _unexpected(text: str, pos: int) -> Fault:
    char = text[pos]
    if char in "\"'" or (char == "r" and text[pos + 1 : pos + 2] in ('"', "'")):
        return Fault("syntax", "the string is not closed", pos)
    if char == "`":
        return Fault("syntax", "a name in backticks stands after a dot", pos, "write  x.`name`")
    if char.isascii() and char.isprintable():
        return Fault("syntax", f"unexpected '{char}'", pos, _MEANT.get(char, ""))
    from unicodedata import name, normalize

    title = name(char, f"U+{ord(char):04X}")
    ascii_form = normalize("NFKC", char)
    is_wide = len(ascii_form) == 1 and ascii_form.isascii() and ascii_form.isprintable()
    hint = f"use the ASCII '{ascii_form}'" if is_wide else ""
    shown = char if char.isprintable() else f"\\u{ord(char):04x}"
    return Fault("syntax", f"unexpected character '{shown}' ({title})", pos, hint)


def _literal(group: str | None, value: str, at: int) -> Any:
    if group == "num":
        return _number(value, at)
    body = value[2:-1] if group == "raw" else value[1:-1]
    if not body.isascii() and (lone := _SURROGATE.search(body)) is not None:
        raise Fault("syntax", "a lone surrogate is not a character", at + lone.start() + len(value) - len(body) - 1)
    if group == "raw" or "\\" not in body:
        return body
    return _ESCAPE.sub(lambda escape: _unescaped(escape, at + 1), body)


def _unescaped(escape: re.Match[str], at: int) -> str:
    digits = escape[1] or escape[2]
    if digits is None:
        plain = _ESCAPES.get(escape[3])
        if plain is None:
            raise Fault("syntax", f"unknown escape '\\{escape[3]}'", at + escape.start(), 'write  \\\\  or  r"..."')
        return plain
    code = int(digits, 16)
    if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
        raise Fault("syntax", f"U+{code:04X} is not a character", at + escape.start())
    return chr(code)


def _number(digits: str, at: int) -> int | float:
    if len(digits) > NUMBER_CHARS:
        raise Fault("syntax", f"a number of more than {NUMBER_CHARS} characters", at)
    if digits.isdigit():
        return int(digits)
    value = float(digits)
    if value == float("inf"):
        raise Fault("syntax", "the number is too large", at)
    return value
