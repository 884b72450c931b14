"""What is expected of an output, as it is written in the tests of recipes and in tables of examples.

    {label: refund}                          the field is equal; what is not named is right
    {amount: {min: 10, max: 20}}             a number between these, both included
    {reply: {contains: [sorry, refund]}}     a text with each of them, whatever their case; a list with each element
    {reference: {matches: "^R-[0-9]+$"}}     a text in which the pattern (RE2) occurs
    {label: {one_of: [refund, billing]}}     equal to one of these
    {bounds: {equals: {min: 10}}}            equal, for an object that looks like a comparison

The law of the file: every difference is told, and none hides another; nothing here knows what a model is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from stepwell.definition.positions import Location
from stepwell.expressions.errors import Fault
from stepwell.expressions.patterns import compiled

Json: TypeAlias = Any
Same: TypeAlias = Callable[[Json, Json], bool]

COMPARISONS = ("equals", "one_of", "min", "max", "contains", "matches")


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Json = _Absent()
"""Where the output does not have a field."""


@dataclass(frozen=True, slots=True)
class Unlike:
    """A part of an output that is not as expected. `where` leads to it in the output and in the expectation."""

    where: Location
    expected: Json
    found: Json

    @property
    def field(self) -> str:
        return ".".join(map(str, self.where)) or "the output"


def is_comparison(expected: Json) -> bool:
    """Whether an expectation compares in words rather than being a value."""
    return isinstance(expected, dict) and bool(expected) and all(word in COMPARISONS for word in expected)


def same(one: Json, other: Json) -> bool:
    """Equality of JSON, in which true is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def unlike(expected: Json, found: Json, where: Location = (), *, equal: Same = same) -> Iterator[Unlike]:
    """How a value differs from what is expected of it; an object may have more than is expected."""
    if is_comparison(expected):
        if found is ABSENT or not _holds(expected, found, equal):
            yield Unlike(where, expected, found)
    elif isinstance(expected, dict) and isinstance(found, dict):
        for name in expected:
            yield from unlike(expected[name], found.get(name, ABSENT), (*where, name), equal=equal)
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from unlike(one, other, (*where, index), equal=equal)
    elif found is ABSENT or not equal(expected, found):
        yield Unlike(where, expected, found)


def _holds(comparison: dict[str, Json], found: Json, equal: Same) -> bool:
    return all(_compared(word, wanted, found, equal) for word, wanted in comparison.items())


def _compared(word: str, wanted: Json, found: Json, equal: Same) -> bool:
    match word:
        case "equals":
            return equal(wanted, found)
        case "one_of":
            return any(equal(one, found) for one in wanted)
        case "min":
            return is_number(found) and found >= wanted
        case "max":
            return is_number(found) and found <= wanted
        case "contains":
            return _contains(found, wanted if isinstance(wanted, list) else [wanted], equal)
        case _:
            return isinstance(found, str) and _found_in(found, wanted)


def _contains(found: Json, wanted: list[Json], equal: Same) -> bool:
    if isinstance(found, str):
        folded = found.casefold()
        return all(str(one).casefold() in folded for one in wanted)
    return isinstance(found, list) and all(any(equal(one, element) for element in found) for one in wanted)


def _found_in(text: str, pattern: str) -> bool:
    return compiled(pattern).search(text.encode("utf-8", "replace").decode()) is not None


def is_number(value: Json) -> bool:
    """Whether a value is a number of JSON, in which true is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def mistakes(expected: Json, where: Location = ()) -> Iterator[tuple[Location, str, str]]:
    """What is wrong with comparisons, whatever they are compared with: place, message and hint."""
    if is_comparison(expected):
        for word, wanted in expected.items():
            yield from _mistake(word, wanted, (*where, word))
        if is_number(low := expected.get("min")) and is_number(high := expected.get("max")) and low > high:
            yield where, f"no number is at least {low} and at most {high}", ""
    elif isinstance(expected, dict):
        for name, inner in expected.items():
            yield from mistakes(inner, (*where, name))
    elif isinstance(expected, list):
        for index, inner in enumerate(expected):
            yield from mistakes(inner, (*where, index))


def _mistake(word: str, wanted: Json, where: Location) -> Iterator[tuple[Location, str, str]]:
    if word in {"min", "max"} and not is_number(wanted):
        yield where, f"`{word}` is a number", "for an object that has this field, write equals: {...}"
    elif word == "one_of" and (not isinstance(wanted, list) or not wanted):
        yield where, "`one_of` is a list of values", "one_of: [refund, billing]"
    elif word == "contains" and wanted in ("", [], None):
        yield where, "`contains` is a text, or a list of what is to be there", "contains: [sorry, refund]"
    elif word == "matches":
        if not isinstance(wanted, str):
            yield where, "`matches` is a pattern, a text", 'matches: "^R-[0-9]+$"'
            return
        try:
            compiled(wanted)
        except Fault as fault:
            yield where, fault.message, "patterns are those of RE2"
