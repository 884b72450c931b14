"""Normalising: every Python value becomes plain JSON or is refused with its place."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import math
import sys
import timeit
import types
import uuid
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, RootModel

from stepwell.errors import StepFailed
from stepwell.interpreter.normalise import CONTAINER_LIMIT, LEAF_LIMIT, clean_text, normalise, normalised_json


class Colour(enum.Enum):
    RED = "red"
    DATE = dt.date(2026, 1, 2)


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    YES = "yes"


class Text(str):
    __slots__ = ()

    def __str__(self):
        return "something else"


class Number(int):
    pass


@dataclasses.dataclass
class Money:
    amount: decimal.Decimal
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    inner: Money


class Model(BaseModel):
    when: dt.datetime
    colour: Colour
    money: Money


class Point(NamedTuple):
    x: int
    y: int


NAIVE = dt.datetime.fromisoformat("2026-01-02T03:04:05.000006")
ZONE = dt.timezone(dt.timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (NAIVE, "2026-01-02T03:04:05.000006"),
        (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "2026-01-02T03:04:05+00:00"),
        (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=ZONE), "2026-01-02T03:04:05+02:00"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.time(3, 4), "03:04:00"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (decimal.Decimal("12.30"), "12.30"),
        (decimal.Decimal(7), "7"),
        (decimal.Decimal("1E+30"), "1E+30"),
        (Colour.RED, "red"),
        (Colour.DATE, "2026-01-02"),
        (Level.HIGH, 3),
        (Word.YES, "yes"),
        (Text("kept"), "kept"),
        (Number(7), 7),
        ((1, (2,)), [1, [2]]),
        (Point(1, 2), [1, 2]),
        (Money(decimal.Decimal("0.10"), ("a",)), {"amount": "0.10", "tags": ["a"]}),
        (Slotted(Money(decimal.Decimal(1))), {"inner": {"amount": "1", "tags": []}}),
        (RootModel[list[int]]([1]), [1]),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (2**100, 2**100),
        (-(10**4000), -(10**4000)),
        (1.5, 1.5),
        (0.0, 0.0),
        (False, False),
        (None, None),
        ("", ""),
        ("a\x00b", "a\x00b"),
        ("\ufeffbom", "\ufeffbom"),
        ("\ud800x", "\ufffdx"),
        ("\ud83d\ude00", "😀"),
        ({"\udfff": {"\x00": 1}}, {"\ufffd": {"\x00": 1}}),
        ({Word.YES: 1, Text("k"): 2}, {"yes": 1, "k": 2}),
        ([], []),
        ({}, {}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_becomes_the_json_that_stands_for_it(value, plain):
    found, text = normalised_json(value)
    assert found == plain
    assert type(found) is type(plain)
    assert msgspec.json.decode(text) == plain


def test_a_model_is_walked_by_its_fields():
    model = Model(when=NAIVE, colour=Colour.RED, money=Money(decimal.Decimal("1.0")))
    plain = {"when": "2026-01-02T03:04:05.000006", "colour": "red", "money": {"amount": "1.0", "tags": []}}
    assert normalise({"m": [model]}) == {"m": [plain]}


def generator():
    yield 1


@pytest.mark.parametrize(
    ("value", "path", "said"),
    [
        (b"x", "", "the result is a bytes, which is not JSON; decode it, or return it as base64 text"),
        ({"a": [1, {2, 3}]}, "/a/1", "the value at /a/1 is a set, which is not JSON; a set has no order"),
        ({"a/b~c": {"d": math.nan}}, "/a~1b~0c/d", "is nan, which JSON has no word for"),
        ([math.inf], "/0", "is inf"),
        ([decimal.Decimal("NaN")], "/0", "is NaN"),
        ({"a": {1: 2}}, "/a/1", "is under a key that is not text but int"),
        ({"a": {None: 2}}, "/a/None", "is under a key that is not text but NoneType"),
        ({"a": {(1, 2): 2}}, "/a/(1, 2)", "is under a key that is not text but tuple"),
        ({"a": generator()}, "/a", "is a generator, which is not JSON; return list(...)"),
        ([object()], "/0", "is an object, which is not JSON"),
        ([Money], "/0", "is a type, which is not JSON"),
        ([dt.timedelta(1)], "/0", "return its total_seconds()"),
        ([collections.deque([1])], "/0", "is a deque"),
        ([1j], "/0", "is a complex"),
        ([lambda: 1], "/0", "is a function"),
        ([Money(decimal.Decimal(1), (b"x",))], "/0/tags/0", "is a bytes"),
        (dict.fromkeys(["\ud800", "\udc01"]), "/\ufffd", "is under a key that is there already"),
        ([1 << 20_000], "/0", "is an integer of 20001 bits"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_hold_is_refused_with_its_place(value, path, said):
    with pytest.raises(StepFailed) as caught:
        normalise(value)
    assert caught.value.kind == "output_invalid"
    assert caught.value.detail["path"] == path
    assert said in caught.value.message
    assert not caught.value.retryable
    msgspec.json.encode(caught.value.record())


def test_a_cycle_is_told_with_the_place_where_it_closes():
    value = {"a": [1, {}]}
    value["a"][1]["back"] = value["a"]
    with pytest.raises(StepFailed) as caught:
        normalise(value)
    assert (caught.value.kind, caught.value.detail["path"]) == ("output_invalid", "/a/1/back")
    assert "contains itself" in caught.value.message


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_two_hundred_levels_are_allowed_and_no_more():
    assert normalise(nested(200)) == nested(200)
    for depth in (201, 100_000):
        with pytest.raises(StepFailed) as caught:
            normalise(nested(depth))
        assert caught.value.kind == "output_too_large"
        assert "200 levels" in caught.value.message


def test_depth_is_no_question_of_the_stack_that_is_left():
    limit = sys.getrecursionlimit()

    def deep(left):
        return deep(left - 1) if left else normalise({"a": nested(199)})

    assert deep(limit - 600)["a"] == nested(199)


def test_the_size_is_bounded_and_said():
    fits = "x" * (LEAF_LIMIT - 2)
    assert normalise(fits) == fits
    with pytest.raises(StepFailed) as caught:
        normalise("é" * (LEAF_LIMIT // 2))
    assert caught.value.kind == "output_too_large"
    assert caught.value.detail == {"size": LEAF_LIMIT + 2, "limit": LEAF_LIMIT}
    assert "5,242,882 bytes" in caught.value.message
    assert len(normalise(fits + "x", limit=CONTAINER_LIMIT)) == LEAF_LIMIT - 1


def test_parts_shared_many_times_do_not_explode():
    value = []
    for _ in range(100):
        value = [value, value]
    for large in (value, ["x" * 1_000_000] * 100_000, [None] * 6_000_000):
        with pytest.raises(StepFailed) as caught:
            normalise(large, limit=300_000)
        assert caught.value.kind == "output_too_large"


def test_an_object_that_fails_while_it_is_read_is_the_steps_failure():
    class Broken(collections.abc.Mapping):
        def __getitem__(self, key):
            raise KeyError(key)

        def __iter__(self):
            raise RuntimeError("no")

        def __len__(self):
            return 1

    with pytest.raises(StepFailed) as caught:
        normalise({"a": Broken()})
    assert caught.value.kind == "output_invalid"
    assert "RuntimeError: no" in caught.value.message


def test_the_result_shares_nothing_with_the_value():
    inner = [1]
    value = {"a": inner}
    found = normalise(value)
    inner.append(2)
    value["b"] = 3
    assert found == {"a": [1]}


def test_a_small_result_costs_less_than_two_microseconds_at_its_best():
    value = {"ok": True, "n": 1}
    best = min(timeit.repeat(lambda: normalise(value), number=2000, repeat=20)) / 2000
    assert best < 40e-6  # twenty times the aim: other work on the machine is not to fail this


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_plain_json_stays_as_it_is_and_reads_back_equal(value):
    found, text = normalised_json(value)
    assert found == value
    assert repr(msgspec.json.decode(text)) == repr(found)


anything = st.recursive(
    st.none()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.decimals()
    | st.datetimes()
    | st.uuids()
    | st.complex_numbers()
    | st.sampled_from([Colour.RED, Level.HIGH, Word.YES]),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.frozensets(st.integers())
        | st.dictionaries(st.text(st.characters(exclude_categories=())) | st.integers(), inner)
    ),
    max_leaves=15,
)


@given(anything)
def test_whatever_is_given_ends_as_json_that_reads_back_or_as_a_failure(value):
    failures = []
    try:
        found, text = normalised_json(value)
    except StepFailed as failure:
        failures = [failure.kind]
        msgspec.json.encode(failure.record())
    else:
        assert repr(msgspec.json.decode(text)) == repr(found)
        assert normalise(found) == found
    assert failures in ([], ["output_invalid"])


@given(st.text(st.characters(exclude_categories=())))
def test_cleaned_text_can_be_written_and_other_text_stays(text):
    cleaned = clean_text(text)
    cleaned.encode()
    if not any(0xD800 <= ord(letter) < 0xE000 for letter in text):
        assert cleaned == text
