"""The ways in which a secret may stand in a text: as it is, and as encoders of this world write it.

The law of the file: what programs commonly do to a text on its way into an answer, once or twice, is a spelling of it;
what needs a search of its own (encryption, compression, pieces) is not.
"""

from __future__ import annotations

import base64
import html
import json
import quopri
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import TypeAlias
from urllib.parse import quote, quote_plus, unquote

SHORTEST = 4
"""Characters that a secret must have: a shorter text cannot be told from others."""
LINE = 12
"""Characters from which one line of a secret of several lines is one of its own."""
SHORT = 200
"""Characters up to which a secret is looked for in spellings of spellings of it too."""
PART = 8
"""Characters from which a part of a secret, or the same in capitals, is one of its own."""

Write: TypeAlias = Callable[[str], str]
_HEX = re.compile(r"%[0-9A-F]{2}|\\u[0-9a-f]{4}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9-]{1,15} +(\S+)")
_NESTED: tuple[Write, ...] = (
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(text)[1:-1],
    lambda text: quote(text, safe=""),
    quote,
    html.escape,
)
"""What is done to a text that was written somehow already."""


def spellings(value: str) -> set[str]:
    """Every spelling of at least `SHORTEST` characters."""
    short = len(value) <= SHORT
    found = {nested for once in _written(value) for nested in _nested(once, 2 if short else 1)}
    found |= _encoded(value, again=short)
    for part in _parts(value):
        found |= _written(part) | _encoded(part, again=short)
    found |= {_HEX.sub(lambda match: match[0].swapcase().replace("U", "u"), form) for form in found}
    if len(value) >= PART:
        found |= {value.lower(), value.upper()}
    return {form for form in found if len(form) >= SHORTEST}


def as_numbers(value: str) -> str:
    """The bytes of a text as a list of numbers is written in JSON, without its brackets."""
    return ",".join(str(byte) for byte in _raw(value))


def _raw(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _parts(value: str) -> set[str]:
    """What of a secret is one by itself: without white space, normalised, its lines, and what it is put together of."""
    bare = value.strip()
    found = {bare, bare.lstrip("0") if bare.isdecimal() else bare}
    found |= {unicodedata.normalize(form, bare) for form in ("NFC", "NFD", "NFKC")}
    if "\n" in bare:
        found |= {line.strip() for line in bare.splitlines() if len(line.strip()) >= LINE}
    scheme = _SCHEME.fullmatch(bare)  # Bearer TOKEN
    named = "" if "://" in bare else bare.partition(":")[2]  # NAME:PASSWORD
    address = bare.partition("://")[2].partition("/")[0].rpartition("@")[0].partition(":")[2]
    inner = [scheme[1] if scheme else "", named if re.fullmatch(r"\S+", bare) else "", address, unquote(address)]
    return {part for part in found if len(part) >= SHORTEST} - {value} | {one for one in inner if len(one) >= PART}


def _written(value: str) -> set[str]:
    """As texts of formats and languages write it."""
    raw = _raw(value)
    escaped = json.dumps(value)[1:-1]
    quoted = {quote(raw, safe=""), quote(raw), quote_plus(raw), "".join(f"%{byte:02X}" for byte in raw)}
    return {
        value,
        *quoted,
        *(quote(one, safe="") for one in quoted),
        json.dumps(value, ensure_ascii=False)[1:-1],
        escaped,
        escaped.replace("/", "\\/"),
        escaped.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"),
        repr(value)[1:-1],
        repr(raw)[2:-1],
        value.replace('"', '""'),
        html.escape(value, quote=False),
        html.escape(value).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
        quopri.encodestring(raw).decode("ascii", "replace").replace("=\n", ""),
    }


def _nested(text: str, depth: int) -> set[str]:
    """A text as it is, and as it is written within others, `depth` deep."""
    found = {text}
    for _ in range(depth):
        found |= {write(one) for one in found for write in _NESTED}
    return found


def _encoded(value: str, *, again: bool) -> set[str]:
    """As bytes and letters are encoded, in base64 `again` if so."""
    raw = _raw(value)
    found = {
        value[::-1],
        "\0".join(value),
        "".join(f"\\u{ord(letter):04x}" for letter in value if ord(letter) < 0x10000),
        "".join(f"&#{ord(letter)};" for letter in value),
        "".join(f"&#x{ord(letter):x};" for letter in value),
        "".join(f"\\x{byte:02x}" for byte in raw),
        as_numbers(value),
        as_numbers(value).replace(",", ", "),
        base64.b32encode(raw).decode().rstrip("="),
    }
    for text in (raw.hex(), raw.hex(" "), raw.hex(":")):
        found |= {text, text.upper()}
    once = {*_in_base64(raw)}
    twice = {form for inner in (once if again else ()) for form in _in_base64(inner.encode())}
    wide = {form for order in ("le", "be") for form in _in_base64(value.encode(f"utf-16-{order}", "surrogatepass"))}
    once |= wide | twice
    return found | once | {quote(one, safe="") for one in once} | {one.replace("/", "\\/") for one in once}


def _in_base64(raw: bytes) -> Iterator[str]:
    """How bytes look in base64 wherever they begin in what is encoded: the letters that depend on nothing else."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(raw).decode()
        for before in range(3):
            whole = encode(b"\0" * before + raw).decode().rstrip("=")
            first = (before * 8 + 5) // 6
            last = (before + len(raw)) * 8 // 6
            if last - first > SHORTEST:
                yield whole[first:last]
