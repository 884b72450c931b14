"""From a model's answer to the value that was asked for (LANGUAGE, Recipes).

The law of the file: time is linear in the answer, whatever it holds; what was cut off in the middle is never taken for
a value, not even the complete parts inside it.

An answer is parsed whole; else the balanced JSON values and fenced blocks in it are tried, and the last that fits the
schema wins. The scanner follows RFC 8259 with one allowance: raw line breaks inside strings, which models write.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

from stepwell.errors import StepFailed

Json: TypeAlias = Any

KEPT = 64_000
"""Characters of a wrong answer that are kept in the failure's detail."""
TRIED = 1_000
"""Candidates of one answer that are held against the schema, from the last backwards."""
NAMED = 8
"""Problems that are named for one candidate."""

_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:
        (?P<text>"(?:[^"\\]++|\\.)*+")
      | (?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)
      | (?P<word>true|false|null)
      | (?P<mark>[\[\]{}:,])
    )""",
    re.VERBOSE | re.DOTALL,
)
_BRACKET = re.compile(r"""\{(?=[ \t\r\n]*+(?:["}]|\Z))|\[(?=[ \t\r\n]*+(?:["\[\]{0-9tfn-]|\Z))""")
_BLANK = re.compile(r"[ \t\r\n]*+")
_FENCE = re.compile(r"^[ \t]*+(?:```[^\n`]*+|~~~[^\n~]*+)$", re.MULTILINE)
_THOUGHT = re.compile(r"^[ \t]*+<think(?:ing)?>|</think(?:ing)?>", re.MULTILINE)
_CUT = re.compile(r'(?:".*|tr?u?|fa?l?s?|nu?l?|-|[.eE][+-]?)?\Z', re.DOTALL)


class _NotJsonError(ValueError):
    pass


def _no_constant(word: str) -> Json:
    raise _NotJsonError(f"{word} is not JSON")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise _NotJsonError(f"{text} is too large a number")
    return number


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """An object in which no key stands twice with different values: nobody knows which of them is meant."""
    made = dict(pairs)
    if len(made) < len(pairs):
        for key, value in pairs:
            if made[key] != value:
                raise _NotJsonError(f"the key {key[:80]!r} stands twice in one object, with different values")
    return made


_DECODER = json.JSONDecoder(strict=False, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_object)


def decoded(text: str) -> tuple[bool, Json]:
    """Whether `text` is one JSON value, and the value, or why it is none; integers keep every digit."""
    try:
        return True, _DECODER.decode(text)
    except _NotJsonError as error:
        return False, str(error)
    except (ValueError, RecursionError):
        return False, ""


@dataclass(slots=True)
class _Scan:
    """Balanced JSON values of a text.

    `ends` remembers for every bracket that was read as the beginning of a value where the value ends, or -1. A value
    reads the same wherever it stands, so no bracket is read twice; that keeps restarts after a failure linear.
    """

    text: str
    ends: dict[int, int] = field(default_factory=dict)
    cut: bool = False

    def spans(self) -> Iterator[tuple[int, int]]:
        """The outermost values, first to last; sets `cut` if the text ends inside of one, and stops there."""
        position = 0
        while found := _BRACKET.search(self.text, position):
            start = found.start()
            if start not in self.ends:
                self._read(start)
            if self.cut:
                return
            end = self.ends[start]
            if end >= 0:
                yield start, end
            position = max(end, start + 1)

    def _read(self, start: int) -> None:
        """Read the value that begins at `start` by a stack of open brackets; fills `ends` for all that is inside."""
        stack: list[int] = []
        wants = "value"
        at = start
        while True:
            token = _TOKEN.match(self.text, at)
            if token is None:
                self._fail(stack, at)
                return
            at = token.end()
            if token.lastgroup == "mark" and token["mark"] in "[{" and wants in {"value", "item"}:
                opened = at - 1
                known = self.ends.get(opened)
                if known is None:
                    stack.append(opened)
                    wants = "key" if token["mark"] == "{" else "item"
                    continue
                if known < 0:
                    self._close(stack)
                    return
                at = known
                wants = "next"
                continue
            after = self._after(token, wants, stack, at)
            if after is None:
                self._close(stack)
                return
            wants = after
            if not stack:
                return

    def _after(self, token: re.Match[str], wants: str, stack: list[int], at: int) -> str | None:
        """What is wanted after a token that opens nothing; None if it may not stand here."""
        match token.lastgroup, wants:
            case "text", "key" | "name":
                return "colon"
            case (("text" | "number" | "word"), ("value" | "item")):
                return "next"
            case _, _:
                pass
        mark = token["mark"]
        inside = self.text[stack[-1]]
        if mark == ":" and wants == "colon":
            return "value"
        if mark == "," and wants == "next":
            return "name" if inside == "{" else "value"
        closes = (mark == "}" and inside == "{" and wants in {"key", "next"}) or (
            mark == "]" and inside == "[" and wants in {"item", "next"}
        )
        if not closes:
            return None
        self.ends[stack.pop()] = at
        return "next"

    def _close(self, stack: list[int]) -> None:
        self.ends.update(dict.fromkeys(stack, -1))

    def _fail(self, stack: list[int], at: int) -> None:
        rest = _BLANK.match(self.text, at)
        self.cut = bool(_CUT.match(self.text, rest.end() if rest else at))
        self._close(stack)


def _fenced(text: str) -> Iterator[tuple[int, str]]:
    """Where each fenced block ends, and what it holds; a block that is not closed by its own mark is not one."""
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        line = fence[0].strip()
        if opened is None:
            opened = fence
        elif line[:3] == opened[0].strip()[:3]:
            bare = not line.strip(line[0])
            if bare:
                yield fence.start(), text[opened.end() : fence.start()]
            opened = None if bare else fence


def _candidates(text: str) -> tuple[list[Json], list[str], bool]:
    """The values in `text`, the last first; why others are none; and whether the text ends in the middle of one."""
    scan = _Scan(text)
    found = [(end, start, text[start:end]) for start, end in scan.spans()]
    limit = max((end for end, _, _ in found), default=0) if scan.cut else len(text)
    found += [(end, -1, block.strip()) for end, block in _fenced(text) if end <= limit]
    found.sort(key=lambda part: part[:2], reverse=True)
    read = [decoded(part) for _, _, part in found[:TRIED]]
    values = [value for good, value in read if good]
    return values, [why for good, why in read if not good and why], scan.cut


def _spoken(text: str) -> str:
    """The answer without what the model thought aloud before it; a thought that does not end hides all that follows.

    A thought begins at the beginning of a line, or before the answer where only its end is marked.
    """
    parts, at, thinking = [], 0, False
    for mark in _THOUGHT.finditer(text):
        if "/" not in mark[0]:
            if not thinking:
                parts.append(text[at : mark.start()])
            thinking = True
        elif thinking or not parts:
            parts.append("")
            thinking, at = False, mark.end()
    return "".join([*parts, "" if thinking else text[at:]])


def problems_of(value: Json, schema: Mapping[str, Json]) -> list[str]:
    """What is wrong with `value` under a JSON Schema (2020-12, formats included), as sentences; at most `NAMED`.

    Raises StepFailed("validation_error") if the schema itself cannot be used. Nothing is ever fetched for a `$ref`.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError, UndefinedTypeCheck, UnknownType
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import EMPTY_REGISTRY

    validator = Draft202012Validator(
        schema, format_checker=Draft202012Validator.FORMAT_CHECKER, registry=EMPTY_REGISTRY
    )
    try:
        errors = list(islice(validator.iter_errors(value), NAMED))
    except (SchemaError, UnknownType, UndefinedTypeCheck, Unresolvable, RecursionError, re.error) as error:
        raise StepFailed("validation_error", f"the output schema cannot be used: {error}"[:500]) from None
    return [_sentence(list(error.absolute_path), error.message) for error in errors]


def _sentence(where: list[str | int], message: str) -> str:
    place = "".join(f"/{part}" for part in where)
    text = message if len(message) <= 300 else f"{message[:200]} … {message[-80:]}"
    return f"{place}: {text}" if place else text


def parse_answer(text: str, schema: Mapping[str, Json], *, finish_reason: str = "stop") -> Json:
    """The value in a model's answer that fits `schema`.

    Raises StepFailed: "truncated_output" if the answer was cut (`finish_reason` is "length") and holds no whole value
    that fits, or ends inside one; "output_invalid" if nothing fits. `detail` keeps `answer`, `problems` and
    `finish_reason`.
    """
    good, value = decoded(text.strip().lstrip("\ufeff"))
    problems = _wrong_with(value, schema) if good else [value] if value else []
    if good and not problems:
        if finish_reason == "length" and _may_go_on(value):
            raise _failure(text, ["the number may have been cut"], finish_reason)
        return value
    if good and isinstance(value, str):  # written as JSON twice
        twice, inner = decoded(value)
        if twice and not _wrong_with(inner, schema):
            return inner
    candidates, reasons, cut = _candidates(_spoken(text))
    was_cut = cut and finish_reason == "length"
    # Empty brackets in prose mean nothing: they are an answer only where there is no other.
    for candidate in () if was_cut else sorted(candidates, key=_is_hollow):
        found = _wrong_with(candidate, schema)
        if not found:
            return candidate
        problems = problems or found
    raise _failure(text, problems or reasons[:1] or [_nothing(text, cut=cut)], finish_reason)


def _wrong_with(value: Json, schema: Mapping[str, Json]) -> list[str]:
    """The problems of a candidate; small models give the schema back, which fits a schema that requires nothing."""
    if value == schema and "properties" in schema:
        return ["the answer is the schema itself, not a value that fits it"]
    return problems_of(value, schema)


def _is_hollow(value: Json) -> bool:
    return value in ([], {})


def _may_go_on(value: Json) -> bool:
    """Whether a value that the end of the text ends could have been longer: of all JSON only a number can."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _nothing(text: str, *, cut: bool) -> str:
    if not text.strip():
        return "the answer is empty"
    return "the answer ends in the middle of a JSON value" if cut else "the answer holds no JSON"


def _failure(text: str, problems: list[str], finish_reason: str) -> StepFailed:
    detail: dict[str, Json] = {"answer": text[:KEPT], "problems": problems, "finish_reason": finish_reason}
    if len(text) > KEPT:
        detail["answer_length"] = len(text)
    if finish_reason == "length":
        return StepFailed(
            "truncated_output", "the answer was cut at the model's limit of tokens; raise max_tokens", detail=detail
        )
    return StepFailed("output_invalid", f"the answer does not fit the output schema: {problems[0]}", detail=detail)
