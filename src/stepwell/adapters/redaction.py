"""Redaction: texts without the values of secrets, in whatever common spelling these stand there.

The law of the file: what holds no secret comes back as the same object, quickly; what was redacted once stays as it is;
the parts of a stream are searched as if they were one text.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from stepwell.adapters.spellings import SHORTEST, spellings

Json: TypeAlias = Any

_WORD = 4
_STUMP = 8
"""Characters of a secret from which a piece of it is told, where a text was cut."""
_CUT = re.compile(r"\)*\Z|…| …")
_BEHIND = re.compile(r"(?:\A|[:|…(] ?)\Z")
"""What comes after a piece of a text whose end was cut off, and before one whose beginning was."""
_encode = msgspec.json.Encoder().encode


class Redactor:
    """Knows secrets by their names. Everything it gives out says `[secret NAME]` in the place of their values."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """Values shorter than `SHORTEST` are left out: they are refused elsewhere."""
        names: dict[str, str] = {}
        for name, value in secrets.items():
            for form in spellings(value) if len(value) >= SHORTEST else ():
                names.setdefault(form, f"[secret {name}]")
        self._markers = names
        self._sorted = sorted(names)
        self._longest = max(map(len, names), default=0)
        self._known = re.compile("|".join(map(re.escape, sorted(set(names.values()))))) if names else None
        self._words: dict[int, list[tuple[bytes, str]]] = {}
        self._short: list[tuple[bytes, str]] = []
        for form in sorted(names):
            for spelt in {form.encode("utf-8", "surrogatepass"), _encode(_plain(form))[1:-1]}:
                self._index(spelt, form)
        self._any = frozenset(self._words)

    def __bool__(self) -> bool:
        return bool(self._markers)

    def __repr__(self) -> str:
        return f"Redactor({len(set(self._markers.values()))} secrets)"

    def text(self, text: str) -> str:
        """`text` with every secret replaced."""
        if not self._markers or len(text) < SHORTEST:
            return text
        found = self._spans(text, self._suspects(text.encode("utf-8", "surrogatepass")))
        return _replaced(text, found) if found else text

    def json(self, value: Json) -> Json:
        """Plain JSON with every secret replaced, in keys too; a number that is a secret becomes text."""
        return self.result(value, _encode(value))[0] if self._markers else value

    def result(self, value: Json, text: bytes) -> tuple[Json, bytes]:
        """The same for a value whose JSON text is at hand."""
        suspects = self._suspects(text) if self._markers else None
        if not suspects:
            return value, text
        clean = self._walked(value, suspects)
        return clean, _encode(clean)

    def failure(self, record: Json) -> Json:
        """A failure's record with every secret replaced, those too in which one of its texts was cut off."""
        return self._mended(self.json(record)) if self._markers else record

    def named(self, value: Json) -> list[str]:
        """The names of the secrets whose values stand in plain JSON."""
        found = {self._markers[form] for form in self._suspects(_encode(value))} if self._markers else set()
        return sorted(marker.removeprefix("[secret ").removesuffix("]") for marker in found)

    def stream(self, tell: Callable[[str], None]) -> RedactedStream:
        """What tells a text that comes in parts, without secrets."""
        return RedactedStream(self, tell)

    # ── finding ──

    def _index(self, spelt: bytes, form: str) -> None:
        """File a spelling under one word of four bytes for each way in which it may lie to such words of a text."""
        if len(spelt) < 2 * _WORD - 1:
            self._short.append((spelt, form))
            return
        middle = (len(spelt) - 2 * _WORD + 1) // 2
        for at in range(middle, middle + _WORD):
            word = int.from_bytes(spelt[at : at + _WORD], sys.byteorder)
            self._words.setdefault(word, []).append((spelt, form))

    def _suspects(self, data: bytes) -> set[str]:
        """The spellings that are in a text. One look at each of its words says of nearly all that they are not."""
        found = {form for spelt, form in self._short if spelt in data}
        words = memoryview(data)[: len(data) // _WORD * _WORD].cast("I")
        for word in self._any.intersection(words):
            found |= {form for spelt, form in self._words[word] if form not in found and spelt in data}
        return found

    def _spans(self, text: str, suspects: set[str]) -> list[tuple[int, int, str]]:
        """Where these spellings lie, in order and apart; what overlaps is one, under the name of the longest."""
        suspects = {form for form in suspects if form in text}
        if not suspects or self._known is None:
            return []
        told = [match.span() for match in self._known.finditer(text)]
        begins = [begin for begin, _ in told]
        found = sorted(
            (start, start + len(form), self._markers[form])
            for form in suspects
            for start in _starts(text, form)
            if not (told and _within(told, begins, start, start + len(form)))
        )
        merged: list[tuple[int, int, str]] = []
        widest = 0
        for start, end, marker in found:
            if merged and start < merged[-1][1]:
                before = merged[-1]
                name = marker if end - start > widest else before[2]
                merged[-1] = before[0], max(end, before[1]), name
                widest = max(widest, end - start)
            else:
                merged.append((start, end, marker))
                widest = end - start
        return merged

    def look(self, text: str) -> tuple[list[tuple[int, int, str]], int]:
        """Where secrets lie in the text of a stream, and where the part of it begins that is to be held back."""
        return self._spans(text, self._suspects(text.encode("utf-8", "surrogatepass"))), self._held(text)

    def _held(self, text: str) -> int:
        """Where the part at the end of a text begins that may be the beginning of a secret; its length for none."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            tail = text[start:]
            at = bisect_left(self._sorted, tail)
            while at < len(self._sorted) and self._sorted[at] == tail:
                at += 1
            if at < len(self._sorted) and self._sorted[at].startswith(tail):
                return start
        return len(text)

    # ── what was cut off ──

    def _mended(self, value: Json) -> Json:
        if isinstance(value, str):
            return _replaced(value, _apart(sorted(self._stumps(value))))
        if isinstance(value, dict):
            return {key: self._mended(inner) for key, inner in value.items()}
        return [self._mended(inner) for inner in value] if isinstance(value, list) else value

    def _stumps(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Where the beginning of a secret stands before a cut, or the end of one behind a cut."""
        for form, marker in self._markers.items():
            least = max(SHORTEST, min(_STUMP, len(form) // 2))
            if form[:least] in text:
                for start in _starts(text, form[:least]):
                    end = start + _alike(form, text[start : start + len(form)])
                    if _CUT.match(text, end):
                        yield start, end, marker
            if form[-least:] in text:
                for at in _starts(text, form[-least:]):
                    end = at + least
                    begin = max(0, end - len(form))
                    start = end - _alike(form[::-1], text[begin:end][::-1])
                    if _BEHIND.search(text, max(0, start - 4), start):
                        yield start, end, marker

    # ── replacing ──

    def _walked(self, value: Json, suspects: set[str]) -> Json:
        if isinstance(value, str):
            return _replaced(value, self._spans(value, suspects))
        if isinstance(value, dict):
            clean: dict[str, Json] = {}
            for key, inner in value.items():
                name = self._walked(key, suspects)
                while name in clean:
                    name = f"{name}'"
                clean[name] = self._walked(inner, suspects)
            return clean
        if isinstance(value, list | tuple):
            hidden = self._bytes(value, suspects)
            return [hidden] if hidden else [self._walked(inner, suspects) for inner in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            whole = int(value) if isinstance(value, float) and value.is_integer() else value
            return self._markers.get(str(value)) or self._markers.get(str(abs(whole)), value)
        return value

    def _bytes(self, value: Sequence[Json], suspects: set[str]) -> str:
        """The marker of a secret whose bytes a list of numbers holds, as some programs write them; "" for none."""
        if len(value) < SHORTEST or not all(type(one) is int for one in value):
            return ""
        text = f",{','.join(map(str, value))},"
        return next((self._markers[form] for form in suspects if "," in form and f",{form}," in text), "")


NOTHING_HIDDEN = Redactor({})


class RedactedStream:
    """A text that comes in parts: what may be the beginning of a secret is held back until more has come."""

    def __init__(self, redactor: Redactor, tell: Callable[[str], None]) -> None:
        self._redactor = redactor
        self._tell = tell
        self._text = ""

    def feed(self, part: str) -> None:
        if not self._redactor:
            self._tell(part)
            return
        text = self._text + part
        spans, held = self._redactor.look(text)
        for start, end, _ in spans:
            if start < held < end:
                held = start
        self._text = text[held:]
        if held:
            self._tell(_replaced(text[:held], [span for span in spans if span[1] <= held]))

    def end(self) -> None:
        """Tell what was held back."""
        text, self._text = self._text, ""
        if text:
            self._tell(self._redactor.text(text))


def _alike(one: str, other: str) -> int:
    """How many letters two texts begin with alike."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _apart(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Sorted places without those that overlap an earlier one; what they share is one."""
    found: list[tuple[int, int, str]] = []
    for start, end, marker in spans:
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1]), found[-1][2]
        else:
            found.append((start, end, marker))
    return found


def _within(told: list[tuple[int, int]], begins: list[int], start: int, end: int) -> bool:
    """Whether a place lies within one that says already which secret was there."""
    at = bisect_right(begins, start) - 1
    return at >= 0 and end <= told[at][1]


def _starts(text: str, form: str) -> Iterator[int]:
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + 1)


def _replaced(text: str, spans: list[tuple[int, int, str]]) -> str:
    if not spans:
        return text
    pieces, done = [], 0
    for start, end, marker in spans:
        pieces += [text[done:start], marker]
        done = end
    return "".join([*pieces, text[done:]])


def _plain(text: str) -> str:
    """Without lone surrogates, which JSON text cannot hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
