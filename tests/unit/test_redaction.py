"""Texts without secrets: every common spelling is found, nothing else is touched, and it is quick."""

from __future__ import annotations

import base64
import html
import json
import quopri
import random
import time
import unicodedata
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.adapters.redaction import RedactedStream, Redactor

VALUE = 'CANARY-9f3/"k&<é>+='
MARK = "[secret KEY]"
ONE = Redactor({"KEY": VALUE})


def encodings() -> list[str]:
    raw = VALUE.encode()
    return [
        VALUE,
        VALUE[::-1],
        quote(VALUE),
        quote(VALUE, safe=""),
        quote_plus(VALUE),
        quote(quote(VALUE, safe=""), safe=""),
        "".join(f"%{byte:02X}" for byte in raw),
        "".join(f"%{byte:02x}" for byte in raw),
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(VALUE))[1:-1],
        json.dumps(VALUE).replace("/", "\\/")[1:-1],
        json.dumps(VALUE).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")[1:-1],
        html.escape(VALUE),
        html.escape(VALUE, quote=False),
        "".join(f"&#{ord(letter)};" for letter in VALUE),
        repr(VALUE)[1:-1],
        raw.hex(),
        raw.hex().upper(),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        base64.b64encode(VALUE.encode("utf-16-le")).decode(),
        base64.b64encode(base64.b64encode(b"user:" + raw)).decode(),
        quote(base64.b64encode(raw).decode(), safe=""),
        base64.b64encode(raw).decode().replace("/", "\\/"),
        base64.b32encode(raw).decode(),
        quopri.encodestring(raw).decode(),
        quote(json.dumps({"a": VALUE})),
        quote(json.dumps(json.dumps({"a": VALUE}))),
        json.dumps(json.dumps(json.dumps(VALUE))),
        html.escape(json.dumps(VALUE)),
        VALUE.lower(),
        VALUE.upper(),
        raw.hex(" "),
        raw.hex(":").upper(),
        str(list(raw)),
        repr(raw),
        "\0".join(VALUE),
        VALUE.replace('"', '""'),
        unicodedata.normalize("NFD", VALUE),
    ]


@pytest.mark.parametrize("spelt", encodings())
@pytest.mark.parametrize("around", ["{}", "x{}", "ab {}!", "é中{} end", "xyz{}{}"])
def test_a_secret_is_found_however_it_is_written(spelt: str, around: str) -> None:
    text = around.replace("{}", spelt)
    clean = ONE.text(text)
    assert MARK in clean
    assert spelt not in clean
    assert ONE.text(clean) == clean


@pytest.mark.parametrize("before", ["", "u:", "us:", "user:", "some longer user:"])
@pytest.mark.parametrize("after", ["", "x", "xx", "xxx"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_in_the_middle_of_base64_is_found(before: str, after: str, encode) -> None:
    clean = ONE.text(f"Basic {encode((before + VALUE + after).encode()).decode()}")
    assert MARK in clean
    kept = clean.replace(MARK, "").removeprefix("Basic ")
    assert len(kept) <= len(encode((before + after).encode())) + 8  # letters that hold a few bits of both


def test_lower_case_escapes_are_found() -> None:
    spelt = "".join(part if part[:1] != "%" else part.lower() for part in _parts(quote(VALUE, safe="")))
    assert spelt != quote(VALUE, safe="")
    assert ONE.text(f"?k={spelt}&") == f"?k={MARK}&"
    assert ONE.text(json.dumps(VALUE)[1:-1].replace("\\u00e9", "\\u00E9")) == MARK


def _parts(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text):
        width = 3 if text[at] == "%" else 1
        found.append(text[at : at + width])
        at += width
    return found


def test_json_is_walked_keys_and_numbers_too() -> None:
    many = Redactor({"KEY": VALUE, "PIN": "4711471147"})
    dirty = {"a": [VALUE, 1, None, True], VALUE: {"b": f"x{VALUE}"}, MARK: 2, "pin": 4711471147, "near": 47114711470}
    assert many.json(dirty) == {
        "a": [MARK, 1, None, True], MARK: {"b": f"x{MARK}"}, f"{MARK}'": 2, "pin": "[secret PIN]", "near": 47114711470
    }  # fmt: skip
    clean = {"a": ["CANARY", 47.5]}
    assert many.json(clean) is clean


def test_a_value_and_its_text_stay_one() -> None:
    dirty = {"a": VALUE}
    value, text = ONE.result(dirty, msgspec.json.encode(dirty))
    assert value == {"a": MARK}
    assert msgspec.json.decode(text) == value


def test_overlapping_secrets_leave_nothing_of_each_other() -> None:
    both = Redactor({"LONG": "abcdefgh-12345678", "SHORT": "12345678-zyx"})
    assert both.text("<abcdefgh-12345678-zyx>") == "<[secret LONG]>"
    inner = Redactor({"ALL": "prefix-secret-suffix", "PART": "secret"})
    assert inner.text("prefix-secret-suffix secret") == "[secret ALL] [secret PART]"
    assert inner.text("[secret ALL]") == "[secret ALL]"  # the word is no secret there


def test_every_line_of_a_key_of_many_lines_is_a_secret() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQC7\n-----END KEY-----"
    one = Redactor({"PEM": key})
    assert one.text(f"x {key}") == "x [secret PEM]"
    assert one.text("line 2: MIIEvQIBADANBgkqhkiG9w0BAQEF") == "line 2: [secret PEM]"
    assert one.text(json.dumps(key)) == '"[secret PEM]"'


@pytest.mark.parametrize(
    ("value", "echo"),
    [
        ("abcdefgh1234\n", "abcdefgh1234"),
        (" abcdefgh1234", "abcdefgh1234"),
        ("Bearer tok_123456789abc", "tok_123456789abc"),
        ("ana:hunter22pass", "hunter22pass"),
        ("postgres://ana:p%40ssw0rd-1@db/main", "p@ssw0rd-1"),
        ("postgres://ana:p%40ssw0rd-1@db/main", "p%40ssw0rd-1"),
        ("pässwört", repr("pässwört".encode())),
    ],
)
def test_what_a_secret_is_put_together_of_is_secret(value: str, echo: str) -> None:
    assert echo not in Redactor({"KEY": value}).text(f"<{echo}>")


def test_a_secret_of_digits_is_found_as_a_number_and_others_are_left() -> None:
    digits = Redactor({"PIN": "0012345678"})
    assert digits.json([12345678, -12345678, 12345678.0, 912345678, True]) == [*["[secret PIN]"] * 3, 912345678, True]
    words = Redactor({"A": "true", "B": "null", "C": "1234"})
    kept = {"a": True, "b": None, "c": 12345, "d": [1, 2, 3, 4], "e": 1.234}
    assert words.json(kept) == kept


def test_a_list_of_the_bytes_of_a_secret_is_found() -> None:
    data = {"type": "Buffer", "data": [1, 2, *VALUE.encode(), 3], "other": [67, 65, 78]}
    assert ONE.json(data) == {"type": "Buffer", "data": [MARK], "other": [67, 65, 78]}


@pytest.mark.parametrize("spelt", [VALUE, quote(VALUE, safe=""), base64.b64encode(VALUE.encode()).decode()])
@pytest.mark.parametrize("around", ["{}", "said: {}", "it ended ({})", "{}…", "{} … and more"])
def test_a_secret_that_a_failure_was_cut_off_in_is_no_longer_there(spelt: str, around: str) -> None:
    for cut in range(8, len(spelt)):
        assert spelt[:8] not in ONE.failure({"message": around.replace("{}", f"x={spelt[:cut]}")})["message"]
    for cut in range(1, len(spelt) - 8):
        assert spelt[-8:] not in ONE.failure({"message": around.replace("{}", f"{spelt[cut:]} x")})["message"]


def test_what_only_begins_like_a_secret_is_left_in_a_failure() -> None:
    said = {
        "message": f"{VALUE[:8]} is no name, {VALUE[:9]!r} neither, nor a{VALUE[-9:]} (CANARY)",
        "detail": [VALUE[:4]],
    }
    assert ONE.failure(said) == said


def test_many_marks_and_many_secrets_take_no_quadratic_time() -> None:
    text = f"{MARK} {VALUE} " * 16_000
    begun = time.perf_counter()
    assert ONE.text(text) == f"{MARK} {MARK} " * 16_000
    assert time.perf_counter() - begun < 15  # half a minute and more when it was quadratic, now a tenth of a second


def test_texts_that_are_too_short_to_be_told_from_others_are_left_alone() -> None:
    assert Redactor({"A": "abc", "B": ""}).text("abc abc") == "abc abc"
    assert not Redactor({})
    assert Redactor({"A": "1234"}).text("pin 1234.") == "pin [secret A]."


def test_printing_a_redactor_shows_no_secret() -> None:
    assert "CANARY" not in repr(ONE)


@given(st.text(), st.lists(st.text(min_size=4, max_size=12), min_size=1, max_size=4), st.data())
def test_nothing_of_a_secret_is_left_and_twice_is_once(filler: str, values: list[str], data) -> None:
    redactor = Redactor({f"S{index}": value for index, value in enumerate(values)})
    text = filler.join(data.draw(st.permutations(values)))
    clean = redactor.text(text)
    assert redactor.text(clean) == clean
    rest = clean
    for index in range(len(values)):
        rest = rest.replace(f"[secret S{index}]", "\0")
    assert all(value not in rest for value in values if "\0" not in value)


@given(st.lists(st.integers(1, 7)), st.sampled_from(["", "x", "CANA", "CANARY-9f", VALUE[:7]]))
def test_a_stream_in_parts_gives_what_the_whole_text_gives(cuts: list[int], between: str) -> None:
    text = f"say {VALUE}{between}{VALUE} and {between} {quote(VALUE)} CANAR"
    told: list[str] = []
    stream = RedactedStream(ONE, told.append)
    at = 0
    for width in [*cuts, len(text)]:
        stream.feed(text[at : at + width])
        at += width
        assert "CANARY-9f3" not in "".join(told)
    stream.end()
    assert "".join(told) == ONE.text(text)


def test_a_stream_holds_back_nothing_that_cannot_be_a_secret() -> None:
    told: list[str] = []
    stream = ONE.stream(told.append)
    stream.feed("Hello world. ")
    assert told == ["Hello world. "]
    stream.feed("C")
    stream.feed("at")
    assert "".join(told) == "Hello world. Cat"


def test_a_large_value_is_searched_quickly() -> None:
    chance = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
    many = Redactor({f"S{at}": "".join(chance.choices(letters, k=32)) + "/+" for at in range(20)})
    rows = [{"id": at, "text": " ".join(chance.choices(["refund", "%20", '"q"', "é", "a/b?c=d"], k=25))}
            for at in range(8000)]  # fmt: skip
    text = msgspec.json.encode(rows)
    assert len(text) > 1_000_000
    begun = time.perf_counter()
    value, _ = many.result(rows, text)
    assert value is rows
    assert time.perf_counter() - begun < 3  # about 25 ms; this bound only tells a search that went quadratic
